package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/azure"
	"alertworker/internal/build"
	"alertworker/internal/config"
	"alertworker/internal/lease"
	"alertworker/internal/ledger"
	"alertworker/internal/ops/admin"
	"alertworker/internal/ops/metrics"
	"alertworker/internal/ops/status"
	"alertworker/internal/records"
)

// operations are what operators see of a replica, from before it has connected to anything
// until everything is handed over.
type operations struct {
	started  time.Time
	monitor  *status.Monitor
	metrics  *metrics.Metrics
	recorder *admin.Recorder
	clock    *azure.Clock    // that of the stores
	ends     []config.Ending // of credentials
	http     *httpServer     // nil if HTTP is off

	stop context.CancelFunc
	work sync.WaitGroup
}

// newOperations starts to watch, and to serve at HTTP_ADDR. The caller calls close.
func newOperations(c config.Config, log *zap.Logger) (*operations, error) {
	o := &operations{
		started:  time.Now(),
		monitor:  status.New(log),
		metrics:  metrics.New(build.Version()),
		recorder: &admin.Recorder{Zone: c.Zone()},
		clock:    &azure.Clock{},
	}
	o.metrics.Blocked(o.monitor.Report)
	o.metrics.Clock(string(c.ThrottleStore), o.clock.Ahead)
	o.ends = c.Endings()
	o.metrics.CredentialEnds(func() map[string]time.Time {
		first := map[string]time.Time{}
		for _, e := range slices.Backward(o.ends) {
			first[e.Credential] = e.At
		}
		return first
	})
	named := func(variable string) func(error) error {
		return func(err error) error { return endedToo(lease.AddHint(lease.Summary(err), variable), o.ends) }
	}
	storage := named(c.StorageVariable())
	o.monitor.Checkpoints.Explain, o.monitor.Checkpoints.Refused = func(err error) error {
		if errors.As(err, new(*ledger.UnreadableError)) {
			return err // it says itself what to do
		}
		return storage(err)
	}, lease.IsRefused
	o.monitor.Store.Explain, o.monitor.Store.Refused = named(c.Store().Variable(c)), lease.IsRefused

	ctx, stop := context.WithCancel(context.Background())
	o.stop = stop
	if c.HTTPAddr != "" {
		var err error
		if o.http, err = listenHTTP(c, log); err != nil {
			stop()
			return nil, err
		}
		o.http.handler.Store(admin.New(adminOptions(c, o, log)))
		o.work.Go(func() { o.http.serve(ctx) })
	}

	o.work.Go(func() { o.monitor.Run(ctx) })
	return o, nil
}

// close ends what newOperations started. It may be called again.
func (o *operations) close() {
	o.stop()
	o.work.Wait()
}

// watched returns next, reporting its calls to a Dependency. Heartbeats make it the surest sign of
// all: one is written every BALANCE_INTERVAL.
func watched(next records.Store, calls *status.Dependency) records.Store {
	return records.Around(
		next,
		func(ctx context.Context, op records.Op, _ string, call func(context.Context) error) error {
			kind := status.Read
			if op == records.OpWrite || op == records.OpDelete {
				kind = status.Write
			}

			err := call(calls.Tries(ctx, kind))
			if errors.Is(err, records.ErrNotFound) || errors.Is(err, records.ErrConflict) {
				calls.Called(status.Read, nil) // an answer, and nothing was written
			} else {
				calls.Called(kind, err)
			}

			return err
		},
	)
}
