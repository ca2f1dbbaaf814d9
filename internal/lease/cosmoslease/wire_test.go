package cosmoslease_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
	"alertworker/internal/lease/leasetest"
)

// TestStoreOnFake runs the suite against the fake, in exact time, and thereby
// holds the fake to what the stand-in does.
func TestStoreOnFake(t *testing.T) { leasetest.Run(t, fakeHarness()) }

func fakeHarness() leasetest.Harness {
	return leasetest.Harness{
		New: func(t testing.TB) leasetest.Backend {
			f := newFake()
			b := backend(t, fakeAccount, "alertworker", f)
			b.Delete = func(_ context.Context, key string) error {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.items[azure.Name(key)] = append(f.items[azure.Name(key)], nil)
				return nil
			}
			return b
		},
		Bubble: synctest.Test,
		MinTTL: time.Second,
		Lag:    3 * time.Second,
		Skew:   skew,
	}
}

// lastNote is a store that takes the note that it was given last for the one that it wrote.
type lastNote struct{ lease.Store }

func (s lastNote) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	last := ""
	l, err := s.Store.Acquire(ctx, key, ttl, func(r lease.Record) (string, error) {
		note, err := next(r)
		last = note
		return note, err
	})
	l.Note = last
	return l, err
}

// The suite sees that after a lost answer the note that was written counts.
func TestLastNoteIsNotTheOneThatCounts(t *testing.T) {
	h := fakeHarness()
	plain := h.New
	h.New = func(t testing.TB) leasetest.Backend {
		b := plain(t)
		open := b.Open
		b.Open = func(via http.RoundTripper) (lease.Store, error) {
			s, err := open(via)
			return lastNote{s}, err
		}
		return b
	}
	leasetest.MustFail(t, h, "Faults")
}

// operations are what the tests of faults do, with what has to be there first.
var operations = []struct {
	name   string
	before func(t *testing.T, s lease.Store) lease.Lease
	do     func(ctx context.Context, s lease.Store, l lease.Lease) error
	calls  []string // without a fault
}{
	{"acquire an absent key", func(*testing.T, lease.Store) lease.Lease { return lease.Lease{} }, acquireKey, []string{"GET", "POST"}},
	{"acquire an expired key", func(t *testing.T, s lease.Store) lease.Lease {
		l := acquire(t, s, time.Second)
		time.Sleep(3 * time.Second)
		return l
	}, acquireKey, []string{"GET", "PUT"}},
	{"extend", func(t *testing.T, s lease.Store) lease.Lease { return acquire(t, s, time.Minute) },
		func(ctx context.Context, s lease.Store, l lease.Lease) error {
			extended, err := s.Extend(ctx, l, "window", time.Minute)
			if err == nil && (extended.ID != l.ID || extended.Token != l.Token) {
				err = fmt.Errorf("extended %+v to %+v", l, extended)
			}
			return err
		}, []string{"PUT"}},
	{"release", func(t *testing.T, s lease.Store) lease.Lease { return acquire(t, s, time.Minute) },
		func(ctx context.Context, s lease.Store, l lease.Lease) error { return s.Release(ctx, l, "") }, []string{"PUT"}},
}

func acquireKey(ctx context.Context, s lease.Store, _ lease.Lease) error {
	_, err := s.Acquire(ctx, "key", time.Minute, with("claim"))
	return err
}

func acquire(t *testing.T, s lease.Store, ttl time.Duration) lease.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), "key", ttl, with("claim"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// What a gate's every way costs, in requests on the wire.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.open(t)
		var l lease.Lease
		window := func(l lease.Lease) lease.Lease {
			l, err := s.Extend(t.Context(), l, "window", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		release := func(l lease.Lease) {
			if err := s.Release(t.Context(), l, ""); err != nil {
				t.Fatal(err)
			}
		}
		for _, way := range []struct {
			name string
			do   func()
			want []string
		}{
			{"first ever", func() { l = window(acquire(t, s, time.Minute)) }, []string{"GET", "POST", "PUT"}},
			{"throttled", func() {
				if err := acquireKey(t.Context(), s, l); !errors.Is(err, lease.ErrHeld) {
					t.Fatal(err)
				}
			}, []string{"GET"}},
			{"given back", func() { release(l) }, []string{"PUT"}},
			{"failed send", func() { release(acquire(t, s, time.Minute)) }, []string{"GET", "PUT", "PUT"}},
			{"sent", func() { window(acquire(t, s, time.Minute)) }, []string{"GET", "PUT", "PUT"}},
		} {
			f.will()
			others := f.others
			way.do()
			calls, _ := f.left()
			t.Logf("%-10s %d %v", way.name, len(calls), calls)
			if !slices.Equal(calls, way.want) {
				t.Errorf("%s: calls %v, want %v", way.name, calls, way.want)
			}
			if f.others != others {
				t.Errorf("%s: %d calls that are not for items", way.name, f.others-others)
			}
		}
	})
}

