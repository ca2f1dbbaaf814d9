// Package bloblease is a lease.Store on Azure Blob Storage's native leases, for
// ttls of 15 to 60 s.
//
// A record in the blob's metadata is the truth about a key. The native lease is
// only a lock: Acquire takes it, and shows outsiders by it that the key is
// claimed; Extend and Release give it back. A refused Acquire costs one call, a
// granted one three, an Extend or Release two, and every later Extend one.
//
// A key frees 1 to 3 s after its ttl, never early. The real service, other than
// its emulator, may take up to a minute longer to let go of a native lease that
// expired: that of a holder that died between Acquire and Extend. Acquire then
// answers with a HeldError whose Until is unknown.
package bloblease

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	azlease "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/google/uuid"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
	"alertworker/internal/lease/blobrecord"
	"alertworker/internal/lease/caslease"
)

// What the service takes as a lease's duration.
const (
	MinTTL = 15 * time.Second
	MaxTTL = 60 * time.Second
)

// unlockTimeout is how long a call may go on giving a native lease back when its context has ended.
const unlockTimeout = time.Second

// A Store keeps its records in one container. Use Open.
type Store struct {
	blobs *blobrecord.Blobs
}

var (
	_ lease.Store   = (*Store)(nil)
	_ lease.Breaker = (*Store)(nil)
	_ lease.Lister  = (*Store)(nil)
)

// Open returns the store in c, a container that it creates when it is missing.
// c needs azure.Once and an azure.NewHTTPClient.
func Open(ctx context.Context, c *container.Client) (*Store, error) {
	blobs, err := blobrecord.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Store{blobs}, nil
}

// CheckTTL returns an error that names the way out if Acquire does not take ttl.
func CheckTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return fmt.Errorf("a native blob lease lasts %v to %v, not %v: use the store %q or %q, which take any time", MinTTL, MaxTTL, ttl, "blob", "cosmos")
	}
	return nil
}

// Acquire implements lease.Store. It refuses a ttl that CheckTTL does.
func (s *Store) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (_ lease.Lease, err error) {
	if err := CheckTTL(ttl); err != nil {
		return lease.Lease{}, fmt.Errorf("acquire lease %q: %w", key, err)
	}
	start := time.Now()
	id := uuid.NewString()
	tried := false // to lock: the lock may be ours
	defer func() {
		if tried && err != nil {
			_ = s.unlock(ctx, key, id) // else it ends by itself
		}
	}()
	for try := 0; ; try++ {
		prev, locked, err := s.blobs.Read(ctx, key)
		if err != nil {
			if azure.Again(ctx, try, err) {
				continue
			}
			return lease.Lease{}, fmt.Errorf("acquire lease %q: %w", key, err)
		}
		if prev.ID == id { // an earlier try did it and its answer was lost
			prev.Version = version(prev.Version, locked)
			return prev.Won(key, start, blobrecord.Clock()), nil
		}
		if !prev.Free(blobrecord.Clock()) {
			return lease.Lease{}, prev.Held(key, start, blobrecord.Clock())
		}
		if locked && !tried { // someone else is taking the key, or the lock lags behind the record
			return lease.Lease{}, &lease.HeldError{Key: key, Record: prev.Record}
		}
		note, err := next(prev.Record)
		if err != nil {
			return lease.Lease{}, err
		}
		l := lease.Lease{Key: key, ID: id, Token: max(prev.Token+1, prev.Now.UnixMilli()), Claimed: prev.Now, Note: note}
		if !prev.Exists { // only a blob that exists can be locked
			prev.Version, err = s.blobs.Write(ctx, key, prev, caslease.Record{}, "")
			prev.Exists = true
		}
		if err == nil {
			tried = true
			err = s.lock(ctx, key, id, ttl, prev.Version)
			if bloberror.HasCode(err, bloberror.LeaseAlreadyPresent) { // it is another's
				tried = false
				return lease.Lease{}, &lease.HeldError{Key: key, Record: prev.Record}
			}
		}
		var etag string
		if err == nil {
			etag, err = s.blobs.Write(ctx, key, prev, caslease.Of(l, note, ttl), id)
		}
		if err == nil {
			l.Version = version(etag, true)
			return blobrecord.Clock().Granted(l, start, ttl), nil
		}
		if !azure.Again(ctx, try, err) {
			return lease.Lease{}, fmt.Errorf("acquire lease %q: %w", key, err)
		}
	}
}

// Extend implements lease.Store. It refuses a ttl over MaxTTL. It gives the
// native lease back, lest a service that is late to end it makes the hold longer.
func (s *Store) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	if err := CheckTTL(max(ttl, MinTTL)); err != nil {
		return lease.Lease{}, fmt.Errorf("extend lease %q: %w", l.Key, err)
	}
	start := time.Now()
	etag, err := s.replace(ctx, l, caslease.Of(l, note, ttl))
	if _, locked := parseVersion(l.Version); locked && (err == nil || ctx.Err() != nil) { // the record may be there
		unlocking, cancel := context.WithTimeout(ctx, unlockTimeout)
		_ = s.unlock(unlocking, l.Key, l.ID) // else it ends by itself; the record stands
		cancel()
	}
	if err != nil {
		return lease.Lease{}, fmt.Errorf("extend lease %q: %w", l.Key, err)
	}
	l.Note, l.Version = note, version(etag, false)
	return blobrecord.Clock().Granted(l, start, ttl), nil
}

