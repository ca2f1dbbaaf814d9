package leasetest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/lease"
	"alertworker/internal/lease/leasetest"
	"alertworker/internal/lease/memlease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type next = func(lease.Record) (string, error)

// A mutant is a store in which some methods are replaced by wrong ones.
type mutant struct {
	lease.Store
	mu      sync.Mutex
	last    map[string]lease.Lease // of every key, the last one granted or extended
	acquire func(m *mutant, ctx context.Context, key string, ttl time.Duration, n next) (lease.Lease, error)
	extend  func(m *mutant, ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error)
	release func(m *mutant, ctx context.Context, l lease.Lease, note string) error
	read    func(m *mutant, ctx context.Context, key string) (lease.Record, error)
}

func (m *mutant) Acquire(ctx context.Context, key string, ttl time.Duration, n next) (l lease.Lease, err error) {
	if m.acquire != nil {
		l, err = m.acquire(m, ctx, key, ttl, n)
	} else {
		l, err = m.Store.Acquire(ctx, key, ttl, n)
	}
	if err == nil {
		m.set(key, l)
	}
	return l, err
}

func (m *mutant) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	if m.extend != nil {
		return m.extend(m, ctx, l, note, ttl)
	}
	return m.Store.Extend(ctx, l, note, ttl)
}

func (m *mutant) Release(ctx context.Context, l lease.Lease, note string) error {
	if m.release != nil {
		return m.release(m, ctx, l, note)
	}
	return m.Store.Release(ctx, l, note)
}

func (m *mutant) Read(ctx context.Context, key string) (lease.Record, error) {
	if m.read != nil {
		return m.read(m, ctx, key)
	}
	return m.Store.Read(ctx, key)
}

func (m *mutant) set(key string, l lease.Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last[key] = l
}

func (m *mutant) get(key string) lease.Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last[key]
}

// lossy is a mutant that changes keys.
func lossy(change func(string) string) *mutant {
	return &mutant{
		acquire: func(m *mutant, ctx context.Context, key string, ttl time.Duration, n next) (lease.Lease, error) {
			l, err := m.Store.Acquire(ctx, change(key), ttl, n)
			if held := (*lease.HeldError)(nil); errors.As(err, &held) {
				held.Key = key
			}
			l.Key = key
			return l, err
		},
		extend: func(m *mutant, ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
			key := l.Key
			l.Key = change(key)
			l, err := m.Store.Extend(ctx, l, note, ttl)
			l.Key = key
			return l, err
		},
		release: func(m *mutant, ctx context.Context, l lease.Lease, note string) error {
			l.Key = change(l.Key)
			return m.Store.Release(ctx, l, note)
		},
	}
}

// refusing is a mutant that changes what the refused are told.
func refusing(change func(m *mutant, held *lease.HeldError) error) *mutant {
	return &mutant{acquire: func(m *mutant, ctx context.Context, key string, ttl time.Duration, n next) (lease.Lease, error) {
		l, err := m.Store.Acquire(ctx, key, ttl, n)
		if held := (*lease.HeldError)(nil); errors.As(err, &held) {
			err = change(m, held)
		}
		return l, err
	}}
}

// granting is a mutant that changes what Acquire does with ttl, next and its result.
func granting(ttl func(time.Duration) time.Duration, ask func(next) next, result func(*lease.Lease)) *mutant {
	return &mutant{acquire: func(m *mutant, ctx context.Context, key string, d time.Duration, n next) (lease.Lease, error) {
		if ttl != nil {
			d = ttl(d)
		}
		if ask != nil {
			n = ask(n)
		}
		l, err := m.Store.Acquire(ctx, key, d, n)
		if err == nil && result != nil {
			result(&l)
		}
		return l, err
	}}
}

// extending is a mutant that changes the result of Extend.
func extending(result func(*lease.Lease)) *mutant {
	return &mutant{extend: func(m *mutant, ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
		l, err := m.Store.Extend(ctx, l, note, ttl)
		if err == nil {
			result(&l)
		}
		return l, err
	}}
}

