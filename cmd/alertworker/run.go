package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/tracing"
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
	tracer := openTracing(ctx, c, log)
	defer tracer.Close()
	replica, err := newReplica(c, stores, rs, tracer, log)
	if err != nil {
		return err
	}
	if err := replica.run(ctx); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// openTracing returns nil if no traces are asked for, or not in a way that we can
// serve: platforms set variables of OpenTelemetry for all that they run.
func openTracing(ctx context.Context, c config, log *zap.Logger) *tracing.Tracing {
	hub := c.hub()
	tracer, err := tracing.Open(ctx, tracing.Config{
		Version: number(),
		Replica: c.ReplicaName,
		Source:  tracing.Source{Host: hub.Host, Hub: hub.Name, ConsumerGroup: c.EventHubConsumerGroup},
		Log:     log,
	})
	if err != nil {
		log.Warn("no traces", zap.Error(err))
	}
	return tracer
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

func (d deadLetterLog) Keep(_ context.Context, l notify.DeadLetter) error {
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
