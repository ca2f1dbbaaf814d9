package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.uber.org/zap"

	"alertworker/internal/azure"
	"alertworker/internal/config"
	"alertworker/internal/notify"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/ops/tracing"
)

// run is the worker, configured by the environment alone. Its straight line is
// configuration, stores, replica, and then the replica's run.
func run(ctx context.Context) (err error) {
	c, log, err := configure()
	if err != nil {
		return err
	}
	var end cleanup
	defer func() { err = errors.Join(err, end.run()) }()
	end.add("log", closeLimit, func(context.Context) error {
		_ = log.Sync() // fails on terminals and pipes, which have nothing to flush
		return nil
	})
	log.Info("starting", zap.String("version", version()), zap.Object("config", c))
	r, err := start(ctx, c, log, &end)
	switch {
	case err != nil && ctx.Err() != nil: // not every error of a client says that it was cancelled
		log.Info("stopped before startup was complete", zap.Error(err))
		return nil
	case err != nil:
		return err
	}
	if err := r.run(ctx); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// start connects to everything that c names and returns a replica ready to run.
// It adds to end what closes it, also when it fails.
func start(ctx context.Context, c config.Config, log *zap.Logger, end *cleanup) (*replica, error) {
	c, err := resolveHub(ctx, c, log)
	if err != nil {
		return nil, err
	}
	stores, err := openStores(ctx, c, log)
	end.add("stores", closeLimit, closing(stores.Close))
	if err != nil {
		return nil, err
	}
	tracer := openTracing(ctx, c, log)
	end.add("tracing", closeLimit, closing(tracer.Close))
	r, err := newReplica(c, stores, tracer, log)
	if err != nil {
		return nil, err
	}
	r.member, err = stores.member(ctx, c, log)
	return r, err
}

// openTracing returns nil if tracing is not configured, or not in a way that is
// supported: platforms set variables of OpenTelemetry for everything that they run.
func openTracing(ctx context.Context, c config.Config, log *zap.Logger) *tracing.Tracing {
	hub := c.Hub()
	tracer, err := tracing.Open(ctx, tracing.Config{
		Version: number(),
		Replica: c.ReplicaName,
		Source:  tracing.Source{Host: hub.Host, Hub: hub.Name, ConsumerGroup: c.EventHubConsumerGroup},
		Log:     log,
	})
	if err != nil {
		log.Warn("tracing disabled", zap.Error(err))
	}
	return tracer
}

// configure reads the environment, prints warnings, and opens the log. Its error lists
// all configuration errors.
func configure() (config.Config, *zap.Logger, error) {
	c, warnings, err := config.Load()
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "alertworker: warning:", w)
	}
	if err != nil {
		return config.Config{}, nil, err
	}
	return c, newLogger(c, os.Stderr), nil
}

// openReceivers connects to nothing. identity is nil unless a receiver needs it.
func openReceivers(c config.Config, identity *azure.Credential, log *zap.Logger) ([]receivers.Receiver, error) {
	secret, err := webhook.ParseSecret(c.NotifyWebhookSecret.Reveal())
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_WEBHOOK_SECRET %w", err)
	}
	rs, err := receivers.Open(c.NotifyURLs.Reveal(), receivers.Options{
		Log: log, WebhookSecret: secret, Link: c.PublicURL, Concurrency: c.NotifyConcurrency,
		Token: func(ctx context.Context) (string, error) {
			token, err := identity.GetToken(ctx, azure.EventGridScope)
			return token.Token, err
		},
	})
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_URLS %w", err)
	}
	return rs, nil
}

// deadLetterLog writes dead letters to the log in full.
type deadLetterLog struct{ log *zap.Logger }

func (d deadLetterLog) Keep(_ context.Context, l notify.DeadLetter) error {
	a := l.Alert
	d.log.Error("alert not delivered, recorded only here",
		zap.String("receiver", l.Name), zap.String("reason", l.Reason),
		zap.String("id", a.ID), zap.String("source", a.Source), zap.String("device", a.Device),
		zap.String("rule", a.Rule), zap.String("alert_level", a.Level), zap.Bool("resolved", a.Resolved),
		zap.Float64("temperature", a.Temperature), zap.Float64("threshold", a.Threshold),
		zap.Time("enqueued", a.Enqueued), zap.String("partition", a.Partition), zap.Int64("sequence", a.Sequence),
		zap.Duration("window", a.Window), zap.Int64("token", a.Token), zap.Time("expires", a.Expires),
		zap.Int64("suppressed", a.Suppressed))
	return nil
}
