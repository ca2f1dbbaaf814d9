package blobrecord

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
)

const (
	pageSize    = 500 // blobs: some 600 KB
	listsAtOnce = 8
)

// List is the List of a lease.Lister. Blobs that are not records are left out. It needs leave to list.
func (b *Blobs) List(ctx context.Context, prefix string) iter.Seq2[lease.Entry, error] {
	return func(yield func(lease.Entry, error) bool) {
		listing, cancel := context.WithCancel(ctx)
		entries, failed := make(chan []lease.Entry), make(chan error, 1)
		go func() {
			defer close(entries)
			_, err := sideBySide(listing, len(b.prefixes()), listsAtOnce, func(ctx context.Context, i int) error {
				return b.list(ctx, b.prefixes()[i], prefix, entries)
			})
			failed <- err
		}()
		defer func() {
			cancel()
			for range entries { // closed once nothing runs any more
			}
		}()
		for page := range entries {
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
			}
		}
		if err := <-failed; err != nil {
			yield(lease.Entry{}, err)
		}
	}
}

// list sends the entries of the blobs that begin with blobs whose keys begin with keys.
func (b *Blobs) list(ctx context.Context, blobs, keys string, to chan<- []lease.Entry) error {
	for marker := ""; ; {
		page, err := b.page(ctx, blobs, marker)
		if err != nil {
			return err
		}
		var found []lease.Entry
		for _, item := range page.items {
			if e, ok := b.entry(item); ok && strings.HasPrefix(e.Key, keys) {
				e.Record.Now = page.now
				found = append(found, e)
			}
		}
		select {
		case to <- found:
		case <-ctx.Done():
			return ctx.Err()
		}
		if marker = page.next; marker == "" {
			return nil
		}
	}
}

// prefixes returns what the names of blobs begin with. Each can be listed by itself.
func (b *Blobs) prefixes() []string {
	if b.plain.Load() {
		return []string{""}
	}
	all := make([]string, shards)
	for i := range all {
		all[i] = shardPrefix(i)
	}
	return all
}

// A page is what one call lists.
type page struct {
	items []*container.BlobItem
	now   time.Time // the service's clock
	next  string    // the marker of the page after it; empty if this is the last
}

// page returns the blobs with a prefix from marker on.
func (b *Blobs) page(ctx context.Context, prefix, marker string) (page, error) {
	for try := 0; ; try++ {
		p, err := b.tryPage(ctx, prefix, marker)
		if err == nil || !azure.Again(ctx, try, err) {
			return p, err
		}
	}
}

// tryPage is page for who repeats by Again himself. A page takes its time: it is no
// matter for the retries of a gate.
func (b *Blobs) tryPage(ctx context.Context, prefix, marker string) (page, error) {
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

// entry returns item's key and record, but for Now; false if it is no record, or one of a key that nobody has had.
func (b *Blobs) entry(item *container.BlobItem) (e lease.Entry, ok bool) {
	p := item.Properties
	if item.Name == nil || p == nil || p.LastModified == nil || p.ContentLength == nil || *p.ContentLength != 0 {
		return e, false
	}
	r, err := decode(item.Metadata)
	if err != nil || r.ID == "" {
		return e, false
	}
	e.Record = r.Record
	e.Record.Written = *p.LastModified
	e.Key, ok = b.keyOf(item)
	return e, ok
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
