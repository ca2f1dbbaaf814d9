package ledgertest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/ledger"
	"alertworker/internal/ledger/ledgertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A mutant is a store in which some methods are replaced by wrong ones.
type mutant struct {
	ledger.Store
	read  func(ctx context.Context, name string) (ledger.Record, error)
	owner func(ctx context.Context, name string) (string, error)
	write func(ctx context.Context, name string, r ledger.Record) (string, error)
}

func (m mutant) Read(ctx context.Context, name string) (ledger.Record, error) {
	if m.read != nil {
		return m.read(ctx, name)
	}
	return m.Store.Read(ctx, name)
}

func (m mutant) Owner(ctx context.Context, name string) (string, error) {
	if m.owner != nil {
		return m.owner(ctx, name)
	}
	return m.Store.Owner(ctx, name)
}

func (m mutant) Write(ctx context.Context, name string, r ledger.Record) (string, error) {
	if m.write != nil {
		return m.write(ctx, name, r)
	}
	return m.Store.Write(ctx, name, r)
}

// writing is a mutant that changes what it writes.
func writing(change func(*ledger.Record)) func(ledger.Store) ledger.Store {
	return func(s ledger.Store) ledger.Store {
		return mutant{Store: s, write: func(ctx context.Context, name string, r ledger.Record) (string, error) {
			change(&r)
			return s.Write(ctx, name, r)
		}}
	}
}

// renaming is a mutant that changes names.
func renaming(change func(string) string) func(ledger.Store) ledger.Store {
	return func(s ledger.Store) ledger.Store {
		return mutant{s,
			func(ctx context.Context, name string) (ledger.Record, error) { return s.Read(ctx, change(name)) },
			func(ctx context.Context, name string) (string, error) { return s.Owner(ctx, change(name)) },
			func(ctx context.Context, name string, r ledger.Record) (string, error) {
				return s.Write(ctx, change(name), r)
			},
		}
	}
}

// unfenced writes over whatever there is.
func unfenced(s ledger.Store) ledger.Store {
	return mutant{Store: s, write: func(ctx context.Context, name string, r ledger.Record) (string, error) {
		there, err := s.Read(ctx, name)
		if err != nil {
			return "", err
		}
		r.ETag = there.ETag
		return s.Write(ctx, name, r)
	}}
}

// halfFenced fences what replaces and not what creates.
func halfFenced(s ledger.Store) ledger.Store {
	return mutant{Store: s, write: func(ctx context.Context, name string, r ledger.Record) (string, error) {
		if r.ETag == "" {
			return unfenced(s).Write(ctx, name, r)
		}
		return s.Write(ctx, name, r)
	}}
}

// checkThenAct compares and writes in two steps.
func checkThenAct(s ledger.Store) ledger.Store {
	return mutant{Store: s, write: func(ctx context.Context, name string, r ledger.Record) (string, error) {
		if there, err := s.Read(ctx, name); err != nil || there.ETag != r.ETag {
			return "", errors.Join(err, ledger.ErrConflict)
		}
		time.Sleep(time.Millisecond) // for somebody else to come in between
		return unfenced(s).Write(ctx, name, r)
	}}
}

// staleOwner answers with the owner before the last one.
func staleOwner(s ledger.Store) ledger.Store {
	var mu sync.Mutex
	var last, before string
	return mutant{
		Store: s,
		owner: func(ctx context.Context, name string) (string, error) {
			_, err := s.Owner(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			return before, err
		},
		write: func(ctx context.Context, name string, r ledger.Record) (string, error) {
			etag, err := s.Write(ctx, name, r)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && r.Owner != last {
				last, before = r.Owner, last
			}
			return etag, err
		},
	}
}

// cachedOwner asks once.
func cachedOwner(s ledger.Store) ledger.Store {
	var mu sync.Mutex
	known := map[string]string{}
	return mutant{Store: s, owner: func(ctx context.Context, name string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if owner := known[name]; owner != "" {
			return owner, ctx.Err()
		}
		owner, err := s.Owner(ctx, name)
		known[name] = owner
		return owner, err
	}}
}

// contentETag makes equal records have equal tags.
func contentETag(s ledger.Store) ledger.Store {
	var mu sync.Mutex
	tags := map[string]string{} // real ones by ours
	ours := func(r ledger.Record) string { return r.Owner + "\x00" + string(r.Content) }
	return mutant{
		Store: s,
		read: func(ctx context.Context, name string) (ledger.Record, error) {
			r, err := s.Read(ctx, name)
			if r.ETag != "" {
				mu.Lock()
				defer mu.Unlock()
				tags[ours(r)] = r.ETag
				r.ETag = ours(r)
			}
			return r, err
		},
		write: func(ctx context.Context, name string, r ledger.Record) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			if tag, ok := tags[r.ETag]; ok {
				r.ETag = tag
			}
			etag, err := s.Write(ctx, name, r)
			if err != nil {
				return "", err
			}
			tags[ours(r)] = etag
			return ours(r), nil
		},
	}
}

