// Package simulator runs alertworker without Azure: simulated devices publish to a hub
// in memory, workers read it, a receiver takes their alerts, and package verify compares
// both ends and says whether the promise held. The workers run in this process, on
// stores in memory; or each in a process of its own, on emulators of Azure, where they can
// be killed.
package simulator

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"alertworker/internal/backoff"
	"alertworker/internal/lab/console"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/devhub/devices"
	"alertworker/internal/lab/inbox"
	"alertworker/internal/lab/verify"
	"alertworker/internal/notify"
)

const (
	maxReplicas = 16
	maxPort     = 65535 - maxReplicas

	tickEvery   = 100 * time.Millisecond // between two checks of the workers
	leaderEvery = time.Second            // between two questions who leads
	shortly     = time.Second            // settling that takes longer is announced
	receiverID  = "inbox"                // the name of the receiver in the report
	clearBelow  = 2                      // degrees
	longestWait = 10 * time.Second       // windows up to this are waited for at the end
	longest     = 24 * time.Hour         // of any duration that rules have
	busyProof   = 5 * time.Second        // until the next event of a partition proves silence
	idleProof   = 30 * time.Second       // until the hub's answer does
)

// stores are what --store may be; the first is the default.
var stores = []string{"blob", "blob-lease", "cosmos"}

// Options are the flags of a simulation: see Define and Check.
type Options struct {
	Threshold float64
	Window    time.Duration
	Silent    time.Duration // after how long a device is silent; 0: never
	Processes bool          // workers are processes

	duration time.Duration
	devices  int
	rate     float64
	replicas int
	seed     uint64

	store string // the rest is for processes
	kill  time.Duration
	port  int

	source *devices.Fleet
}

// Clear returns below what a device is normal again.
func (o *Options) Clear() float64 { return o.Threshold - clearBelow }

// Define adds the flags.
func (o *Options) Define(flags *flag.FlagSet) {
	flags.DurationVar(&o.duration, "for", 0, "stop by itself after this `DURATION`, such as 30s; 0: on Ctrl-C")
	flags.IntVar(&o.devices, "devices", 25, "`NUMBER` of simulated devices")
	flags.Float64Var(&o.rate, "rate", 50, "`READINGS` per second, of all devices together")
	flags.IntVar(&o.replicas, "replicas", 2, "`NUMBER` of workers")
	flags.Float64Var(&o.Threshold, "threshold", 30, "alert at or above this `TEMPERATURE`")
	flags.DurationVar(
		&o.Silent,
		"silent",
		0,
		"some devices die and come back: alert when one has sent nothing for this `DURATION`; 0: none dies",
	)

	flags.DurationVar(&o.Window, "window", time.Minute, "minimum `DURATION` between two alerts for a device")
	flags.Uint64Var(&o.seed, "seed", 0, "`NUMBER` that makes the simulation repeatable; 0: a new one each time")
	flags.BoolVar(
		&o.Processes,
		"processes",
		false,
		"run each worker as a process, on Azure's emulators: needs Node.js, and the repository's directory; keys 1 to 9 "+
			"kill workers",
	)

	flags.StringVar(
		&o.store,
		"store",
		stores[0],
		"with --processes, the `STORE` that keeps windows: blob, blob-lease or cosmos",
	)

	flags.DurationVar(
		&o.kill,
		"kill",
		0,
		"with --processes, kill -9 a worker every `DURATION`, but never the last one; 0: only by hand",
	)

	flags.IntVar(
		&o.port,
		"http",
		0,
		"with --processes, `PORT` of the first worker's status page; the others have the next ones; 0: any",
	)
}

// Check returns what is wrong with the flags, and opens the source of telemetry.
func (o *Options) Check() error {
	if err := o.checkFlags(); err != nil {
		return err
	}

	if err := o.checkProcesses(); err != nil {
		return err
	}

	source, err := devices.New(devices.Config{
		Devices:   o.devices,
		Rate:      o.rate,
		Threshold: o.Threshold,
		Seed:      cmp.Or(o.seed, rand.Uint64()),
		Silent:    o.Silent,
	})
	if err != nil {
		return err
	}

	o.source = source

	if o.Silent == 0 {
		return nil
	}

	return o.checkSilent()
}

