package duty_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"alertworker/internal/duty"
	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	key      = "~duties/test"
	takeover = 40 * time.Second // promised after a kill
	handover = 10 * time.Second // promised after a stop
	margin   = 4 * time.Second  // what is left of the lease when a leader has stopped
)

// A link is a replica's way to the store, which can fail.
type link struct {
	lease.Store
	mu    sync.Mutex
	fault fault
	until func(time.Time) time.Time // what a lease's end looks like on this machine
}

type fault int

const (
	none       fault = iota
	refusing         // fails at once, not executed
	lostBefore       // no answer, not executed
	lostAfter        // no answer, executed
	hanging          // no answer, whatever the context says, until the fault is gone; not executed
	late             // no answer, executed 20 s later
)

func (f fault) String() string {
	return [...]string{"none", "refusing", "lost before", "lost after", "hanging", "late"}[f]
}

func (k *link) set(f fault) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fault = f
}

func (k *link) is() fault {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fault
}

func (k *link) do(ctx context.Context, call func(context.Context) error) error {
	switch f := k.is(); f {
	case refusing:
		return errors.New("refused")
	case lostBefore:
		<-ctx.Done()
	case lostAfter:
		_ = call(ctx)
		<-ctx.Done()
	case late:
		time.AfterFunc(20*time.Second, func() { _ = call(context.WithoutCancel(ctx)) })
		<-ctx.Done()
	case hanging:
		for k.is() == f {
			time.Sleep(time.Second)
		}
		return errors.New("cut")
	default:
		return call(ctx)
	}
	return ctx.Err()
}

func (k *link) local(l lease.Lease) lease.Lease {
	if k.until != nil {
		l.Until = k.until(l.Until)
	}
	return l
}

func (k *link) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	var granted lease.Lease
	err := k.do(ctx, func(ctx context.Context) (err error) {
		l, err := k.Store.Acquire(ctx, key, ttl, next)
		if ctx.Err() == nil {
			granted = l
		}
		return err
	})
	if err != nil {
		return lease.Lease{}, err
	}
	return k.local(granted), nil
}

func (k *link) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	var extended lease.Lease
	err := k.do(ctx, func(ctx context.Context) (err error) {
		x, err := k.Store.Extend(ctx, l, note, ttl)
		if ctx.Err() == nil {
			extended = x
		}
		return err
	})
	if err != nil {
		return lease.Lease{}, err
	}
	return k.local(extended), nil
}

func (k *link) Release(ctx context.Context, l lease.Lease, note string) error {
	return k.do(ctx, func(ctx context.Context) error { return k.Store.Release(ctx, l, note) })
}

// A replica runs an elector.
type replica struct {
	name  string
	link  *link
	stop  context.CancelFunc
	done  chan struct{} // Run has returned
	dead  bool          // killed: what still runs of it is not there
	terms []int64
	e     *duty.Elector
}

// A house is some replicas on one store. It watches that no two of them act at one time.
type house struct {
	t     rapid.TB
	store lease.Store
	lead  func(context.Context, *duty.Term) error // nil: until the context ends

	mu      sync.Mutex
	acting  map[*replica]context.Context
	running sync.WaitGroup
}

func newHouse(t rapid.TB) *house {
	return &house{t: t, store: memlease.New(), acting: map[*replica]context.Context{}}
}

func (h *house) start(name string) *replica {
	ctx, stop := context.WithCancel(context.Background())
	r := &replica{name: name, link: &link{Store: h.store}, stop: stop, done: make(chan struct{})}
	r.e = duty.NewElector(r.link, key, zap.NewNop())
	h.running.Go(func() {
		defer close(r.done)
		r.e.Run(ctx, func(ctx context.Context, t *duty.Term) error { return h.led(ctx, r, t) })
	})
	return r
}

// led is what every replica does when elected.
func (h *house) led(ctx context.Context, r *replica, t *duty.Term) error {
	h.mu.Lock()
	if !r.dead {
		for other, theirs := range h.acting {
			if theirs.Err() == nil {
				h.t.Errorf("%s begins term %d while %s acts", r.name, t.Token, other.name)
			}
		}
		h.acting[r] = ctx
		r.terms = append(r.terms, t.Token)
	}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.acting, r)
	}()
	if h.lead != nil {
		return h.lead(ctx, t)
	}
	<-ctx.Done()
	return ctx.Err()
}

