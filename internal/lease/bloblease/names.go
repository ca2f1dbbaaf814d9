package bloblease

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/azure"
)

// A blob is named "<shard>/<azure.Name of the key>". The shard, two hex digits,
// is the first byte of the key's SHA-256, so that the service, which splits its
// load by ranges of names, spreads the keys however alike they are.
//
// Earlier versions left the shard out. Two replicas that name a key's blob
// differently do not exclude each other, and no order of reading and writing two
// blobs lets one of a version that knows only one of them take part. So the
// naming belongs to the container and never changes while it is in use: a
// container has shards if it has the blob markerName, which whoever creates it
// writes, or finds missing while there is no record under a name of the earlier
// kind. Any other container keeps the names that it has.
const (
	shards     = 256
	markerName = "names/sharded" // no key's name in either naming
)

// shardedName returns the name of key's blob in a container with shards.
func shardedName(key string) string {
	sum := sha256.Sum256([]byte(key))
	return shardPrefix(int(sum[0])) + azure.Name(key)
}

func shardPrefix(shard int) string { return hex.EncodeToString([]byte{byte(shard)}) + "/" }

// blobName returns the name of key's blob.
func (b *blobs) blobName(key string) string {
	if b.plain.Load() {
		return azure.Name(key)
	}
	return shardedName(key)
}

// keyOf returns the key of a blob; false if its name is none that blobName makes.
func (b *blobs) keyOf(item *container.BlobItem) (key string, ok bool) {
	name := *item.Name
	if !b.plain.Load() {
		if len(name) < len("00/") {
			return "", false
		}
		name = name[len("00/"):]
	}
	if key, ok = azure.Key(name); !ok {
		decoded, err := base64.StdEncoding.DecodeString(lower(item.Metadata)[keyKey])
		if err != nil {
			return "", false
		}
		key = string(decoded)
	}
	return key, b.blobName(key) == *item.Name
}

// openBlobs returns the records in c, a container that is created when it is missing,
// now or, as created is then told, later. Of a container without a marker it has to
// know whether it is in use: to an identity that may not list blobs every such container is.
func openBlobs(ctx context.Context, c *container.Client, created func(container string)) (*blobs, error) {
	b := &blobs{container: c}
	b.home = azure.NewContainer(b.name(), azure.ContainerMissing, b.createContainer)
	for try := 0; ; try++ {
		err := b.home.Do(ctx, func() error { return b.open(ctx) })
		if err == nil {
			b.home.OnCreate(created)
			return b, nil
		}
		if !azure.ShouldRetry(ctx, try, err) {
			return nil, fmt.Errorf("open lease records: %w", err)
		}
	}
}

// PlainNames says that the blobs have the names of earlier versions, which begin
// with the scope and not with a hash.
func (s *Store) PlainNames() bool { return s.blobs.plain.Load() }

// open finds out how the blobs are named.
func (b *blobs) open(ctx context.Context) error {
	// A look at one blob shows whether the container is there to an identity that may
	// not create containers, or may not look at them.
	_, err := b.container.NewBlobClient(markerName).GetProperties(ctx, nil)
	switch {
	case err == nil:
		return nil
	case !notFound(err):
		return fmt.Errorf("look at container %q: %w", b.name(), azure.Explain(err))
	}
	plain, err := b.inUse(ctx)
	if err != nil {
		return err
	}
	b.plain.Store(plain)
	if plain {
		return nil
	}
	return b.mark(ctx)
}

// createContainer makes the container, which is missing, and one with shards. Whatever
// names its blobs had, they are gone: everybody who has missed it uses shards
// from now on, also if another is first to make it. The service takes half a minute
// to delete a container, longer than a replica is without a call of its duties, so all
// of them miss it.
func (b *blobs) createContainer(ctx context.Context) error {
	b.plain.Store(false)
	if _, err := b.container.Create(ctx, nil); err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
		return err
	}
	for try := 0; ; try++ {
		err := b.mark(ctx)
		if err == nil || !azure.ShouldRetry(ctx, try, err) {
			return err
		}
	}
}

// mark makes the container one with shards.
func (b *blobs) mark(ctx context.Context) error {
	_, err := b.container.NewBlockBlobClient(markerName).Upload(ctx, streaming.NopCloser(bytes.NewReader(nil)), &blockblob.UploadOptions{
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}},
	})
	if err != nil && !bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.ConditionNotMet) {
		return fmt.Errorf("write blob %q in %q: %w", markerName, b.name(), azure.Explain(err))
	}
	return nil
}

// inUse says whether the container has records under names of the earlier kind:
// the first record found decides. Where a worker has run there is one at least,
// its duties'.
func (b *blobs) inUse(ctx context.Context) (bool, error) {
	earlier := &blobs{container: b.container}
	earlier.plain.Store(true)
	for marker := ""; ; {
		page, err := b.tryPage(ctx, "", marker)
		if err != nil {
			var answer *azcore.ResponseError
			if errors.As(err, &answer) && answer.StatusCode == http.StatusForbidden {
				return true, nil
			}
			return false, err
		}
		for _, item := range page.items {
			if _, r, ok := b.record(item); ok && r.ID != "" {
				return false, nil
			}
			if _, r, ok := earlier.record(item); ok && r.ID != "" {
				return true, nil
			}
		}
		if marker = page.next; marker == "" {
			return false, nil
		}
	}
}

func notFound(err error) bool {
	var answer *azcore.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound &&
		!azure.ContainerMissing(err) && !bloberror.HasCode(err, bloberror.ResourceNotFound)
}
