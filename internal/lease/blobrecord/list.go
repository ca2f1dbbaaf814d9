package blobrecord

import (
	"context"
	"encoding/base64"
	"fmt"
	"iter"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
)

// List is the List of a lease.Lister. Blobs that are not records are left out. It needs leave to list.
func (b *Blobs) List(ctx context.Context, prefix string) iter.Seq2[lease.Entry, error] {
	return func(yield func(lease.Entry, error) bool) {
		for marker := to.Ptr(""); marker != nil; {
			page, err := b.page(ctx, marker)
			if err != nil {
				yield(lease.Entry{}, fmt.Errorf("list blobs in %q: %w", b.name(), azure.Explain(err)))
				return
			}
			if page.Date == nil || page.Segment == nil {
				yield(lease.Entry{}, fmt.Errorf("list blobs in %q: the answer lacks Date or Blobs", b.name()))
				return
			}
			for _, item := range page.Segment.BlobItems {
				e, ok := entry(item)
				e.Record.Now = *page.Date
				if ok && strings.HasPrefix(e.Key, prefix) && !yield(e, nil) {
					return
				}
			}
			if marker = page.NextMarker; marker != nil && *marker == "" {
				marker = nil
			}
		}
	}
}

// entry returns item's key and record, but for Now; false if it is no record, or one of a key that nobody has had.
func entry(item *container.BlobItem) (e lease.Entry, ok bool) {
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
	if e.Key, ok = azure.Key(*item.Name); ok {
		return e, true
	}
	key, err := base64.StdEncoding.DecodeString(lower(item.Metadata)[keyKey])
	e.Key = string(key)
	return e, err == nil && azure.Name(e.Key) == *item.Name
}
