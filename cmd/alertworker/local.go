package main

import (
	"context"
	"io"
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"alertworker/internal/config"
	"alertworker/internal/lab/simulator"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/records"
	"alertworker/internal/telemetry/eventhubs"
)

// local is `alertworker local`. Only the devices are simulated: AMQP and HTTP go over
// loopback sockets. It fails if, by what was published and what the receiver got, an
// alert was lost or came too early.
func local(ctx context.Context, _ io.Writer, args []string) error {
	var o simulator.Options
	flags := newFlags("local", "run everything on this machine, without Azure: devices, hub, workers and a receiver")
	o.Define(flags)
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return &usageError{err}
	}

	report, err := simulator.Run(ctx, o, inProcess(o), os.Stdout)
	if err != nil {
		return err
	}

	return failedIf(!report.OK())
}

// inProcess returns a function that starts replicas in this process, which share stores in
// memory. They balance more often than in production so that nobody waits for
// partitions.
func inProcess(o simulator.Options) simulator.Start {
	shared := stores{leases: memlease.New(), records: &records.Memory{}}
	return func(w simulator.World, name string) (simulator.Worker, error) {
		log := zap.New(zapcore.NewCore(newEncoder(config.LogConsole, time.Local), zapcore.AddSync(w.Log), zapcore.ErrorLevel))
		c := config.Config{
			EventHubConnectionString: config.NewSecret(w.Hub),
			EventHubConsumerGroup:    "$Default",
			EventHubStart:            eventhubs.Start{Earliest: true},
			EventHubPrefetch:         eventhubs.DefaultPrefetch,
			RulesFile:                config.RulesOf(o.Rules()),
			ThrottleWindow:           o.Window,
			ThrottleStore:            config.StoreMemory,
			CheckpointInterval:       time.Second,
			NotifyURLs:               config.NewURLs(w.NotifyURL),
			NotifyWebhookSecret:      config.NewSecret(w.Secret),
			NotifyResolved:           true,
			NotifyTimeout:            5 * time.Second,
			NotifyConcurrency:        64,
			NotifyGiveUp:             time.Hour,
			OwnershipExpiry:          5 * time.Second,
			BalanceInterval:          250 * time.Millisecond,
			DrainTimeout:             10 * time.Second,
			ReplicaName:              name,
			HTTPAddr:                 "127.0.0.1:0",
			HTTPIngestToken:          config.NewSecret(simulator.IngestToken),
		}

		o, err := newOperations(c, log)
		if err != nil {
			return nil, err
		}

		ctx, cancel := context.WithCancel(context.Background())
		r, err := newReplica(ctx, c, shared, o, log)
		if err != nil {
			cancel()
			o.close()
			return nil, err
		}

		l := &localWorker{page: o.http.listener.Addr().String(), cancel: cancel, done: make(chan struct{})}
		go func() {
			defer close(l.done)
			l.err = r.run(ctx)
		}()
		return l, nil
	}
}

// A localWorker is a replica in this process: a simulator.Worker.
type localWorker struct {
	page   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done
}

func (l *localWorker) Page() string           { return l.page }
func (l *localWorker) Ended() <-chan struct{} { return l.done }

func (l *localWorker) Stop() error {
	l.cancel()
	<-l.done
	return l.err
}