func TestStoreMutants(t *testing.T) {
	for _, m := range []struct {
		name, check string
		broken      func(ledger.Store) ledger.Store
	}{
		{"If-Match ignored", "Replace", unfenced},
		{"If-Match ignored, by a zombie", "TakeOver", unfenced},
		{"If-Match ignored, by the network", "LateDuplicates", unfenced},
		{"If-Match ignored, by racers", "Racers", unfenced},
		{"If-None-Match ignored", "Replace", halfFenced},
		{"check, then act", "OneWinner", checkThenAct},
		{"a gone record is created again", "Deleted", func(s ledger.Store) ledger.Store {
			return mutant{Store: s, write: func(ctx context.Context, name string, r ledger.Record) (string, error) {
				if there, err := s.Read(ctx, name); err == nil && there.ETag == "" {
					r.ETag = ""
				}
				return s.Write(ctx, name, r)
			}}
		}},
		{"ETag of the content", "Replace", contentETag},
		{"ETag stays", "Replace", func(s ledger.Store) ledger.Store {
			return mutant{Store: s, write: func(ctx context.Context, name string, r ledger.Record) (string, error) {
				_, err := s.Write(ctx, name, r)
				return "same", err
			}}
		}},
		{"owner: stale", "Fresh", staleOwner},
		{"owner: stale, at a take-over", "TakeOver", staleOwner},
		{"owner: cached", "TakeOver", cachedOwner},
		{"owner: not kept", "Replace", writing(func(r *ledger.Record) { r.Owner = "x" })},
		{"owner: lower case", "TakeOver", writing(func(r *ledger.Record) { r.Owner = strings.ToLower(r.Owner) })},
		{"owner: an error for none", "Absent", func(s ledger.Store) ledger.Store {
			return mutant{Store: s, owner: func(ctx context.Context, name string) (string, error) {
				owner, err := s.Owner(ctx, name)
				if err == nil && owner == "" {
					err = errors.New("not found")
				}
				return owner, err
			}}
		}},
		{"content: dropped", "Content", writing(func(r *ledger.Record) { r.Content = nil })},
		{"content: cut off", "Content", writing(func(r *ledger.Record) { r.Content = r.Content[:min(len(r.Content), 1<<20)] })},
		{"content: text", "Content", writing(func(r *ledger.Record) { r.Content = []byte(strings.ToValidUTF8(string(r.Content), "?")) })},
		{"content: dropped when it shrinks", "TakeOver", func(s ledger.Store) ledger.Store {
			return mutant{Store: s, write: func(ctx context.Context, name string, r ledger.Record) (string, error) {
				if there, err := s.Read(ctx, name); err == nil && len(there.Content) > len(r.Content) {
					r.Content = there.Content
				}
				return s.Write(ctx, name, r)
			}}
		}},
		{"names: the last part", "Names", renaming(func(n string) string { return n[strings.LastIndex(n, "/")+1:] })},
		{"names: cut off", "Names", renaming(func(n string) string { return n[:min(len(n), 47)] })},
		{"context ignored: read", "EndedContext", func(s ledger.Store) ledger.Store {
			return mutant{Store: s, read: func(ctx context.Context, name string) (ledger.Record, error) {
				return s.Read(context.WithoutCancel(ctx), name)
			}}
		}},
		{"context ignored: write", "EndedContext", func(s ledger.Store) ledger.Store {
			return mutant{Store: s, write: func(ctx context.Context, name string, r ledger.Record) (string, error) {
				return s.Write(context.WithoutCancel(ctx), name, r)
			}}
		}},
	} {
		t.Run(m.name, func(t *testing.T) {
			h := ledgertest.InMemory()
			sound := h.New
			h.New = func(t testing.TB) ledgertest.Backend {
				b := sound(t)
				store := m.broken(b.Open())
				b.Open = func() ledger.Store { return store }
				return b
			}
			ledgertest.MustFail(t, h, m.check)
		})
	}
}

