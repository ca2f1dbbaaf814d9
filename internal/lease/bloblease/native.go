package bloblease

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"alertworker/internal/azure"
	"alertworker/internal/backoff"
	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
)

// What the service takes as a native lease's duration.
const (
	MinTTL = 15 * time.Second
	MaxTTL = 60 * time.Second
)

// unlockTimeout is how long a call may go on giving a native lease back when its context has ended.
const unlockTimeout = time.Second

// CheckTTL returns an error that names the way out if a store with native
// leases does not take ttl.
func CheckTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return fmt.Errorf(
			"a native blob lease lasts %v to %v, not %v: use the store %q or %q, which take any time",
			MinTTL,
			MaxTTL,
			ttl,
			"blob",
			"cosmos",
		)
	}

	return nil
}

// native is the store with native leases. The record in the blob's metadata is
// the truth about a key, and the native lease only a lock: Acquire takes it under
// the lease's ID, Extend and Release give it back.
//
// The real service, other than its emulator, may take up to a minute longer to let
// go of a native lease that expired: that of a holder that died between Acquire
// and Extend. Acquire then answers with a HeldError whose Until is unknown.
type native struct {
	*caslease.Store // everything but the locks
	blobs           *blobs
}

// Acquire implements lease.Store. It refuses a ttl that CheckTTL does.
func (s *native) Acquire(
	ctx context.Context,
	key string,
	ttl time.Duration,
	next func(lease.Record) (string, error),
) (lease.Lease, error) {
	if err := CheckTTL(ttl); err != nil {
		return lease.Lease{}, fmt.Errorf("acquire lease %q: %w", key, err)
	}

	locking := &lockingRecords{blobs: s.blobs}
	l, err := caslease.New(locking, service).Acquire(ctx, key, ttl, next)
	if err != nil && locking.id != "" {
		_ = s.blobs.unlock(ctx, key, locking.id) // else it ends by itself
	}

	if err == nil {
		l = service.Clock.Granted(l, locking.wrote, ttl) // the record counts, and not what precedes it
	}

	return l, err
}

// Extend implements lease.Store. It refuses a ttl over MaxTTL. It releases the
// native lease, so that a service that is slow to end it does not prolong the hold.
func (s *native) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	if err := CheckTTL(max(ttl, MinTTL)); err != nil {
		return lease.Lease{}, fmt.Errorf("extend lease %q: %w", l.Key, err)
	}

	extended, err := s.Store.Extend(ctx, l, note, ttl)
	if _, locked := parseVersion(l.Version); locked && (err == nil || ctx.Err() != nil) { // the record may be there
		unlocking, cancel := context.WithTimeout(ctx, unlockTimeout)
		defer cancel()
		_ = s.blobs.unlock(unlocking, l.Key, l.ID) // else it ends by itself; the record stands
	}

	return extended, err
}

// Release implements lease.Store.
func (s *native) Release(ctx context.Context, l lease.Lease, note string) error {
	err := s.Store.Release(ctx, l, note)
	switch {
	case err == nil:
		if err := s.blobs.unlock(ctx, l.Key, l.ID); err != nil {
			return fmt.Errorf("release lease %q: %w", l.Key, err)
		}
	case ctx.Err() != nil: // the record may be there
		_ = s.blobs.unlock(ctx, l.Key, l.ID)
	}

	return err
}

// lockingRecords are what one Acquire reads and writes.
type lockingRecords struct {
	*blobs
	id    string    // of the lock that may be ours; empty if none is
	wrote time.Time // when the first write of a record with the lease began
}

// Read answers with a HeldError if the key is free and the blob locked: someone
// else is taking the key, or the lock lags behind the record.
func (r *lockingRecords) Read(ctx context.Context, key string) (caslease.Record, error) {
	record, err := r.blobs.Read(ctx, key)
	if _, locked := parseVersion(record.Version); locked && r.id == "" && record.Free(service.Clock) {
		return record, &lease.HeldError{Key: key, Record: record.Record}
	}
	return record, err
}

// Write locks the blob, which it creates if need be, before it writes next.
func (r *lockingRecords) Write(
	ctx context.Context,
	key string,
	prev, next caslease.Record,
) (version string, err error) {
	if !prev.Exists { // only a blob that exists can be locked
		if prev.Version, err = r.blobs.Write(ctx, key, prev, caslease.Record{}); err != nil {
			return "", err
		}
		prev.Exists = true
	}

	r.id = next.ID
	etag, _ := parseVersion(prev.Version)
	seconds := int32((next.Hold + time.Second - 1) / time.Second)
	_, err = r.native(key, next.ID).AcquireLease(ctx, seconds, &azlease.BlobAcquireOptions{
		// A late duplicate of the request takes nothing once the record has changed.
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(etag))},
	})
	switch {
	case bloberror.HasCode(err, bloberror.LeaseAlreadyPresent): // it is another's
		r.id = ""
		return "", &lease.HeldError{Key: key, Record: prev.Record}
	case err != nil:
		return "", fmt.Errorf("lock the blob of key %q: %w", key, azure.Explain(err))
	}

	if r.wrote.IsZero() {
		r.wrote = time.Now()
	}

	prev.Version = lockedMark + etag
	version, err = r.blobs.Write(ctx, key, prev, next)
	return lockedMark + version, err
}

// native returns the client of the native lease of key's blob that has an ID.
func (b *blobs) native(key, id string) *azlease.BlobClient {
	c, _ := azlease.NewBlobClient(b.container.NewBlobClient(blobName(key)), &azlease.BlobClientOptions{LeaseID: &id}) // fails to make an ID, if at all
	return c
}

// unlock gives the native lease id back and does nothing if it is not held. It
// goes on for unlockTimeout when ctx has ended: a lock that nobody gives back keeps everybody waiting.
func (b *blobs) unlock(ctx context.Context, key, id string) error {
	lasting, cancel := backoff.Lasting(ctx, lease.CallLimit, unlockTimeout)
	defer cancel()
	for try := 0; ; try++ {
		_, err := b.native(key, id).ReleaseLease(lasting, nil)
		if err == nil ||
			bloberror.HasCode(
				err,
				bloberror.LeaseIDMismatchWithLeaseOperation,
				bloberror.LeaseNotPresentWithLeaseOperation,
				bloberror.BlobNotFound,
				bloberror.ContainerNotFound,
			) {
			return nil
		}

		if !azure.ShouldRetry(lasting, try, err) {
			return fmt.Errorf("unlock the blob of key %q: %w", key, cmp.Or(ctx.Err(), azure.Explain(err)))
		}
	}
}
