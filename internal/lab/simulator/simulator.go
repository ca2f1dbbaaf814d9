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
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
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
	Window time.Duration

	threshold float64
	silent    time.Duration // after how long a device is silent; 0: never
	duration  time.Duration
	devices   int
	rate      float64
	replicas  int
	seed      uint64

	source *devices.Fleet
}

// Define adds the flags.
func (o *Options) Define(flags *flag.FlagSet) {
	flags.DurationVar(&o.duration, "for", 0, "stop by itself after this `DURATION`, such as 30s; 0: on Ctrl-C")
	flags.IntVar(&o.devices, "devices", 25, "`NUMBER` of simulated devices")
	flags.Float64Var(&o.rate, "rate", 50, "`MESSAGES` per second, of all devices together")
	flags.IntVar(&o.replicas, "replicas", 2, "`NUMBER` of workers")
	flags.Float64Var(&o.threshold, "threshold", 30, "alert at or above this `TEMPERATURE`")
	flags.DurationVar(
		&o.silent,
		"silent",
		0,
		"some devices die and come back: alert when one has sent nothing for this `DURATION`; 0: none dies",
	)

	flags.DurationVar(&o.Window, "window", time.Minute, "minimum `DURATION` between two alerts for a device")
	flags.Uint64Var(&o.seed, "seed", 0, "`NUMBER` that makes the simulation repeatable; 0: a new one each time")
}

// Check returns what is wrong with the flags, and opens the source of telemetry.
func (o *Options) Check() (err error) {
	o.source, err = devices.New(devices.Config{
		Devices:   o.devices,
		Rate:      o.rate,
		Threshold: o.threshold,
		Seed:      cmp.Or(o.seed, rand.Uint64()),
		Silent:    o.silent,
	})
	if err != nil {
		return err
	}

	round := time.Duration(float64(o.devices) / o.rate * float64(time.Second))
	switch {
	case o.replicas < 1 || o.replicas > maxReplicas:
		return fmt.Errorf("--replicas %d: want 1 to %d", o.replicas, maxReplicas)
	case o.Window < time.Second:
		return fmt.Errorf("--window %v: want at least 1s", o.Window)
	case o.duration < 0:
		return fmt.Errorf("--for %v: want 0 or more", o.duration)
	case o.silent == 0:
		return nil
	case o.silent < 5*time.Second || o.silent > longest:
		return fmt.Errorf("--silent %v: want 5s to 24h", o.silent)
	case o.silent < 5*round:
		return fmt.Errorf("--silent %v: devices report every %v; want at least five times that", o.silent, round)
	case o.devices < 8:
		return fmt.Errorf("--silent %v: want at least 8 --devices, one of which dies", o.silent)
	}

	return nil
}

// Names of rules beside that about the temperature of devices.
const (
	ofSensors = "sensors"
	offline   = "offline"
)

// Rules returns what the workers decide by: whether a device is hot, or one of its sensors, or silent.
func (o *Options) Rules() rules.Set {
	hot := rules.Threshold(telemetry.DefaultFields, o.threshold, o.Window).Rules[0]
	hot.Resolved = true
	hot.Levels[0].Clear -= clearBelow
	hot.Levels[0].LimitAt = rules.Reference{Name: devices.MaxTemp}

	sensors := hot
	sensors.Name = ofSensors
	sensors.Each = devices.Array
	sensors.Sensor = []string{devices.Sensor}

	set := rules.Set{
		Rules: []rules.Rule{hot, sensors},
		Mutes: rules.Mutes{{Property: devices.Quiet, Value: "true"}},
	}

	if o.silent > 0 {
		set.Rules = append(set.Rules, rules.Rule{
			Name:     offline,
			Window:   o.Window,
			Resolved: true,
			Forget:   rules.DefaultForget,
			Silent:   o.silent,
			Levels:   []rules.Level{{}},
		})
	}

	return set
}

