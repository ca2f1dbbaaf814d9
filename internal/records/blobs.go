package records

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"alertworker/internal/azure"
)

// Blobs is a Store in a container of Azure Storage. A record is a blob, and its values are the blob's
// metadata. Each call makes one request, and two if it creates a record with [Any]. Use OpenBlobs.
//
// Errors name the blob and the container, say what to do, have no keys or signatures, and wrap what
// [azure.ShouldRetry] looks for.
type Blobs struct {
	container *container.Client
	home      *azure.Container
}

var _ Store = (*Blobs)(nil)

// OpenBlobs returns the store in c, a container that it creates when it is missing. created, if
// not nil, is called whenever the container has gone and was created again; it must not block. c
// needs azure.Once and azure.LimitTries.
func OpenBlobs(ctx context.Context, c *container.Client, created func(container string)) (*Blobs, error) {
	b := &Blobs{container: c}
	b.home = azure.NewContainer(b.Address(), azure.ContainerMissing, func(ctx context.Context) error {
		_, err := c.Create(ctx, nil)
		return err
	})
	for try := 0; ; try++ {
		// An identity that may neither create nor look at containers may look at a blob.
		_, err := b.Stat(ctx, "probe")
		if err == nil || errors.Is(err, ErrNotFound) {
			b.home.Created = created
			return b, nil
		}

		if !azure.ShouldRetry(ctx, try, err) {
			return nil, err
		}
	}
}

// Address returns the container's, without a signature.
func (b *Blobs) Address() string {
	address, _, _ := strings.Cut(b.container.URL(), "?")
	return address
}

// Read implements [Store].
func (b *Blobs) Read(ctx context.Context, name string, limit int) (r Record, err error) {
	err = b.do(ctx, "read blob", name, ErrNotFound, func() error {
		resp, err := b.container.NewBlobClient(name).DownloadStream(azure.Large(ctx), nil)
		if err != nil {
			r = absent(err)
			return err
		}
		defer resp.Body.Close()
		if r, err = found(name, resp.Metadata, resp.ETag, resp.LastModified, resp.Date, resp.LeaseState); err == nil {
			r.Content, err = io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
		}

		return err
	})
	return r, err
}

// Stat implements [Store].
func (b *Blobs) Stat(ctx context.Context, name string) (r Record, err error) {
	err = b.do(ctx, "read blob", name, ErrNotFound, func() error {
		resp, err := b.container.NewBlobClient(name).GetProperties(ctx, nil)
		if err != nil {
			r = absent(err)
			return err
		}

		r, err = found(name, resp.Metadata, resp.ETag, resp.LastModified, resp.Date, resp.LeaseState)
		return err
	})
	return r, err
}

// Write implements [Store].
func (b *Blobs) Write(ctx context.Context, r Record) (etag string, err error) {
	client := b.container.NewBlockBlobClient(r.Name)
	metadata := make(map[string]*string, len(r.Values))
	for name, value := range r.Values {
		metadata[name] = &value
	}

	only := conditions(r.ETag)
	if r.Lock != "" {
		only.LeaseAccessConditions = &blob.LeaseAccessConditions{LeaseID: &r.Lock}
	}

	err = b.do(ctx, "write blob", r.Name, ErrConflict, func() error {
		var written *azcore.ETag

		// Where deleted blobs are kept for a while, so is each one that is uploaded over, but
		// not one whose metadata are changed.
		mustUpload := r.ETag == "" || r.Content != nil
		if !mustUpload {
			resp, err := client.SetMetadata(ctx, metadata, &blob.SetMetadataOptions{AccessConditions: only})
			mustUpload = r.ETag == Any && notFound(err)
			if err != nil && !mustUpload {
				return err
			}
			written = resp.ETag
		}

		if mustUpload {
			options := &blockblob.UploadOptions{Metadata: metadata, AccessConditions: only}
			if r.Type != "" {
				options.HTTPHeaders = &blob.HTTPHeaders{BlobContentType: &r.Type}
			}

			uploading := ctx
			if len(r.Content) > 0 {
				uploading = azure.Large(ctx)
			}

			resp, err := client.Upload(uploading, streaming.NopCloser(bytes.NewReader(r.Content)), options)
			if err != nil {
				return err
			}
			written = resp.ETag
		}

		if written == nil {
			return errors.New("the answer lacks an ETag")
		}

		etag = string(*written)
		return nil
	})
	return etag, err
}

