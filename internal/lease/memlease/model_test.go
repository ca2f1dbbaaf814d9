package memlease_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

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

// A store does not grow for ever, and a dropped record does not set the token
// back.
func TestRecordsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlease.New()
		note := func(lease.Record) (string, error) { return "", nil }
		for i := range 1000 {
			if _, err := s.Acquire(t.Context(), fmt.Sprint(i), time.Minute, note); err != nil {
				t.Fatal(err)
			}
		}
		first, err := s.Acquire(t.Context(), "key", time.Minute, note)
		if err != nil {
			t.Fatal(err)
		}

		const keep = 7 * 24 * time.Hour
		time.Sleep(time.Minute + keep - 1)
		if _, err := s.Acquire(t.Context(), "other", time.Minute, note); err != nil {
			t.Fatal(err)
		}
		if got := s.Len(); got != 1002 {
			t.Errorf("%d records, want all 1002 for a week after their end", got)
		}
		time.Sleep(time.Hour)
		second, err := s.Acquire(t.Context(), "key", time.Minute, note)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Len(); got != 2 {
			t.Errorf("%d records, want only the 2 of this week", got)
		}
		if second.Token <= first.Token {
			t.Errorf("token %d after %d", second.Token, first.Token)
		}
	})
}
