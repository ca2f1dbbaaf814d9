package bloblease

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"alertworker/internal/records"
)

// What a sweep takes of the service: some 1,600 removals a second if one takes 20 ms, which is
// a million in a little over 10 minutes.
const (
	shardsAtOnce   = 8
	removalsAtOnce = 4 // in each
)

// Sweep removes the records whose keys are mine and that have been neither held nor
// written for longer than olderThan, by the service's clock, and says how many.
// It begins at from, "" or the next of an earlier call. Where it is cut short, by
// ctx or an error, next is where to go on; "" once it has seen all.
//
// What somebody takes meanwhile stays: a blob is deleted only as it was seen. A
// later lease on a removed key still has a greater token, because tokens follow the
// clock. Blobs that are not records stay too. It needs leave to list and to
// delete. mine is called concurrently.
func (s *Store) Sweep(
	ctx context.Context,
	from string,
	olderThan time.Duration,
	mine func(key string) bool,
) (removed int, next string, err error) {
	w := &sweep{store: records.Reliable(s.blobs.store), olderThan: olderThan, mine: mine}
	first := 0
	if n, err := strconv.ParseUint(from, 16, 8); err == nil {
		first = int(n)
	}

	// Of the shards that are swept side by side, next is the first that is not done: what was
	// removed from the others is gone.
	var done [shards]bool
	sweeping, ctx := errgroup.WithContext(ctx)
	sweeping.SetLimit(shardsAtOnce)
	for i := first; i < shards; i++ {
		sweeping.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}

			err := w.shard(ctx, shardPrefix(i))
			done[i] = err == nil
			return err
		})
	}

	if err = sweeping.Wait(); err != nil {
		for first < shards && done[first] {
			first++
		}
		next = strings.TrimSuffix(shardPrefix(first), "/")
	}

	return int(w.removed.Load()), next, err
}

type sweep struct {
	store     records.Store
	olderThan time.Duration
	mine      func(key string) bool
	removed   atomic.Int64
}

func (s *sweep) shard(ctx context.Context, prefix string) error {
	for page, err := range records.Pages(ctx, s.store, prefix) {
		if err != nil {
			return err
		}

		removing, ctx := errgroup.WithContext(ctx)
		removing.SetLimit(removalsAtOnce)
		for _, r := range page {
			if s.stale(r) {
				removing.Go(func() error {
					err := s.store.Delete(ctx, r.Name, r.ETag)
					switch {
					case err == nil:
						s.removed.Add(1)
					case errors.Is(err, records.ErrConflict): // somebody else took or removed it
						return nil
					}

					return err
				})
			}
		}

		if err := removing.Wait(); err != nil {
			return err
		}
	}

	return nil
}

// stale says that r is a record of ours which ended longer ago than olderThan. An empty record is
// that of a key whose first taking failed.
func (s *sweep) stale(r records.Record) bool {
	key, decoded, err := decode(r)
	return err == nil && !r.Locked && blobName(key) == r.Name &&
		r.Written.Add(decoded.Hold+service.Clock.Resolution).Before(r.Now.Add(-s.olderThan)) &&
		s.mine(key)
}