// One fault of any kind at any request is mended, in the time and with the calls
// that it takes.
func TestFaults(t *testing.T) {
	header := func(name, value string) http.Header { return http.Header{http.CanonicalHeaderKey(name): {value}} }
	faults := []struct {
		name     string
		fault    fault
		min, max time.Duration // of the call
	}{
		{"429, soon", fault{status: 429, header: header("x-ms-retry-after-ms", "300")}, 300 * time.Millisecond, 300 * time.Millisecond},
		{"429, later", fault{status: 429, header: header("x-ms-retry-after-ms", "1500")}, 1500 * time.Millisecond, 1500 * time.Millisecond},
		{"449", fault{status: 449}, 30 * time.Millisecond, 100 * time.Millisecond},
		{"503", fault{status: 503}, 50 * time.Millisecond, 200 * time.Millisecond},
		{"503, executed", fault{status: 503, executed: true}, 50 * time.Millisecond, 200 * time.Millisecond},
		{"408, executed", fault{status: 408, executed: true}, 50 * time.Millisecond, time.Second},
		{"500", fault{status: 500}, 0, 200 * time.Millisecond},
		{"500, executed", fault{status: 500, executed: true}, 0, 200 * time.Millisecond},
		{"reset", fault{}, 50 * time.Millisecond, time.Second},
		{"reset, executed", fault{executed: true}, 50 * time.Millisecond, time.Second},
		{"hang", fault{hang: true}, time.Second, 1200 * time.Millisecond},
		{"hang, executed", fault{hang: true, executed: true}, time.Second, 1300 * time.Millisecond},
	}
	for _, op := range operations {
		for _, x := range faults {
			for n, method := range op.calls {
				t.Run(fmt.Sprintf("%s, %s at %s", op.name, x.name, method), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := newFake()
						s := f.open(t)
						l := op.before(t, s)
						x.fault.method = method
						f.will(x.fault)
						start := time.Now()
						ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
						defer cancel()
						if err := op.do(ctx, s, l); err != nil {
							t.Error(err)
						}
						if took := time.Since(start); took < x.min || took > x.max {
							t.Errorf("it took %v, want %v to %v", took, x.min, x.max)
						}
						calls, left := f.left()
						if left > 0 {
							t.Error("the fault did not befall anything")
						}
						if looked := slices.Contains(calls[n+1:], "GET"); method != "GET" && !looked {
							t.Errorf("the store did not look what became of its write: calls %v", calls)
						}
						if len(calls) > len(op.calls)+3 {
							t.Errorf("%d calls: %v", len(calls), calls)
						}
					})
				})
			}
		}
	}
}

// A service that stays busy is waited for within the context, and is neither a
// refusal nor a loss.
func TestBusy(t *testing.T) {
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := f.open(t)
				l := op.before(t, s)
				long := http.Header{"Retry-After": {"10"}}
				f.will(fault{method: "GET", status: 429, header: long}, fault{method: "PUT", status: 429, header: long})
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				err := op.do(ctx, s, l)
				if err == nil || errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrLost) || !strings.Contains(err.Error(), "429") {
					t.Errorf("%v, want an error with the service's answer", err)
				}
				if took := time.Since(start); took > 0 {
					t.Errorf("it took %v to give up what could not succeed", took)
				}
			})
		})
	}
}