// Every mutant makes a mistake that a store could make, and the suite sees it.
func TestMutants(t *testing.T) {
	mutants := []struct {
		name, check string
		broken      func() *mutant
	}{
		{"keys: slashes replaced", "Keys", func() *mutant { return lossy(func(k string) string { return strings.ReplaceAll(k, "/", "_") }) }},
		{"keys: lower case", "Keys", func() *mutant { return lossy(strings.ToLower) }},
		{"keys: trimmed", "Keys", func() *mutant { return lossy(strings.TrimSpace) }},
		{"keys: cut off", "Keys", func() *mutant { return lossy(func(k string) string { return k[:min(len(k), 512)] }) }},
		{"keys: trailing dots", "Keys", func() *mutant { return lossy(func(k string) string { return strings.TrimRight(k, "./") }) }},
		{"keys: escape unescaped", "Keys", func() *mutant { return lossy(func(k string) string { return strings.ReplaceAll(k, "/", "%2F") }) }},
		{"refused: not typed", "OneWinner", func() *mutant { return refusing(func(*mutant, *lease.HeldError) error { return lease.ErrHeld }) }},
		{"refused: told too late", "Expiry", refusedTooLate},
		{"refused: note trimmed", "Notes", refusedTrimmed},
		{"refused: an older note", "Notes", refusedOlderNote},
		{"ttl: a second less", "Expiry", func() *mutant {
			return granting(func(d time.Duration) time.Duration { return d - time.Second }, nil, nil)
		}},
		{"ttl: a nanosecond more", "Expiry", func() *mutant { return granting(func(d time.Duration) time.Duration { return d + 1 }, nil, nil) }},
		{"ttl: a nanosecond less", "Expiry", func() *mutant { return granting(func(d time.Duration) time.Duration { return d - 1 }, nil, nil) }},
		{"lease: Until too late", "Expiry", func() *mutant {
			return granting(nil, nil, func(l *lease.Lease) { l.Until = l.Until.Add(time.Millisecond) })
		}},
		{"lease: Frees too early", "Frees", func() *mutant {
			return extending(func(l *lease.Lease) { l.Frees = l.Frees.Add(-time.Millisecond) })
		}},
		{"lease: the note before", "Notes", func() *mutant { return extending(func(l *lease.Lease) { l.Note = "other" }) }},
		{"refused: told too soon", "Frees", func() *mutant {
			return refusing(func(_ *mutant, held *lease.HeldError) error {
				held.Frees = held.Frees.Add(-time.Millisecond)
				return held
			})
		}},
		{"next: its error wrapped", "Next", func() *mutant { return granting(nil, wrapped, nil) }},
		{"next: its error dropped", "Next", func() *mutant { return granting(nil, dropped, nil) }},
		{"next: sees nothing", "Next", func() *mutant { return granting(nil, blind, nil) }},
		{"next: asked when held", "StaleHolder", nextWhenHeld},
		{"next: a refusal frees", "Next", nextFrees},
		{"one ID for a process", "OneWinner", oneID},
		{"check, then act", "OneWinner", checkThenAct},
		{"token starts again", "Token", tokenRestarts},
		{"token stays", "Token", func() *mutant { return granting(nil, nil, func(l *lease.Lease) { l.Token = 1 }) }},
		{"extend: renews", "Extend", extendRenews},
		{"extend: adds", "Extend", extendAdds},
		{"extend: unchecked", "StaleHolder", extendUnchecked},
		{"extend: expired is lost", "Extend", extendExpiredLost},
		{"extend: one copy only", "Extend", extendOneCopy},
		{"extend: a new token", "Extend", extendNewToken},
		{"extend: after release", "Extend", extendAfterRelease},
		{"extend: drops the note", "Notes", extendDropsNote},
		{"release: unchecked", "StaleHolder", releaseUnchecked},
		{"release: does nothing", "Release", func() *mutant {
			return &mutant{release: func(*mutant, context.Context, lease.Lease, string) error { return nil }}
		}},
		{"release: drops the note", "Release", releaseDropsNote},
		{"release: stale fails", "StaleHolder", releaseStaleFails},
		{"read: deleted keys are there", "Read", readRemembers},
		{"read: takes the key", "Read", readTakes},
		{"read: long keys are missing", "Read", func() *mutant { return readOther(func(k string) string { return k[:min(len(k), 254)] }) }},
		{"read: keys are escaped", "Read", func() *mutant { return readOther(url.PathEscape) }},
		{"read: the note is cut", "Read", func() *mutant {
			return reading(func(r *lease.Record) { r.Note = strings.TrimSpace(r.Note) })
		}},
		{"read: no clock", "Read", func() *mutant { return reading(func(r *lease.Record) { r.Now = time.Time{} }) }},
		{"read: no time of writing", "Read", func() *mutant { return reading(func(r *lease.Record) { r.Written = r.Now.Add(time.Hour) }) }},
		{"read: no hold", "Read", func() *mutant { return reading(func(r *lease.Record) { r.Hold = 0 }) }},
		{"read: no token", "Read", func() *mutant { return reading(func(r *lease.Record) { r.Token = 0 }) }},
		{"read: no time of the claim", "Read", func() *mutant { return reading(func(r *lease.Record) { r.Claimed = r.Written.Add(1) }) }},
		{"read: free keys are missing", "Read", func() *mutant {
			return reading(func(r *lease.Record) {
				if r.Hold == 0 {
					*r = lease.Record{Now: r.Now}
				}
			})
		}},
		{"read: context ignored", "EndedContext", func() *mutant {
			return &mutant{read: func(m *mutant, ctx context.Context, key string) (lease.Record, error) {
				return m.Store.Read(context.WithoutCancel(ctx), key)
			}}
		}},
		{"context ignored", "EndedContext", func() *mutant {
			return &mutant{acquire: func(m *mutant, ctx context.Context, key string, ttl time.Duration, n next) (lease.Lease, error) {
				return m.Store.Acquire(context.WithoutCancel(ctx), key, ttl, n)
			}}
		}},
	}
	for _, mu := range mutants {
		t.Run(mu.name, func(t *testing.T) {
			leasetest.MustFail(t, harness(func(m lease.Store) lease.Store {
				b := mu.broken()
				b.Store, b.last = m, map[string]lease.Lease{}
				return b
			}, false), mu.check)
		})
	}
	for _, check := range []string{"SkewedService", "Faults", "Outage", "LateDuplicates", "LocalClock"} { // of a network that it lacks
		t.Run("it cannot be opened: "+check, func(t *testing.T) {
			h := harness(func(m lease.Store) lease.Store { return m }, false)
			backend := h.New
			h.New = func(t testing.TB) leasetest.Backend {
				b := backend(t)
				b.Open = func(http.RoundTripper) (lease.Store, error) { return nil, errors.New("no store") }
				return b
			}
			leasetest.MustFail(t, h, check)
		})
	}
	t.Run("a record for every process", func(t *testing.T) {
		leasetest.MustFail(t, harness(func(m lease.Store) lease.Store { return m }, true), "OneWinner")
	})
}

