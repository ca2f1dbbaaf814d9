package memlease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
)

// A grant is what a test remembers of a lease: enough to say what any call must do.
type grant struct {
	lease    lease.Lease
	note     string
	hold     time.Duration
	written  time.Time
	released bool
}

// Any sequence of calls, with any lease ever granted, does what the grants so far
// say.
func TestStoreFollowsTheContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Wrapped, for rapid must not ask for a deadline in a bubble.
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { walk(t, memlease.New()) })
	})
}

func walk(t *rapid.T, s *memlease.Store) {
	ctx := t.Context()
	ttl := rapid.SampledFrom([]time.Duration{1, time.Second, 2 * time.Second, time.Minute})
	grants := map[string][]*grant{} // of every key, oldest first
	last := func(key string) *grant {
		if g := grants[key]; len(g) > 0 {
			return g[len(g)-1]
		}
		return &grant{released: true}
	}
	pick := func(t *rapid.T) *grant {
		all := slices.Concat(grants["a"], grants["b"])
		if len(all) == 0 {
			t.Skip("nothing was granted yet")
		}
		return rapid.SampledFrom(all).Draw(t, "of")
	}
	checkRecord := func(t *rapid.T, r lease.Record, g *grant) {
		want := lease.Record{Note: g.note, Token: g.lease.Token, Claimed: g.lease.Claimed, Written: g.written, Hold: g.hold, Now: time.Now()}
		if r != want {
			t.Fatalf("record %+v, want %+v", r, want)
		}
	}
	n := 0
	t.Repeat(map[string]func(*rapid.T){
		"acquire": func(t *rapid.T) {
			key, d := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), ttl.Draw(t, "ttl")
			g := last(key)
			n++
			next := &grant{note: fmt.Sprint(n), hold: d, written: time.Now()}
			l, err := s.Acquire(ctx, key, d, func(r lease.Record) (string, error) {
				checkRecord(t, r, g)
				return next.note, nil
			})
			var held *lease.HeldError
			switch free := g.released || !time.Now().Before(g.written.Add(g.hold)); {
			case free && err != nil:
				t.Fatalf("a free key is refused: %v", err)
			case free:
				if l.Token <= g.lease.Token || l.ID == g.lease.ID || !l.Until.Equal(time.Now().Add(d)) {
					t.Fatalf("after %+v the grant %+v", g.lease, l)
				}
				next.lease = l
				grants[key] = append(grants[key], next)
			case !errors.As(err, &held):
				t.Fatalf("a held key: %v", err)
			default:
				checkRecord(t, held.Record, g)
				if !held.Until.Equal(g.written.Add(g.hold)) {
					t.Fatalf("the refused are told %v, the key frees at %v", held.Until, g.written.Add(g.hold))
				}
			}
		},
		"extend": func(t *rapid.T) {
			g, d := pick(t), ttl.Draw(t, "ttl")
			n++
			l, err := s.Extend(ctx, g.lease, fmt.Sprint(n), d)
			if g != last(g.lease.Key) || g.released {
				if !errors.Is(err, lease.ErrLost) {
					t.Fatalf("a lease that is not current: %v", err)
				}
				return
			}
			if err != nil || l.Token != g.lease.Token || l.ID != g.lease.ID || !l.Until.Equal(time.Now().Add(d)) {
				t.Fatalf("Extend of %+v gave %+v, %v", g.lease, l, err)
			}
			g.note, g.hold, g.written = fmt.Sprint(n), d, time.Now()
		},
		"release": func(t *rapid.T) {
			g := pick(t)
			n++
			if err := s.Release(ctx, g.lease, fmt.Sprint(n)); err != nil {
				t.Fatal(err)
			}
			if g == last(g.lease.Key) && !g.released {
				g.note, g.hold, g.written, g.released = fmt.Sprint(n), 0, time.Now(), true
			}
		},
		"wait": func(t *rapid.T) {
			time.Sleep(rapid.SampledFrom([]time.Duration{1, time.Second - 1, time.Second, time.Minute}).Draw(t, "for"))
		},
	})
}