// A container that somebody deleted is created again by the first call that misses it,
// once for all callers, and is nothing that trying again could mend if it may not be.
func TestContainerGone(t *testing.T) {
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := f.open(t)
				l := op.before(t, s)
				remove := func() {
					f.mu.Lock()
					defer f.mu.Unlock()
					clear(f.containers)
					clear(f.databases)
					clear(f.items)
				}
				remove()
				err := op.do(t.Context(), s, l)
				if err != nil && !errors.Is(err, lease.ErrLost) {
					t.Errorf("the first call: %v", err)
				}
				if f.created != "alertworker/leases" {
					t.Errorf("%q was created", f.created)
				}
				if _, err := s.Acquire(t.Context(), "another key", time.Minute, with("claim")); err != nil {
					t.Errorf("then: %v", err)
				}

				time.Sleep(time.Minute)
				remove()
				f.mu.Lock()
				f.readOnly = true
				f.mu.Unlock()
				f.will()
				others := f.others
				for range 10 {
					err = op.do(t.Context(), s, l)
					wantConfigError(t, err, "create it")
					if errors.Is(err, lease.ErrLost) || !strings.Contains(err.Error(), `"alertworker/leases"`) {
						t.Errorf("%v, want the container's name and no ErrLost", err)
					}
				}
				if calls, _ := f.left(); len(calls) != 10 || f.others > others+1 {
					t.Errorf("calls %v, and %d to create the container, want one each", calls, f.others-others)
				}
				time.Sleep(time.Minute)
				f.mu.Lock()
				f.readOnly = false
				f.mu.Unlock()
				if err := op.do(t.Context(), s, l); err != nil && !errors.Is(err, lease.ErrLost) {
					t.Errorf("when it may be created: %v", err)
				}
			})
		})
	}
}

func wantConfigError(t *testing.T, err error, advice string) {
	t.Helper()
	var config *lease.Failure
	if !errors.As(err, &config) || config.Cause != lease.Wrong || !strings.Contains(err.Error(), advice) {
		t.Errorf("%v, want that it is wrong, and %q", err, advice)
		return
	}
	if told := lease.AddHint(lease.Summary(err), "COSMOS_ENDPOINT").Error(); !strings.HasSuffix(told, config.Text) {
		t.Errorf("people are told %q, want nothing after the advice", told)
	}
}

// Between two tries of an Extend or Release the record may be read as it was
// before the lease. It is not lost for that.
func TestLaggingReplica(t *testing.T) {
	for _, before := range []string{"absent", "expired"} {
		t.Run(before, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := f.open(t)
				if before == "expired" {
					acquire(t, s, time.Second)
					time.Sleep(3 * time.Second)
				}
				l := acquire(t, s, time.Minute)
				f.will(fault{method: "PUT", status: 500}, fault{method: "GET", stale: true})
				if _, err := s.Extend(t.Context(), l, "window", time.Minute); err != nil {
					t.Error(err)
				}
				if calls, left := f.left(); left > 0 {
					t.Errorf("%d faults are left after the calls %v", left, calls)
				}
			})
		})
	}

	// Whoever declines to claim a key, for what its record said before it was replaced, is asked again about the latest.
	for _, unheard := range []int{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			s := f.open(t)
			for _, note := range []string{"window", "recovery"} {
				if _, err := s.Acquire(t.Context(), "key", time.Second, with(note)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
			}
			f.will(slices.Repeat([]fault{{method: "GET", stale: true}}, 1+unheard)...)
			declined := errors.New("covered by a window")
			var seen []string
			next := func(r lease.Record) (string, error) {
				if seen = append(seen, r.Note); r.Note != "recovery" {
					return "", declined
				}
				return "alert", nil
			}
			if _, err := s.Acquire(t.Context(), "key", time.Minute, next); err != nil {
				t.Errorf("%v; next saw %q", err, seen)
			}
			if calls, left := f.left(); left > 0 || unheard == 0 && !slices.Equal(calls, []string{"GET", "PUT", "GET", "PUT"}) {
				t.Errorf("calls %v, %d left", calls, left)
			}
		})
	}

	// A key that others hold looks free: the write finds out.
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.open(t)
		acquire(t, s, time.Minute)
		f.will(fault{method: "GET", stale: true})
		if err := acquireKey(t.Context(), s, lease.Lease{}); !errors.Is(err, lease.ErrHeld) {
			t.Errorf("Acquire of a held key that a replica thinks absent: %v, want ErrHeld", err)
		}
		if calls, _ := f.left(); !slices.Equal(calls, []string{"GET", "POST", "GET"}) {
			t.Errorf("calls %v", calls)
		}
	})
}

// An item that is there to writes and not to reads, as one past its ttl may be,
// does not keep a caller.
func TestGhost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.open(t)
		acquire(t, s, time.Minute)
		var ghosts []fault
		for range 20 {
			ghosts = append(ghosts, fault{method: "GET", stale: true})
		}
		f.will(ghosts...)
		err := acquireKey(t.Context(), s, lease.Lease{})
		if err == nil || errors.Is(err, lease.ErrHeld) || !strings.Contains(err.Error(), "409") {
			t.Errorf("%v, want an error with the service's answer", err)
		}
		if calls, _ := f.left(); len(calls) > 12 {
			t.Errorf("%d calls", len(calls))
		}
	})
}

