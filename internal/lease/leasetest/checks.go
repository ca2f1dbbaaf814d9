package leasetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"alertworker/internal/lease"
)

// checks are the suite. A check gets a backend of its own.
var checks = []check{
	{"OneWinner", false, checkOneWinner},
	{"Expiry", false, checkExpiry},
	{"Frees", false, checkFrees},
	{"SkewedService", true, checkSkewedService},
	{"StaleHolder", false, checkStaleHolder},
	{"Token", false, checkToken},
	{"Extend", false, checkExtend},
	{"Release", false, checkRelease},
	{"Notes", false, checkNotes},
	{"Next", false, checkNext},
	{"Keys", false, checkKeys},
	{"Read", false, checkRead},
	{"EndedContext", false, checkEndedContext},
	{"Faults", true, checkFaults},
	{"Outage", true, checkOutage},
	{"LateDuplicates", true, checkLateDuplicates},
	{"LocalClock", true, checkLocalClock},
}

// A check looks at a store, or at what happens on the way to its backend.
type check struct {
	name      string
	onNetwork bool
	run       func(t tester, s *suite)
}

// on runs c, and reports whether it could. A store without a Wire need only open for a check of a network.
func (c check) on(t tester, s *suite) bool {
	if c.onNetwork && s.Transport == nil && s.Backend.Wire == nil {
		s.store(t)
		return false
	}

	c.run(t, s)
	return true
}

// Of a hundred callers at once one wins, and the others learn that they did not.
func checkOneWinner(t tester, s *suite) {
	const contenders = 100
	stores := []lease.Store{s.store(t), s.store(t), s.store(t), s.store(t)}

	acquire(t, stores[0], "expired", "", s.short)
	release(t, stores[0], acquire(t, stores[0], "released", "", s.short), "")
	s.outlast(s.short)

	for _, key := range []string{"absent", "released", "expired"} {
		var mu sync.Mutex
		var won []lease.Lease
		start := make(chan struct{})
		time.AfterFunc(10*time.Millisecond, func() { close(start) })
		sideBySide(contenders, func(i int) {
			<-start
			l, err := stores[i%len(stores)].Acquire(t.Context(), key, long, with(fmt.Sprint(i)))
			switch {
			case err == nil:
				mu.Lock()
				won = append(won, l)
				mu.Unlock()
			case asHeld(t, key, err) == nil:
				t.Errorf("one of %d contenders for the %s key: %v", contenders, key, err)
			}
		})
		if len(won) != 1 {
			t.Errorf("%d of %d contenders got the %s key, want 1", len(won), contenders, key)
			continue
		}

		extend(t, stores[1], won[0], "", long)
	}
}

// A key frees when the store's clock says so, wherever in a second it was taken:
// never before its ttl is over, and not much later.
func checkExpiry(t tester, s *suite) {
	holder, other := s.store(t), s.store(t)
	second := time.Now().Truncate(time.Second).Add(time.Second)
	sideBySide(10, func(i int) {
		time.Sleep(time.Until(second.Add(time.Duration(i) * 100 * time.Millisecond)))
		start := time.Now()
		l := acquire(t, holder, fmt.Sprintf("at .%d s", i), "", s.short)
		s.started(t, l, start, s.short)
		if held := refusedUntil(t, other, l); held != nil && held.Until.After(time.Now().Add(s.short)) {
			t.Errorf("HeldError.Until is %v away, the ttl was %v", time.Until(held.Until), s.short)
		}

		l.Until = start.Add(s.short) // whatever the store says
		s.waitOut(t, other, l, "", s.short)
	})
}

// Who asks when he was told that the key would be free gets it: the holder was told as well.
func checkFrees(t tester, s *suite) {
	holder, other := s.store(t), s.store(t)
	sideBySide(5, func(i int) {
		key := fmt.Sprintf("key %d", i)
		time.Sleep(time.Duration(i) * 230 * time.Millisecond)
		l := extend(
			t,
			holder,
			acquire(t, holder, key, "claim", long),
			"window",
			s.short+time.Duration(i)*170*time.Millisecond,
		)
		frees := l.Frees
		if held := refusedUntil(t, other, l); held != nil && i%2 == 1 {
			frees = held.Frees
		}

		if early := l.Until.Sub(frees); early > 0 {
			t.Errorf("key %q is said to free %v before its lease ends", key, early)
		}

		if late := frees.Sub(l.Until); s.Bubble != nil && late > s.Lag {
			t.Errorf("key %q is said to free %v after its lease ends, want at most %v", key, late, s.Lag)
		}

		time.Sleep(time.Until(frees))
		if _, err := other.Acquire(t.Context(), key, long, with("")); err != nil {
			t.Errorf("key %q was to be free by now: %v", key, err)
		}
	})
}