// Delete implements [Store].
func (b *Blobs) Delete(ctx context.Context, name, etag string) error {
	return b.do(ctx, "delete blob", name, ErrConflict, func() error {
		_, err := b.container.NewBlobClient(name).Delete(ctx, &blob.DeleteOptions{AccessConditions: conditions(etag)})
		if etag == Any && notFound(err) {
			return nil
		}
		return err
	})
}

// List implements [Store].
func (b *Blobs) List(ctx context.Context, prefix, from string) (p Page, err error) {
	err = b.do(ctx, "list blobs", prefix, ErrNotFound, func() error {
		p = Page{}
		resp, err := b.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{
			Include:    container.ListBlobsInclude{Metadata: true},
			Prefix:     &prefix,
			Marker:     &from,
			MaxResults: to.Ptr[int32](pageSize),
		}).NextPage(ctx)
		if err != nil {
			return err
		}

		if resp.Segment == nil {
			return errors.New("the answer lacks blobs")
		}

		if resp.NextMarker != nil {
			p.Next = *resp.NextMarker
		}

		for _, item := range resp.Segment.BlobItems {
			of := item.Properties
			if item.Name == nil || of == nil {
				continue
			}

			r, err := found(*item.Name, item.Metadata, of.ETag, of.LastModified, resp.Date, of.LeaseState)
			if err != nil {
				return err
			}
			p.Records = append(p.Records, r)
		}

		return nil
	})
	return p, err
}

// do makes a call, which it repeats once if it had to create the container. Its error is one of a Store; missing if there
// is no such blob.
func (b *Blobs) do(ctx context.Context, what, name string, missing error, call func() error) error {
	err := b.home.Do(ctx, call)
	if err == nil {
		return nil
	}

	explained := azure.Explain(err)
	switch {
	case azure.Answer(err).StatusCode == http.StatusPreconditionFailed,
		bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.SnapshotsPresent): // with snapshots it is not ours to delete
		explained = fmt.Errorf("%w: %w", ErrConflict, explained)
	case notFound(err):
		explained = fmt.Errorf("%w: %w", missing, explained)
	}

	return fmt.Errorf("%s %q in %q: %w", what, name, b.Address(), explained)
}

// conditions returns those of a request that is for the blob with an ETag.
func conditions(etag string) *blob.AccessConditions {
	//planted:blob-always-written etag = Any
	switch etag {
	case Any:
		return &blob.AccessConditions{}
	case "":
		return &blob.AccessConditions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)},
		}
	}

	return &blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(etag))},
	}
}

// found returns the record of a blob. Names of metadata come capitalised, and ETags without quotes from a listing.
func found(
	name string,
	metadata map[string]*string,
	etag *azcore.ETag,
	written, now *time.Time,
	state *lease.StateType,
) (Record, error) {
	if etag == nil || written == nil || now == nil {
		return Record{}, errors.New("the answer lacks ETag, Last-Modified or Date")
	}

	r := Record{
		Name:    name,
		Values:  make(map[string]string, len(metadata)),
		ETag:    `"` + strings.Trim(string(*etag), `"`) + `"`,
		Written: *written,
		Now:     *now,
	}

	for name, value := range metadata {
		if value != nil {
			r.Values[strings.ToLower(name)] = *value
		}
	}

	locked := []lease.StateType{lease.StateTypeLeased, lease.StateTypeBreaking}
	r.Locked = state != nil && slices.Contains(locked, *state)

	return r, nil
}

// absent returns what a failed read says about a missing record: the time.
func absent(err error) (r Record) {
	r.Now, _ = azure.Date(azure.Answer(err).RawResponse)
	return r
}

// notFound says whether there is no blob of that name, though its container is there.
func notFound(err error) bool {
	return azure.Answer(err).StatusCode == http.StatusNotFound && !azure.ContainerMissing(err) &&
		!bloberror.HasCode(err, bloberror.ResourceNotFound)
}
