package bloblease

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
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

// client returns the client of key's blob.
func (b *blobs) client(key string) *blob.Client { return b.container.NewBlobClient(blobName(key)) }

// read is the Read of caslease.Records. It also says whether the blob has a
// native lease.
func (b *blobs) read(ctx context.Context, key string) (r caslease.Record, locked bool, err error) {
	found, err := b.store.Stat(ctx, blobName(key))
	if errors.Is(err, records.ErrNotFound) && !found.Now.IsZero() {
		return caslease.Record{Record: lease.Record{Now: found.Now}}, false, nil
	}
	if err != nil {
		return caslease.Record{}, false, err
	}
	if r, err = decode(found); err != nil {
		return caslease.Record{}, false, fmt.Errorf("read blob %q in %q: %w: delete the blob", found.Name, b.store.Address(), err)
	}
	r.Exists, r.Version = true, found.ETag
	return r, found.Locked, nil
}

// write is the Write of caslease.Records. A version is an ETag. lock is the
// native lease under which to write, empty for none.
func (b *blobs) write(ctx context.Context, key string, prev, next caslease.Record, lock string) (version string, err error) {
	r := records.Record{Name: blobName(key), Values: encode(key, next), Lock: lock}
	if prev.Exists {
		r.ETag = prev.Version
	}
	return b.store.Write(ctx, r)
}

// The note is in base64, for the service refuses what is not ASCII or has spaces around it.
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

func encode(key string, r caslease.Record) map[string]string {
	m := map[string]string{}
	if _, ok := azure.Key(azure.Name(key)); !ok {
		m[keyKey] = base64.StdEncoding.EncodeToString([]byte(key))
	}
	if r.ID == "" {
		return m
	}
	m[keyID] = r.ID
	m[keyToken] = strconv.FormatInt(r.Token, 10)
	m[keyClaimed] = strconv.FormatInt(r.Claimed.UnixMilli(), 10)
	m[keyHold] = strconv.FormatInt(int64(r.Hold), 10)
	m[keyPhase] = phaseHeld
	if r.Released {
		m[keyPhase] = phaseFree
	}
	if r.Note != "" {
		m[keyNote] = base64.StdEncoding.EncodeToString([]byte(r.Note))
	}
	return m
}

// decode returns what from records, without Exists and Version.
func decode(from records.Record) (caslease.Record, error) {
	m := from.Values
	if _, named := m[keyKey]; len(m) == 0 || named && len(m) == 1 { // nobody has had the key yet
		return caslease.Record{Record: lease.Record{Now: from.Now}}, nil
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
			Written: from.Written,
			Now:     from.Now,
		},
		ID:       m[keyID],
		Released: m[keyPhase] == phaseFree,
	}, nil
}

// keyOf returns the key of a record; false if its name is none that blobName makes.
func keyOf(r records.Record) (key string, ok bool) {
	if len(r.Name) < len("00/") {
		return "", false
	}
	if key, ok = azure.Key(r.Name[len("00/"):]); !ok {
		decoded, err := base64.StdEncoding.DecodeString(r.Values[keyKey])
		if err != nil {
			return "", false
		}
		key = string(decoded)
	}
	return key, blobName(key) == r.Name
}
