package bloblease

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/azure"
	"alertworker/internal/lease/caslease"
)

const (
	pageSize    = 500 // blobs: some 600 KB
	listsAtOnce = 8
)

// A page is what one call lists.
type page struct {
	items []*container.BlobItem
	now   time.Time // the service's clock
	next  string    // the marker of the page after it; empty if this is the last
}

// page returns the blobs with a prefix from marker on.
func (b *blobs) page(ctx context.Context, prefix, marker string) (page, error) {
	for try := 0; ; try++ {
		p, err := b.tryPage(ctx, prefix, marker)
		if err == nil || !azure.ShouldRetry(ctx, try, err) {
			return p, err
		}
	}
}

// tryPage is page for callers that repeat by ShouldRetry themselves. A page takes its time: it is no
// matter for the retries of a gate.
func (b *blobs) tryPage(ctx context.Context, prefix, marker string) (page, error) {
	// A pager that has failed once is of no more use.
	resp, err := b.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{
		Include:    container.ListBlobsInclude{Metadata: true},
		Prefix:     &prefix,
		Marker:     &marker,
		MaxResults: to.Ptr[int32](pageSize),
	}).NextPage(policy.WithRetryOptions(ctx, azure.Patient()))
	if err != nil {
		return page{}, fmt.Errorf("list blobs in %q: %w", b.name(), azure.Explain(err))
	}
	if resp.Date == nil || resp.Segment == nil {
		return page{}, fmt.Errorf("list blobs in %q: the answer lacks Date or Blobs", b.name())
	}
	p := page{items: resp.Segment.BlobItems, now: *resp.Date}
	if resp.NextMarker != nil {
		p.next = *resp.NextMarker
	}
	return p, nil
}

// record returns item's key and record, but for Now; false if it is none of ours.
func (b *blobs) record(item *container.BlobItem) (key string, r caslease.Record, ok bool) {
	p := item.Properties
	if item.Name == nil || p == nil || p.LastModified == nil || p.ContentLength == nil || *p.ContentLength != 0 {
		return "", r, false
	}
	r, err := decode(item.Metadata)
	if err != nil {
		return "", r, false
	}
	r.Written = *p.LastModified
	key, ok = b.keyOf(item)
	return key, r, ok
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