// harness is a store in memory, broken by change; private gives every caller
// records of its own.
func harness(change func(lease.Store) lease.Store, private bool) leasetest.Harness {
	return leasetest.Harness{
		New: func(testing.TB) leasetest.Backend {
			records := &struct{ lease.Store }{memlease.New()}
			shared := change(records)
			return leasetest.Backend{
				Open: func(http.RoundTripper) (lease.Store, error) {
					if private {
						return memlease.New(), nil
					}
					return shared, nil
				},
				Delete: func(context.Context, string) error { records.Store = memlease.New(); return nil }, // the others' too
			}
		},
		Bubble: synctest.Test,
	}
}

// The harness itself is sound: with nothing changed, nothing fails.
func TestNoMutant(t *testing.T) {
	leasetest.Run(t, harness(func(m lease.Store) lease.Store { return m }, false))
}

func refusedTooLate() *mutant {
	return refusing(func(_ *mutant, held *lease.HeldError) error {
		held.Until = held.Until.Add(time.Second)
		return held
	})
}

func refusedTrimmed() *mutant {
	return refusing(func(_ *mutant, held *lease.HeldError) error {
		held.Record.Note = strings.TrimSpace(held.Record.Note)
		return held
	})
}

// refusedOlderNote keeps telling the refused the note that it first saw.
func refusedOlderNote() *mutant {
	seen := map[string]string{}
	return refusing(func(m *mutant, held *lease.HeldError) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if note, ok := seen[held.Key]; ok {
			held.Record.Note = note
		}
		seen[held.Key] = held.Record.Note
		return held
	})
}

