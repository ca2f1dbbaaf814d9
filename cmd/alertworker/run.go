package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/build"
	"alertworker/internal/config"
	"alertworker/internal/lease"
	"alertworker/internal/ops/otlp"
	"alertworker/internal/ops/status"
)

// run is the worker, configured by the environment alone.
func run(ctx context.Context) error {
	defer addBallast()()
	c, log, err := configure()
	if err != nil {
		return err
	}
	return runReplicas(ctx, c, onDisk(), network{}, log)
}

// runReplicas runs a replica until ctx ends. Files of secrets that change end it in order once the new secrets work, and the
// next one starts with them. Everything is reached by n.
func runReplicas(ctx context.Context, c config.Config, files secretFiles, n network, log *zap.Logger) error {
	var kept memory
	used := &newSecrets{c}
	for {
		replaced, stop := context.WithCancelCause(ctx)
		err := runReplica(replaced, stop, used.config, files, n, &kept, log)
		stop(nil)
		if err != nil || !errors.As(context.Cause(replaced), &used) {
			return err
		}
	}
}

// runReplica's straight line is stores, replica, and then the replica's run. stop ends ctx.
func runReplica(
	ctx context.Context, stop context.CancelCauseFunc, c config.Config, files secretFiles, n network, kept *memory,
	log *zap.Logger,
) (err error) {
	var end cleanup
	defer func() { err = errors.Join(err, end.run()) }()
	end.add("log", closeLimit, func() {
		_ = log.Sync() // fails on terminals and pipes, which have nothing to flush
	})
	log.Info("starting", zap.String("version", version()), zap.Object("config", c))
	o, err := newOperations(c, log)
	if err != nil {
		return err
	}

	end.add("operations", closeTimeout+closeLimit, o.close)
	n.clock = o.clock
	end.background(ctx, "ends of credentials", closeLimit, running(func(ctx context.Context) { warnOfEnds(ctx, o.ends, log) }))
	end.background(ctx, "files of secrets", closeLimit, func(ctx context.Context) error {
		watch := secretsWatch{c, files, n, kept, o.monitor, log}
		if next := watch.wait(ctx); next != nil {
			log.Info("handing over and restarting with the new secrets")
			stop(next)
		}

		return nil
	})
	r, err := start(ctx, c, n, kept, o, log, &end)
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

// start connects to everything that c names, as long as that takes, and returns a replica
// ready to run. It adds to end what closes it, also when it fails.
func start(
	ctx context.Context, c config.Config, n network, kept *memory, o *operations, log *zap.Logger, end *cleanup,
) (*replica, error) {
	shared, err := newStores(c, n)
	shared.memory = kept
	end.add("stores", closeLimit, shared.Close)
	if err != nil {
		return nil, err
	}

	c, shared, err = connect(ctx, c, shared, o.monitor, log)
	if err != nil {
		return nil, err
	}

	// Platforms set variables of OpenTelemetry for everything that they run: what is not supported ends nothing.
	endExport, err := otlp.Export(ctx, o.metrics.Producer(), c.ReplicaName, build.Version(), log)
	if err != nil {
		log.Warn("export of metrics disabled", zap.Error(err))
	}

	end.add("export of metrics", closeLimit, func() { endExport(context.WithoutCancel(ctx)) })

	return newReplica(ctx, c, shared, o, log)
}

const (
	connectMin = time.Second
	connectMax = 30 * time.Second
)

// connect finds the hub and opens the stores. What did not work is tried again until it works
// or ctx ends, whatever the service answered: keys, roles, network rules and services change
// without this process, and until then /readyz, the status page and the log say what is wrong.
// Only settings that are wrong in themselves end it: see usageError.
func connect(
	ctx context.Context,
	c config.Config,
	s stores,
	m *status.Monitor,
	log *zap.Logger,
) (config.Config, stores, error) {
	for n := 1; ; n++ {
		resolved, opened, err := s.open(ctx, c, log, true)
		var wrong *usageError
		if err == nil || ctx.Err() != nil || errors.As(err, &wrong) {
			return resolved, opened, err
		}

		var at *openError
		errors.As(err, &at)
		m.Opening(at.by, endedToo(err, c.Endings()), lease.IsRefused(err))
		backoff.Sleep(ctx, backoff.Delay(n, connectMin, connectMax))
	}
}

// An openError says which service could not be opened.
type openError struct {
	by status.By
	error
}

func (e *openError) Unwrap() error { return e.error }

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
