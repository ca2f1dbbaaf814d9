package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"go.uber.org/zap"

	"alertworker/internal/notify/receivers"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// run is the worker, configured by the environment alone.
func run(ctx context.Context) error {
	c, log, rs, err := configure()
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }()
	log.Info("starting", zap.String("version", version()), zap.Object("config", c))
	if c, err = resolveHub(ctx, c, log); err != nil {
		return err
	}

	stores, err := openStores(ctx, c, log)
	if err != nil {
		return err
	}
	defer stores.Close()
	replica, err := newReplica(c, stores, rs, log)
	if err != nil {
		return err
	}
	if err := replica.run(ctx); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// configure reads the environment, warns, and opens what can be opened without
// connecting to anything. Its error has everything that is wrong.
func configure() (config, *zap.Logger, []receivers.Receiver, error) {
	c, warnings, err := loadConfig()
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "alertworker: warning:", w)
	}
	log := newLogger(c, os.Stderr)
	rs, wrong := openReceivers(c, log)
	if wrong != nil {
		err = withProblem(err, "NOTIFY_URLS", wrong.Error())
	}
	return c, log, rs, err
}

func openReceivers(c config, log *zap.Logger) ([]receivers.Receiver, error) {
	return receivers.Open(c.NotifyURLs.Reveal(), receivers.Options{
		Log:           log,
		WebhookSecret: c.NotifyWebhookSecret.Reveal(),
		Concurrency:   c.NotifyConcurrency,
	})
}

// A replica is one worker and what it works with.
type replica struct {
	source    *eventhubs.Source
	worker    *worker.Worker
	receivers []receivers.Receiver
}

// newReplica puts a replica together. It is the only place that picks implementations.
func newReplica(c config, s stores, rs []receivers.Receiver, log *zap.Logger) (*replica, error) {
	decoder, err := telemetry.NewDecoder(c.TemperatureField.String())
	if err != nil {
		return nil, fmt.Errorf("TEMPERATURE_FIELD: %w", err)
	}
	var identity azcore.TokenCredential
	if c.EventHubNamespace != "" {
		if identity, err = credential("EVENTHUB_NAMESPACE"); err != nil {
			return nil, err
		}
	}
	source, err := eventhubs.New(eventhubs.Config{
		ConnectionString: c.EventHubConnectionString.Reveal(),
		Namespace:        c.EventHubNamespace,
		Credential:       identity,
		Hub:              c.EventHubName,
		ConsumerGroup:    c.EventHubConsumerGroup,
		Start:            c.EventHubStart,
		Prefetch:         c.EventHubPrefetch,
		OwnershipExpiry:  c.OwnershipExpiry,
		BalanceInterval:  c.BalanceInterval,
		Owner:            c.ReplicaName,
		Checkpoints:      s.checkpoints,
		Logger:           log,
	})
	if err != nil {
		return nil, err
	}

	config := worker.Config{
		Origin:             origin(c),
		Replica:            c.ReplicaName,
		Threshold:          c.TemperatureThreshold,
		Window:             c.ThrottleWindow,
		Concurrency:        c.NotifyConcurrency,
		GiveUp:             c.NotifyGiveUp,
		CheckpointInterval: c.CheckpointInterval,
		DrainTimeout:       c.DrainTimeout,
		Decoder:            decoder,
		DeadLetters:        deadLetterLog{log},
		Log:                log,
	}
	if s.deadLetters != nil {
		config.DeadLetters = s.deadLetters
		if c.DeadLetterMalformed {
			config.Malformed = s.deadLetters
		}
	}
	for _, r := range rs {
		config.Receivers = append(config.Receivers, worker.Receiver{
			Name:     r.Name,
			Notifier: r.Notifier,
			Gate: throttle.New(throttle.Config{
				Store: s.leases, Scope: scope(c), Receiver: r.Name, Window: c.ThrottleWindow, SendTimeout: c.NotifyTimeout,
			}),
		})
	}
	return &replica{source: source, worker: worker.New(config), receivers: rs}, nil
}

// run works until ctx ends and everything is handed over.
func (r *replica) run(ctx context.Context) error {
	defer func() {
		for _, to := range r.receivers {
			to.Close()
		}
	}()
	return r.source.Run(ctx, r.worker.Consume)
}

// origin names where events come from in alert ids: the namespace's first
// label and the hub.
func origin(c config) string {
	hub := c.hub()
	namespace, _, _ := strings.Cut(hub.Host, ".")
	if c.EventHubNamespace == "" && strings.Trim(hub.Host, "0123456789.:") == "" {
		namespace = "local" // an emulator at an address
	}
	return strings.ToLower(namespace + "/" + hub.Name)
}

// deadLetterLog keeps dead letters in the log, whole.
type deadLetterLog struct{ log *zap.Logger }

func (d deadLetterLog) Keep(_ context.Context, l worker.DeadLetter) error {
	a := l.Alert
	d.log.Error("alert not delivered, kept here",
		zap.String("receiver", l.Receiver), zap.String("reason", l.Reason),
		zap.String("id", a.ID), zap.String("source", a.Source), zap.String("device", a.Device),
		zap.Float64("temperature", a.Temperature), zap.Float64("threshold", a.Threshold),
		zap.Time("enqueued", a.Enqueued), zap.String("partition", a.Partition), zap.Int64("sequence", a.Sequence),
		zap.Duration("window", a.Window), zap.Int64("token", a.Token), zap.Time("expires", a.Expires),
		zap.Int64("suppressed", a.Suppressed))
	return nil
}
