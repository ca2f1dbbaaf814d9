package eventhubs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"alertworker/internal/backoff"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/ownership"
)

// writesAtATime is how many first checkpoints are written side by side.
const writesAtATime = 16

// beforeFirst is the offset before the first event of any partition.
const beforeFirst = "-1"

// A startPlan is where partitions without a checkpoint to continue from begin. Maps are by partition.
type startPlan struct {
	source *Source
	store  *checkpoints
	last   lastRead

	partitions []string
	ends       map[string]azeventhubs.PartitionProperties // if the start depends on them

	checkpoints map[string]StoredCheckpoint // also those that cannot be read

	positions map[string]Start // of partitions that start over
	others    Start            // of all others, and of those that the hub gets later
}

// allCheckpoints returns those of a consumer group that there are now, also those that cannot be read.
func (s *Source) allCheckpoints(ctx context.Context, g Group) (map[string]StoredCheckpoint, error) {
	all, others, err := ReadCheckpoints(ctx, s.config.Records, g)
	maps.Copy(all, others)
	return all, err
}

// load reads the checkpoints that there are now.
func (plan *startPlan) load(ctx context.Context) (err error) {
	plan.checkpoints, err = plan.source.allCheckpoints(ctx, plan.store.group)
	return err
}

// missing returns the partitions that have no checkpoint.
func (plan *startPlan) missing() []string {
	return slices.DeleteFunc(slices.Clone(plan.partitions), func(id string) bool {
		_, ok := plan.checkpoints[id]
		return ok
	})
}

// isFirst reports whether the consumer group begins at the latest events.
func (plan *startPlan) isFirst() bool {
	return plan.source.config.Start == (Start{}) && len(plan.checkpoints) == 0
}

// ofOthers returns the checkpoints of another hub of this name, and those that cannot be read. A record that is no checkpoint
// and names no partition says nothing: no checkpoint will take its place.
func (plan *startPlan) ofOthers() map[string]StoredCheckpoint {
	others := maps.Clone(plan.checkpoints)
	maps.DeleteFunc(others, func(id string, c StoredCheckpoint) bool {
		isNobodys := c.Generation == unreadable && !slices.Contains(plan.partitions, id)
		return isNobodys || !plan.store.ofOtherHub(id, c)
	})
	return others
}

// newHub finds out what there is to read, and where to start in partitions that have no checkpoint
// to continue from. It decides that before anything is read.
//
// "Latest" is another event each time it is asked for. It is therefore resolved
// and written down once, at the first start of the consumer group: otherwise a
// crash before the first checkpoint, or an idle partition, would lose what
// arrives until the next start. "Earliest" and a time do not need that.
//
// All that a checkpoint of another hub tells about this one is a time. That is
// true of a hub of the same name that was deleted or failed over, and of the
// endpoint that an IoT Hub had before a failover.
func (s *Source) newHub(ctx context.Context) (*hub, error) {
	last, err := s.lastRead(ctx)
	if err != nil {
		return nil, err
	}

	cs := s.checkpoints()
	plan := &startPlan{source: s, store: cs, last: last, positions: map[string]Start{}}
	if err := plan.load(ctx); err != nil {
		return nil, err
	}

	state, err := s.query(ctx, toRead, none)
	if err != nil {
		return nil, err
	}

	plan.partitions = state.partitions
	cs.generation = state.generation
	if err := plan.decide(ctx, state.at.lower()); err != nil {
		return nil, err
	}

	h := &hub{
		source:      s,
		at:          state.at,
		generation:  cs.generation,
		plan:        plan,
		checkpoints: cs,
		suspected:   make(chan struct{}, 1),
		held:        map[string]*ownedPartition{},
		opened:      time.Now(),
	}
	h.partitions.Store(int64(len(state.partitions)))
	h.member = ownership.New(ownership.Config{
		Store:      s.config.Records,
		Scope:      string(cs.group),
		Owner:      s.owner,
		Partitions: state.partitions,
		Interval:   s.config.BalanceInterval,
		Expiry:     s.config.OwnershipExpiry,
		Report:     s.config.Report,
		Verdict:    s.config.Verdict,
		Logger:     s.log,
	})
	h.connections = &connections{source: s}

	return h, nil
}

// decide says where partitions begin of the hub at an endpoint.
func (plan *startPlan) decide(ctx context.Context, at endpoint) (err error) {
	s := plan.source
	hasMoved := plan.last.at != (endpoint{}) && plan.last.at != at

	// An ordinary start does not depend on where partitions end: each continues from its checkpoint, and asks where it ends
	// once it is read.
	if s.doubted || hasMoved || plan.isFirst() || len(plan.ofOthers()) > 0 {
		if err := plan.askEnds(ctx); err != nil {
			s.hubFailed(err)
			return err
		}
	}

	others := plan.ofOthers()
	for id, c := range others {
		if c.Generation == unreadable {
			s.log.Error("a checkpoint cannot be read, because it has no number "+sequenceValue+": the next one replaces it",
				zap.String("partition", id), zap.String("name", plan.store.group.Checkpoint(id)))
		}
	}
	const why = "checkpoints are of another hub of this name, which was deleted or failed over, or cannot be read"
	if err := plan.startOver(ctx, slices.Collect(maps.Keys(others)), resumeTime(others), why); err != nil {
		return err
	}

	switch {
	case hasMoved:
		err = plan.startOverMoved(ctx, plan.last.at)
	case s.config.Start == (Start{}):
		err = plan.pinLatest(ctx)
	}
	if err != nil {
		return err
	}

	plan.others = cmp.Or(s.config.Start, Start{Earliest: true})
	missing := plan.missing()
	fresh := slices.DeleteFunc(slices.Clone(missing), func(id string) bool {
		_, startsOver := plan.positions[id]
		return startsOver
	})
	log, text := s.log.Warn, "partitions have no checkpoint: starting over"
	if len(fresh) == len(plan.partitions) {
		log, text = s.log.Info, "no partition has a checkpoint, as on a first start: starting to read"
	}
	if len(fresh) > 0 {
		log(text, zap.Strings("partitions", fresh), zap.Stringer("at", plan.others))
	}

	// The checkpoints at the previous endpoint are needed until every partition has one here.
	if plan.last.at == (endpoint{}) || len(missing) == 0 {
		return s.setLastRead(ctx, at, plan.last)
	}

	return nil
}

