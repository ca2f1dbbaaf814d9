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

// Blobs is a Store in a container of Azure Storage, which it creates if
// necessary. Use NewBlobs. Errors name the container and say what to do; they contain no
// keys or signatures.
type Blobs struct {
	container *container.Client
	home      *azure.Container
}

// NewBlobs returns the Store in c. It makes no connection.
func NewBlobs(c *container.Client) *Blobs {
	b := &Blobs{container: c}
	b.home = azure.NewContainer(b.name(), azure.ContainerMissing, func(ctx context.Context) error {
		_, err := c.Create(ctx, nil)
		if bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
			return nil
		}
		return err
	})
	return b
}

func (b *Blobs) Put(ctx context.Context, name string, content []byte) error {
	err := b.home.Do(ctx, func() error {
		_, err := b.container.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(content)), &blockblob.UploadOptions{
			HTTPHeaders: &blob.HTTPHeaders{BlobContentType: to.Ptr("application/json")},
		})
		return err
	})
	return b.explain("write", name, err)
}

func (b *Blobs) Get(ctx context.Context, name string) ([]byte, error) {
	resp, err := b.container.NewBlobClient(name).DownloadStream(ctx, nil)
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

func (b *Blobs) Delete(ctx context.Context, name string) error {
	_, err := b.container.NewBlobClient(name).Delete(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return nil
	}
	return b.explain("delete", name, err)
}

func (b *Blobs) List(ctx context.Context, prefix string, limit int) (names []string, err error) {
	err = b.home.Do(ctx, func() (err error) {
		names, err = b.list(ctx, prefix, limit)
		return err
	})
	return names, b.explain("list", prefix, err)
}

func (b *Blobs) list(ctx context.Context, prefix string, limit int) (names []string, err error) {
	pager := b.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix, MaxResults: to.Ptr[int32](pageSize)})
	for pager.More() && len(names) < limit {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Segment.BlobItems {
			names = append(names, *item.Name)
		}
	}
	return names[:min(limit, len(names))], nil
}

func (b *Blobs) explain(verb, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s tally %q in %q: %w", verb, name, b.name(), azure.Explain(err))
}

// name returns the container's address without a signature.
func (b *Blobs) name() string {
	address, _, _ := strings.Cut(b.container.URL(), "?")
	return address
}
