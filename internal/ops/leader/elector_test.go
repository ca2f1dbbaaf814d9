package leader_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/ops/leader"
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
	denying          // an Extend hears that the lease is lost
	slow             // the answer takes 3 s
	lostBefore       // no answer, not executed
	lostAfter        // no answer, executed
	hanging          // no answer, whatever the context says, until the fault is gone; not executed
	late             // no answer, executed 20 s later
)

func (f fault) String() string {
	return [...]string{"none", "refusing", "denying", "slow", "lost before", "lost after", "hanging", "late"}[f]
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
	case slow:
		err := call(ctx)
		time.Sleep(3 * time.Second)
		return err
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
		granted, err = k.Store.Acquire(ctx, key, ttl, next)
		return err
	})
	if err != nil {
		return lease.Lease{}, err
	}
	return k.local(granted), nil
}

func (k *link) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	if k.is() == denying {
		return lease.Lease{}, lease.ErrLost
	}
	var extended lease.Lease
	err := k.do(ctx, func(ctx context.Context) (err error) {
		extended, err = k.Store.Extend(ctx, l, note, ttl)
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
	e     *leader.Elector
}

// A house is some replicas on one store. It watches that no two of them act at one time.
type house struct {
	t     rapid.TB
	store lease.Store
	log   *zap.Logger
	lead  func(context.Context, *leader.Term) error // nil: until the context ends
	until func(time.Time) time.Time                 // see link

	mu      sync.Mutex
	acting  map[*replica]context.Context
	running sync.WaitGroup
}

func newHouse(t rapid.TB) *house {
	return &house{t: t, store: memlease.New(), log: zap.NewNop(), acting: map[*replica]context.Context{}}
}

func (h *house) start(name string) *replica {
	ctx, stop := context.WithCancel(context.Background())
	r := &replica{name: name, link: &link{Store: h.store, until: h.until}, stop: stop, done: make(chan struct{})}
	r.e = leader.NewElector(r.link, key, h.log)
	h.running.Go(func() {
		defer close(r.done)
		r.e.Run(ctx, func(ctx context.Context, t *leader.Term) error { return h.led(ctx, r, t) })
	})
	return r
}

// led is what every replica does when elected.
func (h *house) led(ctx context.Context, r *replica, t *leader.Term) error {
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
	record, err := h.store.Read(context.Background(), key)
	if left := record.Written.Add(record.Hold).Sub(record.Now); err != nil || left < margin && !h.isDead(r) {
		h.t.Errorf("%s stops with %v of its lease left (%v)", r.name, left, err)
	}
	return ctx.Err()
}

func (h *house) isDead(r *replica) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return r.dead
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
// greater token, and the old one stopped before anybody could follow.
func TestLeaderFails(t *testing.T) {
	tests := []struct {
		name   string
		happen func(*house, *replica)
		within time.Duration
	}{
		{"stopped", func(_ *house, r *replica) { r.stop() }, handover},
		{"killed", func(h *house, r *replica) { h.kill(r) }, takeover},
		{"cut off", func(_ *house, r *replica) { r.link.set(refusing) }, takeover},
		{"told that its lease is lost", func(h *house, r *replica) {
			r.link.set(denying)
			time.Sleep(12 * time.Second) // by then it has renewed
			if h.leader() == r && len(r.terms) == 1 {
				h.t.Errorf("%s goes on", r.name)
			}
			r.link.set(refusing) // it may have been elected again
		}, takeover},
		{"requests are lost", func(_ *house, r *replica) { r.link.set(lostBefore) }, takeover},
		{"answers are lost", func(_ *house, r *replica) { r.link.set(lostAfter) }, 25*time.Second + takeover},
		{"requests come late", func(_ *house, r *replica) { r.link.set(late) }, 50*time.Second + takeover},
		{"cut off after slow answers", func(_ *house, r *replica) {
			r.link.set(slow)
			time.Sleep(20 * time.Second)
			r.link.set(refusing)
		}, takeover},
		{"calls never return", func(_ *house, r *replica) { r.link.set(hanging) }, takeover},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				a, b, c := h.start("a"), h.start("b"), h.start("c")
				defer h.close(a, b, c)
				first := h.wait(nil, time.Second)
				time.Sleep(time.Minute + 3*time.Second)
				test.happen(h, first)
				second := h.wait(first, test.within)
				if first.terms[0] >= second.terms[0] {
					t.Errorf("term %d after %d", second.terms[0], first.terms[0])
				}
				if _, ok := first.e.Leading(); ok {
					t.Error("the old leader still says that it leads")
				}
			})
		})
	}
}