// askEnds asks the hub where its partitions end, after the checkpoints were read, so that in one hub no end is behind
// one. It notes which checkpoints are beyond their end.
func (plan *startPlan) askEnds(ctx context.Context) error {
	for range 2 {
		state, err := plan.source.query(ctx, toRead, every)
		if err = cmp.Or(err, state.unanswered); err != nil {
			return err
		}
		if state.generation != plan.store.generation {
			return errAnotherHub
		}

		plan.ends = state.ends
		clear(plan.store.beyond)
		for id, c := range plan.checkpoints {
			if end, known := plan.ends[id]; known && c.Sequence > end.LastEnqueuedSequenceNumber {
				plan.store.beyond[id] = c.etag
			}
		}
		if len(plan.store.beyond) == 0 {
			break
		}

		backoff.Sleep(ctx, plan.source.secondThought) // one answer proves nothing
	}

	return nil
}

// startOverMoved starts over the partitions that have no checkpoint at this
// endpoint, because the IoT Hub had another one before.
func (plan *startPlan) startOverMoved(ctx context.Context, before endpoint) error {
	config := plan.source.config
	there, err := plan.source.allCheckpoints(ctx, NewGroup(before.namespace, before.hub, config.ConsumerGroup))
	if err != nil || len(there) == 0 {
		return err
	}

	why := fmt.Sprintf("the endpoint of %s was %v before", config.IoTHub, before)
	return plan.startOver(ctx, plan.missing(), resumeTime(there), why)
}

// startOver starts partitions at a time, or at the earliest event if that is
// zero. One that is empty gets its checkpoint at once, since it may stay idle for long.
func (plan *startPlan) startOver(ctx context.Context, ids []string, at time.Time, why string) error {
	start := Start{Earliest: at.IsZero(), Time: at}
	var reread []string
	for _, id := range slices.Sorted(slices.Values(ids)) {
		end, ok := plan.ends[id]
		switch {
		case !ok: // the hub has fewer partitions than the other had

		case end.IsEmpty:
			c, err := plan.store.write(ctx, id, telemetry.Checkpoint{Position: lastPosition(end)}, plan.checkpoints[id])
			if err != nil && !errors.Is(err, records.ErrConflict) { // another replica was first
				return err
			}
			plan.checkpoints[id] = c

		default:
			plan.positions[id] = start
			reread = append(reread, id)
		}
	}

	if len(reread) > 0 {
		plan.source.log.Error(why+": starting over where nothing is missed; alerts already sent are not repeated",
			zap.Strings("partitions", reread), zap.Stringer("at", start))
	}

	return nil
}

// pinLatest writes the current end of every partition as its checkpoint if this
// is the first start. It keeps, and waits for, what other replicas write at the
// same time. What a failure leaves unwritten is written at the next attempt.
func (plan *startPlan) pinLatest(ctx context.Context) error {
	s := plan.source
	if plan.isFirst() && s.latest == nil {
		s.latest = map[string]telemetry.Position{}
		sequences := map[string]int64{}
		for id, end := range plan.ends {
			s.latest[id], sequences[id] = lastPosition(end), end.LastEnqueuedSequenceNumber
		}

		s.log.Warn("first start of this consumer group: existing events are not read", zap.Any("last_sequences", sequences))
	}

	if s.latest != nil {
		var writing errgroup.Group
		writing.SetLimit(writesAtATime)
		for id, p := range s.latest {
			writing.Go(func() error {
				_, err := plan.store.write(ctx, id, telemetry.Checkpoint{Position: p}, StoredCheckpoint{})
				if errors.Is(err, records.ErrConflict) {
					return nil
				}
				return err
			})
		}

		if err := cmp.Or(writing.Wait(), plan.load(ctx)); err != nil {
			return err
		}
		s.latest = nil
	}

	// Another replica may be about to write the rest.
	for end := time.Now().Add(s.firstStartGrace); len(plan.missing()) > 0 && time.Now().Before(end); {
		backoff.Sleep(ctx, s.firstStartGrace/20)
		if err := plan.load(ctx); err != nil {
			return err
		}
	}

	return nil
}

// lastPosition is the position of a partition's last event.
func lastPosition(end azeventhubs.PartitionProperties) telemetry.Position {
	if end.IsEmpty || end.LastEnqueuedOffset == "" {
		return telemetry.Position{Sequence: end.LastEnqueuedSequenceNumber, Offset: beforeFirst}
	}

	return telemetry.Position{
		Sequence: end.LastEnqueuedSequenceNumber,
		Offset:   end.LastEnqueuedOffset,
		Time:     end.LastEnqueuedOn,
	}
}
