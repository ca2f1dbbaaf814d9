package ownership_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"alertworker/internal/records"
	"alertworker/internal/telemetry/ownership"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	scope    = "ns/hub/group"
	interval = 3 * time.Second // the defaults
	expiry   = 8 * time.Second
)

// A world is a store and the replicas that use it, under the virtual time of
// synctest.
type world struct {
	t interface {
		Helper()
		Fatalf(string, ...any)
	}
	store      records.Memory
	partitions []string
	replicas   map[string]*replica
	began      time.Time
	running    sync.WaitGroup

	mu       sync.Mutex
	requests map[string]int // by method
	refused  int            // claims
	moves    []string       // successful claims that changed the owner
	owner    map[string]string
	since    map[string]time.Time // of owner
	overlap  map[string]time.Time // two that are alive hold it, since when
}

func newWorld(t *testing.T, partitions int) *world {
	w := &world{t: t, replicas: map[string]*replica{}, requests: map[string]int{}, owner: map[string]string{}, since: map[string]time.Time{}, overlap: map[string]time.Time{}, began: time.Now()}
	for i := range partitions {
		w.partitions = append(w.partitions, fmt.Sprint(i))
	}
	return w
}

// A replica is a Member behind a link to the store that fails on purpose.
type replica struct {
	*ownership.Member
	w      *world
	name   string
	cancel context.CancelFunc

	mu     sync.Mutex
	frozen chan struct{} // closed when it goes on; nil: it runs
	killed bool
	delay  time.Duration // half before a call is carried out, half after
	fail   error
	lose   bool // calls are carried out and fail
	keep   bool // heartbeats must not be removed
}

func (w *world) start(names ...string) {
	for _, name := range names {
		ctx, cancel := context.WithCancel(context.Background())
		r := &replica{w: w, name: name, cancel: cancel}
		r.Member = ownership.New(ownership.Config{
			Partitions: w.partitions,
			Store:      records.Around(noting{&w.store, w}, r.carry), Scope: scope, Owner: name, Interval: interval, Expiry: expiry, Logger: zap.NewNop()})
		w.replicas[name] = r
		w.running.Go(func() { r.Run(ctx) })
	}
}

// Held returns what the replica owns, unless another one may own it.
func (r *replica) Held() []string {
	var held []string
	for id := range r.Owned() {
		if r.Holds(id, time.Time{}) {
			held = append(held, id)
		}
	}
	slices.Sort(held)
	return held
}

// end ends all replicas, dead or alive.
func (w *world) end() {
	for _, r := range w.replicas {
		r.cancel()
		r.set(func() {
			r.fail = errOnPurpose
			r.thaw()
		})
	}
	w.running.Wait()
}

func (r *replica) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *replica) freeze() {
	r.set(func() {
		if r.frozen == nil {
			r.frozen = make(chan struct{})
		}
	})
}

func (r *replica) kill() { r.freeze(); r.set(func() { r.killed = true }) }

// thaw must be called under set.
func (r *replica) thaw() {
	if r.frozen != nil {
		close(r.frozen)
		r.frozen = nil
	}
}

func (r *replica) alive() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.frozen == nil
}

// stop ends a replica in good order.
func (w *world) stop(name string) {
	w.replicas[name].cancel()
	delete(w.replicas, name)
}