func wrapped(n next) next {
	return func(r lease.Record) (string, error) {
		note, err := n(r)
		if err != nil {
			err = fmt.Errorf("next: %w", err)
		}
		return note, err
	}
}

func dropped(n next) next {
	return func(r lease.Record) (string, error) {
		note, _ := n(r)
		return note, nil
	}
}

func blind(n next) next {
	return func(r lease.Record) (string, error) { return n(lease.Record{Now: r.Now}) }
}

func nextWhenHeld() *mutant {
	return &mutant{acquire: func(m *mutant, ctx context.Context, key string, ttl time.Duration, n next) (lease.Lease, error) {
		note, err := n(lease.Record{})
		return m.Store.Acquire(ctx, key, ttl, func(lease.Record) (string, error) { return note, err })
	}}
}

// nextFrees takes the key before it asks.
func nextFrees() *mutant {
	return &mutant{acquire: func(m *mutant, ctx context.Context, key string, ttl time.Duration, n next) (lease.Lease, error) {
		var prev lease.Record
		l, err := m.Store.Acquire(ctx, key, ttl, func(r lease.Record) (string, error) { prev = r; return "", nil })
		if err != nil {
			return l, err
		}
		note, err := n(prev)
		if err != nil {
			_ = m.Store.Release(ctx, l, prev.Note)
			return lease.Lease{}, err
		}
		return m.Store.Extend(ctx, l, note, ttl)
	}}
}

// oneID takes a key again under the ID that holds it.
func oneID() *mutant {
	return &mutant{acquire: func(m *mutant, ctx context.Context, key string, ttl time.Duration, n next) (lease.Lease, error) {
		l, err := m.Store.Acquire(ctx, key, ttl, n)
		if errors.Is(err, lease.ErrHeld) {
			return m.Store.Extend(ctx, m.get(key), "again", ttl)
		}
		return l, err
	}}
}

func checkThenAct() *mutant {
	return &mutant{acquire: func(m *mutant, ctx context.Context, key string, ttl time.Duration, n next) (lease.Lease, error) {
		free := errors.New("free")
		var prev lease.Record
		_, err := m.Store.Acquire(ctx, key, ttl, func(r lease.Record) (string, error) { prev = r; return "", free })
		if err != free {
			return lease.Lease{}, err
		}
		note, err := n(prev)
		if err != nil {
			return lease.Lease{}, err
		}
		time.Sleep(time.Millisecond)
		_ = m.Store.Release(ctx, m.get(key), prev.Note)
		l, err := m.Store.Acquire(ctx, key, ttl, func(lease.Record) (string, error) { return note, nil })
		if err == nil {
			m.set(key, l)
		}
		return l, err
	}}
}

// tokenRestarts counts from one again after each release.
func tokenRestarts() *mutant {
	tokens := map[string]int64{}
	return &mutant{
		acquire: func(m *mutant, ctx context.Context, key string, ttl time.Duration, n next) (lease.Lease, error) {
			l, err := m.Store.Acquire(ctx, key, ttl, n)
			if err == nil {
				m.mu.Lock()
				defer m.mu.Unlock()
				tokens[key]++
				l.Token = tokens[key]
			}
			return l, err
		},
		release: func(m *mutant, ctx context.Context, l lease.Lease, note string) error {
			m.mu.Lock()
			delete(tokens, l.Key)
			m.mu.Unlock()
			return m.Store.Release(ctx, l, note)
		},
	}
}

// extendRenews keeps the duration that the lease was acquired with.
func extendRenews() *mutant {
	ttls := map[string]time.Duration{}
	return &mutant{
		acquire: func(m *mutant, ctx context.Context, key string, ttl time.Duration, n next) (lease.Lease, error) {
			l, err := m.Store.Acquire(ctx, key, ttl, n)
			if err == nil {
				m.mu.Lock()
				defer m.mu.Unlock()
				ttls[key] = ttl
			}
			return l, err
		},
		extend: func(m *mutant, ctx context.Context, l lease.Lease, note string, _ time.Duration) (lease.Lease, error) {
			m.mu.Lock()
			ttl := ttls[l.Key]
			m.mu.Unlock()
			return m.Store.Extend(ctx, l, note, ttl)
		},
	}
}

