package eventhubs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/ownership"
)

// Reports returns what the other replicas that are alive report. They read a partition, or wait for one.
func (s *Source) Reports(ctx context.Context) ([][]byte, error) {
	return ownership.Reports(ctx, s.config.Records, string(s.checkpoints().group), s.owner, s.config.OwnershipExpiry)
}

// errNotRead says that this replica reads no hub.
var errNotRead = errors.New("the hub is not read yet")

// Partitions asks the hub for its partitions. It has had no others since this replica began to read it, which Partitions
// returns, too: a hub may get more, and one that has fewer is another hub.
func (s *Source) Partitions(ctx context.Context) (all []string, since time.Time, err error) {
	h := s.hub.Load()
	if h == nil {
		return nil, time.Time{}, errNotRead
	}

	state, err := h.check(ctx, toShow)
	if err != nil {
		return nil, time.Time{}, s.explain(ctx, h.at, err)
	}

	return state.partitions, h.opened, nil
}

// shownFor is how long an answer about a partition is good enough to be shown.
const shownFor = 15 * time.Second

// Ownerships returns, in the order of their numbers, who owns each partition and how far it is, from the checkpoint
// store, and, if withEnds, where it ends, as the hub has said within the last 15 s. It returns by the time ctx ends, with
// what is known by then, and fails only if the store does.
func (s *Source) Ownerships(ctx context.Context, withEnds bool) ([]telemetry.PartitionStatus, error) {
	cs := s.checkpoints()
	positions, _, err := ReadCheckpoints(ctx, cs.store, cs.group)
	if err != nil {
		return nil, err
	}

	owned, err := ownership.List(ctx, cs.store, string(cs.group))
	if err != nil {
		return nil, err
	}

	since := none
	if withEnds {
		lately := time.Now().Add(-shownFor)
		since = func(id string) time.Time { return later(lately, positions[id].Time) } // not before what was read since
	}
	hub, _ := s.query(ctx, toShow, since) // without it, lag is not known

	ids := slices.AppendSeq(slices.Clone(hub.partitions), maps.Keys(positions))
	for _, r := range owned.Partitions {
		ids = append(ids, r.Partition)
	}
	slices.SortFunc(ids, telemetry.ComparePartitions)

	owners := owned.Owners(s.config.OwnershipExpiry)
	all := []telemetry.PartitionStatus{}
	for _, id := range slices.Compact(ids) {
		p := telemetry.PartitionStatus{
			Partition: id, Checkpoint: -1, Last: -1, Owner: owners[id], Mine: owners[id] == s.owner,
		}
		if c, ok := positions[id]; ok {
			p.Checkpoint = c.Sequence
		}
		if end, ok := hub.ends[id]; ok && end.LastEnqueuedSequenceNumber >= p.Checkpoint { // else the hub was asked before
			p.Last = end.LastEnqueuedSequenceNumber
		}
		all = append(all, p)
	}

	return all, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
