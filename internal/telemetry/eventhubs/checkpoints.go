package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"alertworker/internal/telemetry"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// A Group is a consumer group of an event hub. Its records are named in lower
// case, as other readers of checkpoints (KEDA) expect.
type Group struct{ namespace, hub, group string }

// NewGroup returns the group of a hub at a namespace's host name.
func NewGroup(host, hub, group string) Group {
	return Group{strings.ToLower(host), strings.ToLower(hub), strings.ToLower(group)}
}

// String returns namespace/hub/group, in lower case.
func (g Group) String() string { return g.namespace + "/" + g.hub + "/" + g.group }

// Checkpoint returns the name of a partition's checkpoint.
func (g Group) Checkpoint(partition string) string { return g.String() + "/checkpoint/" + partition }

// A Checkpoint says how far a partition is settled.
type Checkpoint struct {
	telemetry.Position           // of the last event that is settled
	HubCreated         time.Time // when the hub was created whose position it is; zero if it is not known

	etag string // of the record; empty if there is none yet
}

// Names of a checkpoint's values. The first two are those of azeventhubs. The
// others are not known to it, nor to KEDA: both leave them alone.
const (
	sequenceValue = "sequencenumber"
	offsetValue   = "offset"
	timeValue     = "enqueuedtime" // of the event; RFC 3339
	createdValue  = "hubcreated"   // RFC 3339
)

// Values returns c as a record.
func (c Checkpoint) Values() map[string]string {
	values := map[string]string{sequenceValue: strconv.FormatInt(c.Sequence, 10), offsetValue: c.Offset}
	for name, t := range map[string]time.Time{timeValue: c.Time, createdValue: c.HubCreated} {
		if !t.IsZero() {
			values[name] = t.UTC().Format(time.RFC3339Nano)
		}
	}
	return values
}

// parseCheckpoint reads a record. A time that cannot be read counts as not known.
func parseCheckpoint(r Record) (Checkpoint, error) {
	c := Checkpoint{etag: r.ETag}
	var err error
	if c.Sequence, err = strconv.ParseInt(r.Values[sequenceValue], 10, 64); err != nil {
		return Checkpoint{}, fmt.Errorf("its metadata has no number as %s", sequenceValue)
	}
	if c.Offset = r.Values[offsetValue]; c.Offset == "" {
		return Checkpoint{}, fmt.Errorf("its metadata has no %s", offsetValue)
	}
	c.Time, _ = time.Parse(time.RFC3339, r.Values[timeValue])
	c.HubCreated, _ = time.Parse(time.RFC3339, r.Values[createdValue])
	return c, nil
}

// An UnreadableError says that a record stands where a checkpoint belongs and is none.
type UnreadableError struct {
	Name string
	Err  error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("%s is not a checkpoint: %v: remove it; until then this partition has no checkpoint and is read from its earliest event at every start", e.Name, e.Err)
}

func (e *UnreadableError) Unwrap() error { return e.Err }

// ReadCheckpoints returns the checkpoints of g by partition, and why those that
// cannot be read cannot, each an *UnreadableError.
func ReadCheckpoints(ctx context.Context, records Records, g Group) (map[string]Checkpoint, map[string]error, error) {
	prefix := g.Checkpoint("")
	all, err := records.List(ctx, prefix)
	if err != nil {
		return nil, nil, err
	}
	readable, unreadable := map[string]Checkpoint{}, map[string]error{}
	for name, r := range all {
		partition := strings.TrimPrefix(name, prefix)
		c, err := parseCheckpoint(r)
		if err != nil {
			unreadable[partition] = &UnreadableError{Name: name, Err: err}
			continue
		}
		readable[partition] = c
	}
	return readable, unreadable, nil
}

// checkpoints are those of one consumer group. They belong to the hub that was
// created at a certain time: what was written for another hub of that name is
// never read on from, and gives way to any new position. Safe for concurrent use.
type checkpoints struct {
	records Records
	group   Group
	created time.Time // of the hub that is read; set before the first use, zero if that is not known
	foreign *foreign

	mu       sync.Mutex
	resuming map[string]Checkpoint // what the Processor was told last
	withheld map[string]bool       // by partition, what it was not: a checkpoint of another hub, or one that cannot be read
}

// A foreign holds the ETags of checkpoints that were found, by what the hub
// delivered, to be of another hub, by name. Safe for concurrent use.
type foreign struct{ etags sync.Map }

func (f *foreign) add(name, etag string) { f.etags.Store(name, etag) }

func (f *foreign) has(name, etag string) bool {
	found, ok := f.etags.Load(name)
	return ok && found == etag
}

// all returns the checkpoints by partition, and those that cannot be read. One attempt.
func (cs *checkpoints) all(ctx context.Context) (readable map[string]Checkpoint, unreadable map[string]error, err error) {
	err = attempt(ctx, "list checkpoints", func(ctx context.Context) (err error) {
		readable, unreadable, err = ReadCheckpoints(ctx, cs.records, cs.group)
		return err
	})
	return readable, unreadable, err
}

