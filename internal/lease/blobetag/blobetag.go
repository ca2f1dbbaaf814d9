// Package blobetag is a lease.Store on Azure Blob Storage: a record for every
// key in a blob's metadata, changed by compare-and-swap on the blob's ETag. It
// takes any ttl. A refused Acquire costs one call, a granted one two, an Extend
// or Release one.
//
// The service's clock counts in seconds. A key is free when the clock is
// a second past the ttl, so it frees 1 to 2 s late, and never early.
package blobetag

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/google/uuid"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
	"alertworker/internal/lease/blobrecord"
)

// A Store keeps its records in one container. Use Open.
type Store struct {
	blobs *blobrecord.Blobs
}

var (
	_ lease.Store   = (*Store)(nil)
	_ lease.Breaker = (*Store)(nil)
)

// Open returns the store in c, a container that it creates when it is missing.
// c needs azure.Retry and an azure.NewHTTPClient.
func Open(ctx context.Context, c *container.Client) (*Store, error) {
	blobs, err := blobrecord.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Store{blobs}, nil
}

// Acquire implements lease.Store.
func (s *Store) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	start := time.Now()
	id := uuid.NewString()
	for try := 0; ; try++ {
		prev, err := s.blobs.Read(ctx, key)
		if err != nil {
			if azure.Again(ctx, try, err) {
				continue
			}
			return lease.Lease{}, fmt.Errorf("acquire lease %q: %w", key, err)
		}
		if prev.ID == id { // an earlier try did it and its answer was lost
			return lease.Lease{Key: key, ID: id, Token: prev.Token, Claimed: prev.Claimed, Until: start.Add(ttl), Version: prev.ETag}, nil
		}
		if !prev.Free() {
			return lease.Lease{}, prev.Held(key, start)
		}
		note, err := next(prev.Record)
		if err != nil {
			return lease.Lease{}, err
		}
		l := lease.Lease{Key: key, ID: id, Token: max(prev.Token+1, prev.Now.UnixMilli()), Claimed: prev.Now, Until: start.Add(ttl)}
		l.Version, err = s.blobs.Write(ctx, key, prev, blobrecord.Of(l, note, ttl), "")
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
	version, err := s.replace(ctx, l, blobrecord.Of(l, note, ttl))
	if err != nil {
		return lease.Lease{}, fmt.Errorf("extend lease %q: %w", l.Key, err)
	}
	l.Version = version
	return l, nil
}

// Release implements lease.Store.
func (s *Store) Release(ctx context.Context, l lease.Lease, note string) error {
	freed := blobrecord.Of(l, note, 0)
	freed.Released = true
	if _, err := s.replace(ctx, l, freed); err != nil && !errors.Is(err, lease.ErrLost) {
		return fmt.Errorf("release lease %q: %w", l.Key, err)
	}
	return nil
}

// Break implements lease.Breaker.
func (s *Store) Break(ctx context.Context, key string, next func(lease.Record) (string, error)) error {
	_, err := s.blobs.Break(ctx, key, next)
	return err
}

// replace writes r in place of l's record, whatever has become of that while l
// is current, and returns the new ETag; ErrLost if l is not current.
func (s *Store) replace(ctx context.Context, l lease.Lease, r blobrecord.Record) (version string, err error) {
	prev := blobrecord.Record{Exists: true, ETag: l.Version}
	for try := 0; ; try++ {
		version, err := s.blobs.Write(ctx, l.Key, prev, r, "")
		if err == nil || !azure.Again(ctx, try, err) {
			return version, err
		}
		// The record has changed, or an earlier try did it and its answer was
		// lost: both end well with another write while l is current.
		now, err := s.blobs.Read(ctx, l.Key)
		switch {
		case err == nil && !now.Current(l):
			return "", lease.ErrLost
		case err == nil:
			prev = now
		case !azure.Again(ctx, try, err):
			return "", err
		}
	}
}
