package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"alertworker/internal/records"
	"alertworker/internal/telemetry"
)

// A Group is a consumer group of an event hub, namespace/hub/group. It and the names of its records
// are in lower case, as other readers of checkpoints, such as KEDA, expect.
type Group string

// NewGroup returns the group of a hub at a namespace's host name.
func NewGroup(host, hub, group string) Group {
	return Group(strings.ToLower(host + "/" + hub + "/" + group))
}

// Checkpoint returns the name of a partition's checkpoint.
func (g Group) Checkpoint(partition string) string { return string(g) + "/checkpoint/" + partition }

// A StoredCheckpoint is a [telemetry.Checkpoint] as the store has it.
type StoredCheckpoint struct {
	telemetry.Checkpoint // other tools write no Generation and no Ledger

	etag string // of the record; empty if there is none yet
}

// Names of a checkpoint's values. The first two are those of azeventhubs; it and
// KEDA ignore the others and leave them alone.
const (
	sequenceValue   = "sequencenumber"
	offsetValue     = "offset"
	timeValue       = "enqueuedtime" // of the event; RFC 3339
	generationValue = "generation"
	ledgerValue     = "ledger"
)

// Values returns c as the values of a record.
func (c StoredCheckpoint) Values() map[string]string {
	at := ""
	if !c.Time.IsZero() {
		at = c.Time.UTC().Format(time.RFC3339Nano)
	}

	values := map[string]string{
		sequenceValue:   strconv.FormatInt(c.Sequence, 10),
		offsetValue:     c.Offset,
		timeValue:       at,
		generationValue: c.Generation,
		ledgerValue:     c.Ledger,
	}
	maps.DeleteFunc(values, func(_, text string) bool { return text == "" })

	return values
}

// unreadable is the generation of a record that has a checkpoint's name and no number: that of no hub, so that its
// partition starts over.
const unreadable = "unreadable"

// parseCheckpoint reads a record. Other tools may write no offset. A time that cannot be parsed is as good as none.
func parseCheckpoint(r records.Record) StoredCheckpoint {
	c := StoredCheckpoint{etag: r.ETag}
	var err error
	if c.Sequence, err = strconv.ParseInt(r.Values[sequenceValue], 10, 64); err != nil {
		c.Generation = unreadable
		return c
	}

	c.Offset = r.Values[offsetValue]
	c.Time, _ = time.Parse(time.RFC3339, r.Values[timeValue])
	c.Generation = r.Values[generationValue]
	c.Ledger = r.Values[ledgerValue]

	return c
}

// ReadCheckpoints returns the checkpoints of g by partition, and apart from them those that cannot be read.
func ReadCheckpoints(
	ctx context.Context, store records.Store, g Group,
) (readable, rest map[string]StoredCheckpoint, err error) {
	prefix := g.Checkpoint("")
	all, err := records.All(ctx, store, prefix)
	if err != nil {
		return nil, nil, fmt.Errorf("checkpoint store: %w", err)
	}

	readable, rest = map[string]StoredCheckpoint{}, map[string]StoredCheckpoint{}
	for _, r := range all {
		partition := strings.TrimPrefix(r.Name, prefix)
		if c := parseCheckpoint(r); c.Generation == unreadable {
			rest[partition] = c
		} else {
			readable[partition] = c
		}
	}

	return readable, rest, nil
}

// checkpoints are those of one consumer group, for one generation of the hub: reading
// never continues from a checkpoint of another generation, and any position of this one
// replaces it. Safe for concurrent use.
type checkpoints struct {
	store      records.Store
	group      Group
	generation string // of the hub that is read
	// ETags, by partition, of checkpoints beyond the hub's end; not changed once the hub is read
	beyond map[string]string
}

// checkpoints returns those of the consumer group where the hub is at present, whose generation is not known.
func (s *Source) checkpoints() *checkpoints {
	at := s.endpoint()
	return &checkpoints{
		store:  s.config.Records,
		group:  NewGroup(at.namespace, at.hub, s.config.ConsumerGroup),
		beyond: map[string]string{},
	}
}

// ofOtherHub reports whether a checkpoint that the store has is of another hub than the one that is read.
func (cs *checkpoints) ofOtherHub(partition string, c StoredCheckpoint) bool {
	return !cs.isRead(c.Generation) || cs.beyond[partition] == c.etag
}

// isRead reports whether a generation may be that of the hub that is read. Other tools write none.
func (cs *checkpoints) isRead(generation string) bool {
	return generation == "" || generation == cs.generation
}

// read returns a partition's checkpoint, a zero one if there is none.
func (cs *checkpoints) read(ctx context.Context, partition string) (StoredCheckpoint, error) {
	r, err := cs.store.Stat(ctx, cs.group.Checkpoint(partition))
	switch {
	case errors.Is(err, records.ErrNotFound):
		return StoredCheckpoint{}, nil
	case err != nil:
		return StoredCheckpoint{}, fmt.Errorf("checkpoint store: %w", err)
	}

	return parseCheckpoint(r), nil
}

// write replaces before by c; a zero before stands for no checkpoint.
// records.ErrConflict if the store has something else.
func (cs *checkpoints) write(
	ctx context.Context, partition string, c telemetry.Checkpoint, before StoredCheckpoint,
) (StoredCheckpoint, error) {
	next := StoredCheckpoint{Checkpoint: c}
	next.Generation = cs.generation

	var err error
	name := cs.group.Checkpoint(partition)
	next.etag, err = cs.store.Write(ctx, records.Record{Name: name, Values: next.Values(), ETag: before.etag})
	if err != nil {
		err = fmt.Errorf("checkpoint store: %w", err)
	}

	return next, err
}

// advanceRounds is how often advance writes; a conflict means that another reader
// has made progress.
const advanceRounds = 4

// advance moves a checkpoint forward to c unless the store has a later one, and
// returns what the store then has, nil if that is not known. At the same position
// c's ledger replaces another. A c of another generation changes nothing. known is what the store had when it was
// last seen, nil if it was not. It writes nothing once held has ended, and returns the cause of that.
func (cs *checkpoints) advance(
	ctx context.Context, partition string, c telemetry.Checkpoint, known *StoredCheckpoint, held context.Context,
) (*StoredCheckpoint, error) {
	if !cs.isRead(c.Generation) {
		return known, nil
	}

	for round := 1; ; round++ {
		if known == nil {
			there, err := cs.read(ctx, partition)
			if err != nil {
				return nil, err
			}
			known = &there
		}

		done := known.Sequence > c.Sequence || known.Sequence == c.Sequence && known.Ledger == c.Ledger
		if known.etag != "" && done && !cs.ofOtherHub(partition, *known) {
			return known, nil
		}
		if err := context.Cause(held); err != nil {
			return known, err
		}

		next, err := cs.write(ctx, partition, c, *known)
		if err == nil {
			return &next, nil
		}
		if !errors.Is(err, records.ErrConflict) || round == advanceRounds {
			return nil, err
		}

		known = nil
	}
}
