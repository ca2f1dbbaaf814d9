package ledgertest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"alertworker/internal/ledger"
	"alertworker/internal/telemetry"
)

// checks are the suite. A check gets a backend of its own.
var checks = []struct {
	name string
	run  func(t tester, s *suite)
}{
	{"Absent", checkAbsent},
	{"Replace", checkReplace},
	{"Content", checkContent},
	{"Names", checkNames},
	{"Fresh", checkFresh},
	{"OneWinner", checkOneWinner},
	{"EndedContext", checkEndedContext},
	{"Unreadable", checkUnreadable},
	{"TakeOver", checkTakeOver},
	{"Deleted", checkDeleted},
	{"Racers", checkRacers},
	{"Faults", checkFaults},
	{"LateDuplicates", checkLateDuplicates},
}

const name = "ns.servicebus.windows.net/hub/$default/ledger/0"

// There is nothing where nothing was written, and nothing that could be replaced.
func checkAbsent(t tester, s *suite) {
	store := s.Open()
	s.is(t, name, ledger.Record{})
	if _, err := store.Write(t.Context(), name, ledger.Record{Owner: "a", ETag: "unknown"}); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("replacing what is not there: %v, want ErrConflict", err)
	}
	s.is(t, name, ledger.Record{})
}

// Only who knows what is there replaces it.
func checkReplace(t tester, s *suite) {
	a, b := s.Open(), s.Open()
	first := s.write(t, a, ledger.Record{Owner: "a", Content: []byte("1")})
	s.refused(t, b, ledger.Record{Owner: "b", Content: []byte("2")})
	s.is(t, name, first)
	second := s.write(t, b, ledger.Record{Owner: "b", Content: []byte("2"), ETag: first.ETag})
	s.is(t, name, second)
	s.refused(t, a, ledger.Record{Owner: "a", Content: []byte("3"), ETag: first.ETag})
	s.is(t, name, second)
	third := s.write(t, b, second) // the same again
	if third.ETag == second.ETag {
		t.Errorf("a write left the ETag %q as it was", third.ETag)
	}
	s.refused(t, b, second)
	if err := s.Delete(t.Context(), name); err != nil {
		t.Fatalf("delete the record: %v", err)
	}
	s.is(t, name, ledger.Record{})
	s.refused(t, b, third)
	s.is(t, name, s.write(t, a, ledger.Record{Owner: "a", Content: []byte("4")}))
}

// Content comes back as it was, however much it is, and without it the owner.
func checkContent(t tester, s *suite) {
	random := rand.NewChaCha8([32]byte{})
	store, r := s.Open(), ledger.Record{}
	for _, n := range []int{0, 1, 1 << 10, 6 << 20} {
		content := make([]byte, n)
		_, _ = random.Read(content)
		r = s.write(t, store, ledger.Record{Owner: "owner", Content: content, ETag: r.ETag})
		there := s.read(t, name)
		if !bytes.Equal(there.Content, content) {
			t.Errorf("%d bytes of content are %d that differ", n, len(there.Content))
		}
		clear(there.Content) // the reader may
		if !bytes.Equal(s.read(t, name).Content, content) {
			t.Errorf("a reader has changed %d bytes of content", n)
		}
	}
}

// Distinct names have distinct records.
func checkNames(t tester, s *suite) {
	store := s.Open()
	names := []string{name, name + "0", "ns.servicebus.windows.net/hub/$default/ledger/1", "ns.servicebus.windows.net/hub/other/ledger/0", "ns/hub/ledger/0"}
	written := map[string]ledger.Record{}
	for _, name := range names {
		r := ledger.Record{Owner: fmt.Sprint(len(written)), Content: []byte(name)}
		var err error
		if r.ETag, err = store.Write(t.Context(), name, r); err != nil {
			t.Fatalf("create %s: %v", name, err)
		}
		written[name] = r
	}
	for name, r := range written {
		s.is(t, name, r)
	}
}