// Date, _ts and holdSec decide, to the second, and nothing else does.
func TestClock(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.ahead = ahead
				s := f.open(t)
				l := acquire(t, s, 10*time.Second)
				if got := time.Until(l.Until); got != 10*time.Second {
					t.Errorf("Until is %v away, the ttl is 10 s", got)
				}
				f.ahead = ahead + 12*time.Second - time.Nanosecond // Date counts whole seconds
				err := acquireKey(t.Context(), s, l)
				var held *lease.HeldError
				if !errors.As(err, &held) {
					t.Fatalf("after 11 s: %v, want a *HeldError", err)
				}
				if held.Record.Hold != 10*time.Second || held.Until.After(time.Now()) {
					t.Errorf("held until %v from now, the record is %+v", time.Until(held.Until), held.Record)
				}
				f.ahead = ahead + 12*time.Second
				next := acquire(t, s, time.Minute)
				if next.Token <= l.Token || !next.Claimed.Equal(f.now()) {
					t.Errorf("after %+v comes %+v", l, next)
				}
			})
		})
	}

	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.open(t)
		for _, held := range []bool{false, true} {
			if held {
				acquire(t, s, time.Minute)
			}
			f.noDate = true
			err := acquireKey(t.Context(), s, lease.Lease{})
			if err == nil || errors.Is(err, lease.ErrHeld) || !strings.Contains(err.Error(), "Date") {
				t.Errorf("an answer without a Date, held %v: %v, want an error that says so", held, err)
			}
			f.noDate = false
		}
	})
}

// What is no lease, or nothing at all, is an error and not a free key.
func TestStrangeItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.open(t)
		acquire(t, s, time.Minute)
		for _, strange := range []string{
			"", "{", "[]", "null", "{}",
			`{"leaseId":"x","_ts":1}`,
			`{"leaseId":"x","phase":"free","holdSec":1}`,
			`{"leaseId":"x","phase":"taken","holdSec":1,"_ts":1}`,
			`{"leaseId":"x","phase":"held","holdSec":-1,"_ts":1}`,
			`{"leaseId":"x","phase":"held","holdSec":1e300,"_ts":1}`,
			`{"leaseId":1,"phase":"held","holdSec":1,"_ts":1}`,
		} {
			f.body = []byte(strange)
			start := time.Now()
			if err := acquireKey(t.Context(), s, lease.Lease{}); err == nil || errors.Is(err, lease.ErrHeld) || !strings.Contains(err.Error(), "delete the item") {
				t.Errorf("%q: %v, want an error that says what to do", strange, err)
			}
			if took := time.Since(start); took > 0 {
				t.Errorf("%q: it was read again, for %v", strange, took)
			}
		}
	})
}

// Whatever an item holds, it is answered with a lease, a refusal that makes
// sense, or an error.
func FuzzItem(f *testing.F) {
	f.Add([]byte(`{"id":"key","leaseId":"x","leasedUntil":"2026-01-01T00:00:00Z","phase":"held","token":1,"claimed":"2026-01-01T00:00:00Z","holdSec":60,"note":"","ttl":1,"_ts":946684800}`))
	f.Add([]byte(`{"leaseId":"x","phase":"free","holdSec":1e9,"_ts":9223372036854775807,"token":-1}`))
	f.Add([]byte(`{"leaseId":"x","phase":"held","holdSec":4611686018,"_ts":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			s := f.open(t)
			acquire(t, s, time.Minute)
			f.body = body
			_, err := s.Acquire(t.Context(), "key", time.Minute, func(r lease.Record) (string, error) {
				if r.Hold < 0 || r.Written.IsZero() {
					t.Errorf("the record is %+v", r)
				}
				return "", nil
			})
			var held *lease.HeldError
			if errors.As(err, &held) && held.Record.Hold < 0 {
				t.Errorf("the record is %+v", held.Record)
			}
		})
	})
}

// Distinct keys are distinct items, whose ids the service takes and no URL
// loses; usual device ids can be read in them.
func FuzzKey(f *testing.F) {
	f.Add("device-1", "Device-1")
	f.Add("namespace/hub/$default/log/device_1.a", "namespace/hub/$default/log/device_1~2Ea")
	f.Add("..", ".")
	f.Add("a/../b", "b")
	f.Add("a%2Fb", "a/b")
	f.Add(strings.Repeat("#", 128), strings.Repeat("#", 127)+"?")
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			s := f.open(t)
			if _, err := s.Acquire(t.Context(), a, time.Minute, with("")); err != nil {
				t.Fatalf("%q: %v", a, err)
			}
			if _, err := s.Acquire(t.Context(), b, time.Minute, with("")); errors.Is(err, lease.ErrHeld) != (a == b) || a != b && err != nil {
				t.Errorf("%q after %q: %v", b, a, err)
			}
			for id := range f.items {
				if len(id) > 255 || strings.ContainsAny(id, `/\?#`) || strings.Trim(id, ".") != id {
					t.Errorf("%q or %q has the forbidden id %q", a, b, id)
				}
			}
			plain := strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
			if plain && len(a) < 256 && f.items[a] == nil {
				t.Errorf("%q is not called that", a)
			}
		})
	})
}

