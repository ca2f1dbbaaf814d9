package bloblease

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	leasestate "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
)

// blobs are the records of one container, one empty blob for every key. See
// names.go for how they are named. The methods are safe for concurrent use. Their
// errors are explained and wrap what azure.ShouldRetry looks for.
type blobs struct {
	container *container.Client
	home      *azure.Container
	plain     atomic.Bool // blobs have the names of earlier versions
}

// read is the Read of caslease.Records. It also says whether the blob has a
// native lease.
func (b *blobs) read(ctx context.Context, key string) (r caslease.Record, locked bool, err error) {
	err = b.home.Do(ctx, func() (err error) {
		r, locked, err = b.readOnce(ctx, key)
		return err
	})
	return r, locked, err
}

func (b *blobs) readOnce(ctx context.Context, key string) (r caslease.Record, locked bool, err error) {
	resp, err := b.client(key).GetProperties(ctx, nil)
	var answer *azcore.ResponseError
	if notFound(err) && errors.As(err, &answer) {
		now, err := azure.Date(answer.RawResponse)
		return caslease.Record{Record: lease.Record{Now: now}}, false, err
	}
	if err != nil {
		return caslease.Record{}, false, fmt.Errorf("read blob %q in %q: %w", b.blobName(key), b.name(), azure.Explain(err))
	}
	if resp.Date == nil || resp.LastModified == nil || resp.ETag == nil {
		return caslease.Record{}, false, fmt.Errorf("read blob %q in %q: the answer lacks Date, Last-Modified or ETag", b.blobName(key), b.name())
	}
	r, err = decode(resp.Metadata)
	if err != nil {
		return caslease.Record{}, false, fmt.Errorf("read blob %q in %q: %w: delete the blob", b.blobName(key), b.name(), err)
	}
	r.Now, r.Exists, r.Version = *resp.Date, true, string(*resp.ETag)
	locked = resp.LeaseState != nil && (*resp.LeaseState == leasestate.StateTypeLeased || *resp.LeaseState == leasestate.StateTypeBreaking)
	if r.ID != "" {
		r.Written = *resp.LastModified
	}
	return r, locked, nil
}

// write is the Write of caslease.Records. A version is an ETag. lock is the
// native lease under which to write, empty for none.
func (b *blobs) write(ctx context.Context, key string, prev, next caslease.Record, lock string) (version string, err error) {
	err = b.home.Do(ctx, func() (err error) {
		version, err = b.writeOnce(ctx, key, prev, next, lock)
		return err
	})
	return version, err
}

func (b *blobs) writeOnce(ctx context.Context, key string, prev, next caslease.Record, lock string) (version string, err error) {
	if !prev.Exists {
		return b.create(ctx, key, next)
	}
	conditions := &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(prev.Version))}}
	if lock != "" {
		conditions.LeaseAccessConditions = &blob.LeaseAccessConditions{LeaseID: &lock}
	}
	resp, err := b.client(key).SetMetadata(ctx, encode(key, next), &blob.SetMetadataOptions{AccessConditions: conditions})
	if err != nil {
		return "", b.writeError(key, err)
	}
	return tag(resp.ETag)
}

func (b *blobs) create(ctx context.Context, key string, r caslease.Record) (version string, err error) {
	resp, err := b.container.NewBlockBlobClient(b.blobName(key)).Upload(ctx, streaming.NopCloser(bytes.NewReader(nil)), &blockblob.UploadOptions{
		Metadata:         encode(key, r),
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}},
	})
	if err != nil {
		return "", b.writeError(key, err)
	}
	return tag(resp.ETag)
}

func (b *blobs) writeError(key string, err error) error {
	return fmt.Errorf("write blob %q in %q: %w", b.blobName(key), b.name(), azure.Explain(err))
}

// client returns the client of key's blob.
func (b *blobs) client(key string) *blob.Client { return b.container.NewBlobClient(b.blobName(key)) }

