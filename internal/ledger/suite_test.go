package ledger_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/ledger"
	"alertworker/internal/records"
	"alertworker/internal/records/recordstest"
	"alertworker/internal/telemetry"
)

// A holder is what holds a ledger: a *ledger.Ledger.
type holder interface {
	ID() string
	Write(ctx context.Context, c ledger.Content) error
	Check(ctx context.Context) error
}

// A suite is a store without records, and what takes a ledger over.
type suite struct {
	store records.Store
	open  func(ctx context.Context, store records.Store, name string) (holder, ledger.Content, error)
}

func open(ctx context.Context, store records.Store, name string) (holder, ledger.Content, error) {
	l, c, err := ledger.Open(ctx, store, name)
	return l, c, err
}

// checks are what ledgers keep on any store. Each gets a suite of its own.
var checks = []struct {
	name string
	run  func(t tester, s suite)
}{
	{"EndedContext", checkEndedContext},
	{"Unreadable", checkUnreadable},
	{"TakeOver", checkTakeOver},
	{"Deleted", checkDeleted},
	{"Racers", checkRacers},
	{"Faults", checkFaults},
	{"LateDuplicates", checkLateDuplicates},
}

func TestInMemory(t *testing.T) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(t, suite{&records.Memory{}, open}) })
	}
}

func TestOnBlobs(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && c.name == "Faults" {
				t.Skip("faults at every call, which TestInMemory has too")
			}
			blobs, err := records.OpenBlobs(t.Context(), azurite.Container(t, azurite.NewContainer(), nil), nil)
			if err != nil {
				t.Fatal(err)
			}
			c.run(t, suite{records.Reliable(blobs), open})
		})
	}
}

// mustFail runs the named check against what is broken on purpose, and fails t if the check does
// not notice.
func mustFail(t *testing.T, s suite, name string) {
	t.Helper()
	for _, c := range checks {
		if c.name != name {
			continue
		}
		r := &recorder{T: t}
		done := make(chan struct{})
		go func() { // which Fatalf ends
			defer close(done)
			c.run(r, s)
		}()
		<-done
		if len(r.failures) == 0 {
			t.Fatalf("%s does not notice", name)
		}
		t.Logf("%d failures, the first: %s", len(r.failures), r.failures[0])
		return
	}
	t.Fatalf("no check %q", name)
}

// A tester is the part of testing.TB that a check uses.
type tester interface {
	Context() context.Context
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A recorder takes down what would have failed a test.
type recorder struct {
	*testing.T
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

const name = "ns.servicebus.windows.net/hub/$default/ledger/0"

// A context that has ended ends every call, which then has done nothing.
func checkEndedContext(t tester, s suite) {
	l, _ := s.take(t, s.store)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before := s.read(t)
	_, _, take := s.open(ended, s.store, name)
	for what, err := range map[string]error{"Open": take, "Write": l.Write(ended, content(1)), "Check": l.Check(ended)} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v, want context.Canceled", what, err)
		}
	}
	s.is(t, before)
	s.holds(t, l, content(2))
}

// What cannot be read is an error, and stays.
func checkUnreadable(t tester, s suite) {
	etag, err := s.store.Write(t.Context(), records.Record{Name: name, Values: map[string]string{"owner": "someone"}, Content: []byte("not a ledger")})
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	_, c, err := s.open(t.Context(), s.store, name)
	var unreadable *ledger.UnreadableError
	if !errors.As(err, &unreadable) || unreadable.Name != name || !reflect.DeepEqual(c, ledger.Content{}) {
		t.Errorf("a record that is not a ledger opens as %+v, %v; want an *UnreadableError", c, err)
	}
	s.is(t, records.Record{ETag: etag})
}

// The next owner goes on where the last one stopped, who is out at once.
func checkTakeOver(t tester, s suite) {
	first, c := s.take(t, s.store)
	if !reflect.DeepEqual(c, ledger.Content{}) || first.ID() == "" {
		t.Errorf("a new ledger has the id %q and %+v", first.ID(), c)
	}
	s.holds(t, first, content(1))
	s.holds(t, first, ledger.Content{}) // no alarms any more
	s.holds(t, first, content(2))
	owners := []string{s.read(t).Values["owner"]}
	old := first
	for n := 3; n < 6; n++ {
		next, c := s.take(t, s.store)
		same(t, c, content(n-1))
		if next.ID() != first.ID() {
			t.Errorf("the ledger's id was %q and is %q", first.ID(), next.ID())
		}
		owner := s.read(t).Values["owner"]
		if owner == "" || slices.Contains(owners, owner) {
			t.Errorf("after a take-over the owner is %q, before that there were %q", owner, owners)
		}
		owners = append(owners, owner)
		lost(t, old, "before its successor has written")
		_, there := s.look(t)
		same(t, there, content(n-1))
		s.holds(t, next, content(n))
		lost(t, old, "after its successor has written")
		s.holds(t, next, content(n))
		old = next
	}
}