// A holder is a ledger in which some methods are replaced by wrong ones.
type holder struct {
	*ledger.Ledger
	id    func() string
	write func(ctx context.Context, c ledger.Content) error
	check func(ctx context.Context) error
}

func (h holder) ID() string {
	if h.id != nil {
		return h.id()
	}
	return h.Ledger.ID()
}

func (h holder) Write(ctx context.Context, c ledger.Content) error {
	if h.write != nil {
		return h.write(ctx, c)
	}
	return h.Ledger.Write(ctx, c)
}

func (h holder) Check(ctx context.Context) error {
	if h.check != nil {
		return h.check(ctx)
	}
	return h.Ledger.Check(ctx)
}

// A take is what Harness.Take is.
type take = func(ctx context.Context, store ledger.Store, name string) (ledgertest.Holder, ledger.Content, error)

// holding is a mutant that changes holders.
func holding(change func(h *holder, store ledger.Store, c ledger.Content)) take {
	return func(ctx context.Context, store ledger.Store, name string) (ledgertest.Holder, ledger.Content, error) {
		l, c, err := ledger.Open(ctx, store, name)
		if err != nil {
			return nil, c, err
		}
		h := &holder{Ledger: l}
		change(h, store, c)
		return h, c, nil
	}
}

// unwritten takes a ledger over without writing it back: under the name of the last owner, until
// the first write.
func unwritten(ctx context.Context, store ledger.Store, name string) (ledgertest.Holder, ledger.Content, error) {
	there, err := store.Read(ctx, name)
	if err != nil || there.ETag == "" {
		l, c, err := ledger.Open(ctx, store, name)
		return l, c, err
	}
	aside := &ledger.Memory{}
	if _, err := aside.Write(ctx, name, there); err == nil {
		return nil, ledger.Content{}, errors.New("an ETag in an empty store")
	}
	there.ETag = ""
	if _, err := aside.Write(ctx, name, there); err != nil {
		return nil, ledger.Content{}, err
	}
	seen, c, err := ledger.Open(ctx, aside, name) // what it is, without touching it
	if err != nil {
		return nil, c, err
	}
	var l *ledger.Ledger
	h := &holder{Ledger: seen, check: func(ctx context.Context) error { return ctx.Err() }}
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
func forgiving(ctx context.Context, store ledger.Store, name string) (ledgertest.Holder, ledger.Content, error) {
	l, c, err := ledger.Open(ctx, store, name)
	if errors.As(err, new(*ledger.UnreadableError)) {
		l, c, err = ledger.Open(ctx, &ledger.Memory{}, name)
	}
	return l, c, err
}

// racing takes a ledger for its own without another look after a conflict.
func racing(ctx context.Context, store ledger.Store, name string) (ledgertest.Holder, ledger.Content, error) {
	blind := mutant{Store: store, write: func(ctx context.Context, name string, r ledger.Record) (string, error) {
		etag, err := store.Write(ctx, name, r)
		if errors.Is(err, ledger.ErrConflict) {
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
		{"Open: no alarms of the last owner", "TakeOver", func(ctx context.Context, store ledger.Store, name string) (ledgertest.Holder, ledger.Content, error) {
			l, _, err := ledger.Open(ctx, store, name)
			return l, ledger.Content{}, err
		}},
		{"ID: new with every owner", "TakeOver", func(ctx context.Context, store ledger.Store, name string) (ledgertest.Holder, ledger.Content, error) {
			l, c, err := ledger.Open(ctx, store, name)
			if err != nil {
				return nil, c, err
			}
			owner, err := store.Owner(ctx, name)
			return &holder{Ledger: l, id: func() string { return owner }}, c, err
		}},
		{"ID: the same for all", "Deleted", holding(func(h *holder, _ ledger.Store, _ ledger.Content) { h.id = func() string { return "id" } })},
		{"Check: always well", "TakeOver", holding(func(h *holder, _ ledger.Store, _ ledger.Content) {
			h.check = func(ctx context.Context) error { return ctx.Err() }
		})},
		{"Check: there is an owner", "TakeOver", holding(func(h *holder, store ledger.Store, _ ledger.Content) {
			h.check = func(ctx context.Context) error {
				if owner, err := store.Owner(ctx, mutantName); err != nil || owner != "" {
					return err
				}
				return ledger.ErrLost
			}
		})},
		{"Check: compares the id", "TakeOver", holding(func(h *holder, store ledger.Store, _ ledger.Content) {
			h.check = func(ctx context.Context) error {
				if owner, err := store.Owner(ctx, mutantName); err != nil || owner == h.Ledger.ID() {
					return err
				}
				return ledger.ErrLost
			}
		})},
		{"Check: a deleted record is held", "Deleted", holding(func(h *holder, store ledger.Store, _ ledger.Content) {
			h.check = func(ctx context.Context) error {
				if owner, err := store.Owner(ctx, mutantName); err != nil || owner == "" {
					return err
				}
				return h.Ledger.Check(ctx)
			}
		})},
		{"Check: an error is a loss", "Faults", holding(func(h *holder, _ ledger.Store, _ ledger.Content) {
			h.check = func(ctx context.Context) error {
				if err := h.Ledger.Check(ctx); err != nil {
					return ledger.ErrLost
				}
				return nil
			}
		})},
		{"Write: an error is a loss", "Faults", holding(func(h *holder, _ ledger.Store, _ ledger.Content) {
			h.write = func(ctx context.Context, c ledger.Content) error {
				if err := h.Ledger.Write(ctx, c); err != nil {
					return ledger.ErrLost
				}
				return nil
			}
		})},
		{"Write: an error is dropped", "Faults", holding(func(h *holder, _ ledger.Store, _ ledger.Content) {
			h.write = func(ctx context.Context, c ledger.Content) error {
				if err := h.Ledger.Write(ctx, c); errors.Is(err, ledger.ErrLost) {
					return err
				}
				return ctx.Err()
			}
		})},
		{"Write: a loss is dropped", "TakeOver", holding(func(h *holder, _ ledger.Store, _ ledger.Content) {
			h.write = func(ctx context.Context, c ledger.Content) error {
				if err := h.Ledger.Write(ctx, c); !errors.Is(err, ledger.ErrLost) {
					return err
				}
				return nil
			}
		})},
		{"Write: no alarms, nothing to do", "TakeOver", holding(func(h *holder, _ ledger.Store, _ ledger.Content) {
			h.write = func(ctx context.Context, c ledger.Content) error {
				if len(c.Alarms) == 0 {
					return ctx.Err()
				}
				return h.Ledger.Write(ctx, c)
			}
		})},
		{"Write: the position alone", "TakeOver", holding(func(h *holder, _ ledger.Store, first ledger.Content) {
			h.write = func(ctx context.Context, c ledger.Content) error {
				first.Position = c.Position
				return h.Ledger.Write(ctx, first)
			}
		})},
		{"Write: seconds", "TakeOver", holding(func(h *holder, _ ledger.Store, _ ledger.Content) {
			h.write = func(ctx context.Context, c ledger.Content) error {
				c.Position.Time = c.Position.Time.Truncate(1e9)
				return h.Ledger.Write(ctx, c)
			}
		})},
	} {
		t.Run(m.name, func(t *testing.T) {
			h := ledgertest.InMemory()
			h.Take = m.broken
			ledgertest.MustFail(t, h, m.check)
		})
	}
}

// mutantName is the suite's ledger.
const mutantName = "ns.servicebus.windows.net/hub/$default/ledger/0"

// Without a fault nothing fails.
func TestNoMutant(t *testing.T) { ledgertest.Run(t, ledgertest.InMemory()) }