// within reports whether a value is in a range, which both of its ends belong to.
func within[T cmp.Ordered](value, least, most T) bool {
	return least <= value && value <= most
}

// checkFlags returns what is wrong with the flags that need nothing else.
func (o *Options) checkFlags() error {
	switch {
	case !within(o.replicas, 1, maxReplicas):
		return fmt.Errorf("--replicas %d: want 1 to %d", o.replicas, maxReplicas)
	case o.Window < time.Second:
		return fmt.Errorf("--window %v: want at least 1s", o.Window)
	case o.duration < 0:
		return fmt.Errorf("--for %v: want 0 or more", o.duration)
	case o.kill < 0:
		return fmt.Errorf("--kill %v: want 0 or more", o.kill)
	}

	return nil
}

// checkProcesses returns what is wrong with the flags that need --processes, and with its window.
func (o *Options) checkProcesses() error {
	lasts := within(o.Window, 15*time.Second, time.Minute) // as long as a native lease may

	switch {
	case !slices.Contains(stores, o.store):
		return fmt.Errorf("--store %q: want blob, blob-lease or cosmos", o.store)
	case o.store == "blob-lease" && !lasts:
		return fmt.Errorf("--window %v: a blob-lease lasts 15s to 1m", o.Window)
	case !within(o.port, 0, maxPort):
		return fmt.Errorf("--http %d: want 1 to %d, or 0", o.port, maxPort)
	case o.Processes:
		return o.checkTakeover()
	case o.kill > 0, o.store != stores[0], o.port > 0:
		return errors.New("--kill, --store and --http need --processes")
	}

	return nil
}

// checkTakeover returns what is wrong with a window during which a worker may be killed.
func (o *Options) checkTakeover() error {
	if within(o.Window, minWindow, longest) {
		return nil
	}

	return fmt.Errorf("--window %v: want %v to 24h with --processes, more than a takeover takes", o.Window, minWindow)
}

// checkSilent returns what is wrong with --silent.
func (o *Options) checkSilent() error {
	round := time.Duration(float64(o.devices) / o.rate * float64(time.Second))
	least := 5 * time.Second

	if o.Processes {
		least = time.Minute // as in RULES_FILE
	}

	switch {
	case !within(o.Silent, least, longest):
		return fmt.Errorf("--silent %v: want %v to 24h", o.Silent, least)
	case o.Silent < 5*round:
		return fmt.Errorf("--silent %v: devices report every %v; want at least five times that", o.Silent, round)
	case o.devices < 8:
		return fmt.Errorf("--silent %v: want at least 8 --devices, one of which dies", o.Silent)
	}

	return nil
}

// A World is what the workers are connected to.
type World struct {
	Hub       string // connection string
	NotifyURL string
	Secret    string // NOTIFY_WEBHOOK_SECRET
	Log       io.Writer
}

// A Worker is one replica. One goroutine calls its methods.
type Worker interface {
	Page() string      // address of its status page
	Ended() bool       // whether it has ended
	Unexpected() error // why it ended by itself
	Stop() error       // hands over its partitions and waits until it has
	Kill()             // ends it as soon as possible
}

// Start starts the worker of that name, the i-th.
type Start func(w World, name string, i int) (Worker, error)

