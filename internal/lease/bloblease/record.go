package bloblease

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
	"alertworker/internal/records"
)

// A blob is named "<shard>/<azure.Name of the key>". The shard, two hex digits,
// is the first byte of the key's SHA-256, so that the service, which splits its
// load by ranges of names, spreads the keys however alike they are.
const shards = 256

func shardPrefix(shard int) string { return hex.EncodeToString([]byte{byte(shard)}) + "/" }

// blobName returns the name of key's blob.
func blobName(key string) string {
	sum := sha256.Sum256([]byte(key))
	return shardPrefix(int(sum[0])) + azure.Name(key)
}

// blobs are the records of one container, one empty blob for every key. The methods are
// safe for concurrent use. Their errors wrap what azure.ShouldRetry looks for.
type blobs struct {
	container *container.Client
	store     *records.Blobs
}

// lockedMark is before the ETag in the version of a record whose blob has a native lease.
const lockedMark = "locked "

func parseVersion(v string) (etag string, locked bool) { return strings.CutPrefix(v, lockedMark) }

// Read implements caslease.Records.
func (b *blobs) Read(ctx context.Context, key string) (r caslease.Record, err error) {
	found, err := b.store.Stat(ctx, blobName(key))
	if errors.Is(err, records.ErrNotFound) && !found.Now.IsZero() {
		return caslease.Record{Record: lease.Record{Now: found.Now}}, nil
	}
	if err != nil {
		return caslease.Record{}, err
	}
	if _, r, err = decode(found); err != nil {
		return caslease.Record{}, lease.NewWrong(fmt.Sprintf("read blob %q in %q: %v: delete the blob", found.Name, b.store.Address(), err))
	}

	r.Exists, r.Version = true, found.ETag
	if found.Locked {
		r.Version = lockedMark + r.Version
	}

	return r, nil
}

// Write implements caslease.Records. If the blob has a native lease, it writes under the one with the ID of next.
// The new version does not mention it, because the writer gives it back.
func (b *blobs) Write(ctx context.Context, key string, prev, next caslease.Record) (version string, err error) {
	r := records.Record{Name: blobName(key), Values: encode(key, next)}

	if prev.Exists {
		etag, locked := parseVersion(prev.Version)
		if r.ETag = etag; locked {
			r.Lock = next.ID
		}
	}

	return b.store.Write(ctx, r)
}

// metadata is the name of the one that a blob has: the record's [caslease.Document], in base64 because the service
// refuses what is not ASCII.
const metadata = "record"

func encode(key string, r caslease.Record) map[string]string {
	document, _ := json.Marshal(r.Document(key)) // strings, numbers and a time: cannot fail
	return map[string]string{metadata: base64.StdEncoding.EncodeToString(document)}
}

// decode returns the key and what from records of it, without Exists and Version.
func decode(from records.Record) (key string, r caslease.Record, err error) {
	var d caslease.Document
	document, err := base64.StdEncoding.DecodeString(from.Values[metadata])
	if err == nil {
		err = json.Unmarshal(document, &d)
	}

	if err == nil {
		r, err = d.Record(from.Written)
	}

	if err != nil {
		return "", r, fmt.Errorf("decode the metadata %q: %w", metadata, err)
	}

	r.Now = from.Now

	return d.Key, r, nil
}