// Who deletes a record ends its ledger.
func checkDeleted(t tester, s suite) {
	holder, _ := s.take(t, s.store)
	s.holds(t, holder, content(1))
	s.remove(t)
	lost(t, holder, "after its record was deleted")
	s.is(t, records.Record{})
	next, c := s.take(t, s.store)
	same(t, c, ledger.Content{})
	if next.ID() == holder.ID() {
		t.Errorf("a new ledger has the id of the deleted one")
	}
	lost(t, holder, "after its ledger was deleted and created")
	s.holds(t, next, content(2))
}

// Of several owners at once one holds the ledger in the end, and the others learn it.
func checkRacers(t tester, s suite) {
	for _, there := range []bool{false, true} {
		if there {
			holder, _ := s.take(t, s.store)
			s.holds(t, holder, content(1))
		}
		var mu sync.Mutex
		var opened []holder
		sideBySide(8, func(int) {
			holder, c, err := s.open(t.Context(), s.store, name)
			if err != nil {
				if !errors.Is(err, records.ErrConflict) {
					t.Errorf("one of several that open a ledger: %v", err)
				}
				return
			}
			if there {
				same(t, c, content(1))
			}
			mu.Lock()
			defer mu.Unlock()
			opened = append(opened, holder)
		})
		holding := 0
		for _, holder := range opened {
			err := holder.Check(t.Context())
			switch written := holder.Write(t.Context(), content(1)); {
			case err == nil && written == nil:
				holding++
			case !errors.Is(err, ledger.ErrLost) || !errors.Is(written, ledger.ErrLost):
				t.Errorf("of several owners one checks with %v and writes with %v, want both nil or ErrLost", err, written)
			}
		}
		if holding != 1 {
			t.Errorf("%d of %d hold the ledger, want 1", holding, len(opened))
		}
	}
}

// A single fault of any call leaves an outcome that is not known at most: trying again ends well,
// and nobody who is alone ever loses the ledger.
func checkFaults(t tester, s suite) {
	clean := s.store
	for _, what := range recordstest.Faults {
		for n := 0; ; n++ {
			at := fmt.Sprintf("%s at call %d", what, n+1)
			s.remove(t)
			var network recordstest.Network
			f := network.Via(clean)
			fired := false
			try := func(step string, call func() error) {
				for range 3 {
					err := call()
					if err == nil {
						return
					}
					if errors.Is(err, ledger.ErrLost) || !errors.Is(err, recordstest.ErrReset) {
						t.Errorf("%s: %s: %v, want that the connection was reset", at, step, err)
					}
				}
				t.Errorf("%s: %s fails again and again", at, step)
			}
			var id string
			network.Arm(what, n)
			for owner := range 2 {
				var l holder
				try("open", func() (err error) {
					var c ledger.Content
					if l, c, err = s.open(t.Context(), f, name); err == nil && owner > 0 {
						same(t, c, content(3))
					}
					return err
				})
				if l == nil {
					t.Fatalf("%s: it cannot be opened", at)
				}
				if id = cmp.Or(id, l.ID()); id != l.ID() {
					t.Errorf("%s: the ledger's id was %q and is %q", at, id, l.ID())
				}
				for i := 1; i <= 3; i++ {
					try("write", func() error { return l.Write(t.Context(), content(i)) })
					try("check", func() error { return l.Check(t.Context()) })
				}
			}
			fired = network.Disarm()
			_, c := s.look(t)
			same(t, c, content(3))
			if !fired {
				if n == 0 {
					t.Errorf("%s: no call was made", at)
				}
				break
			}
		}
	}
}