// Run simulates until ctx ends, a key stops it or the duration is over, waits for the
// last alerts, and prints the report: whether the promise held, by what was published
// and what the receiver got. Nothing of it runs when it returns. Workers in this
// process are started by start. An error means that the simulation was cut short.
func Run(ctx context.Context, o Options, start Start, in io.Reader, out *os.File) (verify.Report, error) {
	options := console.Detect(out, os.Getenv)
	options.Threshold = o.Threshold
	options.Silent = o.Silent > 0

	// In this process windows last as long as they should, and no worker is killed.
	judged := verify.Rules{
		Window:    o.Window,
		Bound:     15 * time.Second,
		Proof:     busyProof,
		Slack:     time.Second,
		Receivers: []string{receiverID},
	}

	var emulated *processes
	if o.Processes {
		// To the kernel a child's parent is a thread, and children are to end with it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()

		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // an error like any other: children are stopped
		fmt.Fprintln(out, "starting the emulators …")
		var err error

		emulated, err = newProcesses(ctx, o)
		switch {
		case err != nil && ctx.Err() != nil:
			return verify.Report{}, nil // stopped while starting
		case err != nil:
			return verify.Report{}, err
		}
		defer emulated.kill()

		restore, err := takeKeys(in, options.Live)
		if err != nil {
			return verify.Report{}, err
		}
		defer restore()

		start = emulated.start
		judged.Bound = alertBound
		judged.Proof = idleProof
		judged.Slack = claim + 2*time.Second
	}

	view := console.New(out, options)
	defer view.Close()
	hub, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "telemetry", Partitions: max(4, 2*o.replicas)})
	if err != nil {
		return verify.Report{}, err
	}
	defer hub.Close()

	s := &simulation{
		Options:   o,
		view:      view,
		hub:       hub,
		rules:     judged,
		processes: emulated,
		verifyLog: verify.NewLog(o.rules()...),
	}

	receiver, err := inbox.Listen(s.delivered)
	if err != nil {
		return verify.Report{}, err
	}
	defer receiver.Close()

	s.inbox = receiver
	world := World{
		Hub:       hub.ConnectionString(),
		NotifyURL: receiver.URL,
		Secret:    receiver.Secret,
		Log:       view,
	}

	s.workers = newWorkers(o.replicas, view, func(name string, i int) (Worker, error) { return start(world, name, i) })
	defer s.workers.kill()
	if err := s.workers.start(); err != nil {
		return verify.Report{}, err
	}

	fmt.Fprintf(view, "%s\n%s\n", s.describe(), s.workers.pages())
	if o.Processes {
		fmt.Fprintf(view, "windows in %s; HTTP_ADMIN_TOKEN=%s\n", o.store, adminToken)
	}

	fmt.Fprintf(
		view,
		"send a reading: curl -H 'Authorization: Bearer %s' -d '{\"temperature\": %v}' http://%s/devices/my-oven/telemetry\n",
		IngestToken,
		o.Threshold+1,
		s.workers.members[0].worker.Page(),
	)

	fmt.Fprintln(view)

	if err := s.run(ctx, in); err != nil {
		return verify.Report{}, err // a simulation that was cut short proves nothing
	}

	err = s.workers.stop()
	s.rules.Until = time.Now()
	if err := view.Close(); err != nil {
		return verify.Report{}, err
	}

	report := s.verifyLog.Check(s.rules)
	view.Summary(report)

	return report, err
}

// A simulation is what happens while everything runs.
type simulation struct {
	Options
	view      *console.Console
	hub       *devhub.Hub
	workers   *workers
	processes *processes // nil if the workers are in this one
	rules     verify.Rules

	inbox    *inbox.Server
	refusing bool // the inbox does

	verifyLog *verify.Log
	known     sync.Map // devices that have published
}

// describe says what is simulated.
func (s *simulation) describe() string {
	text := fmt.Sprintf(
		"%d devices, %v readings a second, %d workers; alerts from %v°",
		s.devices,
		s.rate,
		s.replicas,
		s.Threshold,
	)

	text += fmt.Sprintf(", ovens from %v°, one per device in %v; normal again below %v°",
		s.Threshold+devices.OvensBear, s.Window, s.Clear())

	if s.Silent > 0 {
		text += fmt.Sprintf("; silent after %v", s.Silent)
	}

	return text
}

// Offline is the name of the rule about silence.
const Offline = "offline"

