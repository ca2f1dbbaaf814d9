// Package blobetag is a lease.Store on Azure Blob Storage: a record for every
// key in a blob's metadata, changed by compare-and-swap on the blob's ETag. It
// takes any ttl. A refused Acquire costs one call, a granted one two, an Extend
// or Release one.
//
// The service's clock counts in seconds, and its machines' clocks may be a second
// apart. A key frees when the clock is 2 s past the ttl: 1 to 3 s late, and never early.
package blobetag

import (
	"context"
	"iter"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
	"alertworker/internal/lease/blobrecord"
	"alertworker/internal/lease/caslease"
)

// A Store keeps its records in one container. Use Open.
type Store struct {
	*caslease.Store
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
	service := caslease.Service{Again: azure.Again, Clock: blobrecord.Clock()}
	return &Store{caslease.New(records{blobs}, service), blobs}, nil
}

// records are blobs to whose native leases nobody pays attention.
type records struct {
	blobs *blobrecord.Blobs
}

func (r records) Read(ctx context.Context, key string) (caslease.Record, error) {
	record, _, err := r.blobs.Read(ctx, key)
	return record, err
}

func (r records) Write(ctx context.Context, key string, prev, next caslease.Record) (version string, err error) {
	return r.blobs.Write(ctx, key, prev, next, "")
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