// A fault of 8 s ends no term.
func TestLeaderOutlivesFaults(t *testing.T) {
	for _, f := range []fault{refusing, slow, lostBefore, lostAfter, late, hanging} {
		t.Run(f.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				a, b := h.start("a"), h.start("b")
				defer h.close(a, b)
				first := h.wait(nil, time.Second)
				for range 20 {
					first.link.set(f)
					time.Sleep(8 * time.Second)
					first.link.set(none)
					time.Sleep(14 * time.Second)
				}
				if h.leader() != first || len(first.terms) != 1 {
					t.Errorf("%d terms of the first leader, want one that goes on", len(first.terms))
				}
			})
		})
	}
}

// A run of failed renewals is logged when it begins and when it ends; a lease that is lost says why.
func TestFailedRenewalsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		h := newHouse(t)
		h.log = zap.New(core)
		a := h.start("a")
		defer h.close(a)
		said := func(message string) []observer.LoggedEntry { return logs.FilterMessageSnippet(message).All() }
		h.wait(nil, time.Second)
		time.Sleep(time.Minute)
		for range 3 {
			a.link.set(refusing)
			time.Sleep(14 * time.Second)
			if got := said("not renewed"); len(got) != 1 || got[0].Level != zap.WarnLevel || got[0].ContextMap()["error"] != "refused" {
				t.Fatalf("while renewals fail: %v", got)
			}
			a.link.set(none)
			time.Sleep(30 * time.Second)
			if got := said("renewed after failures"); len(got) != 1 || got[0].ContextMap()["failures"].(int64) < 2 {
				t.Fatalf("when they succeed again: %v", got)
			}
			logs.TakeAll()
		}
		for _, f := range []fault{refusing, lostBefore, hanging} {
			logs.TakeAll()
			a.link.set(f)
			time.Sleep(time.Minute)
			a.link.set(none)
			h.wait(nil, 3*time.Minute)
			got := said("could not become or remain leader")
			if len(got) == 0 || got[0].ContextMap()["error"] != "lease lost: not renewed in time" {
				t.Errorf("%v: lost with %v", f, got)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A leader stops by what the lease says, not by what it asked for.
func TestUntilCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		var ended time.Duration
		h.lead = func(ctx context.Context, _ *leader.Term) error {
			start := time.Now()
			<-ctx.Done()
			ended = time.Since(start)
			return ctx.Err()
		}
		h.until = func(end time.Time) time.Time { return end.Add(-15 * time.Second) }
		a := h.start("a")
		synctest.Wait()
		a.link.set(refusing)
		time.Sleep(28 * time.Second)
		h.close(a)
		if ended < 10*time.Second || ended > 11*time.Second {
			t.Errorf("stopped after %v, want 10 s and at most a second more", ended)
		}
	})
}

// A work that returns by itself is begun again, after an error later and later;
// others may get their turn.
func TestLeadReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		var began []time.Time
		h.lead = func(context.Context, *leader.Term) error {
			began = append(began, time.Now())
			return errors.New("no")
		}
		a := h.start("a")
		time.Sleep(time.Hour)
		h.close(a)
		if n := len(began); n < 40 || n > 125 {
			t.Errorf("begun %d times in an hour, want about one a minute", n)
		}
		for i := range 4 {
			if gap, most := began[i+1].Sub(began[i]), 5*time.Second<<i*3/2; gap > most || gap < most/3 {
				t.Errorf("try %d came %v after the one before, want about %v", i+1, gap, most*2/3)
			}
		}
	})
}