// A store keeps a record for its retention and no longer, and a dropped record does not set
// the token back.
func TestRecordsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const retention = 3 * 24 * time.Hour
		s := memlease.Keeping(retention)
		note := func(lease.Record) (string, error) { return "", nil }
		acquire := func(key string) lease.Lease {
			t.Helper()
			l, err := s.Acquire(t.Context(), key, time.Minute, note)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		for i := range 500 {
			acquire(fmt.Sprint(i))
		}
		first := acquire("key")
		time.Sleep(time.Minute + retention - 1)
		acquire("other")
		if got := s.Len(); got != 502 {
			t.Errorf("%d records, want all 502 for the retention after their end", got)
		}
		time.Sleep(time.Nanosecond)
		second := acquire("key")
		if got := s.Len(); got != 2 {
			t.Errorf("%d records, want the 2 that are younger", got)
		}
		if second.Token <= first.Token {
			t.Errorf("token %d after %d", second.Token, first.Token)
		}
	})
}

// A full store makes room by what proves nothing any more, the longest ago first. What
// may still keep an alert from being repeated stays, and a new key waits.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const claim, window = 20 * time.Second, time.Minute
		s := memlease.New()
		s.Bound(3)
		ctx := t.Context()
		acquire := func(key string) (lease.Lease, error) {
			return s.Acquire(ctx, key, claim, func(lease.Record) (string, error) { return "", nil })
		}
		must := func(key string) lease.Lease {
			t.Helper()
			l, err := acquire(key)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		full := func(when string) {
			t.Helper()
			if _, err := acquire("new"); err == nil || errors.Is(err, lease.ErrHeld) || !strings.Contains(err.Error(), "THROTTLE_STORE") {
				t.Errorf("%s: %v", when, err)
			}
			if _, err := s.Read(ctx, "new"); err != nil {
				t.Errorf("%s, a look at a new key: %v", when, err)
			}
		}
		a := must("a")
		if _, err := s.Extend(ctx, a, "", window); err != nil {
			t.Fatal(err)
		}
		b := must("b")
		if err := s.Release(ctx, b, "its alert may have been taken"); err != nil {
			t.Fatal(err)
		}
		must("c") // its holder dies
		full("a window, an alert without a known fate, and a claim")
		time.Sleep(claim + window) // the fate of b's alert is settled, and a's window over
		full("one that ended just now")
		must("c") // the keys there are can be had
		time.Sleep(3*window - claim - window - 1)
		full("a moment too early")
		time.Sleep(time.Nanosecond)
		must("new")
		if _, err := s.Extend(ctx, a, "", window); !errors.Is(err, lease.ErrLost) || s.Len() != 3 {
			t.Errorf("the one written longest ago: %v, of %d records", err, s.Len())
		}
		must("newer") // in place of b
		if _, err := acquire("newest"); err == nil {
			t.Error("a third that is new was let in")
		}
	})
}

// Whatever is taken, extended, released and dropped, in whatever order, no more is kept than
// may be, and nothing that is held is dropped.
func TestBoundHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) {
			s := memlease.Keeping(60 * time.Millisecond) // rapid stops when its tests have taken long, by this clock
			s.Bound(4)
			held := map[string]lease.Lease{}
			key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
			t.Repeat(map[string]func(*rapid.T){
				"acquire": func(t *rapid.T) {
					k := key.Draw(t, "key")
					if l, err := s.Acquire(context.Background(), k, time.Millisecond, func(lease.Record) (string, error) { return "", nil }); err == nil {
						held[k] = l
					}
				},
				"extend": func(t *rapid.T) {
					_, _ = s.Extend(context.Background(), held[key.Draw(t, "key")], "", time.Millisecond)
				},
				"release": func(t *rapid.T) {
					k := key.Draw(t, "key")
					_ = s.Release(context.Background(), held[k], "")
					delete(held, k)
				},
				"forget": func(t *rapid.T) {
					k := key.Draw(t, "key")
					s.Forget(k)
					delete(held, k)
				},
				"wait": func(t *rapid.T) {
					time.Sleep(rapid.SampledFrom([]time.Duration{time.Millisecond / 60, time.Millisecond, 5 * time.Millisecond, 60 * time.Millisecond}).Draw(t, "for"))
				},
				"": func(t *rapid.T) {
					if s.Len() > 4 || s.Len() != s.Ordered() {
						t.Fatalf("%d records, %d in the order of their writes", s.Len(), s.Ordered())
					}
					for _, l := range held {
						if r, err := s.Read(context.Background(), l.Key); time.Now().Before(l.Until) && (err != nil || r.Token != l.Token) {
							t.Fatalf("key %q is held, and its record is %+v, %v", l.Key, r, err)
						}
					}
				},
			})
		})
	})
}