// The machines of a service are up to a second apart: one dates the record, another
// the answers of those who wait for it.
func checkSkewedService(t tester, s *suite) {
	second := time.Now().Truncate(time.Second).Add(time.Second)
	ahead := []time.Duration{900 * time.Millisecond, -900 * time.Millisecond}
	sideBySide(2*10, func(i int) {
		by := ahead[i%2]
		w := s.wire()
		w.Skew(by, 0)
		holder, other := s.store(t), opened(t, w.Open)

		time.Sleep(time.Until(second.Add(time.Duration(i/2) * 100 * time.Millisecond)))
		start := time.Now()
		l := acquire(t, holder, fmt.Sprintf("%v at .%d s", by, i/2), "", s.short)
		l.Until = start.Add(s.short)
		s.waitOut(t, other, l, "", s.short)
	})
}

// A holder whose lease was taken over changes nothing.
func checkStaleHolder(t tester, s *suite) {
	a, b := s.store(t), s.store(t)
	stale := acquire(t, a, "key", "a", s.short)
	extended := extend(t, a, stale, "a", s.short)
	l := s.waitOut(t, b, extended, "b", long)
	for _, old := range []lease.Lease{stale, extended} {
		for _, store := range []lease.Store{a, b} {
			lost(t, store, old)
			release(t, store, old, "stale")
			wantRecord(t, "after a stale holder's calls", refused(t, a, "key").Record, l, "b", long)
		}
	}

	if got := extend(t, a, l, "b", long); got.Token != l.Token {
		t.Errorf("Extend changed the token from %d to %d", l.Token, got.Token)
	}
}

// A later lease has a greater token, whatever happened in between.
func checkToken(t tester, s *suite) {
	a, b := s.store(t), s.store(t)
	var last int64
	grown := func(after string, l lease.Lease) {
		t.Helper()
		errorIf(t, l.Token <= last, "token %d after %s, the one before was %d", l.Token, after, last)
		last = l.Token
	}

	remove := func() {
		t.Helper()
		time.Sleep(1100 * time.Millisecond) // the clock that makes up for the lost token may count seconds
		if err := s.Delete(t.Context(), "key"); err != nil {
			t.Fatalf("delete the record: %v", err)
		}
	}

	l := acquire(t, a, "key", "", long)
	grown("nothing", l)
	for range 3 {
		release(t, a, l, "")
		l = acquire(t, b, "key", "", long)
		grown("release", l)
	}

	l = extend(t, a, l, "", s.short)
	l = s.waitOut(t, b, l, "", long)
	grown("expiry", l)
	remove()
	l = acquire(t, a, "key", "", long)
	grown("deletion", l)
	release(t, b, l, "")
	remove()
	old := l
	l = acquire(t, b, "key", "", long)
	grown("release and deletion", l)
	lost(t, a, old)
	remove()
	lost(t, a, l)
	release(t, a, l, "")
}

// Extend moves the end both ways, while nobody else has taken the key.
func checkExtend(t tester, s *suite) {
	a, b := s.store(t), s.store(t)
	sideBySide(4, func(i int) {
		switch i {
		case 0: // sooner
			first := acquire(t, a, "sooner", "claim", long)
			start := time.Now()
			l := extend(t, a, first, "window", s.short)
			sameGrant(t, first, l)
			s.started(t, l, start, s.short)
			s.waitOut(t, b, l, "", long)

		case 1: // later, and by any copy
			first := acquire(t, a, "later", "claim", s.short)
			l := extend(t, b, first, "window", long)
			sameGrant(t, first, l)
			if !l.Until.After(first.Until) {
				t.Errorf("Extend to %v later moved Until by %v", long-s.short, l.Until.Sub(first.Until))
			}

			s.outlast(s.short)
			wantRecord(t, "after Extend", refused(t, b, "later").Record, l, "window", long)

			sameGrant(t, first, extend(t, a, first, "again", long))

		case 2: // expired, and nobody has taken it
			first := acquire(t, a, "expired", "claim", s.short)
			s.outlast(s.short)
			sameGrant(t, first, extend(t, a, first, "late", long))
			wantRecord(t, "after a late Extend", refused(t, b, "expired").Record, first, "late", long)

		case 3: // released; of one that was taken see checkStaleHolder
			first := acquire(t, a, "released", "claim", long)
			release(t, a, first, "")
			lost(t, a, first)
			lost(t, b, first)
			release(t, b, acquire(t, b, "released", "", long), "")
			lost(t, a, first)
		}
	})
}