// Release implements lease.Store.
func (s *Store) Release(ctx context.Context, l lease.Lease, note string) error {
	freed := caslease.Of(l, note, 0)
	freed.Released = true
	_, err := s.replace(ctx, l, freed)
	switch {
	case err == nil || errors.Is(err, lease.ErrLost):
		err = s.unlock(ctx, l.Key, l.ID)
	case ctx.Err() != nil: // the record may be there
		_ = s.unlock(ctx, l.Key, l.ID)
	}
	if err != nil {
		return fmt.Errorf("release lease %q: %w", l.Key, err)
	}
	return nil
}

// Break implements lease.Breaker. The native lease has the id that the record
// names, so it is given back like the holder's own.
func (s *Store) Break(ctx context.Context, key string, next func(lease.Record) (string, error)) error {
	id, err := s.blobs.Break(ctx, key, next)
	if id == "" || err != nil {
		return err
	}
	if err := s.unlock(ctx, key, id); err != nil {
		return fmt.Errorf("break lease %q: %w", key, err)
	}
	return nil
}

// lockedMark is before the ETag in the Version of a lease that has the lock.
const lockedMark = "locked "

func version(etag string, locked bool) string {
	if locked {
		return lockedMark + etag
	}
	return etag
}

func parseVersion(v string) (etag string, locked bool) { return strings.CutPrefix(v, lockedMark) }

// replace writes r in place of l's record, whatever has become of that while l
// is current, and returns the new ETag; ErrLost if l is not current.
func (s *Store) replace(ctx context.Context, l lease.Lease, r caslease.Record) (etag string, err error) {
	etag, locked := parseVersion(l.Version)
	prev, lock := caslease.Record{Exists: true, Version: etag}, ""
	if locked {
		lock = l.ID
	}
	for try := 0; ; try++ {
		etag, err := s.blobs.Write(ctx, l.Key, prev, r, lock)
		if err == nil || !azure.Again(ctx, try, err) {
			return etag, err
		}
		// The record has changed, the lock has ended, or an earlier try did it
		// and its answer was lost: all end well with another write while l is
		// current.
		now, locked, err := s.blobs.Read(ctx, l.Key)
		switch {
		case err == nil && !now.Current(l):
			return "", lease.ErrLost
		case err == nil:
			prev, lock = now, ""
			if locked {
				lock = l.ID
			}
		default:
			if try++; !azure.Again(ctx, try, err) {
				return "", err
			}
		}
	}
}

// lock takes the native lease id for at least ttl, if the blob still is at etag:
// a late duplicate of the request takes nothing once the record has changed.
func (s *Store) lock(ctx context.Context, key, id string, ttl time.Duration, etag string) error {
	native, err := azlease.NewBlobClient(s.blobs.Blob(key), &azlease.BlobClientOptions{LeaseID: &id})
	if err != nil {
		return err
	}
	seconds := int32((ttl + time.Second - 1) / time.Second)
	_, err = native.AcquireLease(ctx, seconds, &azlease.BlobAcquireOptions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(etag))},
	})
	if err != nil {
		return fmt.Errorf("lock the blob of key %q: %w", key, azure.Explain(err))
	}
	return nil
}

// unlock gives the native lease id back and does nothing if it is not held. It
// goes on for unlockTimeout when ctx has ended: a lock that nobody gives back keeps everybody waiting.
func (s *Store) unlock(ctx context.Context, key, id string) error {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(unlockTimeout, cancel) })
	defer stop()
	native, err := azlease.NewBlobClient(s.blobs.Blob(key), &azlease.BlobClientOptions{LeaseID: &id})
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		_, err = native.ReleaseLease(lasting, nil)
		if err == nil || bloberror.HasCode(err, bloberror.LeaseIDMismatchWithLeaseOperation, bloberror.LeaseNotPresentWithLeaseOperation, bloberror.BlobNotFound, bloberror.ContainerNotFound) {
			return nil
		}
		if !azure.Again(lasting, try, err) {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return fmt.Errorf("unlock the blob of key %q: %w", key, azure.Explain(err))
		}
	}
}

// OnCreate has f called whenever the container was missing and has been created from now on.
func (s *Store) OnCreate(f func(container string)) { s.blobs.OnCreate(f) }

// List implements lease.Lister. It needs leave to list, and costs a call for every
// 500 blobs of the container, whatever the prefix, and one for each of 256 parts
// at least.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[lease.Entry, error] {
	return s.blobs.List(ctx, prefix)
}

// Sweep is that of blobrecord.Blobs.
func (s *Store) Sweep(ctx context.Context, from string, olderThan time.Duration, mine func(key string) bool) (removed int, next string, err error) {
	return s.blobs.Sweep(ctx, from, olderThan, mine)
}

// PlainNames says that the container's blobs have the names of earlier versions.
func (s *Store) PlainNames() bool { return s.blobs.Plain() }
