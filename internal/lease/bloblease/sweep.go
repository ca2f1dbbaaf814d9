package bloblease

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	leasestate "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"alertworker/internal/azure"
)

// removalsAtOnce bounds what a sweep takes of the service: some 1,600 removals a
// second if one takes 20 ms, which is a million in a little over 10 minutes.
const removalsAtOnce = 32

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
	w := &sweep{blobs: s.blobs, olderThan: olderThan, mine: mine, slots: make(chan struct{}, removalsAtOnce)}
	if s.PlainNames() {
		next, err = w.blobsWith(ctx, "", from)
	} else {
		next, err = w.shardsFrom(ctx, from)
	}
	return int(w.removed.Load()), next, err
}

type sweep struct {
	blobs     *blobs
	olderThan time.Duration
	mine      func(key string) bool
	slots     chan struct{} // for removals
	removed   atomic.Int64
}

// shardsFrom sweeps from a shard, in hex, to the last. Of the shards that it does side by
// side next is the first that is not done: what was removed from the others is gone.
func (s *sweep) shardsFrom(ctx context.Context, from string) (next string, err error) {
	first := 0
	if n, err := strconv.ParseUint(from, 16, 8); err == nil {
		first = int(n)
	}
	done, err := sideBySide(ctx, shards-first, listsAtOnce, func(ctx context.Context, i int) error {
		_, err := s.blobsWith(ctx, shardPrefix(first+i), "")
		return err
	})
	if err != nil {
		next = strings.TrimSuffix(shardPrefix(first+done), "/")
	}
	return next, err
}

// blobsWith sweeps the blobs with a prefix from the page at marker on, and returns the
// marker of the page that it could not finish.
func (s *sweep) blobsWith(ctx context.Context, prefix, marker string) (next string, err error) {
	for {
		page, err := s.blobs.page(ctx, prefix, marker)
		var answer *azcore.ResponseError
		if errors.As(err, &answer) && answer.StatusCode == http.StatusBadRequest {
			return "", err // the marker is none: the next sweep begins anew
		}
		if err == nil {
			err = s.page(ctx, page)
		}
		if err != nil {
			return marker, err
		}
		if marker = page.next; marker == "" {
			return "", nil
		}
	}
}

// page removes what is stale on p.
func (s *sweep) page(ctx context.Context, p page) error {
	var stale []*container.BlobItem
	for _, item := range p.items {
		if s.stale(item, p.now.Add(-s.olderThan)) {
			stale = append(stale, item)
		}
	}
	_, err := sideBySide(ctx, len(stale), removalsAtOnce, func(ctx context.Context, i int) error {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-ctx.Done():
			return ctx.Err()
		}
		gone, err := s.blobs.remove(ctx, *stale[i].Name, *stale[i].Properties.ETag)
		if gone {
			s.removed.Add(1)
		}
		return err
	})
	return err
}

// stale says that item is a record of ours which ended before limit.
func (s *sweep) stale(item *container.BlobItem, limit time.Time) bool {
	key, r, ok := s.blobs.record(item)
	p := item.Properties
	if !ok || p.ETag == nil {
		return false
	}
	if p.LeaseState != nil && (*p.LeaseState == leasestate.StateTypeLeased || *p.LeaseState == leasestate.StateTypeBreaking) {
		return false
	}
	// An empty record is that of a key whose first taking failed.
	return r.Written.Add(r.Hold+service.Clock.Resolution).Before(limit) && s.mine(key)
}

// remove deletes the named blob if it still is at etag.
func (b *blobs) remove(ctx context.Context, name string, etag azcore.ETag) (gone bool, err error) {
	if !strings.HasPrefix(string(etag), `"`) { // lists have it bare, headers quoted
		etag = azcore.ETag(`"` + string(etag) + `"`)
	}
	ctx = policy.WithRetryOptions(ctx, azure.Patient())
	for try := 0; ; try++ {
		_, err = b.container.NewBlobClient(name).Delete(ctx, &blob.DeleteOptions{
			AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: to.Ptr(etag)}},
		})
		if err == nil {
			return true, nil
		}
		var answer *azcore.ResponseError
		if errors.As(err, &answer) {
			switch answer.StatusCode {
			case http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed:
				return false, nil // somebody else took or removed it
			}
		}
		if !azure.ShouldRetry(ctx, try, err) {
			return false, fmt.Errorf("delete blob %q in %q: %w", name, b.name(), azure.Explain(err))
		}
	}
}