func sameGrant(t tester, a, b lease.Lease) {
	t.Helper()
	extended := b
	b.Note, b.Until, b.Frees, b.Version = a.Note, a.Until, a.Frees, a.Version // nothing else may differ
	errorIf(t, a != b, "Extend turned the grant %+v into %+v", a, extended)
}

// Release frees the key at once, any number of times, and for good.
func checkRelease(t tester, s *suite) {
	a, b := s.store(t), s.store(t)
	l := acquire(t, a, "key", "", long)
	l = extend(t, a, l, "", long)
	release(t, b, l, "kept")
	release(t, a, l, "again")
	next, prev := replace(t, b, "key", "")
	wantRecord(t, "after Release", prev, l, "kept", 0)
	errorIf(t, next.ID == l.ID, "two grants have the ID %q", l.ID)
}

var notes = []string{
	"plain", "", "Grüße, 設備 🔥", " padded\t", "two\nlines\r\n", "nul\x00", `{"a":"b"}`, "==",
	strings.Repeat("é", lease.MaxNote/2),
}

// A note comes back as it was left: to the refused and to the next holder.
func checkNotes(t tester, s *suite) {
	a, b := s.store(t), s.store(t)
	sideBySide(len(notes), func(i int) {
		key, note := fmt.Sprintf("note %d", i), notes[i]
		l := acquire(t, a, key, note, long)
		wantRecord(t, "after Acquire", refused(t, b, key).Record, l, note, long)
		l = extend(t, a, l, "other", long)
		l = extend(t, a, l, note, long)
		wantRecord(t, "after Extend", refused(t, b, key).Record, l, note, long)
		errorIf(t, l.Note != note, "the lease has the note %q, want %q", l.Note, note)

		release(t, a, l, note)
		_, prev := replace(t, b, key, "")
		wantRecord(t, "after Release", prev, l, note, 0)
	})

	// The note of an expired window must not show once the key is claimed.
	l := acquire(t, a, "key", "claim 1", long)
	l = extend(t, a, l, "window", s.short)
	if held := refusedUntil(t, b, l); held != nil {
		wantRecord(t, "during the window", held.Record, l, "window", s.short)
	}

	l = s.waitOut(t, b, l, "claim 2", long)
	wantRecord(t, "after an expired window and a claim", refused(t, a, "key").Record, l, "claim 2", long)
}

// next sees the record that Acquire replaces, and may say no.
func checkNext(t tester, s *suite) {
	a, b := s.store(t), s.store(t)
	no := errors.New("not now")
	see := func(ask lease.Store) (prev lease.Record) {
		t.Helper()
		for end := time.Now().Add(s.grace); ; time.Sleep(100 * time.Millisecond) {
			_, err := ask.Acquire(t.Context(), "key", long, func(r lease.Record) (string, error) {
				prev = r
				return "", no
			})
			if errors.Is(err, lease.ErrHeld) && time.Now().Before(end) {
				continue // an expired key may free late
			}

			if err != no { //nolint:errorlint // as it is
				t.Fatalf("Acquire returned %v, want next's error as it is", err)
			}

			return prev
		}
	}

	wantAbsent(t, "next of a key that was never taken", see(a))
	wantAbsent(t, "next after a refusal by next", see(b))

	l := acquire(t, b, "key", "claim", s.short)
	l = extend(t, b, l, "window", s.short)
	held := refusedUntil(t, a, l)
	s.outlast(s.short)
	for range 2 { // nothing changes
		prev := see(a)
		wantRecord(t, "after expiry", prev, l, "window", s.short)
		if held != nil && !prev.Written.Equal(held.Record.Written) {
			t.Errorf("next sees a record written at %v, the refused saw %v", prev.Written, held.Record.Written)
		}

		if prev.Written.Before(prev.Claimed) || prev.Now.Sub(prev.Written) < prev.Hold {
			t.Errorf("the record's times are out of order: %+v", prev)
		}
	}

	// A refusal by next frees nothing and takes nothing: the holder is still the last one.
	extend(t, b, l, "late", long)
}

var keys = slices.Concat(
	[]string{
		"a", "A", "b", "a/b", "a_b", "a-b", "a.b", "a%2Fb", "a%2fb", "a~2Fb", "a=2Fb", "a\\b",
		"a?b", "a#b", "a b", "a+b", "a%20b", "a%b",
		".", "..", "...", "~2E", "a.", "a..", "a/", "a//", "/a", "/", "//", "./a", "../a", "a/../b", "a/./b", "a//b",
		"device-1", "Device-1", "device-1 ", " device-1",
		"ü", "u\u0308", "設備", "🔥", "a\x00b", "a\nb", `"a"`, "{}", "probe",
		"AZaz09-:.+%_#*?!(),=@;$'", "azaz09-:.+%_#*?!(),=@;$'",
		"namespace.servicebus.windows.net/hub/$default/log/device",
		strings.Repeat(
			"x",
			128,
		), strings.Repeat("X", 128), strings.Repeat("#", 128), strings.Repeat("x", 127) + ".", strings.Repeat("x", 127) + "/",
		strings.Repeat("k", 1023) + "1", strings.Repeat("k", 1023) + "2", strings.Repeat("k", 1022),
	},
)

