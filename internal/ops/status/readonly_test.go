package status_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/delivery"
	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/lease/observe"
	"alertworker/internal/ops/leader"
	"alertworker/internal/ops/status"
	"alertworker/internal/telemetry"
)

// A readOnly store answers reads and refuses writes: the role became Storage Blob Data Reader, the account is locked
// read-only, or the container has an immutability policy.
type readOnly struct{ lease.Store }

var errForbidden = errors.New("403 AuthorizationPermissionMismatch")

func (readOnly) Acquire(
	context.Context, string, time.Duration, func(lease.Record) (string, error),
) (lease.Lease, error) {
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
		r := &replica{
			source:    telemetry.SourceStats{Running: true, Owned: 2, Reading: 2},
			receivers: []delivery.ReceiverState{{Name: "pager", Waiting: 3}},
		}
		store := readOnly{memlease.New()}
		m := r.watch(zap.NewNop(), store)
		observed := observe.Store(store, m.Store.Store)
		ctx, stop := context.WithCancel(t.Context())
		elector := leader.NewElector(observed, "key", zap.NewNop())
		lead := func(ctx context.Context, _ *leader.Term) error {
			<-ctx.Done()
			return nil
		}
		var running sync.WaitGroup
		running.Go(func() { m.Run(ctx) })
		running.Go(func() { elector.Run(ctx, lead) })
		running.Go(func() { // three alerts wait; the store is probed with one at a time, as the worker does
			for n := 1; ctx.Err() == nil; n++ {
				_, _ = observed.Acquire(ctx, "device", time.Minute, nil)
				backoff.Sleep(ctx, backoff.Delay(n, time.Second, time.Minute))
			}
		})
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
		running.Wait() // a bubble that ends before its goroutines is an error
		if ready > 0 {
			t.Errorf("in an hour in which no alert could go out, /readyz said 200 in %d of %d looks; the last one: %q",
				ready, all, last.Headline)
		}
	})
}

// noClaims is a store that can be asked for leases no more, and still extends those that are held: it cannot be read.
type noClaims struct {
	lease.Store
	broken atomic.Bool
}

func (s *noClaims) Acquire(
	ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error),
) (lease.Lease, error) {
	if s.broken.Load() {
		return lease.Lease{}, errForbidden
	}
	return s.Store.Acquire(ctx, key, ttl, next)
}

// A leader's lease that goes on being renewed does not hide that no alert can be claimed.
func TestRenewalsAreNoClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &replica{source: telemetry.SourceStats{Running: true, Owned: 2, Reading: 2}}
		store := &noClaims{Store: memlease.New()}
		m := r.watch(zap.NewNop(), store)
		observed := observe.Store(store, m.Store.Store)
		l, err := observed.Acquire(t.Context(), "leader", time.Minute, func(lease.Record) (string, error) { return "", nil })
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { m.Run(ctx) })
		store.broken.Store(true)
		for n := range 60 {
			time.Sleep(time.Second)
			if n%10 == 0 {
				if l, err = observed.Extend(ctx, l, "", time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			if got := m.Report(); n > 30 && got.Ready {
				t.Errorf("after %d s it says %q", n, got.Headline)
			}
		}
		store.broken.Store(false)
		time.Sleep(20 * time.Second)
		if got := m.Report(); !got.Ready {
			t.Errorf("it says %q", got.Headline)
		}
		stop()
		running.Wait()
	})
}
