// Package deadletter keeps, in a container of Azure Storage, the alerts that a
// receiver will not get, as one JSON record each:
//
//	alerts/2026/03/01/20260301T120000.250Z-f2b6a1e0c3d49587.json
//	replayed/2026/03/01/20260301T120000.250Z-f2b6a1e0c3d49587.json
//	discarded/2026/03/01/20260301T120000.250Z-f2b6a1e0c3d49587.json
//
// The time is when the hub got the reading. It is followed by a hash of the letter's
// identity, so that keeping a letter again changes nothing. An alert that was sent
// again and taken moves from alerts to replayed, one that people discard to discarded, with who did that.
//
// Alerts are never dropped; there is one delivery per device and receiver, and at most
// NOTIFY_CONCURRENCY letters of a receiver are written at a time. Old blobs are for a
// lifecycle rule of the storage account to delete.
package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"alertworker/internal/notify"
	"alertworker/internal/records"
)

const (
	probe = "probe" // not a letter

	maxLines = 10 // log lines a minute about alerts
)

// A Kind of letters, which have a folder of their own. Its value is for people and scripts.
type Kind string

const (
	Undelivered Kind = "undelivered" // alerts that a receiver did not get
	Replayed    Kind = "replayed"    // alerts that a receiver did not get at first
	Discarded   Kind = "discarded"   // alerts that nobody needs any more
)

// Kinds are all of them, those first that matter most.
var Kinds = []Kind{Undelivered, Replayed, Discarded}

// folders are where the letters of each kind are.
var folders = map[Kind]string{Undelivered: "alerts/", Replayed: "replayed/", Discarded: "discarded/"}

// A Store keeps dead letters in a container, as records. Use New. It is safe for concurrent use.
type Store struct {
	records records.Store
	log     *zap.Logger // of at most maxLines a minute
}

// New returns the store in rs, which should be reliable: its time is that of a call.
func New(rs records.Store, log *zap.Logger) *Store {
	sampled := func(c zapcore.Core) zapcore.Core { return zapcore.NewSamplerWithOptions(c, time.Minute, maxLines, 0) }
	return &Store{records: rs, log: log.WithOptions(zap.WrapCore(sampled))}
}

// Keep returns nil once d is kept.
func (s *Store) Keep(ctx context.Context, d notify.DeadLetter) error {
	id := ID(d)
	//planted:one-dead-letter id = "20000101T000000.000Z-0000000000000000"
	if err := s.put(ctx, blobName(Undelivered, id), encodeAlert(d, time.Now())); err != nil {
		return fmt.Errorf("keep alert %q: %w", d.Alert.ID, err)
	}

	s.log.Error("alert not delivered, kept as a dead letter (at most 10 such lines a minute)",
		zap.String("letter", id),
		zap.String("id", d.Alert.ID),
		zap.String("device", d.Alert.Device),
		zap.String("sensor", d.Alert.Sensor),
		zap.String("rule", d.Alert.Rule),
		zap.String("alert_level", d.Alert.Level), // level is that of the line
		zap.Bool("resolved", d.Alert.Resolved),
		zap.String("receiver", d.Name),
		zap.String("reason", d.Reason),
	)

	return nil
}

// Try returns nil if letters can be kept. It leaves an empty blob, which is not a
// letter.
func (s *Store) Try(ctx context.Context) error { return s.put(ctx, probe, nil) }

// put writes a record unless it exists.
func (s *Store) put(ctx context.Context, name string, content []byte) error {
	_, err := s.records.Write(ctx, records.Record{Name: name, Content: content, Type: "application/json"})
	if errors.Is(err, records.ErrConflict) {
		return nil
	}
	return err
}

// timeLayout sorts as time does.
const timeLayout = "20060102T150405.000Z"

// ID returns the id of the letter that d is kept as: when the hub got the reading, and a hash of what makes it unique.
func ID(d notify.DeadLetter) string {
	parts := []string{d.Receiver, d.Alert.ID} // only the last may contain a NUL
	if d.Alert.To != "" {                     // others of the receiver's recipients may have letters of their own
		parts = []string{d.Receiver, d.Alert.To, d.Alert.ID}
	}

	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))

	return utc(d.Alert.Enqueued).Format(timeLayout) + "-" + hex.EncodeToString(sum[:8])
}

var idPattern = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{16}$`)

// blobName returns the name of a letter's blob.
func blobName(kind Kind, id string) string {
	return folders[kind] + id[:4] + "/" + id[4:6] + "/" + id[6:8] + "/" + id + ".json"
}

// idOf is the inverse of blobName, false for what is not of this kind.
func idOf(kind Kind, name string) (id string, ok bool) {
	id = strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:], ".json")
	return id, idPattern.MatchString(id) && blobName(kind, id) == name
}