// kill ends r without a word to the store.
func (h *house) kill(r *replica) {
	h.mu.Lock()
	r.dead = true
	delete(h.acting, r)
	h.mu.Unlock()
	r.link.set(refusing)
	r.stop()
}

// leader returns who acts; nil if nobody does.
func (h *house) leader() *replica {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r, ctx := range h.acting {
		if ctx.Err() == nil {
			return r
		}
	}
	return nil
}

// wait returns the first leader that is not not, within d.
func (h *house) wait(not *replica, d time.Duration) *replica {
	h.t.Helper()
	for start := time.Now(); time.Since(start) <= d; time.Sleep(100 * time.Millisecond) {
		if r := h.leader(); r != nil && r != not {
			return r
		}
	}
	h.t.Fatalf("no other leader within %v", d)
	return nil
}

// close stops rs and waits until all have ended.
func (h *house) close(rs ...*replica) {
	for _, r := range rs {
		if r.link.is() == hanging {
			r.link.set(refusing)
		}
		r.stop()
	}
	h.running.Wait()
}

func TestOneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		a, b, c := h.start("a"), h.start("b"), h.start("c")
		defer h.close(a, b, c)
		first := h.wait(nil, time.Second)
		time.Sleep(time.Hour)
		if h.leader() != first {
			t.Error("a leader with nothing in its way did not stay")
		}
		n := 0
		for _, r := range []*replica{a, b, c} {
			if len(r.terms) > 0 {
				n++
			}
			term, ok := r.e.Leading()
			if ok != (r == first) || ok && term != first.terms[0] {
				t.Errorf("%s says of itself %d, %t", r.name, term, ok)
			}
		}
		if n != 1 || len(first.terms) != 1 {
			t.Errorf("%d have led, the leader %d times", n, len(first.terms))
		}
	})
}

// After each of these the others have a leader again in the time promised, with a
// greater token, and the old one had stopped before its lease ended.
func TestLeaderFails(t *testing.T) {
	tests := []struct {
		name   string
		happen func(*house, *replica)
		within time.Duration
	}{
		{"stopped", func(_ *house, r *replica) { r.stop() }, handover},
		{"killed", func(h *house, r *replica) { h.kill(r) }, takeover},
		{"cut off", func(_ *house, r *replica) { r.link.set(refusing) }, takeover},
		{"requests are lost", func(_ *house, r *replica) { r.link.set(lostBefore) }, takeover},
		{"calls never return", func(_ *house, r *replica) { r.link.set(hanging) }, takeover},
		{"the record is deleted and taken", func(h *house, _ *replica) { h.store.(interface{ Forget(string) }).Forget(key) }, takeover},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				if test.name == "the record is deleted and taken" {
					h.store = forgetful{h.store.(*memlease.Store), new(int)}
				}
				a, b, c := h.start("a"), h.start("b"), h.start("c")
				defer h.close(a, b, c)
				first := h.wait(nil, time.Second)
				time.Sleep(time.Minute + 3*time.Second)
				test.happen(h, first)
				second := h.wait(first, test.within)
				if first.terms[0] >= second.terms[0] {
					t.Errorf("term %d after %d", second.terms[0], first.terms[0])
				}
				if _, ok := first.e.Leading(); ok && !first.dead {
					t.Error("the old leader still says that it leads")
				}
			})
		})
	}
}

// forgetful is a store that has forgotten all it knew.
type forgetful struct {
	*memlease.Store
	lives *int
}

func (f forgetful) Forget(string) { *f.lives++ }
func (f forgetful) key(k string) string {
	return fmt.Sprint(k, *f.lives)
}

func (f forgetful) Acquire(ctx context.Context, k string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	return f.Store.Acquire(ctx, f.key(k), ttl, next)
}

func (f forgetful) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	if l.Key != f.key(key) {
		return lease.Lease{}, lease.ErrLost
	}
	return f.Store.Extend(ctx, l, note, ttl)
}
