package bloblease

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"alertworker/internal/records"
)

const (
	listsAtOnce = 8

	// removalsAtOnce bounds what a sweep takes of the service: some 1,600 removals a
	// second if one takes 20 ms, which is a million in a little over 10 minutes.
	removalsAtOnce = 32
)

// Sweep removes the records whose keys are mine and that have been neither held nor
// written for longer than olderThan, by the service's clock, and says how many.
// It begins at from, "" or the next of an earlier call. Where it is cut short, by
// ctx or an error, next is where to go on; "" once it has seen all.
//
// What somebody takes meanwhile stays: a blob is deleted only as it was seen. A
// later lease on a removed key still has a greater token, for tokens follow the
// clock. Blobs that are not records stay too. It needs leave to list and to
// delete. mine is called concurrently.
func (s *Store) Sweep(ctx context.Context, from string, olderThan time.Duration, mine func(key string) bool) (removed int, next string, err error) {
	w := &sweep{store: records.Reliable(s.blobs.store), olderThan: olderThan, mine: mine, slots: make(chan struct{}, removalsAtOnce)}
	first := 0
	if n, err := strconv.ParseUint(from, 16, 8); err == nil {
		first = int(n)
	}
	// Of the shards that are swept side by side, next is the first that is not done: what was
	// removed from the others is gone.
	done, err := sideBySide(ctx, shards-first, listsAtOnce, func(ctx context.Context, i int) error {
		return w.shard(ctx, shardPrefix(first+i))
	})
	if err != nil {
		next = strings.TrimSuffix(shardPrefix(first+done), "/")
	}
	return int(w.removed.Load()), next, err
}

type sweep struct {
	store     records.Store
	olderThan time.Duration
	mine      func(key string) bool
	slots     chan struct{} // for removals
	removed   atomic.Int64
}

func (s *sweep) shard(ctx context.Context, prefix string) error {
	for page, err := range records.Pages(ctx, s.store, prefix) {
		if err != nil {
			return err
		}
		var stale []records.Record
		for _, r := range page {
			if s.stale(r) {
				stale = append(stale, r)
			}
		}
		if _, err := sideBySide(ctx, len(stale), removalsAtOnce, func(ctx context.Context, i int) error {
			return s.remove(ctx, stale[i])
		}); err != nil {
			return err
		}
	}
	return nil
}

// stale says that r is a record of ours which ended longer ago than olderThan. An empty record is
// that of a key whose first taking failed.
func (s *sweep) stale(r records.Record) bool {
	decoded, err := decode(r)
	if err != nil || r.Locked {
		return false
	}
	key, ok := keyOf(r)
	return ok && r.Written.Add(decoded.Hold+service.Clock.Resolution).Before(r.Now.Add(-s.olderThan)) && s.mine(key)
}

// remove deletes r if it still is as it was listed.
func (s *sweep) remove(ctx context.Context, r records.Record) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := s.store.Delete(ctx, r.Name, r.ETag)
	if errors.Is(err, records.ErrConflict) {
		return nil // somebody else took or removed it
	}
	if err == nil {
		s.removed.Add(1)
	}
	return err
}

// sideBySide calls do with 0 to n-1, at most limit at a time and the lower ones
// first, until all have returned nil or one an error. It returns, once nothing
// runs any more, how many before the first that did not end well did.
func sideBySide(ctx context.Context, n, limit int, do func(ctx context.Context, i int) error) (done int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make([]bool, n)
	var begun atomic.Int64
	var working sync.WaitGroup
	for range min(n, limit) {
		working.Go(func() {
			for ctx.Err() == nil {
				i := int(begun.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(ctx, i); err != nil {
					cancel(err)
					return
				}
				ended[i] = true
			}
		})
	}
	working.Wait()
	for done < n && ended[done] {
		done++
	}
	if done < n {
		err = context.Cause(ctx)
	}
	return done, err
}