// rules returns what the workers decide by, for the judge.
func (o *Options) rules() []verify.Rule {
	all := []verify.Rule{{
		Name: notify.DefaultRule,
		Levels: []verify.Level{{
			Limit:    o.Threshold,
			Clear:    o.Clear(),
			Override: devices.MaxTemp,
		}},
		Window:   o.Window,
		Resolved: true,
		Quiet:    devices.Quiet,
	}}

	if o.Silent > 0 {
		all = append(
			all,
			verify.Rule{
				Name:     Offline,
				Silent:   o.Silent,
				Levels:   []verify.Level{{}},
				Window:   o.Window,
				Resolved: true,
				Quiet:    devices.Quiet,
			},
		)
	}

	return all
}

// publish publishes m to the hub, and records and shows it.
func (s *simulation) publish(ctx context.Context, m devices.Message) error {
	s.known.Store(m.Device, true)
	at, err := s.hub.Publish(m.Message)
	if err != nil {
		return err
	}

	over := s.verifyLog.Published(
		verify.Reading{
			Device:      m.Device,
			Temperature: m.Temperature,
			At:          at.Enqueued,
			Partition:   at.Partition,
			Sequence:    at.Sequence,
			Properties:  texts(m.Properties),
			ByHub:       m.Source != devices.Telemetry,
		},
	)

	if !math.IsNaN(m.Temperature) {
		s.view.Reading(m.Device, m.Temperature, over)
	}

	return nil
}

// texts returns the properties that are texts, as those of an IoT Hub are.
func texts(properties map[string]any) map[string]string {
	all := make(map[string]string, len(properties))
	for name, value := range properties {
		if s, ok := value.(string); ok {
			all[name] = s
		}
	}

	return all
}

// delivered shows an alert, and records it if it is about a device that has published.
// Other alerts come from people who try the HTTP trigger, and may start windows.
func (s *simulation) delivered(d inbox.Delivery) {
	if _, known := s.known.Load(d.Alert.Device); known {
		s.verifyLog.Delivered(verify.Delivery{
			Deadline:  d.Alert.Enqueued,
			Device:    d.Alert.About(),
			ID:        d.Alert.ID,
			Token:     d.Alert.Token,
			At:        d.At,
			Receiver:  receiverID,
			Rule:      d.Alert.Rule,
			Level:     d.Alert.Level,
			Recovery:  d.Alert.Resolved,
			Refused:   d.Refused,
			Partition: d.Alert.Partition,
			Sequence:  d.Alert.Sequence,
		})
	}

	switch {
	case d.Refused:
		s.view.Event(d.Alert.Replica, "refused: "+d.Alert.Device)
	case d.Dropped:
		s.view.Event(d.Alert.Replica, "again: "+d.Alert.Device)
	default:
		s.view.Alert(d.Alert, d.At.Sub(d.Alert.Enqueued))
	}
}

// run has the devices publish until it is stopped, and then waits until every reading
// that needs an alert has one, for rules.Bound at most, or until it is stopped again.
func (s *simulation) run(ctx context.Context, in io.Reader) error {
	var running sync.WaitGroup
	defer running.Wait()

	publishing, stopPublishing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPublishing()

	published := make(chan error, 1)
	running.Go(func() { published <- s.publishAll(publishing) })

	var keys <-chan byte
	var leaders chan string
	if s.processes != nil {
		keys = readKeys(publishing, in)
		leaders = make(chan string)
		running.Go(func() { s.watchLeader(publishing, leaders) })
		s.show(false)
	}

	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()

	stopped := ctx.Done()
	over := after(s.duration)
	var kills <-chan time.Time
	if s.kill > 0 {
		kills = time.Tick(s.kill)
	}

	var e ending
	for {
		var err error
		stop := false

		select {
		case <-ticker.C:
			err = s.tick(ctx, e.begun())
			if err == nil && s.settled(&e) {
				return nil
			}

		case <-kills:
			if !e.begun() {
				err = s.workers.killAny()
			}

		case name := <-leaders:
			s.workers.updateLeader(name)

		case key := <-keys:
			stop, err = s.press(key)

		case <-over:
			stop = true

		case <-stopped:
			stop = true
			again, restore := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGINT, syscall.SIGTERM)
			defer restore()
			stopped = again.Done()

		case err = <-published: // comes once
			e.quiet = true
			stop = !e.begun()
		}

		switch {
		case err != nil:
			return err

		case stop && e.begun():
			return nil

		case stop:
			stopPublishing()
			e.began = time.Now()
			over = nil
		}
	}
}