// name returns the container's address without a signature.
func (b *blobs) name() string {
	address, _, _ := strings.Cut(b.container.URL(), "?")
	return address
}

func tag(etag *azcore.ETag) (string, error) {
	if etag == nil {
		return "", errors.New("write blob: the answer lacks an ETag")
	}
	return string(*etag), nil
}

// The metadata's names are plain lower-case words: the service gives them back
// capitalised, and refuses most other characters. The note is in base64, for
// the service refuses what is not ASCII or has spaces around it.
const (
	keyID      = "id"
	keyToken   = "token"
	keyClaimed = "claimed" // Unix milliseconds
	keyHold    = "hold"    // nanoseconds
	keyPhase   = "phase"   // held or free
	keyNote    = "note"
	keyKey     = "key" // the key, in base64, where the blob's name is but a hash of it
)

const (
	phaseHeld = "held"
	phaseFree = "free"
)

func encode(key string, r caslease.Record) map[string]*string {
	m := map[string]*string{}
	if _, ok := azure.Key(azure.Name(key)); !ok {
		m[keyKey] = to.Ptr(base64.StdEncoding.EncodeToString([]byte(key)))
	}
	if r.ID == "" {
		return m
	}
	phase := phaseHeld
	if r.Released {
		phase = phaseFree
	}
	m[keyID] = &r.ID
	m[keyToken] = to.Ptr(strconv.FormatInt(r.Token, 10))
	m[keyClaimed] = to.Ptr(strconv.FormatInt(r.Claimed.UnixMilli(), 10))
	m[keyHold] = to.Ptr(strconv.FormatInt(int64(r.Hold), 10))
	m[keyPhase] = &phase
	if r.Note != "" {
		m[keyNote] = to.Ptr(base64.StdEncoding.EncodeToString([]byte(r.Note)))
	}
	return m
}

// lower returns metadata with its names as they were written.
func lower(metadata map[string]*string) map[string]string {
	m := make(map[string]string, len(metadata))
	for k, v := range metadata {
		if v != nil {
			m[strings.ToLower(k)] = *v
		}
	}
	return m
}

func decode(metadata map[string]*string) (caslease.Record, error) {
	m := lower(metadata)
	if _, named := m[keyKey]; len(m) == 0 || named && len(m) == 1 { // nobody has had the key yet
		return caslease.Record{}, nil
	}
	token, err := strconv.ParseInt(m[keyToken], 10, 64)
	if err != nil {
		return caslease.Record{}, fmt.Errorf("metadata %q is not a number: %q", keyToken, m[keyToken])
	}
	claimed, err := strconv.ParseInt(m[keyClaimed], 10, 64)
	if err != nil {
		return caslease.Record{}, fmt.Errorf("metadata %q is not a number: %q", keyClaimed, m[keyClaimed])
	}
	hold, err := strconv.ParseInt(m[keyHold], 10, 64)
	if err != nil || hold < 0 {
		return caslease.Record{}, fmt.Errorf("metadata %q is not a duration: %q", keyHold, m[keyHold])
	}
	if m[keyPhase] != phaseHeld && m[keyPhase] != phaseFree {
		return caslease.Record{}, fmt.Errorf("metadata %q is neither %q nor %q: %q", keyPhase, phaseHeld, phaseFree, m[keyPhase])
	}
	if m[keyID] == "" {
		return caslease.Record{}, fmt.Errorf("metadata %q is missing", keyID)
	}
	note, err := base64.StdEncoding.DecodeString(m[keyNote])
	if err != nil {
		return caslease.Record{}, fmt.Errorf("metadata %q is not base64", keyNote)
	}
	return caslease.Record{
		Record: lease.Record{
			Note:    string(note),
			Token:   token,
			Claimed: time.UnixMilli(claimed).UTC(),
			Hold:    time.Duration(hold),
		},
		ID:       m[keyID],
		Released: m[keyPhase] == phaseFree,
	}, nil
}