// isForeign says whether a checkpoint is of another hub than the one that is read.
func (cs *checkpoints) isForeign(partition string, c Checkpoint) bool {
	if !c.HubCreated.IsZero() && !cs.created.IsZero() && !c.HubCreated.Equal(cs.created) {
		return true
	}
	return cs.distrusted(partition, c)
}

// distrust says that a checkpoint is another hub's, for as long as nobody writes it.
func (cs *checkpoints) distrust(partition string, c Checkpoint) {
	cs.foreign.add(cs.group.Checkpoint(partition), c.etag)
}

func (cs *checkpoints) distrusted(partition string, c Checkpoint) bool {
	return cs.foreign.has(cs.group.Checkpoint(partition), c.etag)
}

// resumed returns the checkpoint from which the Processor was told to go on, or
// says that it was not told of one that there is.
func (cs *checkpoints) resumed(partition string) (c Checkpoint, ok, withheld bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c, ok = cs.resuming[partition]
	return c, ok, cs.withheld[partition]
}

// read returns one checkpoint, a zero one if there is none. One attempt.
func (cs *checkpoints) read(ctx context.Context, partition string) (c Checkpoint, err error) {
	name := cs.group.Checkpoint(partition)
	err = attempt(ctx, "read a checkpoint", func(ctx context.Context) error {
		r, err := cs.records.Read(ctx, name)
		if errors.Is(err, ErrNoRecord) {
			return nil
		}
		if err != nil {
			return err
		}
		if c, err = parseCheckpoint(r); err != nil {
			return &UnreadableError{Name: name, Err: err}
		}
		return nil
	})
	return c, err
}

// write replaces before, which is what the store has, or nothing, by p. One
// attempt; ErrConflict if the store has something else.
func (cs *checkpoints) write(ctx context.Context, partition string, p telemetry.Position, before Checkpoint) (Checkpoint, error) {
	next := Checkpoint{Position: p, HubCreated: cs.created}
	err := attempt(ctx, "write a checkpoint", func(ctx context.Context) (err error) {
		next.etag, err = cs.records.Write(ctx, cs.group.Checkpoint(partition), next.Values(), before.etag)
		return err
	})
	return next, err
}

// advanceRounds is how often advance writes; each conflict is another's progress.
const advanceRounds = 4

// advance moves a checkpoint forward to p unless the store has a later one, and
// returns what the store has then. known is what it had when it was last seen,
// nil if it was not. owned is asked right before each write.
func (cs *checkpoints) advance(ctx context.Context, partition string, p telemetry.Position, known *Checkpoint, owned func() error) (*Checkpoint, error) {
	for round := 1; ; round++ {
		if known == nil {
			there, err := cs.read(ctx, partition)
			if err != nil {
				return nil, err
			}
			known = &there
		}
		if known.etag != "" && known.Sequence >= p.Sequence && !cs.isForeign(partition, *known) {
			return known, nil
		}
		if err := owned(); err != nil {
			return known, err
		}
		next, err := cs.write(ctx, partition, p, *known)
		if err == nil {
			return &next, nil
		}
		if !errors.Is(err, ErrConflict) || round == advanceRounds {
			return nil, err
		}
		known = nil
	}
}

// ListCheckpoints implements [azeventhubs.CheckpointStore]. A partition whose
// checkpoint is of another hub, or cannot be read, has none: the Processor then
// begins where [Source.begin] said.
func (g *guard) ListCheckpoints(ctx context.Context, _, _, _ string, _ *azeventhubs.ListCheckpointsOptions) ([]azeventhubs.Checkpoint, error) {
	cs := g.checkpoints
	var readable map[string]Checkpoint
	var unreadable map[string]error
	err := g.retry(ctx, "list checkpoints", func(ctx context.Context) (err error) {
		readable, unreadable, err = ReadCheckpoints(ctx, cs.records, cs.group)
		return err
	})
	if err != nil {
		return nil, err
	}
	withheld := map[string]bool{}
	for partition := range unreadable {
		withheld[partition] = true
	}
	for partition, c := range readable {
		if cs.isForeign(partition, c) {
			withheld[partition] = true
			delete(readable, partition)
		}
	}
	cs.mu.Lock()
	cs.resuming, cs.withheld = readable, withheld
	cs.mu.Unlock()
	all := make([]azeventhubs.Checkpoint, 0, len(readable))
	for partition, c := range readable {
		all = append(all, azeventhubs.Checkpoint{
			FullyQualifiedNamespace: g.namespace, EventHubName: g.hub, ConsumerGroup: g.group,
			PartitionID: partition, SequenceNumber: &c.Sequence, Offset: &c.Offset,
		})
	}
	return all, nil
}

// SetCheckpoint implements [azeventhubs.CheckpointStore]. Nobody calls it:
// consumers use [checkpoints.advance].
func (g *guard) SetCheckpoint(context.Context, azeventhubs.Checkpoint, *azeventhubs.SetCheckpointOptions) error {
	return errors.ErrUnsupported
}