func (r *replica) call(ctx context.Context, method string, do func() error) error {
	hang := func() (hung bool) {
		r.mu.Lock()
		frozen := r.frozen
		r.mu.Unlock()
		if frozen != nil {
			<-frozen
		}
		return frozen != nil
	}
	pause := func(ctx context.Context) error {
		r.mu.Lock()
		delay := r.delay / 2
		r.mu.Unlock()
		// Two timers of one bubble that are due when they are made crash the race
		// detector if both are looked at at once: https://go.dev/issue/78156.
		if delay <= 0 {
			return ctx.Err()
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	}
	if hang() { // as if it had been frozen just before the call began
		ctx = context.WithoutCancel(ctx)
	}
	if err := pause(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	fail, lose := r.fail, r.lose
	r.mu.Unlock()
	if fail != nil && !lose {
		return fail
	}
	r.w.mu.Lock()
	r.w.requests[method]++
	r.w.mu.Unlock()
	err := do()
	if fail != nil {
		err = fail
	}
	if late := pause(ctx); err == nil {
		err = late
	}
	hang()
	return err
}

// carry makes one call of the member's.
func (r *replica) carry(ctx context.Context, op records.Op, name string, call func(context.Context) error) error {
	method := string(op)
	switch {
	case op == records.OpWrite && strings.Contains(name, "/owner/"):
		method = "beat"
	case op == records.OpWrite:
		method = "claim"
	}
	r.mu.Lock()
	keep := r.keep
	r.mu.Unlock()
	return r.call(ctx, method, func() error {
		if keep && op == records.OpDelete {
			return errOnPurpose
		}
		return call(context.WithoutCancel(ctx))
	})
}

// noting notes who owns what, in the order of writes.
type noting struct {
	records.Store
	w *world
}

func (n noting) Write(ctx context.Context, r records.Record) (string, error) {
	etag, err := n.Store.Write(ctx, r)
	_, partition, claim := strings.Cut(r.Name, "/ownership/")
	if !claim {
		return etag, err
	}
	w, owner := n.w, r.Values["ownerid"]
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		w.refused++
	case w.owner[partition] != owner:
		w.moves = append(w.moves, fmt.Sprintf("%v: partition %s from %q to %q", time.Since(w.began), partition, w.owner[partition], owner))
		w.owner[partition], w.since[partition] = owner, time.Now()
	}
	return etag, err
}

// look is how often the world is looked at.
const look = 50 * time.Millisecond

// pass lets time pass and looks at who holds what: of two replicas that are
// alive, one that has lost a partition to the other finds out by its next listing.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(look) {
		held := w.held()
		for _, p := range w.partitions {
			if len(held[p]) < 2 {
				delete(w.overlap, p)
				continue
			}
			if w.overlap[p].IsZero() {
				w.overlap[p] = time.Now()
			}
			// A listing every 1.2 intervals, each of three calls up to 2 s late.
			if since := time.Since(w.overlap[p]); since > interval*6/5+6*time.Second {
				w.t.Fatalf("%v: partition %s has been held by %v for %v", time.Since(w.began), p, held[p], since)
			}
		}
	}
}

// held returns which replicas that are alive hold a partition.
func (w *world) held() map[string][]string {
	held := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(w.replicas)) {
		if r := w.replicas[name]; r.alive() {
			for _, p := range r.Held() {
				held[p] = append(held[p], name)
			}
		}
	}
	return held
}

// until waits until met and returns how long that took.
func (w *world) until(limit time.Duration, what string, met func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !met() {
		if time.Since(began) > limit {
			w.t.Fatalf("not within %v: %s; held are %v, and the moves were %q", limit, what, w.held(), w.moved())
		}
		w.pass(look)
	}
	return time.Since(began)
}

// read says that every partition is held by exactly one that is alive.
func (w *world) read() bool {
	held := w.held()
	for _, p := range w.partitions {
		if len(held[p]) != 1 {
			return false
		}
	}
	return true
}

// balanced says that the shares of those alive differ by one at most.
func (w *world) balanced() bool {
	if !w.read() {
		return false
	}
	least, most := len(w.partitions), 0
	for _, r := range w.replicas {
		if r.alive() {
			least, most = min(least, len(r.Held())), max(most, len(r.Held()))
		}
	}
	return most <= least+1
}

// count returns the requests since it was last called.
func (w *world) count() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer clear(w.requests)
	return maps.Clone(w.requests)
}

// moved returns the changes of owners since it was last called.
func (w *world) moved() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.moves = nil }()
	return w.moves
}
