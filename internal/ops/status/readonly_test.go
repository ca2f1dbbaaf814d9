package status_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/ops/leader"
	"alertworker/internal/ops/status"
	"alertworker/internal/telemetry"
	"alertworker/internal/worker"
)

// A readOnly store answers reads and refuses writes: the role became Storage Blob Data Reader, the account is locked
// read-only, or the container has an immutability policy.
type readOnly struct{ lease.Store }

var errForbidden = errors.New("403 AuthorizationPermissionMismatch")

func (readOnly) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	time.Sleep(20 * time.Millisecond)
	return lease.Lease{}, errForbidden
}
func (readOnly) Extend(context.Context, lease.Lease, string, time.Duration) (lease.Lease, error) {
	time.Sleep(20 * time.Millisecond)
	return lease.Lease{}, errForbidden
}

// While no alert can go out because the store refuses writes, the replica is not ready at any moment, whatever
// is read in the store meanwhile.
func TestReadOnlyStoreIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &replica{source: telemetry.SourceStats{Running: true, Owned: 2, Reading: 2}, receivers: []worker.ReceiverState{{Name: "pager", Waiting: 3}}}
		store := readOnly{memlease.New()}
		m := r.watch(zap.NewNop(), store)
		observed := lease.Observe(store, m.Store.Store)
		ctx, stop := context.WithCancel(t.Context())
		go m.Run(ctx)
		go leader.NewElector(observed, "key", func(lease.Record) string { return "" }, zap.NewNop()).Run(ctx, func(ctx context.Context, _ *leader.Term) error { <-ctx.Done(); return nil })
		go func() { // three alerts wait; the store is probed with one at a time, as worker/health.go does
			for n := 1; ctx.Err() == nil; n++ {
				_, _ = observed.Acquire(ctx, "device", time.Minute, nil)
				backoff.Sleep(ctx, backoff.Delay(n, time.Second, time.Minute))
			}
		}()
		time.Sleep(2 * time.Minute)
		ready, all := 0, 0
		var last status.Report
		for range 3600 {
			time.Sleep(time.Second)
			all++
			if last = m.Report(); last.Ready {
				ready++
			}
		}
		stop()
		synctest.Wait()
		if ready > 0 {
			t.Errorf("in an hour in which no alert could go out, /readyz said 200 in %d of %d looks; the last one: %q", ready, all, last.Headline)
		}
	})
}
