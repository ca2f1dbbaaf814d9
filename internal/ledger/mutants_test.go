package ledger_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"

	"alertworker/internal/ledger"
	"alertworker/internal/records"
)

// A mutant is a store in which some methods are replaced by wrong ones.
type mutant struct {
	records.Store
	stat  func(ctx context.Context, name string) (records.Record, error)
	write func(ctx context.Context, r records.Record) (string, error)
}

func (m mutant) Stat(ctx context.Context, name string) (records.Record, error) {
	if m.stat != nil {
		return m.stat(ctx, name)
	}
	return m.Store.Stat(ctx, name)
}

func (m mutant) Write(ctx context.Context, r records.Record) (string, error) {
	if m.write != nil {
		return m.write(ctx, r)
	}
	return m.Store.Write(ctx, r)
}

// unfenced writes over whatever there is.
func unfenced(s records.Store) records.Store {
	return mutant{Store: s, write: func(ctx context.Context, r records.Record) (string, error) {
		r.ETag = records.Any
		return s.Write(ctx, r)
	}}
}

// stale answers with the owner before the last one.
func stale(s records.Store) records.Store {
	var mu sync.Mutex
	var last, before string
	return mutant{
		Store: s,
		stat: func(ctx context.Context, name string) (records.Record, error) {
			r, err := s.Stat(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			r.Values = map[string]string{"owner": before}
			return r, err
		},
		write: func(ctx context.Context, r records.Record) (string, error) {
			etag, err := s.Write(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			if owner := r.Values["owner"]; err == nil && owner != last {
				last, before = owner, last
			}
			return etag, err
		},
	}
}

// cached asks once.
func cached(s records.Store) records.Store {
	var mu sync.Mutex
	known := map[string]records.Record{}
	return mutant{Store: s, stat: func(ctx context.Context, name string) (records.Record, error) {
		mu.Lock()
		defer mu.Unlock()
		if r, ok := known[name]; ok {
			return r, ctx.Err()
		}
		r, err := s.Stat(ctx, name)
		known[name] = r
		return r, err
	}}
}

// What a ledger relies on of its store is noticed if the store does not keep it.
func TestStoreMutants(t *testing.T) {
	for _, m := range []struct {
		name, check string
		broken      func(records.Store) records.Store
	}{
		{"If-Match ignored, by a zombie", "TakeOver", unfenced},
		{"If-Match ignored, by the network", "LateDuplicates", unfenced},
		{"If-Match ignored, by racers", "Racers", unfenced},
		{"a gone record is created again", "Deleted", func(s records.Store) records.Store {
			return mutant{Store: s, write: func(ctx context.Context, r records.Record) (string, error) {
				if _, err := s.Stat(ctx, r.Name); errors.Is(err, records.ErrNotFound) {
					r.ETag = ""
				}
				return s.Write(ctx, r)
			}}
		}},
		{"owner: stale, at a take-over", "TakeOver", stale},
		{"owner: cached", "TakeOver", cached},
		{"owner: lower case", "TakeOver", func(s records.Store) records.Store {
			return mutant{Store: s, write: func(ctx context.Context, r records.Record) (string, error) {
				r.Values = maps.Clone(r.Values)
				r.Values["owner"] = strings.ToLower(r.Values["owner"])
				return s.Write(ctx, r)
			}}
		}},
		{"content: dropped when it shrinks", "TakeOver", func(s records.Store) records.Store {
			return mutant{Store: s, write: func(ctx context.Context, r records.Record) (string, error) {
				if there, err := s.Read(ctx, r.Name, ledger.MaxBytes); err == nil && len(there.Content) > len(r.Content) {
					r.Content = there.Content
				}
				return s.Write(ctx, r)
			}}
		}},
	} {
		t.Run(m.name, func(t *testing.T) { mustFail(t, suite{m.broken(&records.Memory{}), open}, m.check) })
	}
}

// A faulty is a ledger in which some methods are replaced by wrong ones.
type faulty struct {
	*ledger.Ledger
	id    func() string
	write func(ctx context.Context, c ledger.Content) error
	check func(ctx context.Context) error
}

func (h faulty) ID() string {
	if h.id != nil {
		return h.id()
	}
	return h.Ledger.ID()
}

func (h faulty) Write(ctx context.Context, c ledger.Content) error {
	if h.write != nil {
		return h.write(ctx, c)
	}
	return h.Ledger.Write(ctx, c)
}

func (h faulty) Check(ctx context.Context) error {
	if h.check != nil {
		return h.check(ctx)
	}
	return h.Ledger.Check(ctx)
}

// A take is what suite.open is.
type take = func(ctx context.Context, store records.Store, name string) (holder, ledger.Content, error)

// holding is a mutant that changes holders.
func holding(change func(h *faulty, store records.Store, c ledger.Content)) take {
	return func(ctx context.Context, store records.Store, name string) (holder, ledger.Content, error) {
		l, c, err := ledger.Open(ctx, store, name)
		if err != nil {
			return nil, c, err
		}
		h := &faulty{Ledger: l}
		change(h, store, c)
		return h, c, nil
	}
}

// ownerOf returns the owner in the suite's record, empty if there is none.
func ownerOf(ctx context.Context, store records.Store) (string, error) {
	r, err := store.Stat(ctx, name)
	if errors.Is(err, records.ErrNotFound) {
		err = nil
	}
	return r.Values["owner"], err
}

// unwritten takes a ledger over without writing it back: under the name of the last owner, until
// the first write.
func unwritten(ctx context.Context, store records.Store, name string) (holder, ledger.Content, error) {
	there, err := store.Read(ctx, name, ledger.MaxBytes)
	if err != nil {
		return open(ctx, store, name)
	}
	aside := &records.Memory{}
	there.ETag = ""
	if _, err := aside.Write(ctx, there); err != nil {
		return nil, ledger.Content{}, err
	}
	seen, c, err := ledger.Open(ctx, aside, name) // what it is, without touching it
	if err != nil {
		return nil, c, err
	}
	var l *ledger.Ledger
	h := &faulty{Ledger: seen, check: func(ctx context.Context) error { return ctx.Err() }}
	h.write = func(ctx context.Context, c ledger.Content) (err error) {
		if l == nil {
			if l, _, err = ledger.Open(ctx, store, name); err != nil {
				return err
			}
			h.check = l.Check
		}
		return l.Write(ctx, c)
	}
	return h, c, nil
}

// forgiving opens what is garbage as an empty ledger.
func forgiving(ctx context.Context, store records.Store, name string) (holder, ledger.Content, error) {
	l, c, err := ledger.Open(ctx, store, name)
	if errors.As(err, new(*ledger.UnreadableError)) {
		l, c, err = ledger.Open(ctx, &records.Memory{}, name)
	}
	return l, c, err
}

// racing takes a ledger for its own without another look after a conflict.
func racing(ctx context.Context, store records.Store, name string) (holder, ledger.Content, error) {
	blind := mutant{Store: store, write: func(ctx context.Context, r records.Record) (string, error) {
		etag, err := store.Write(ctx, r)
		if errors.Is(err, records.ErrConflict) {
			etag, err = "mine", nil
		}
		return etag, err
	}}
	l, c, err := ledger.Open(ctx, blind, name)
	return l, c, err
}

func TestLedgerMutants(t *testing.T) {
	for _, m := range []struct {
		name, check string
		broken      take
	}{
		{"Open does not write back", "TakeOver", unwritten},
		{"Open: garbage is empty", "Unreadable", forgiving},
		{"Open: every conflict is our own write", "Racers", racing},
		{"Open: no alarms of the last owner", "TakeOver", func(ctx context.Context, store records.Store, name string) (holder, ledger.Content, error) {
			l, _, err := ledger.Open(ctx, store, name)
			return l, ledger.Content{}, err
		}},
		{"ID: new with every owner", "TakeOver", func(ctx context.Context, store records.Store, name string) (holder, ledger.Content, error) {
			l, c, err := ledger.Open(ctx, store, name)
			if err != nil {
				return nil, c, err
			}
			owner, err := ownerOf(ctx, store)
			return &faulty{Ledger: l, id: func() string { return owner }}, c, err
		}},
		{"ID: the same for all", "Deleted", holding(func(h *faulty, _ records.Store, _ ledger.Content) { h.id = func() string { return "id" } })},
		{"Check: always well", "TakeOver", holding(func(h *faulty, _ records.Store, _ ledger.Content) {
			h.check = func(ctx context.Context) error { return ctx.Err() }
		})},
		{"Check: there is an owner", "TakeOver", holding(func(h *faulty, store records.Store, _ ledger.Content) {
			h.check = func(ctx context.Context) error {
				if owner, err := ownerOf(ctx, store); err != nil || owner != "" {
					return err
				}
				return ledger.ErrLost
			}
		})},
		{"Check: compares the id", "TakeOver", holding(func(h *faulty, store records.Store, _ ledger.Content) {
			h.check = func(ctx context.Context) error {
				if owner, err := ownerOf(ctx, store); err != nil || owner == h.Ledger.ID() {
					return err
				}
				return ledger.ErrLost
			}
		})},
		{"Check: a deleted record is held", "Deleted", holding(func(h *faulty, store records.Store, _ ledger.Content) {
			h.check = func(ctx context.Context) error {
				if owner, err := ownerOf(ctx, store); err != nil || owner == "" {
					return err
				}
				return h.Ledger.Check(ctx)
			}
		})},
		{"Check: an error is a loss", "Faults", holding(func(h *faulty, _ records.Store, _ ledger.Content) {
			h.check = func(ctx context.Context) error {
				if err := h.Ledger.Check(ctx); err != nil {
					return ledger.ErrLost
				}
				return nil
			}
		})},
		{"Write: an error is a loss", "Faults", holding(func(h *faulty, _ records.Store, _ ledger.Content) {
			h.write = func(ctx context.Context, c ledger.Content) error {
				if err := h.Ledger.Write(ctx, c); err != nil {
					return ledger.ErrLost
				}
				return nil
			}
		})},
		{"Write: an error is dropped", "Faults", holding(func(h *faulty, _ records.Store, _ ledger.Content) {
			h.write = func(ctx context.Context, c ledger.Content) error {
				if err := h.Ledger.Write(ctx, c); errors.Is(err, ledger.ErrLost) {
					return err
				}
				return ctx.Err()
			}
		})},
		{"Write: a loss is dropped", "TakeOver", holding(func(h *faulty, _ records.Store, _ ledger.Content) {
			h.write = func(ctx context.Context, c ledger.Content) error {
				if err := h.Ledger.Write(ctx, c); !errors.Is(err, ledger.ErrLost) {
					return err
				}
				return nil
			}
		})},
		{"Write: no alarms, nothing to do", "TakeOver", holding(func(h *faulty, _ records.Store, _ ledger.Content) {
			h.write = func(ctx context.Context, c ledger.Content) error {
				if len(c.Alarms) == 0 {
					return ctx.Err()
				}
				return h.Ledger.Write(ctx, c)
			}
		})},
		{"Write: the position alone", "TakeOver", holding(func(h *faulty, _ records.Store, first ledger.Content) {
			h.write = func(ctx context.Context, c ledger.Content) error {
				first.Position = c.Position
				return h.Ledger.Write(ctx, first)
			}
		})},
		{"Write: seconds", "TakeOver", holding(func(h *faulty, _ records.Store, _ ledger.Content) {
			h.write = func(ctx context.Context, c ledger.Content) error {
				c.Position.Time = c.Position.Time.Truncate(1e9)
				return h.Ledger.Write(ctx, c)
			}
		})},
	} {
		t.Run(m.name, func(t *testing.T) {
			if testing.Short() && m.check == "Faults" {
				t.Skip("faults at every call")
			}
			mustFail(t, suite{&records.Memory{}, m.broken}, m.check)
		})
	}
}
