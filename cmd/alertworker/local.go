package main

import (
	"context"
	"errors"
	"fmt"
	randv2 "math/rand/v2"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"alertworker/internal/audit"
	"alertworker/internal/console"
	"alertworker/internal/devhub"
	"alertworker/internal/devhub/devices"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify/inbox"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/ownership"
)

// localSettle is how long local mode waits, when the devices have stopped, for
// the last alerts to arrive.
const localSettle = 15 * time.Second

// localOptions are the flags of `alertworker local`.
type localOptions struct {
	duration  time.Duration
	devices   int
	rate      float64
	replicas  int
	replay    string
	speed     float64
	threshold float64
	window    time.Duration
	seed      uint64
}

func parseLocal(args []string) (localOptions, error) {
	var o localOptions
	flags := newFlags("local", "the whole thing on this machine, without Azure: devices, hub, workers and a receiver")
	flags.DurationVar(&o.duration, "for", 0, "stop by itself after this `DURATION`, such as 30s; 0: on Ctrl-C")
	flags.IntVar(&o.devices, "devices", 25, "`NUMBER` of simulated devices")
	flags.Float64Var(&o.rate, "rate", 50, "`READINGS` per second, of all devices together")
	flags.IntVar(&o.replicas, "replicas", 2, "`NUMBER` of workers")
	flags.StringVar(&o.replay, "replay", "", "instead of simulated devices, the readings of `FILE.csv`: timestamp,value or timestamp,device,value")
	speed := flags.String("speed", "1", "of the replay, in `TIMES` real time; max: as fast as possible")
	flags.Float64Var(&o.threshold, "threshold", 30, "alert at or above this `TEMPERATURE`")
	flags.DurationVar(&o.window, "window", time.Minute, "`DURATION` without a second alert of one device")
	flags.Uint64Var(&o.seed, "seed", 0, "`NUMBER` that makes the simulation repeatable; 0: a new one each time")
	if err := parseFlags(flags, args); err != nil {
		return o, err
	}
	if o.seed == 0 {
		o.seed = randv2.Uint64()
	}
	var err error
	if o.speed, err = devices.ParseSpeed(*speed); err != nil {
		return o, &usageError{fmt.Errorf("--speed: %w", err)}
	}
	switch {
	case o.replicas < 1 || o.replicas > 16:
		err = fmt.Errorf("--replicas %d: want 1 to 16", o.replicas)
	case o.window < time.Second:
		err = fmt.Errorf("--window %v: want at least 1s", o.window)
	case o.duration < 0:
		err = fmt.Errorf("--for %v: want 0 or more", o.duration)
	}
	if err != nil {
		return o, &usageError{err}
	}
	return o, nil
}

// A fleet is what sends telemetry in local mode.
type fleet interface {
	Run(ctx context.Context, publish func(context.Context, devices.Message) error) error
}

// local is `alertworker local`. Everything in it is real but the devices: AMQP
// and HTTP go over loopback sockets. It fails if an alert was lost or came too
// early, judged by what was published and what the receiver got.
func local(ctx context.Context, args []string) error {
	o, err := parseLocal(args)
	if err != nil {
		return err
	}
	source, err := o.fleet()
	if err != nil {
		return &usageError{err}
	}

	options := console.Detect(os.Stdout, os.Getenv)
	options.Threshold = o.threshold
	view := console.New(os.Stdout, options)
	defer view.Close()
	judge := &audit.Log{}

	hub, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "telemetry"})
	if err != nil {
		return err
	}
	defer hub.Close()
	receiver, err := inbox.Listen(func(d inbox.Delivery) {
		judge.Delivered(audit.Delivery{Device: d.Alert.Device, ID: d.Alert.ID, Token: d.Alert.Token, At: d.At, Receiver: "inbox"})
		if !d.Dropped {
			view.Alert(d.Alert, d.At.Sub(d.Alert.Enqueued))
		}
	})
	if err != nil {
		return err
	}
	defer receiver.Close()
	workers, err := startLocalWorkers(ctx, o, hub, receiver, view)
	if err != nil {
		return err
	}

	fmt.Fprintf(view, "%s, %d workers; alerts from %v°, one per device in %v\nstatus page: %s\n\n", o.describe(), o.replicas, o.threshold, o.window, workers.page)
	published := publish(ctx, o, source, hub, judge, view)

	rules := audit.Rules{Window: o.window, Bound: localSettle, Slack: time.Second, Receivers: []string{"inbox"}}
	settled(judge, rules)
	stopped := workers.stop()
	view.Close()
	report := judge.Check(rules)
	view.Summary(report)
	if err := errors.Join(published, stopped); err != nil {
		return err
	}
	if !report.OK() {
		return &silentError{exitFailed}
	}
	return nil
}

