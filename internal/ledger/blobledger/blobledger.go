// Package blobledger keeps ledgers as blobs. The owner is in the metadata, so that it can be
// asked for alone.
package blobledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/azure"
	"alertworker/internal/ledger"
)

// ownerValue is the name of the owner in the metadata of a blob.
const ownerValue = "owner"

// Store implements [ledger.Store] on a container, which has to exist. Each call takes one
// request.
type Store struct{ container *container.Client }

var _ ledger.Store = (*Store)(nil)

// New returns the store in c. The retries that c is configured for are the only ones.
func New(c *container.Client) *Store { return &Store{c} }

// Read implements [ledger.Store].
func (s *Store) Read(ctx context.Context, name string) (ledger.Record, error) {
	resp, err := s.container.NewBlobClient(name).DownloadStream(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return ledger.Record{}, nil
	}
	if err != nil {
		return ledger.Record{}, fmt.Errorf("read blob %s: %w", name, azure.Explain(err))
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(io.LimitReader(resp.Body, ledger.MaxBytes+1))
	if err != nil {
		return ledger.Record{}, fmt.Errorf("read blob %s: %w", name, azure.Explain(err))
	}
	if resp.ETag == nil {
		return ledger.Record{}, fmt.Errorf("read blob %s: the answer has no ETag", name)
	}
	return ledger.Record{Owner: owner(resp.Metadata), Content: content, ETag: string(*resp.ETag)}, nil
}

// Owner implements [ledger.Store].
func (s *Store) Owner(ctx context.Context, name string) (string, error) {
	resp, err := s.container.NewBlobClient(name).GetProperties(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up blob %s: %w", name, azure.Explain(err))
	}
	return owner(resp.Metadata), nil
}

// owner returns the owner in a blob's metadata, whose names come capitalised.
func owner(metadata map[string]*string) string {
	for name, value := range metadata {
		if strings.EqualFold(name, ownerValue) && value != nil {
			return *value
		}
	}
	return ""
}

// Write implements [ledger.Store].
func (s *Store) Write(ctx context.Context, name string, r ledger.Record) (string, error) {
	conditions := &blob.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(r.ETag))}
	if r.ETag == "" {
		conditions = &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}
	}
	resp, err := s.container.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(r.Content)), &blockblob.UploadOptions{
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: conditions},
		HTTPHeaders:      &blob.HTTPHeaders{BlobContentType: to.Ptr("application/gzip")},
		Metadata:         map[string]*string{ownerValue: &r.Owner},
	})
	switch {
	case conflict(err):
		return "", fmt.Errorf("blob %s: %w", name, ledger.ErrConflict)
	case err != nil:
		return "", fmt.Errorf("write blob %s: %w", name, azure.Explain(err))
	case resp.ETag == nil:
		return "", fmt.Errorf("write blob %s: the answer has no ETag", name)
	}
	return string(*resp.ETag), nil
}

// conflict says whether a condition was not met. Azure answers 409 or 412, and may answer 404 for
// a blob that is gone; 409 also while a container is being deleted.
func conflict(err error) bool {
	var answer *azcore.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == http.StatusPreconditionFailed ||
		bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.BlobNotFound)
}