// A hold comes back as it was, to the nanosecond.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFake().open(t)
		for i, hold := range []time.Duration{1, time.Second - 1, 1500 * time.Millisecond, time.Minute, 90*time.Second + 123456789, 30*24*time.Hour + 1} {
			key := fmt.Sprint(i)
			if _, err := s.Acquire(t.Context(), key, hold, with("")); err != nil {
				t.Fatal(err)
			}
			_, err := s.Acquire(t.Context(), key, hold, with(""))
			var held *lease.HeldError
			if !errors.As(err, &held) || held.Record.Hold != hold {
				t.Errorf("after %v: %v, the record is %+v", hold, err, held)
			}
		}
	})
}

// The document, field by field: others may read it.
func TestDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.open(t)
		check := func(want map[string]any) {
			t.Helper()
			got := f.newest("key")
			if len(got) != len(want) {
				t.Errorf("the document is %v, want %v", got, want)
			}
			for name := range want {
				if fmt.Sprint(got[name]) != fmt.Sprint(want[name]) {
					t.Errorf("%s is %v, want %v", name, got[name], want[name])
				}
			}
		}
		const kept = float64(retention / time.Second)
		now := time.Now()
		l, err := s.Acquire(t.Context(), "key", 90500*time.Millisecond, with(`{"alert":"ä"}`))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{
			"id": "key", "key": "key", "leaseId": l.ID, "leasedUntil": now.Add(90500 * time.Millisecond).UTC().Format(time.RFC3339),
			"phase": "held", "token": float64(now.UnixMilli()), "claimed": now.UTC().Format(time.RFC3339), "holdSec": 90.5,
			"note": `{"alert":"ä"}`, "ttl": kept + 90, "_ts": now.Unix(), "_etag": l.Version,
		}
		check(want)
		time.Sleep(time.Second)
		extended, err := s.Extend(t.Context(), l, "window", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		want["leasedUntil"], want["holdSec"], want["note"], want["ttl"] = now.Add(61*time.Second).UTC().Format(time.RFC3339), 60, "window", kept+60
		want["_ts"], want["_etag"] = now.Unix()+1, extended.Version
		check(want)
		if err := s.Release(t.Context(), extended, ""); err != nil {
			t.Fatal(err)
		}
		want["phase"], want["leasedUntil"], want["holdSec"], want["note"], want["ttl"] = "free", now.Add(time.Second).UTC().Format(time.RFC3339), 0, "", kept
		want["_etag"] = f.newest("key")["_etag"]
		check(want)
	})
}

// The service deletes an item some time after its end. What comes then starts
// with nothing but a greater token.
func TestCleanUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.open(t)
		see := func(want bool) {
			t.Helper()
			var prev lease.Record
			no := errors.New("no")
			if _, err := s.Acquire(t.Context(), "key", time.Minute, func(r lease.Record) (string, error) { prev = r; return "", no }); err != no { //nolint:errorlint // as it is
				t.Fatal(err)
			}
			if there := prev.Token != 0; there != want {
				t.Errorf("the record is %+v", prev)
			}
		}
		l := acquire(t, s, time.Minute)
		time.Sleep(retention)
		see(true)
		time.Sleep(2 * time.Minute)
		see(false)
		if next := acquire(t, s, time.Minute); next.Token <= l.Token {
			t.Errorf("token %d after %d", next.Token, l.Token)
		}
		if _, err := s.Extend(t.Context(), l, "", time.Minute); !errors.Is(err, lease.ErrLost) {
			t.Errorf("Extend of a lease from before: %v, want ErrLost", err)
		}
		// Longer than the service can count to.
		if _, err := s.Acquire(t.Context(), "other", 1<<62, with("")); err != nil {
			t.Error(err)
		}
		if ttl := f.newest("other")["ttl"]; ttl != float64(1<<31-1) {
			t.Errorf("ttl is %v", ttl)
		}
	})
}