// fleet opens what will send telemetry.
func (o localOptions) fleet() (fleet, error) {
	if o.replay != "" {
		return devices.OpenReplay(o.replay, o.speed)
	}
	return devices.New(devices.Config{Devices: o.devices, Rate: o.rate, Threshold: o.threshold, Seed: o.seed})
}

func (o localOptions) describe() string {
	if o.replay != "" {
		return "replay of " + o.replay
	}
	return fmt.Sprintf("%d devices, %v readings a second", o.devices, o.rate)
}

// publish runs the fleet into the hub, for as long as it is to, and has the judge and the view watch.
func publish(ctx context.Context, o localOptions, source fleet, hub *devhub.Hub, judge *audit.Log, view *console.Console) error {
	if o.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.duration)
		defer cancel()
	}
	err := source.Run(ctx, func(_ context.Context, m devices.Message) error {
		at, err := hub.Publish(devhub.Message{Device: m.Device, Body: m.Body, Source: m.MessageSource, Properties: m.Properties})
		if err != nil {
			return err
		}
		over := m.IsTelemetry && m.Temperature >= o.threshold
		judge.Published(audit.Reading{Device: m.Device, Temperature: m.Temperature, Over: over, At: at.Enqueued, Partition: at.Partition, Sequence: at.Sequence})
		if m.IsTelemetry {
			view.Reading(m.Device, m.Temperature, over)
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil // as asked
	}
	return err
}

// settled waits until every reading that needs an alert has one, or too long.
func settled(judge *audit.Log, rules audit.Rules) {
	for end := time.Now().Add(localSettle); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if len(judge.Check(rules).Lost) == 0 {
			return
		}
	}
}

// localWorkers are the replicas of local mode.
type localWorkers struct {
	cancel  context.CancelFunc
	page    string // address of the first one's status page
	running sync.WaitGroup
	errs    []error // of each replica, once running is done
}

// startLocalWorkers starts replicas as the environment would configure them,
// on stores in memory that they share. Their clocks tick faster than in
// production so that nobody waits for partitions.
func startLocalWorkers(ctx context.Context, o localOptions, hub *devhub.Hub, receiver *inbox.Server, view *console.Console) (*localWorkers, error) {
	encoder := newEncoder(logConsole, false)
	log := zap.New(zapcore.NewCore(encoder, zapcore.AddSync(view), zapcore.ErrorLevel))
	shared := stores{leases: memlease.New(), checkpoints: &eventhubs.MemoryCheckpoints{}, ownership: &ownership.Memory{}}

	var replicas []*replica
	for i := range o.replicas {
		c := config{
			EventHubConnectionString: newSecret(hub.ConnectionString()),
			EventHubConsumerGroup:    "$Default",
			EventHubStart:            eventhubs.Start{Earliest: true},
			EventHubPrefetch:         eventhubs.DefaultPrefetch,
			TemperatureThreshold:     o.threshold,
			TemperatureField:         telemetry.DefaultFields,
			ThrottleWindow:           o.window,
			ThrottleStore:            storeMemory,
			CheckpointInterval:       time.Second,
			NotifyURLs:               newSecretURLs(receiver.URL),
			NotifyWebhookSecret:      newSecret(receiver.Secret),
			NotifyTimeout:            5 * time.Second,
			NotifyConcurrency:        64,
			NotifyGiveUp:             time.Hour,
			OwnershipExpiry:          5 * time.Second,
			BalanceInterval:          250 * time.Millisecond,
			DrainTimeout:             10 * time.Second,
			ReplicaName:              string(rune('a' + i)),
		}
		if i == 0 {
			c.HTTPAddr = "127.0.0.1:0"
		}
		rs, err := openReceivers(c, log)
		if err != nil {
			return nil, err
		}
		r, err := newReplica(c, shared, rs, nil, log)
		if err != nil {
			return nil, err
		}
		replicas = append(replicas, r)
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &localWorkers{cancel: cancel, page: "http://" + replicas[0].http.listener.Addr().String(), errs: make([]error, len(replicas))}
	for i, r := range replicas {
		w.running.Go(func() { w.errs[i] = r.run(ctx) })
	}
	return w, nil
}

// stop hands everything over and waits for it.
func (w *localWorkers) stop() error {
	w.cancel()
	w.running.Wait()
	return errors.Join(w.errs...)
}
