// Package blobcheckpoint keeps checkpoints in the metadata of blobs, in the
// layout of azeventhubs' own store, which KEDA reads as blobMetadata:
// NAMESPACE/HUB/GROUP/checkpoint/PARTITION with sequencenumber and offset.
// Unlike that store it writes only what nobody else has changed.
package blobcheckpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/telemetry/eventhubs"
)

// Store implements [eventhubs.Records] on a container, which has to exist. A
// record is the metadata of an empty blob. Read and Write take one request,
// List takes one for some 5,000 blobs.
type Store struct{ container *container.Client }

var _ eventhubs.Records = (*Store)(nil)

// New returns the store in c. The retries that c is configured for are the only
// ones.
func New(c *container.Client) *Store { return &Store{c} }

// List implements [eventhubs.Records].
func (s *Store) List(ctx context.Context, prefix string) (map[string]eventhubs.Record, error) {
	all := map[string]eventhubs.Record{}
	pages := s.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{
		Prefix: &prefix, Include: container.ListBlobsInclude{Metadata: true},
	})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list blobs at %s: %w", prefix, err)
		}
		for _, b := range page.Segment.BlobItems {
			if b.Name != nil && b.Properties != nil {
				all[*b.Name] = record(b.Metadata, b.Properties.ETag)
			}
		}
	}
	return all, nil
}

// Read implements [eventhubs.Records].
func (s *Store) Read(ctx context.Context, name string) (eventhubs.Record, error) {
	r, err := s.container.NewBlobClient(name).GetProperties(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return eventhubs.Record{}, fmt.Errorf("blob %s: %w", name, eventhubs.ErrNoRecord)
	}
	if err != nil {
		return eventhubs.Record{}, fmt.Errorf("read blob %s: %w", name, err)
	}
	return record(r.Metadata, r.ETag), nil
}

// Write implements [eventhubs.Records].
func (s *Store) Write(ctx context.Context, name string, values map[string]string, etag string) (string, error) {
	metadata := make(map[string]*string, len(values))
	for k, v := range values {
		metadata[k] = &v
	}
	client := s.container.NewBlockBlobClient(name)
	var written *azcore.ETag
	var err error
	if etag == "" {
		none := azcore.ETagAny
		var r blockblob.UploadResponse
		r, err = client.Upload(ctx, streaming.NopCloser(bytes.NewReader(nil)), &blockblob.UploadOptions{
			Metadata: metadata, AccessConditions: matching(blob.ModifiedAccessConditions{IfNoneMatch: &none}),
		})
		written = r.ETag
	} else {
		present := azcore.ETag(etag)
		var r blob.SetMetadataResponse
		r, err = client.SetMetadata(ctx, metadata, &blob.SetMetadataOptions{
			AccessConditions: matching(blob.ModifiedAccessConditions{IfMatch: &present}),
		})
		written = r.ETag
	}
	switch {
	case conflict(err):
		return "", fmt.Errorf("blob %s: %w", name, eventhubs.ErrConflict)
	case err != nil:
		return "", fmt.Errorf("write blob %s: %w", name, err)
	case written == nil:
		return "", fmt.Errorf("write blob %s: the answer has no ETag", name)
	}
	return string(*written), nil
}

func matching(c blob.ModifiedAccessConditions) *blob.AccessConditions {
	return &blob.AccessConditions{ModifiedAccessConditions: &c}
}

// conflict says whether a condition was not met. Azure answers 409 or 412, and
// 404 for a blob that is gone; 409 also while a container is being deleted.
func conflict(err error) bool {
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) {
		return false
	}
	return answer.StatusCode == http.StatusPreconditionFailed ||
		bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.ConditionNotMet, bloberror.BlobNotFound)
}

// record lower-cases the names of values: in a header they come capitalised.
func record(metadata map[string]*string, etag *azcore.ETag) eventhubs.Record {
	r := eventhubs.Record{Values: make(map[string]string, len(metadata))}
	if etag != nil {
		r.ETag = string(*etag)
	}
	for k, v := range metadata {
		if v != nil {
			r.Values[strings.ToLower(k)] = *v
		}
	}
	return r
}