// judged returns the same rules as the judge has them.
func (o *Options) judged() []verify.Rule {
	hot := verify.Rule{
		Name:     rules.DefaultName,
		Levels:   []verify.Level{{Limit: o.threshold, Clear: o.threshold - clearBelow, Override: devices.MaxTemp}},
		Window:   o.Window,
		Resolved: true,
		Quiet:    devices.Quiet,
	}

	sensors := hot
	sensors.Name = ofSensors
	sensors.Sensor = true

	all := []verify.Rule{hot, sensors}
	if o.silent > 0 {
		silence := hot
		silence.Name = offline
		silence.Levels = []verify.Level{{}}
		silence.Silent = o.silent
		all = append(all, silence)
	}

	return all
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
	judged := verify.Rules{
		Window:    o.Window,
		Bound:     15 * time.Second,
		Proof:     busyProof,
		Slack:     time.Second,
		Receivers: []string{receiverID},
	}

	view := console.New(out, console.Options{
		Color:     console.HasColors(out, os.Getenv),
		Threshold: o.threshold,
		Silent:    o.silent > 0,
	})
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
		verifyLog: verify.NewLog(o.judged()...),
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
		o.threshold+1,
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
		"%d devices, one in four with two sensors, %v messages a second, %d workers; alerts from %v°, "+
			"ovens from %v°, one per device or sensor in %v; normal again below %v°",
		s.devices,
		s.rate,
		s.replicas,
		s.threshold,
		s.threshold+devices.OvensBear,
		s.Window,
		s.threshold-clearBelow,
	)

	if s.silent > 0 {
		text += fmt.Sprintf("; silent after %v", s.silent)
	}

	return text
}

// publish publishes m to the hub, and records and counts its readings.
func (s *simulation) publish(ctx context.Context, m devices.Message) error {
	s.known.Store(m.Device, true)
	at, err := s.hub.Publish(m.Message)
	if err != nil {
		return err
	}

	for _, r := range m.Readings(at) {
		over := s.verifyLog.Published(r)
		if !math.IsNaN(r.Temperature) {
			s.view.Reading(over)
		}
	}

	return nil
}

// delivered shows an alert, and records it if it is about a device that has published.
// Other alerts come from people who try the HTTP trigger, and may start windows.
func (s *simulation) delivered(d inbox.Delivery) {
	if _, known := s.known.Load(d.Alert.Device); known {
		s.verifyLog.Delivered(verify.Delivery{
			Deadline:  d.Alert.Enqueued,
			Device:    d.Alert.About(),
			Sensor:    d.Alert.Sensor,
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
		s.view.Event(d.Alert.Replica, "again: "+d.Alert.From().String())
		return
	}

	s.view.Alert(d.Alert, d.At.Sub(d.Alert.Enqueued))
}

// run has the devices publish until ctx ends or the duration is over, and then waits for the last alerts.
func (s *simulation) run(ctx context.Context) error {
	publishing, stop := context.WithCancel(ctx)
	if s.duration > 0 {
		publishing, stop = context.WithTimeout(ctx, s.duration)
	}

	var running sync.WaitGroup
	defer running.Wait()
	defer stop()

	published := make(chan error, 1)
	running.Go(func() { published <- s.source.Run(publishing, s.publish) })

	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()

	for {
		select {
		case <-ticker.C:
			if err := s.tick(); err != nil {
				return err
			}

		case err := <-published:
			if err != nil {
				return err
			}
			return s.settle(context.WithoutCancel(ctx), ticker.C)
		}
	}
}

// settle waits until every reading that needs an alert has one, for rules.Bound at most, or until it is stopped. If that
// takes long, it says what it waits for.
func (s *simulation) settle(ctx context.Context, ticks <-chan time.Time) error {
	ctx, restore := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer restore()

	stopped := time.Now()
	announced := false
	for time.Since(stopped) <= s.rules.Bound && !s.informed(stopped) {
		if time.Since(stopped) > shortly && !announced {
			announced = true
			fmt.Fprintln(s.view, "devices stopped; waiting for the last alerts")
		}

		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}

		if err := s.tick(); err != nil {
			return err
		}
	}

	return nil
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
