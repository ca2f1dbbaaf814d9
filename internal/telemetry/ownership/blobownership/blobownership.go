// Package blobownership keeps partition ownerships in Azure Blob Storage: an
// [ownership.Store] whose records are those of the checkpoint store of
// azeventhubs, so that versions which used that store see the same owners.
//
// Of a scope, a partition's record is the blob ownership/<partition> and a
// replica's heartbeat the blob owner/<owner>, both empty, with metadata. One
// listing returns both.
package blobownership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/azure"
	"alertworker/internal/telemetry/ownership"
)

const (
	listed     = "/owner" // what the names of both begin with, and no others
	partitions = "/ownership/"
	heartbeats = "/owner/"
)

// Keys of the metadata.
const (
	ownerKey   = "ownerid" // as azeventhubs writes it
	leavingKey = "leaving"
)

// resolution is that of the service's clock.
const resolution = time.Second

// A Store is an [ownership.Store] in a container, which must exist. Its owners
// must be of ASCII letters, digits and -._ only.
type Store struct{ container *container.Client }

// New returns the store in a container. The client's retries should be done
// within two seconds: callers try again themselves.
func New(c *container.Client) *Store { return &Store{c} }

// List implements [ownership.Store].
func (s *Store) List(ctx context.Context, scope string) (ownership.Records, error) {
	fail := func(err error) (ownership.Records, error) {
		return ownership.Records{}, fmt.Errorf("list ownerships of %s: %w", scope, azure.Explain(err))
	}
	prefix := scope + listed
	pages := s.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix, Include: container.ListBlobsInclude{Metadata: true}})
	var all ownership.Records
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fail(err)
		}
		if page.Date == nil || page.Segment == nil {
			return fail(errors.New("the answer has no date or no blobs"))
		}
		for _, item := range page.Segment.BlobItems {
			if item.Name == nil || item.Properties == nil || item.Properties.ETag == nil || item.Properties.LastModified == nil {
				continue
			}
			version := string(*item.Properties.ETag)
			age := max(0, page.Date.Sub(*item.Properties.LastModified)-resolution)
			if id, ok := strings.CutPrefix(*item.Name, scope+partitions); ok {
				all.Partitions = append(all.Partitions, ownership.Record{
					Partition: id, Owner: value(item.Metadata, ownerKey), Version: version, Age: age,
				})
			} else if id, ok := strings.CutPrefix(*item.Name, scope+heartbeats); ok {
				all.Heartbeats = append(all.Heartbeats, ownership.Heartbeat{
					Owner: id, Version: version, Leaving: value(item.Metadata, leavingKey) == "true", Age: age,
				})
			}
		}
	}
	return all, nil
}

// value returns what metadata has under a key, which azblob may have capitalised.
func value(metadata map[string]*string, key string) string {
	for k, v := range metadata {
		if strings.EqualFold(k, key) && v != nil {
			return *v
		}
	}
	return ""
}

// Claim implements [ownership.Store].
func (s *Store) Claim(ctx context.Context, scope, partition, owner, version string) (bool, error) {
	client := s.container.NewBlockBlobClient(scope + partitions + partition)
	metadata := map[string]*string{ownerKey: &owner}
	var err error
	if version == "" {
		err = put(ctx, client, metadata, &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)})
	} else {
		_, err = client.SetMetadata(ctx, metadata, &blob.SetMetadataOptions{
			AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: new(azcore.ETag(version))}},
		})
	}
	if bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobAlreadyExists, bloberror.BlobNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claim partition %s of %s: %w", partition, scope, azure.Explain(err))
	}
	return true, nil
}

// Beat implements [ownership.Store].
func (s *Store) Beat(ctx context.Context, scope, owner string, leaving bool) error {
	client := s.container.NewBlockBlobClient(scope + heartbeats + owner)
	metadata := map[string]*string{leavingKey: new(strconv.FormatBool(leaving))}
	// An account with soft delete would keep every blob that is written over.
	_, err := client.SetMetadata(ctx, metadata, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		err = put(ctx, client, metadata, nil)
	}
	if err != nil {
		return fmt.Errorf("write the heartbeat of %s in %s: %w", owner, scope, azure.Explain(err))
	}
	return nil
}

// Forget implements [ownership.Store].
func (s *Store) Forget(ctx context.Context, scope, owner, version string) error {
	options := &blob.DeleteOptions{}
	if version != "" {
		options.AccessConditions = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: new(azcore.ETag(version))}}
	}
	_, err := s.container.NewBlobClient(scope+heartbeats+owner).Delete(ctx, options)
	if err != nil && !bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobNotFound) {
		return fmt.Errorf("remove the heartbeat of %s in %s: %w", owner, scope, azure.Explain(err))
	}
	return nil
}

// put writes an empty blob.
func put(ctx context.Context, client *blockblob.Client, metadata map[string]*string, only *blob.ModifiedAccessConditions) error {
	_, err := client.Upload(ctx, streaming.NopCloser(bytes.NewReader(nil)), &blockblob.UploadOptions{
		Metadata:         metadata,
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: only},
	})
	return err
}
