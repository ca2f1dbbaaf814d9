package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.uber.org/zap"

	"alertworker/internal/azure"
)

// maxBlob is more than any settings need, in bytes.
const maxBlob = 64 << 10

// Open returns a replica with settings. prefix identifies the replicas that must share
// them: namespace/hub/group, as in the names of checkpoints. c is the container of their
// checkpoints. Open does not connect.
func Open(c *container.Client, prefix string, settings Settings, log *zap.Logger) *Member {
	name := prefix + "/settings" // checkpoints and ownerships have folders of their own beside it
	return newMember(&blobStore{c.NewBlockBlobClient(name), name}, settings, log)
}

// A blobStore keeps its record in a blob, whose LastModified and ETag are the record's.
type blobStore struct {
	blob *blockblob.Client
	name string
}

func (s *blobStore) read(ctx context.Context) (record, error) {
	resp, err := s.blob.DownloadStream(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ContainerNotFound) {
		return record{}, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("read blob %q: %w", s.name, azure.Explain(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBlob))
	if err != nil {
		return record{}, fmt.Errorf("read blob %q: %w", s.name, azure.Explain(err))
	}
	if resp.ETag == nil || resp.LastModified == nil || resp.Date == nil {
		return record{}, fmt.Errorf("read blob %q: the response lacks ETag, Last-Modified or Date", s.name)
	}
	r := record{version: string(*resp.ETag), written: *resp.LastModified, now: *resp.Date}
	if err := json.Unmarshal(body, &r.Settings); err != nil {
		return record{}, fmt.Errorf("read blob %q: it does not contain settings: delete it while no replica is running", s.name)
	}
	return r, nil
}

func (s *blobStore) write(ctx context.Context, prev record, settings Settings) error {
	body, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	conditions := &blob.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(prev.version))}
	if prev.version == "" {
		conditions = &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}
	}
	_, err = s.blob.Upload(ctx, streaming.NopCloser(bytes.NewReader(body)), &blockblob.UploadOptions{
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: conditions},
		HTTPHeaders:      &blob.HTTPHeaders{BlobContentType: to.Ptr("application/json")},
	})
	var answer *azcore.ResponseError
	if errors.As(err, &answer) && (answer.StatusCode == http.StatusPreconditionFailed || answer.StatusCode == http.StatusConflict) {
		return errConflict
	}
	if err != nil {
		return fmt.Errorf("write blob %q: %w", s.name, azure.Explain(err))
	}
	return nil
}