// A reader never sees what a write has replaced.
func checkFresh(t tester, s *suite) {
	stores := []ledger.Store{s.Open(), s.Open(), s.Open()}
	var r ledger.Record
	for i := range 30 {
		r.Owner, r.Content = fmt.Sprint(i), []byte{byte(i)}
		r = s.write(t, stores[i%3], r)
		for _, store := range stores {
			if owner, err := store.Owner(t.Context(), name); err != nil || owner != r.Owner {
				t.Errorf("the owner is %q, %v; want %q, who has just written", owner, err, r.Owner)
			}
		}
		s.is(t, name, r)
	}
}

// Of those that replace the same record one does.
func checkOneWinner(t tester, s *suite) {
	var r ledger.Record
	for round := range 5 {
		var mu sync.Mutex
		var won []ledger.Record
		sideBySide(8, func(i int) {
			next := ledger.Record{Owner: fmt.Sprint(round, i), Content: []byte{byte(i)}, ETag: r.ETag}
			etag, err := s.Open().Write(t.Context(), name, next)
			switch {
			case err == nil:
				next.ETag = etag
				mu.Lock()
				won = append(won, next)
				mu.Unlock()
			case !errors.Is(err, ledger.ErrConflict):
				t.Errorf("one of several writers: %v, want ErrConflict", err)
			}
		})
		if len(won) != 1 {
			t.Fatalf("round %d has %d winners", round, len(won))
		}
		r = won[0]
		s.is(t, name, r)
	}
}

// A context that has ended ends every call, which then has done nothing.
func checkEndedContext(t tester, s *suite) {
	store := s.Open()
	holder, _ := s.take(t, store)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before := s.read(t, name)
	_, read := store.Read(ended, name)
	_, owner := store.Owner(ended, name)
	_, write := store.Write(ended, name, ledger.Record{Owner: "late", ETag: before.ETag})
	_, _, take := s.Take(ended, store, name)
	for what, err := range map[string]error{
		"Read": read, "Owner": owner, "Write": write, "Open": take, "Ledger.Write": holder.Write(ended, content(1)), "Ledger.Check": holder.Check(ended),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v, want context.Canceled", what, err)
		}
	}
	s.is(t, name, before)
	s.holds(t, holder, content(2))
}

// What cannot be read is an error, and stays.
func checkUnreadable(t tester, s *suite) {
	garbage := s.write(t, s.Open(), ledger.Record{Owner: "someone", Content: []byte("not a ledger")})
	_, c, err := s.Take(t.Context(), s.Open(), name)
	var unreadable *ledger.UnreadableError
	if !errors.As(err, &unreadable) || unreadable.Name != name || !reflect.DeepEqual(c, ledger.Content{}) {
		t.Errorf("a record that is not a ledger opens as %+v, %v; want an *UnreadableError", c, err)
	}
	s.is(t, name, garbage)
}