// extendAdds counts ttl from the old end.
func extendAdds() *mutant {
	return &mutant{extend: func(m *mutant, ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
		return m.Store.Extend(ctx, l, note, ttl+max(0, time.Until(l.Until)))
	}}
}

func extendUnchecked() *mutant {
	return &mutant{extend: func(m *mutant, ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
		return m.Store.Extend(ctx, m.get(l.Key), note, ttl)
	}}
}

func extendExpiredLost() *mutant {
	return &mutant{extend: func(m *mutant, ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
		if !time.Now().Before(l.Until) {
			return lease.Lease{}, lease.ErrLost
		}
		return m.Store.Extend(ctx, l, note, ttl)
	}}
}

// extendOneCopy takes every copy of a lease but the newest for lost.
func extendOneCopy() *mutant {
	return &mutant{extend: func(m *mutant, ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
		if m.get(l.Key).Until != l.Until {
			return lease.Lease{}, lease.ErrLost
		}
		extended, err := m.Store.Extend(ctx, l, note, ttl)
		if err == nil {
			m.set(l.Key, extended)
		}
		return extended, err
	}}
}

func extendNewToken() *mutant {
	return &mutant{extend: func(m *mutant, ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
		l, err := m.Store.Extend(ctx, l, note, ttl)
		l.Token++
		return l, err
	}}
}

// extendAfterRelease takes the key again if it is free.
func extendAfterRelease() *mutant {
	return &mutant{extend: func(m *mutant, ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
		extended, err := m.Store.Extend(ctx, l, note, ttl)
		if errors.Is(err, lease.ErrLost) {
			if again, err := m.Store.Acquire(ctx, l.Key, ttl, func(lease.Record) (string, error) { return note, nil }); err == nil {
				return again, nil
			}
		}
		return extended, err
	}}
}

func extendDropsNote() *mutant {
	return &mutant{extend: func(m *mutant, ctx context.Context, l lease.Lease, _ string, ttl time.Duration) (lease.Lease, error) {
		return m.Store.Extend(ctx, l, "", ttl)
	}}
}

func releaseUnchecked() *mutant {
	return &mutant{release: func(m *mutant, ctx context.Context, l lease.Lease, note string) error {
		return m.Store.Release(ctx, m.get(l.Key), note)
	}}
}

func releaseDropsNote() *mutant {
	return &mutant{release: func(m *mutant, ctx context.Context, l lease.Lease, _ string) error {
		return m.Store.Release(ctx, l, "")
	}}
}

func releaseStaleFails() *mutant {
	return &mutant{release: func(m *mutant, ctx context.Context, l lease.Lease, note string) error {
		if m.get(l.Key).ID != l.ID {
			return lease.ErrLost
		}
		return m.Store.Release(ctx, l, note)
	}}
}

// reading is a mutant that changes what Read shows.
func reading(change func(*lease.Record)) *mutant {
	return &mutant{read: func(m *mutant, ctx context.Context, key string) (lease.Record, error) {
		r, err := m.Store.Read(ctx, key)
		change(&r)
		return r, err
	}}
}

// readOther is a mutant that reads another key's record.
func readOther(change func(string) string) *mutant {
	return &mutant{read: func(m *mutant, ctx context.Context, key string) (lease.Record, error) {
		return m.Store.Read(ctx, change(key))
	}}
}

// readRemembers keeps showing what it knows of the last grant.
func readRemembers() *mutant {
	return &mutant{read: func(m *mutant, ctx context.Context, key string) (lease.Record, error) {
		r, err := m.Store.Read(ctx, key)
		if l := m.get(key); err == nil && l.Token > r.Token {
			r.Note, r.Token, r.Claimed = l.Note, l.Token, l.Claimed
		}
		return r, err
	}}
}

// readTakes takes the key to see its record.
func readTakes() *mutant {
	return &mutant{read: func(m *mutant, ctx context.Context, key string) (r lease.Record, err error) {
		_, err = m.Store.Acquire(ctx, key, time.Second, func(prev lease.Record) (string, error) {
			r = prev
			return prev.Note, nil
		})
		if held := (*lease.HeldError)(nil); errors.As(err, &held) {
			return held.Record, nil
		}
		return r, err
	}}
}