// Writes of an earlier owner that the network delivers late change nothing.
func checkLateDuplicates(t tester, s suite) {
	var network recordstest.Network
	f := network.Via(s.store)
	old, _ := s.take(t, f)
	for i := 1; i <= 3; i++ {
		s.holds(t, old, content(i))
	}
	network.Arm(recordstest.Late, 0) // the last one is on its way while the next owner comes
	if err := old.Write(t.Context(), content(4)); !errors.Is(err, recordstest.ErrReset) {
		t.Errorf("a write without an answer: %v", err)
	}
	next, c := s.take(t, s.store)
	same(t, c, content(3))
	for n := 5; n < 7; n++ {
		if landed := network.Repeat(); landed != 0 {
			t.Errorf("%d late writes of an earlier owner were executed", landed)
		}
		_, there := s.look(t)
		same(t, there, c)
		c = content(n)
		s.holds(t, next, c)
	}
	lost(t, old, "with a write on its way")
	network.Repeat()
	s.holds(t, next, content(8))
}

// content returns the n-th of distinct contents.
func content(n int) ledger.Content {
	at := time.Date(2026, 3, 4, 5, 6, n, 789e6, time.UTC)
	c := ledger.Content{Position: telemetry.Position{Sequence: int64(n), Offset: fmt.Sprint(100 * n), Time: at}}
	for i := range n {
		c.Alarms = append(c.Alarms, ledger.Alarm{Device: ledger.Text(fmt.Sprintf("device-%d-\xff", i)), Rule: "hot", Level: "critical", Open: i%2 == 0, Since: at})
	}
	c.Alarms[0].Due = &ledger.Reading{Sequence: int64(n - 1), Enqueued: at, Value: ledger.Number(1.5 * float64(n)), Limit: 65, Since: at.Add(-time.Minute)}
	return c
}

func same(t tester, got, want ledger.Content) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the ledger has %+v, want %+v", got, want)
	}
}

// lost says that a holder has lost its ledger, and knows.
func lost(t tester, l holder, when string) {
	t.Helper()
	for range 2 { // and does not forget it
		if err := l.Check(t.Context()); !errors.Is(err, ledger.ErrLost) {
			t.Errorf("an owner checks %s: %v, want ErrLost", when, err)
		}
		if err := l.Write(t.Context(), content(9)); !errors.Is(err, ledger.ErrLost) {
			t.Errorf("an owner writes %s: %v, want ErrLost", when, err)
		}
	}
}

// take takes the ledger over.
func (s suite) take(t tester, store records.Store) (holder, ledger.Content) {
	t.Helper()
	holder, c, err := s.open(t.Context(), store, name)
	if err != nil {
		t.Fatalf("open the ledger: %v", err)
	}
	if err := holder.Check(t.Context()); err != nil {
		t.Errorf("an owner that has just opened the ledger checks: %v", err)
	}
	return holder, c
}

// look returns what the next owner would find. It disturbs nobody.
func (s suite) look(t tester) (id string, c ledger.Content) {
	t.Helper()
	var aside records.Memory
	if _, err := aside.Write(t.Context(), records.Record{Name: name, Content: s.read(t).Content}); err != nil {
		t.Fatalf("copy the record: %v", err)
	}
	l, c, err := ledger.Open(t.Context(), &aside, name)
	if err != nil {
		t.Fatalf("open a copy: %v", err)
	}
	return l.ID(), c
}

// holds writes as the owner, and looks at what is there.
func (s suite) holds(t tester, l holder, c ledger.Content) {
	t.Helper()
	if err := l.Write(t.Context(), c); err != nil {
		t.Errorf("the owner writes: %v", err)
	}
	if err := l.Check(t.Context()); err != nil {
		t.Errorf("the owner checks: %v", err)
	}
	id, there := s.look(t)
	same(t, there, c)
	if id != l.ID() {
		t.Errorf("the ledger's id is %q, its owner says %q", id, l.ID())
	}
}

func (s suite) read(t tester) records.Record {
	t.Helper()
	r, err := s.store.Read(t.Context(), name, ledger.MaxBytes)
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		t.Fatalf("read: %v", err)
	}
	return r
}

// is says that the record is still that one.
func (s suite) is(t tester, want records.Record) {
	t.Helper()
	if r := s.read(t); r.ETag != want.ETag {
		t.Errorf("%s is %+v; want %+v", name, r, want)
	}
}

func (s suite) remove(t tester) {
	t.Helper()
	if err := s.store.Delete(t.Context(), name, records.Any); err != nil {
		t.Fatalf("delete the record: %v", err)
	}
}

// sideBySide calls f with 0 to n-1 at once.
func sideBySide(n int, f func(i int)) {
	var all sync.WaitGroup
	defer all.Wait()
	for i := range n {
		all.Go(func() { f(i) })
	}
}