// The next owner goes on where the last one stopped, who is out at once.
func checkTakeOver(t tester, s *suite) {
	first, c := s.take(t, s.Open())
	if !reflect.DeepEqual(c, ledger.Content{}) || first.ID() == "" {
		t.Errorf("a new ledger has the id %q and %+v", first.ID(), c)
	}
	s.holds(t, first, content(1))
	s.holds(t, first, ledger.Content{}) // no alarms any more
	s.holds(t, first, content(2))
	owners := []string{s.read(t, name).Owner}
	old := first
	for n := 3; n < 6; n++ {
		next, c := s.take(t, s.Open())
		same(t, c, content(n-1))
		if next.ID() != first.ID() {
			t.Errorf("the ledger's id was %q and is %q", first.ID(), next.ID())
		}
		owner := s.read(t, name).Owner
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
func checkDeleted(t tester, s *suite) {
	holder, _ := s.take(t, s.Open())
	s.holds(t, holder, content(1))
	if err := s.Delete(t.Context(), name); err != nil {
		t.Fatalf("delete the record: %v", err)
	}
	lost(t, holder, "after its record was deleted")
	s.is(t, name, ledger.Record{})
	next, c := s.take(t, s.Open())
	same(t, c, ledger.Content{})
	if next.ID() == holder.ID() {
		t.Errorf("a new ledger has the id of the deleted one")
	}
	lost(t, holder, "after its ledger was deleted and created")
	s.holds(t, next, content(2))
}

// Of several owners at once one holds the ledger in the end, and the others learn it.
func checkRacers(t tester, s *suite) {
	for _, there := range []bool{false, true} {
		if there {
			holder, _ := s.take(t, s.Open())
			s.holds(t, holder, content(1))
		}
		var mu sync.Mutex
		var opened []Holder
		sideBySide(8, func(int) {
			holder, c, err := s.Take(t.Context(), s.Open(), name)
			if err != nil {
				if !errors.Is(err, ledger.ErrConflict) {
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
func checkFaults(t tester, s *suite) {
	clean := s.Open()
	for _, what := range []fault{lostRequest, lostAnswer, repeated, late} {
		for n := 0; ; n++ {
			at := fmt.Sprintf("%s at call %d", what, n+1)
			if err := s.Delete(t.Context(), name); err != nil {
				t.Fatalf("delete the record: %v", err)
			}
			f := &faulty{Store: clean}
			fired := false
			try := func(step string, call func() error) {
				for range 3 {
					err := call()
					if err == nil {
						return
					}
					if errors.Is(err, ledger.ErrLost) || !errors.Is(err, errReset) {
						t.Errorf("%s: %s: %v, want that the connection was reset", at, step, err)
					}
				}
				t.Errorf("%s: %s fails again and again", at, step)
			}
			var id string
			f.arm(what, n)
			for owner := range 2 {
				var holder Holder
				try("open", func() (err error) {
					var c ledger.Content
					if holder, c, err = s.Take(t.Context(), f, name); err == nil && owner > 0 {
						same(t, c, content(3))
					}
					return err
				})
				if holder == nil {
					t.Fatalf("%s: it cannot be opened", at)
				}
				if id = cmp.Or(id, holder.ID()); id != holder.ID() {
					t.Errorf("%s: the ledger's id was %q and is %q", at, id, holder.ID())
				}
				for i := 1; i <= 3; i++ {
					try("write", func() error { return holder.Write(t.Context(), content(i)) })
					try("check", func() error { return holder.Check(t.Context()) })
				}
			}
			fired = f.disarm()
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
func checkLateDuplicates(t tester, s *suite) {
	f := &faulty{Store: s.Open()}
	old, _ := s.take(t, f)
	for i := 1; i <= 3; i++ {
		s.holds(t, old, content(i))
	}
	f.arm(late, 0) // the last one is on its way while the next owner comes
	if err := old.Write(t.Context(), content(4)); !errors.Is(err, errReset) {
		t.Errorf("a write without an answer: %v", err)
	}
	next, c := s.take(t, s.Open())
	same(t, c, content(3))
	for n := 5; n < 7; n++ {
		if landed := f.repeat(t.Context()); landed != 0 {
			t.Errorf("%d late writes of an earlier owner were executed", landed)
		}
		_, there := s.look(t)
		same(t, there, c)
		c = content(n)
		s.holds(t, next, c)
	}
	lost(t, old, "with a write on its way")
	f.repeat(t.Context())
	s.holds(t, next, content(8))
}

// content returns the n-th of distinct contents.
func content(n int) ledger.Content {
	at := time.Date(2026, 3, 4, 5, 6, n, 789e6, time.UTC)
	c := ledger.Content{Position: telemetry.Position{Sequence: int64(n), Offset: fmt.Sprint(100 * n), Time: at}}
	for i := range n {
		c.Alarms = append(c.Alarms, ledger.Alarm{Device: fmt.Sprintf("device-%d-\xff", i), Rule: "hot", Level: "critical", Open: i%2 == 0, Since: at})
	}
	c.Alarms[0].Due = &ledger.Reading{Sequence: int64(n - 1), Enqueued: at, Value: 1.5 * float64(n), Limit: 65, Since: at.Add(-time.Minute)}
	return c
}

func same(t tester, got, want ledger.Content) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the ledger has %+v, want %+v", got, want)
	}
}

// lost says that a holder has lost its ledger, and knows.
func lost(t tester, holder Holder, when string) {
	t.Helper()
	for range 2 { // and does not forget it
		if err := holder.Check(t.Context()); !errors.Is(err, ledger.ErrLost) {
			t.Errorf("an owner checks %s: %v, want ErrLost", when, err)
		}
		if err := holder.Write(t.Context(), content(9)); !errors.Is(err, ledger.ErrLost) {
			t.Errorf("an owner writes %s: %v, want ErrLost", when, err)
		}
	}
}

// take takes the ledger over.
func (s *suite) take(t tester, store ledger.Store) (Holder, ledger.Content) {
	t.Helper()
	holder, c, err := s.Take(t.Context(), store, name)
	if err != nil {
		t.Fatalf("open the ledger: %v", err)
	}
	if err := holder.Check(t.Context()); err != nil {
		t.Errorf("an owner that has just opened the ledger checks: %v", err)
	}
	return holder, c
}

// look returns what the next owner would find. It disturbs nobody.
func (s *suite) look(t tester) (id string, c ledger.Content) {
	t.Helper()
	var aside ledger.Memory
	if _, err := aside.Write(t.Context(), name, ledger.Record{Owner: "copy", Content: s.read(t, name).Content}); err != nil {
		t.Fatalf("copy the record: %v", err)
	}
	l, c, err := ledger.Open(t.Context(), &aside, name)
	if err != nil {
		t.Fatalf("open a copy: %v", err)
	}
	return l.ID(), c
}

// holds writes as the owner, and looks at what is there.
func (s *suite) holds(t tester, holder Holder, c ledger.Content) {
	t.Helper()
	if err := holder.Write(t.Context(), c); err != nil {
		t.Errorf("the owner writes: %v", err)
	}
	if err := holder.Check(t.Context()); err != nil {
		t.Errorf("the owner checks: %v", err)
	}
	id, there := s.look(t)
	same(t, there, c)
	if id != holder.ID() {
		t.Errorf("the ledger's id is %q, its owner says %q", id, holder.ID())
	}
}

// write returns r with its new ETag.
func (s *suite) write(t tester, store ledger.Store, r ledger.Record) ledger.Record {
	t.Helper()
	etag, err := store.Write(t.Context(), name, r)
	if err != nil || etag == "" {
		t.Fatalf("write over the ETag %q: the new one is %q, %v", r.ETag, etag, err)
	}
	r.ETag = etag
	return r
}

func (s *suite) refused(t tester, store ledger.Store, r ledger.Record) {
	t.Helper()
	if _, err := store.Write(t.Context(), name, r); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("write over the ETag %q, which is not that of the record: %v, want ErrConflict", r.ETag, err)
	}
}

func (s *suite) read(t tester, name string) ledger.Record {
	t.Helper()
	r, err := s.Open().Read(t.Context(), name)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return r
}

// is says that want is the record, for every kind of call.
func (s *suite) is(t tester, name string, want ledger.Record) {
	t.Helper()
	r := s.read(t, name)
	owner, err := s.Open().Owner(t.Context(), name)
	if r.Owner != want.Owner || !bytes.Equal(r.Content, want.Content) || r.ETag != want.ETag || err != nil || owner != want.Owner {
		t.Errorf("%s is %+v, and its owner %q, %v; want %+v", name, r, owner, err, want)
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
