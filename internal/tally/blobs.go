package tally

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/azure"
)

const (
	pageSize  = 500
	maxObject = 16 << 20 // bytes
)

// Blobs is a Store in a container of Azure Storage, which has to exist. Its errors
// name the container and say what to do; they hold no keys or signatures.
type Blobs struct{ Container *container.Client }

func (b Blobs) Put(ctx context.Context, name string, content []byte) error {
	_, err := b.Container.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(content)), &blockblob.UploadOptions{
		HTTPHeaders: &blob.HTTPHeaders{BlobContentType: to.Ptr("application/json")},
	})
	return b.explain("write", name, err)
}

func (b Blobs) Get(ctx context.Context, name string) ([]byte, error) {
	resp, err := b.Container.NewBlobClient(name).DownloadStream(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return nil, fmt.Errorf("tally %q: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return nil, b.explain("read", name, err)
	}
	body := resp.NewRetryReader(ctx, nil)
	defer body.Close()
	content, err := io.ReadAll(io.LimitReader(body, maxObject))
	return content, b.explain("read", name, err)
}

func (b Blobs) Delete(ctx context.Context, name string) error {
	_, err := b.Container.NewBlobClient(name).Delete(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return nil
	}
	return b.explain("delete", name, err)
}

func (b Blobs) List(ctx context.Context, prefix string, limit int) (names []string, err error) {
	pager := b.Container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix, MaxResults: to.Ptr[int32](pageSize)})
	for pager.More() && len(names) < limit {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, b.explain("list", prefix, err)
		}
		for _, item := range page.Segment.BlobItems {
			names = append(names, *item.Name)
		}
	}
	return names[:min(limit, len(names))], nil
}

func (b Blobs) explain(verb, name string, err error) error {
	if err == nil {
		return nil
	}
	address, _, _ := strings.Cut(b.Container.URL(), "?")
	return fmt.Errorf("%s tally %q in %q: %w", verb, name, address, azure.Explain(err))
}