// While the work ends, however slowly, the lease is kept; it is handed back
// after, with the note.
func TestHandBackComesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		const lingers = 2 * time.Minute
		h.lead = func(ctx context.Context, term *leader.Term) error {
			if term.Note() != "" {
				return nil
			}
			<-ctx.Done()
			time.Sleep(lingers)
			term.SetNote("the end")
			return nil
		}
		a := h.start("a")
		synctest.Wait()
		a.stop()
		time.Sleep(lingers - time.Nanosecond)
		r, err := h.store.Read(t.Context(), key)
		if err != nil || !r.Now.Before(r.Written.Add(r.Hold)) {
			t.Errorf("while the work still ends the lease is free: %+v, %v", r, err)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if r, err = h.store.Read(t.Context(), key); err != nil || r.Hold != 0 || r.Note != "the end" {
			t.Errorf("after the work has ended: %+v, %v", r, err)
		}
		h.close(a)
	})
}

// A note is written with the next renewal, and found by the next leader even if this one is killed.
func TestNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.lead = func(ctx context.Context, term *leader.Term) error {
			term.SetNote(term.Note() + "x")
			<-ctx.Done()
			return nil
		}
		a := h.start("a")
		time.Sleep(10*time.Second + 1)
		synctest.Wait()
		if r, err := h.store.Read(t.Context(), key); err != nil || r.Note != "x" {
			t.Errorf("the note is %q, %v", r.Note, err)
		}
		b := h.start("b")
		h.kill(a)
		h.wait(a, takeover)
		time.Sleep(10*time.Second + 1)
		synctest.Wait()
		if r, err := h.store.Read(t.Context(), key); err != nil || r.Note != "xx" {
			t.Errorf("the note is %q, %v", r.Note, err)
		}
		h.close(a, b)
	})
}

// Whatever happens to the replicas and their ways to the store, no two act at one
// time; and when all is well again one of them does.
func TestTwoNeverAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Wrapped, for rapid must not ask for a deadline in a bubble.
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) {
			h := newHouse(t)
			lingers := rapid.SampledFrom([]time.Duration{0, time.Second, 20 * time.Second}).Draw(t, "the work lingers")
			h.lead = func(ctx context.Context, _ *leader.Term) error {
				<-ctx.Done()
				time.Sleep(lingers)
				return nil
			}
			var all, alive []*replica
			pick := func(t *rapid.T) int {
				if len(alive) == 0 {
					t.Skip("nobody is there")
				}
				// Mostly the leader, for there it matters.
				if l := h.leader(); l != nil && rapid.Bool().Draw(t, "leader") {
					for i, r := range alive {
						if r == l {
							return i
						}
					}
				}
				return rapid.IntRange(0, len(alive)-1).Draw(t, "replica")
			}
			remove := func(i int) { alive = append(alive[:i:i], alive[i+1:]...) }
			t.Repeat(map[string]func(*rapid.T){
				"start": func(t *rapid.T) {
					if len(alive) == 4 {
						t.Skip("enough")
					}
					r := h.start(fmt.Sprint(len(all)))
					all, alive = append(all, r), append(alive, r)
				},
				"stop": func(t *rapid.T) { i := pick(t); alive[i].stop(); remove(i) },
				"kill": func(t *rapid.T) { i := pick(t); h.kill(alive[i]); remove(i) },
				"fault": func(t *rapid.T) {
					i := pick(t)
					alive[i].link.set(rapid.SampledFrom([]fault{none, refusing, denying, slow, lostBefore, lostAfter, hanging, late}).Draw(t, "fault"))
				},
				"wait": func(t *rapid.T) {
					time.Sleep(rapid.SampledFrom([]time.Duration{
						time.Millisecond, time.Second, 7 * time.Second, 11 * time.Second, 26 * time.Second, time.Minute,
					}).Draw(t, "for") + time.Duration(rapid.IntRange(0, 999).Draw(t, "and ms"))*time.Millisecond)
				},
				"": func(*rapid.T) {},
			})
			for _, r := range alive {
				r.link.set(none)
			}
			if len(alive) > 0 {
				h.wait(nil, 3*time.Minute) // late requests, backoff, and what a killed one held
			}
			h.close(all...)
		})
	})
}
