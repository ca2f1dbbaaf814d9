// Package simulator runs alertworker without Azure: simulated devices publish to a hub
// in memory, workers read it, a receiver takes their alerts, and package verify compares
// both ends and says whether the promise held. All of it runs in this process, on stores in memory.
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
	"slices"
	"sync"
	"syscall"
	"time"

	"alertworker/internal/lab/console"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/devhub/devices"
	"alertworker/internal/lab/inbox"
	"alertworker/internal/lab/verify"
	"alertworker/internal/notify"
)

const (
	maxReplicas = 16

	tickEvery   = 100 * time.Millisecond // between two checks of the workers
	shortly     = time.Second            // settling that takes longer is announced
	receiverID  = "inbox"                // the name of the receiver in the report
	clearBelow  = 2                      // degrees
	longestWait = 10 * time.Second       // windows up to this are waited for at the end
	longest     = 24 * time.Hour         // of any duration that rules have
	busyProof   = 5 * time.Second        // until the next event of a partition proves silence
)

// IngestToken is the workers' HTTP_INGEST_TOKEN. It is not secret: they listen on loopback.
const IngestToken = "readings-on-this-machine"

// Options are the flags of a simulation: see Define and Check.
type Options struct {
	Threshold float64
	Window    time.Duration
	Silent    time.Duration // after how long a device is silent; 0: never

	duration time.Duration
	devices  int
	rate     float64
	replicas int
	seed     uint64

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
}

// Check returns what is wrong with the flags, and opens the source of telemetry.
func (o *Options) Check() error {
	if err := o.checkFlags(); err != nil {
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
	}

	return nil
}

// checkSilent returns what is wrong with --silent.
func (o *Options) checkSilent() error {
	round := time.Duration(float64(o.devices) / o.rate * float64(time.Second))
	switch {
	case !within(o.Silent, 5*time.Second, longest):
		return fmt.Errorf("--silent %v: want 5s to 24h", o.Silent)
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

// A Worker is one replica.
type Worker interface {
	Page() string           // address of its status page
	Ended() <-chan struct{} // closed when it has ended
	Stop() error            // hands over its partitions and waits until it has ended; it returns why it ended by itself
}

// Start starts the worker of that name.
type Start func(w World, name string) (Worker, error)

// Run simulates until ctx ends or the duration is over, waits for the
// last alerts, and prints the report: whether the promise held, by what was published
// and what the receiver got. Nothing of it runs when it returns. Workers are started by start. An error means that the
// simulation was cut short.
func Run(ctx context.Context, o Options, start Start, out *os.File) (report verify.Report, err error) {
	options := console.Detect(out, os.Getenv)
	options.Threshold = o.Threshold
	options.Silent = o.Silent > 0

	judged := verify.Rules{
		Window:    o.Window,
		Bound:     15 * time.Second,
		Proof:     busyProof,
		Slack:     time.Second,
		Receivers: []string{receiverID},
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
		verifyLog: verify.NewLog(o.rules()...),
	}

	receiver, err := inbox.Listen(s.delivered)
	if err != nil {
		return verify.Report{}, err
	}
	defer receiver.Close()

	world := World{
		Hub:       hub.ConnectionString(),
		NotifyURL: receiver.URL,
		Secret:    receiver.Secret,
		Log:       view,
	}

	pages := "status pages:"
	for i := range o.replicas {
		w, err := start(world, fmt.Sprint("w", i+1))
		if err != nil {
			return verify.Report{}, err
		}
		defer func() { _ = w.Stop() }()

		s.workers = append(s.workers, w)
		pages += " http://" + w.Page()
	}

	fmt.Fprintf(view, "%s\n%s\n", s.describe(), pages)
	fmt.Fprintf(
		view,
		"send a reading: curl -H 'Authorization: Bearer %s' -d '{\"temperature\": %v}' http://%s/devices/my-oven/telemetry\n",
		IngestToken,
		o.Threshold+1,
		s.workers[0].Page(),
	)

	fmt.Fprintln(view)

	if err := s.run(ctx); err != nil {
		return verify.Report{}, err // a simulation that was cut short proves nothing
	}

	err = s.stop()
	s.rules.Until = time.Now()
	if err := view.Close(); err != nil {
		return verify.Report{}, err
	}

	report = s.verifyLog.Check(s.rules)
	view.Summary(report)

	return report, err
}

// A simulation is what happens while everything runs.
type simulation struct {
	Options
	view      *console.Console
	hub       *devhub.Hub
	workers   []Worker
	rules     verify.Rules
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
			Partition: d.Alert.Partition,
			Sequence:  d.Alert.Sequence,
		})
	}

	if d.Dropped {
		s.view.Event(d.Alert.Replica, "again: "+d.Alert.Device)
		return
	}

	s.view.Alert(d.Alert, d.At.Sub(d.Alert.Enqueued))
}

// run has the devices publish until it is stopped, and then waits until every reading
// that needs an alert has one, for rules.Bound at most, or until it is stopped again.
func (s *simulation) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()

	publishing, stopPublishing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPublishing()

	published := make(chan error, 1)
	running.Go(func() { published <- s.publishAll(publishing) })

	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()

	stopped := ctx.Done()
	over := after(s.duration)

	var e ending
	for {
		var err error
		stop := false

		select {
		case <-ticker.C:
			err = s.tick()
			if err == nil && s.settled(&e) {
				return nil
			}

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

// tick returns an error if a worker has ended by itself, or nobody can read what is shown.
func (s *simulation) tick() error {
	for _, w := range s.workers {
		select {
		case <-w.Ended():
			return fmt.Errorf("a worker has ended by itself: %w", cmp.Or(w.Stop(), errEnded))
		default:
		}
	}

	return s.view.Err()
}

var errEnded = errors.New("nothing says why")

// stop asks all workers to hand over their partitions, and waits until they have.
func (s *simulation) stop() error {
	errs := make([]error, len(s.workers))
	var stopping sync.WaitGroup
	for i, w := range s.workers {
		stopping.Go(func() { errs[i] = w.Stop() })
	}

	stopping.Wait()

	return errors.Join(errs...)
}
