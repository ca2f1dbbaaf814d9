// Package cosmoslease is a lease.Store on Azure Cosmos DB for NoSQL: an item for
// every key, changed by compare-and-swap on the item's ETag. It takes any ttl.
// A refused Acquire costs one call, a granted one two, an Extend or Release one.
//
// The service's clock counts in seconds. A key is free when the clock is
// a second past the ttl, so it frees 1 to 2 s late, and never early.
//
// Any consistency level will do, for every write is guarded by the ETag. The
// account must have a single write region: with several the last writer wins,
// and nobody hears of it.
package cosmoslease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
)

// A Store keeps its records in one container. Use Open.
type Store struct {
	items items
}

var (
	_ lease.Store   = (*Store)(nil)
	_ lease.Breaker = (*Store)(nil)
)

// Acquire implements lease.Store.
func (s *Store) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	start := time.Now()
	id := uuid.NewString()
	for try := 0; ; try++ {
		prev, err := s.items.read(ctx, key)
		if err != nil {
			if azure.Again(ctx, try, err) {
				continue
			}
			return lease.Lease{}, fmt.Errorf("acquire lease %q: %w", key, err)
		}
		if prev.ID == id { // an earlier try did it and its answer was lost
			return lease.Lease{Key: key, ID: id, Token: prev.Token, Claimed: prev.Claimed, Until: start.Add(ttl), Version: prev.ETag}, nil
		}
		if !prev.free() {
			return lease.Lease{}, prev.heldError(key, start)
		}
		note, err := next(prev.Record)
		if err != nil {
			return lease.Lease{}, err
		}
		l := lease.Lease{Key: key, ID: id, Token: max(prev.Token+1, prev.Now.UnixMilli()), Claimed: prev.Now, Until: start.Add(ttl)}
		l.Version, err = s.items.write(ctx, key, prev, recordOf(l, note, ttl))
		if err == nil {
			return l, nil
		}
		if !azure.Again(ctx, try, err) {
			return lease.Lease{}, fmt.Errorf("acquire lease %q: %w", key, err)
		}
	}
}

// Extend implements lease.Store.
func (s *Store) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	l.Until = time.Now().Add(ttl)
	version, err := s.replace(ctx, l, recordOf(l, note, ttl))
	if err != nil {
		return lease.Lease{}, fmt.Errorf("extend lease %q: %w", l.Key, err)
	}
	l.Version = version
	return l, nil
}

// Release implements lease.Store.
func (s *Store) Release(ctx context.Context, l lease.Lease, note string) error {
	freed := recordOf(l, note, 0)
	freed.Released = true
	if _, err := s.replace(ctx, l, freed); err != nil && !errors.Is(err, lease.ErrLost) {
		return fmt.Errorf("release lease %q: %w", l.Key, err)
	}
	return nil
}

// Break implements lease.Breaker.
func (s *Store) Break(ctx context.Context, key string, next func(lease.Record) (string, error)) error {
	id := "" // of the lease to break
	for try := 0; ; try++ {
		prev, err := s.items.read(ctx, key)
		if err == nil {
			if prev.free() || id != "" && prev.ID != id { // an earlier try did it, or the lease has ended
				return nil
			}
			freed := prev
			if freed.Note, err = next(prev.Record); err != nil {
				return err
			}
			freed.Hold, freed.Released = 0, true
			id = prev.ID
			if _, err = s.items.write(ctx, key, prev, freed); err == nil {
				return nil
			}
		}
		if !azure.Again(ctx, try, err) {
			return fmt.Errorf("break lease %q: %w", key, err)
		}
	}
}

// replace writes r in place of l's record, whatever has become of that while l
// is current, and returns the new ETag; ErrLost if l is not current.
func (s *Store) replace(ctx context.Context, l lease.Lease, r record) (version string, err error) {
	prev := record{Exists: true, ETag: l.Version}
	for try := 0; ; try++ {
		version, err := s.items.write(ctx, l.Key, prev, r)
		switch {
		case err == nil:
			return version, nil
		case notFound(err): // deleted behind our back
			return "", lease.ErrLost
		case !azure.Again(ctx, try, err):
			return "", err
		}
		// The record has changed, or an earlier try did it and its answer was
		// lost: both end well with another write while l is current.
		now, err := s.items.read(ctx, l.Key)
		switch {
		case err == nil && now.Token < l.Token:
			// Older than l itself: the read was answered by a replica that lags
			// behind, or the item is gone. The next write tells.
		case err == nil && !now.current(l):
			return "", lease.ErrLost
		case err == nil:
			prev = now
		case !azure.Again(ctx, try, err):
			return "", err
		}
	}
}