// publishAll has the devices publish until ctx ends, which is no error.
func (s *simulation) publishAll(ctx context.Context) error {
	err := s.source.Run(ctx, s.publish)
	if ctx.Err() != nil {
		return nil
	}

	return err
}

// after returns a channel on which something comes once d is over, nil if d is 0.
func after(d time.Duration) <-chan time.Time {
	if d == 0 {
		return nil
	}

	return time.After(d)
}

// press does what a key is for, and reports whether it is to stop.
func (s *simulation) press(key byte) (stop bool, err error) {
	switch key {
	case 'q', ctrlC:
		return true, nil

	case '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return false, s.workers.toggle(int(key - '1'))

	case 'r':
		s.refusing = !s.refusing
		s.inbox.Refuse(s.refusing)
		text := "the receiver takes alerts again"
		if s.refusing {
			text = "the receiver refuses alerts: they become dead letters"
		}

		fmt.Fprintln(s.view, text)
	}

	return false, nil
}

// An ending is how far a simulation has come with ending.
type ending struct {
	began     time.Time // when the devices were stopped; zero before that
	quiet     bool      // the devices publish nothing more
	announced bool
}

func (e *ending) begun() bool { return !e.began.IsZero() }

// settled reports whether nothing more is to be waited for. If that takes long, it says once what is waited for.
func (s *simulation) settled(e *ending) bool {
	if !e.begun() {
		return false
	}

	waited := time.Since(e.began)
	if waited > s.rules.Bound {
		return true
	}

	if e.quiet && s.informed(e.began) {
		return true
	}

	if waited > shortly && !e.announced {
		e.announced = true
		fmt.Fprintln(s.view, "devices stopped; waiting for the last alerts")
	}

	return false
}

// informed reports whether the receiver has got all that is to be waited for since the devices were stopped: recoveries
// only if the window is short, and nothing about silence that was not due then.
func (s *simulation) informed(stopped time.Time) bool {
	report := s.verifyLog.Check(s.rules)
	missing := report.Lost
	if s.Window <= longestWait {
		missing = slices.Concat(report.Lost, report.Stale)
	}

	due := func(v verify.Violation) bool { return v.At.Before(stopped) }

	return !slices.ContainsFunc(missing, due)
}

// watchLeader asks which worker leads, every second until ctx ends, and sends its name.
func (s *simulation) watchLeader(ctx context.Context, names chan<- string) {
	for {
		name := s.processes.leader(ctx)

		select {
		case names <- name:
		case <-ctx.Done():
			return
		}

		if !backoff.Sleep(ctx, leaderEvery) {
			return
		}
	}
}

// tick checks and shows the workers.
func (s *simulation) tick(ctx context.Context, settling bool) error {
	if s.processes != nil {
		outage, err := s.processes.tend(context.WithoutCancel(ctx), s.view)
		if err != nil {
			return err
		}

		s.rules.Bound += outage // alerts waited for it
		s.workers.updateOwners(s.hub.Owners())
		s.show(settling)
	}

	if err := s.workers.restartDue(); err != nil {
		return err
	}

	return s.view.Err()
}

// show shows the workers and what keys do.
func (s *simulation) show(settling bool) {
	hint := fmt.Sprintf(
		"1-%d: kill -9, again: back   r: receiver refuses   q: stop   +3: readings suppressed before",
		min(9, s.replicas),
	)

	if settling {
		hint = "devices stopped; waiting for the last alerts (q again: at once)"
	}

	s.view.Show(s.workers.states(), hint)
}