// Distinct keys are distinct leases. Any key has room for the longest note.
func checkKeys(t tester, s *suite) {
	a, b := s.store(t), s.store(t)
	note := func(i int) string {
		of := "note of " + keys[i]
		return of + strings.Repeat(".", lease.MaxNote-len(of))
	}
	sideBySide(len(keys), func(i int) { acquire(t, a, keys[i], note(i), long) })
	sideBySide(len(keys), func(i int) {
		if got, want := refused(t, b, keys[i]).Record.Note, note(i); got != want {
			t.Errorf("key %q has the %q", keys[i], got)
		}
	})
}

// wantAbsent demands that r, which somebody saw, is the record of a key that was never taken.
func wantAbsent(t tester, who string, r lease.Record) {
	t.Helper()
	if r.Now.IsZero() || r != (lease.Record{Now: r.Now}) {
		t.Errorf("%s sees %+v, want no record", who, r)
	}
}

// wantRecord demands that r, which was seen when, is the record of l, with a note and for so long.
func wantRecord(t tester, when string, r lease.Record, l lease.Lease, note string, hold time.Duration) {
	t.Helper()
	if r.Token != l.Token || !r.Claimed.Equal(l.Claimed) || r.Note != note || r.Hold != hold {
		t.Errorf("%s the record is %+v, want that of %+v with the note %q and the hold %v", when, r, l, note, hold)
	}
}

// Read shows what a refusal and next show, of any key, and changes nothing.
func checkRead(t tester, s *suite) {
	store, other := s.store(t), s.store(t)
	absent := func(key string) {
		t.Helper()
		wantAbsent(t, "Read of the "+key+" key", read(t, other, key))
	}
	absent("absent")
	sideBySide(len(keys), func(i int) {
		note := notes[i%len(notes)]
		l := acquire(t, store, keys[i], note, long)

		switch i % 3 {
		case 0:
			l = extend(t, store, l, note, long/2)
			wantRecord(t, "Read", read(t, other, l.Key), l, note, long/2)
			extend(t, store, l, note, long) // it has disturbed nobody
		case 1:
			release(t, store, l, note)
			r := read(t, other, l.Key)
			_, next := replace(t, store, l.Key, "")
			wantRecord(t, "Read", r, l, note, 0)
			wantRecord(t, "after Read", next, l, note, 0)
			if !r.Written.Equal(next.Written) || r.Now.Before(r.Written) || r.Now.After(next.Now) {
				t.Errorf("key %q was read as %+v, and acquired as %+v", l.Key, r, next)
			}
		default:
			wantRecord(t, "Read", read(t, other, l.Key), l, note, long)
			extend(t, store, l, note, long)
		}
	})

	no := errors.New("no")
	decline := func(lease.Record) (string, error) { return "", no }
	if _, err := store.Acquire(t.Context(), "declined", long, decline); !errors.Is(err, no) {
		t.Fatalf("Acquire returned %v, want next's error", err)
	}

	absent("declined")
	acquire(t, store, "deleted", "", long)
	if err := s.Delete(t.Context(), "deleted"); err != nil {
		t.Fatalf("delete a record: %v", err)
	}

	absent("deleted")
}

func read(t tester, store lease.Store, key string) lease.Record {
	t.Helper()
	r, err := store.Read(t.Context(), key)
	fatalIf(t, err != nil, "Read(%q): %v", key, err)

	return r
}

// A context that has ended ends every call, and the next call is right.
func checkEndedContext(t tester, s *suite) {
	store := s.store(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ends := func(call string, err error) {
		t.Helper()
		errorIf(t, !errors.Is(err, context.Canceled), "%s with a cancelled context: %v, want context.Canceled", call, err)
	}

	_, err := store.Acquire(ended, "key", long, with("ended"))
	ends("Acquire", err)
	l := acquire(t, store, "key", "", long)
	_, err = store.Extend(ended, l, "ended", s.short)
	ends("Extend", err)
	wantRecord(t, "after a cancelled Extend", refused(t, store, "key").Record, l, "", long)

	l = extend(t, store, l, "", long)
	ends("Release", store.Release(ended, l, ""))
	refused(t, store, "key")
	_, err = store.Read(ended, "key")
	ends("Read", err)
	refused(t, store, "key")
	release(t, store, l, "")
	acquire(t, store, "key", "", long)
}
