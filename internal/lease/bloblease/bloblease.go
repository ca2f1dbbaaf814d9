// Package bloblease has two kinds of lease.Store on Azure Blob Storage. Both
// keep a record for every key in the metadata of an empty blob, changed by
// compare-and-swap on the blob's ETag.
//
// [OpenETag] needs nothing else and takes any ttl. A refused Acquire costs one
// call, a granted one two, an Extend or Release one.
//
// [OpenNative] also locks the blob with a native lease, for ttls of 15 to 60 s:
// outsiders see by it that the key is claimed. A refused Acquire costs one call,
// a granted one three, an Extend or Release two, and every later Extend one.
//
// The blob's LastModified and the Date of each answer serve as the store's clock. It
// counts in seconds, and the service's machines may be a second apart. A key
// frees when the clock is 2 s past the ttl: 1 to 3 s late, and never early.
package bloblease

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
	"alertworker/internal/records"
)

// service describes Azure Blob Storage.
var service = caslease.Service{
	Clock: caslease.Clock{Resolution: records.Resolution, Skew: time.Second},
}

// A Store keeps its records in one container. Use OpenETag or OpenNative.
type Store struct {
	lease.Store
	blobs *blobs
}

// OpenETag returns the store in c, a container that it creates when it is
// missing. c needs azure.Once and azure.LimitTries. created, if not nil, is
// called whenever the container has gone and was created again; it must not block.
func OpenETag(ctx context.Context, c *container.Client, created func(container string)) (*Store, error) {
	store, err := records.OpenBlobs(ctx, c, created)
	if err != nil {
		return nil, fmt.Errorf("open lease records: %w", err)
	}

	b := &blobs{c, store}
	return &Store{caslease.New(b, service), b}, nil
}

// OpenNative is OpenETag for the store with native leases.
func OpenNative(ctx context.Context, c *container.Client, created func(container string)) (*Store, error) {
	s, err := OpenETag(ctx, c, created)
	if err == nil {
		s.Store = &native{caslease.New(s.blobs, service), s.blobs}
	}
	return s, err
}
