package blobrecord

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	leasestate "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"alertworker/internal/azure"
)

// Sweep removes at most limit records that have been neither held nor written
// for longer than olderThan, by the service's clock, and says how many. What
// somebody takes meanwhile stays: a blob is deleted only as it was seen. A later
// lease on a removed key still has a greater token, for tokens follow the clock.
// Blobs that are not records stay too. It needs leave to list and to delete.
func (b *Blobs) Sweep(ctx context.Context, olderThan time.Duration, limit int) (removed int, err error) {
	for marker := to.Ptr(""); marker != nil; {
		page, err := b.page(ctx, marker)
		if err != nil {
			return removed, fmt.Errorf("list blobs in %q: %w", b.name(), azure.Explain(err))
		}
		if page.Date == nil || page.Segment == nil {
			return removed, fmt.Errorf("list blobs in %q: the answer lacks Date or Blobs", b.name())
		}
		for _, item := range page.Segment.BlobItems {
			if removed >= limit {
				return removed, nil
			}
			if !stale(item, page.Date.Add(-olderThan)) {
				continue
			}
			gone, err := b.remove(ctx, *item.Name, *item.Properties.ETag)
			if err != nil {
				return removed, err
			}
			if gone {
				removed++
			}
		}
		if marker = page.NextMarker; marker != nil && *marker == "" {
			marker = nil
		}
	}
	return removed, nil
}

// page returns the blobs from marker on, as many as the service likes. A pager that
// has failed once is of no more use.
func (b *Blobs) page(ctx context.Context, marker *string) (container.ListBlobsFlatResponse, error) {
	for try := 0; ; try++ {
		pager := b.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{
			Include: container.ListBlobsInclude{Metadata: true},
			Marker:  marker,
		})
		page, err := pager.NextPage(ctx)
		if err == nil || !azure.Again(ctx, try, err) {
			return page, err
		}
	}
}

// stale says that item is a record which ended before limit.
func stale(item *container.BlobItem, limit time.Time) bool {
	p := item.Properties
	if item.Name == nil || p == nil || p.ETag == nil || p.LastModified == nil || p.ContentLength == nil || *p.ContentLength != 0 {
		return false
	}
	if p.LeaseState != nil && (*p.LeaseState == leasestate.StateTypeLeased || *p.LeaseState == leasestate.StateTypeBreaking) {
		return false
	}
	r, err := decode(item.Metadata) // an empty record is that of a key whose first taking failed
	return err == nil && p.LastModified.Add(r.Hold+Resolution).Before(limit)
}

// remove deletes the named blob if it still is at etag.
func (b *Blobs) remove(ctx context.Context, name string, etag azcore.ETag) (gone bool, err error) {
	if !strings.HasPrefix(string(etag), `"`) { // lists have it bare, headers quoted
		etag = azcore.ETag(`"` + string(etag) + `"`)
	}
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
		if !azure.Again(ctx, try, err) {
			return false, fmt.Errorf("delete blob %q in %q: %w", name, b.name(), azure.Explain(err))
		}
	}
}
