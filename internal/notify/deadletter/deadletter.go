// Package deadletter keeps, in a container of Azure Storage, the alerts that a
// receiver will not get and events that cannot be decoded, as one JSON record
// each:
//
//	alerts/2026/03/01/20260301T120000.250Z-f2b6a1e0c3d49587.json
//	replayed/2026/03/01/20260301T120000.250Z-f2b6a1e0c3d49587.json
//	malformed/2026/03/01/20260301T120000.250Z-80c1f2a6d3b45e97.json
//
// The time is when the hub got the reading. It is followed by a hash of the letter's
// identity, so that keeping a letter again changes nothing. An alert that was sent
// again and taken moves from alerts to replayed.
//
// Malformed events are bounded in number and size. Alerts are never dropped; there is
// one delivery per device and receiver, and at most NOTIFY_CONCURRENCY letters of a
// receiver are written at a time. Old blobs are for a lifecycle rule of the storage
// account to delete.
package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"alertworker/internal/notify"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
)

const (
	probe = "probe" // not a letter

	maxMalformed = 60 // events kept a minute
	maxLines     = 10 // log lines a minute about alerts
)

// A Kind of letters, which have a folder of their own. Its value is for people and scripts.
type Kind string

const (
	Undelivered Kind = "undelivered" // alerts that a receiver did not get
	Replayed    Kind = "replayed"    // alerts that a receiver did not get at first
	Undecodable Kind = "undecodable" // events without a reading
)

// Kinds are all of them, those first that matter most.
var Kinds = []Kind{Undelivered, Replayed, Undecodable}

// folder is where the letters of a kind are, with a slash at its end.
func (k Kind) folder() string {
	return map[Kind]string{Undelivered: "alerts/", Replayed: "replayed/", Undecodable: "malformed/"}[k]
}

// A Store keeps dead letters in a container, as records. Use New. It is safe for concurrent use.
type Store struct {
	records records.Store
	log     *zap.Logger // of at most maxLines a minute

	mu     sync.Mutex
	minute time.Time // the beginning of the current one
	events int       // malformed ones in it
}

// New returns the store in rs, which should be reliable: its time is that of a call.
func New(rs records.Store, log *zap.Logger) *Store {
	sampled := func(c zapcore.Core) zapcore.Core { return zapcore.NewSamplerWithOptions(c, time.Minute, maxLines, 0) }
	return &Store{records: rs, log: log.WithOptions(zap.WrapCore(sampled))}
}

// Keep returns nil once d is kept.
func (s *Store) Keep(ctx context.Context, d notify.DeadLetter) error {
	id := ID(d)
	if err := s.put(ctx, blobName(Undelivered, id), encodeAlert(d, time.Now())); err != nil {
		return fmt.Errorf("keep alert %q: %w", d.Alert.ID, err)
	}

	fields := []zap.Field{
		zap.String(
			"letter",
			id,
		), zap.String("id", d.Alert.ID), zap.String("device", d.Alert.Device), zap.String("rule", d.Alert.Rule),
		zap.String("receiver", d.Name), zap.String("reason", d.Reason),
	}

	if d.Alert.Level != "" {
		fields = append(fields, zap.String("alert_level", d.Alert.Level)) // level is that of the line
	}

	if d.Alert.Resolved {
		fields = append(fields, zap.Bool("resolved", true))
	}

	s.log.Error("alert not delivered, kept as a dead letter (at most 10 such lines a minute)", fields...)

	return nil
}

// KeepMalformed returns nil once e is kept. Beyond 60 calls a
// minute it drops the event, so that few events wait even in a storm of them or an
// outage of the store.
func (s *Store) KeepMalformed(ctx context.Context, e telemetry.MalformedEvent) error {
	switch n := s.malformed(); {
	case n == maxMalformed+1:
		s.log.Warn(
			"too many malformed events; keeping no more for the rest of this minute",
			zap.Int("kept_per_minute", maxMalformed),
		)
		return nil

	case n > maxMalformed:
		return nil
	}

	id := newID(e.Event.Enqueued, e.Partition, fmt.Sprint(e.Event.Sequence), e.Event.Device)
	if err := s.put(ctx, blobName(Undecodable, id), encodeMalformed(e, time.Now())); err != nil {
		return fmt.Errorf("keep event %d of partition %s: %w", e.Event.Sequence, e.Partition, err)
	}

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

// ID returns the id of the letter that d is kept as.
func ID(d notify.DeadLetter) string {
	if d.Alert.To != "" { // others of the receiver's recipients may have letters of their own
		return newID(d.Alert.Enqueued, d.Receiver, d.Alert.To, d.Alert.ID)
	}
	return newID(d.Alert.Enqueued, d.Receiver, d.Alert.ID)
}

// timeLayout sorts as time does.
const timeLayout = "20060102T150405.000Z"

// newID returns the id of a letter about what the hub got at a time. The parts make it
// unique; only the last may contain a NUL.
func newID(enqueued time.Time, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return utc(enqueued).Format(timeLayout) + "-" + hex.EncodeToString(sum[:8])
}

var idPattern = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{16}$`)

// blobName returns the name of a letter's blob.
func blobName(kind Kind, id string) string {
	return kind.folder() + id[:4] + "/" + id[4:6] + "/" + id[6:8] + "/" + id + ".json"
}

// idOf is the inverse of blobName, false for what is not of this kind.
func idOf(kind Kind, name string) (id string, ok bool) {
	id = strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:], ".json")
	return id, idPattern.MatchString(id) && blobName(kind, id) == name
}

// malformed counts a malformed event, and returns how many there are in this minute.
func (s *Store) malformed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.minute) >= time.Minute {
		s.minute, s.events = now, 0
	}

	s.events++

	return s.events
}
