package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/ownership"
)

// beforeFirst is the offset before the first event of any partition.
const beforeFirst = "-1"

// A startPlan is where partitions without a checkpoint to continue from begin. Maps are by partition.
type startPlan struct {
	partitions []string
	properties map[string]azeventhubs.PartitionProperties // as of after the checkpoints were read, so that in one hub they are never behind them

	checkpoints map[string]StoredCheckpoint
	unreadable  map[string]error

	positions map[string]Start // of partitions that start over
	others    Start            // of all others, and of those that the hub gets later
	moved     map[string]bool  // those that continue from checkpoints at another endpoint
}

// missing returns the partitions that have no checkpoint, not even an unreadable one.
func (plan *startPlan) missing() []string {
	return slices.DeleteFunc(slices.Clone(plan.partitions), func(id string) bool {
		_, ok := plan.checkpoints[id]
		return ok || plan.unreadable[id] != nil
	})
}

// start returns where a partition begins without a checkpoint.
func (plan *startPlan) start(id string) azeventhubs.StartPosition {
	if at, ok := plan.positions[id]; ok {
		return at.position()
	}
	return plan.others.position()
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
	state, err := s.queryHub(ctx, func(string) bool { return false })
	if err != nil {
		return nil, err
	}
	h := &hub{source: s, at: state.at, generation: state.at.generation(state.created), partitions: len(state.partitions), suspected: make(chan struct{}, 1), reading: map[string]*reading{}}
	h.checkpoints = s.checkpoints(h.at, h.generation)
	if h.plan, err = s.planStart(ctx, h, state.partitions); err != nil {
		return nil, err
	}
	h.member = ownership.New(ownership.Config{
		Store: s.config.Records, Scope: h.checkpoints.group.String(), Owner: s.owner, Partitions: state.partitions,
		Interval: s.config.BalanceInterval, Expiry: s.config.OwnershipExpiry,
		Unopened: h.unopened, Patience: s.patience, Logger: s.log,
	})
	h.connections = &connections{source: s, held: h.member.Alive}
	return h, nil
}

func (s *Source) planStart(ctx context.Context, h *hub, partitions []string) (*startPlan, error) {
	cs, at := h.checkpoints, h.at
	plan := &startPlan{partitions: partitions, positions: map[string]Start{}, moved: map[string]bool{}}
	last, err := s.lastRead(ctx)
	if err != nil {
		return nil, err
	}
	if plan.checkpoints, plan.unreadable, err = cs.all(ctx); err != nil {
		return nil, err
	}
	if plan.properties, err = s.queryPartitions(ctx, at, partitions); err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(plan.unreadable)) {
		s.log.Error("a checkpoint cannot be read", zap.String("partition", id), zap.Error(plan.unreadable[id]))
		plan.positions[id] = Start{Earliest: true}
	}
	if err := s.startOverRecreated(ctx, cs, plan); err != nil {
		return nil, err
	}
	switch {
	case last.at != (endpoint{}) && last.at != at.lower():
		err = s.startOverMoved(ctx, cs, plan, last.at)
	case s.config.Start == (Start{}):
		err = s.pinLatest(ctx, cs, plan)
	}
	if err != nil {
		return nil, err
	}

	plan.others = s.config.Start
	if plan.others == (Start{}) {
		plan.others = Start{Earliest: true}
	}
	missing := plan.missing()
	switch fresh := slices.DeleteFunc(slices.Clone(missing), func(id string) bool { return plan.moved[id] }); {
	case len(fresh) == 0:
	case len(fresh) == len(partitions):
		s.log.Info("no partition has a checkpoint, as on a first start: starting to read", zap.Strings("partitions", fresh), zap.Stringer("at", plan.others))
	default:
		s.log.Warn("partitions have no checkpoint: starting over", zap.Strings("partitions", fresh), zap.Stringer("at", plan.others))
	}
	// The checkpoints at the previous endpoint are needed until every partition has one here.
	if last.at == (endpoint{}) || len(missing) == 0 {
		err = s.setLastRead(ctx, at.lower(), last)
	}
	return plan, err
}

// startOverRecreated starts over the partitions whose checkpoints are of another
// hub of this name.
func (s *Source) startOverRecreated(ctx context.Context, cs *checkpoints, plan *startPlan) error {
	another := map[string]StoredCheckpoint{}
	var contradicted []string
	for id, c := range plan.checkpoints {
		end, known := plan.properties[id]
		switch {
		case cs.isRejected(id, c):
			contradicted = append(contradicted, id)
		case cs.ofOtherHub(id, c):
			another[id] = c
		case known && c.Sequence > end.LastEnqueuedSequenceNumber:
			cs.reject(id, c)
			another[id] = c
		}
	}
	return errors.Join(
		s.startOver(ctx, cs, plan, contradicted, time.Time{}, "the hub's events contradict the checkpoint, so it is not the hub that was read before"),
		s.startOver(ctx, cs, plan, slices.Collect(maps.Keys(another)), resumeTime(another), "the checkpoints are of another hub of this name, which was deleted or failed over"),
	)
}

// startOverMoved starts over the partitions that have no checkpoint at this
// endpoint, because the IoT Hub had another one before.
func (s *Source) startOverMoved(ctx context.Context, cs *checkpoints, plan *startPlan, before endpoint) error {
	there, unreadable, err := ReadCheckpoints(ctx, s.config.Records, NewGroup(before.namespace, before.hub, s.config.ConsumerGroup))
	if err != nil || len(there)+len(unreadable) == 0 {
		return err
	}
	resume := resumeTime(there)
	if len(unreadable) > 0 {
		resume = time.Time{}
	}
	missing := plan.missing()
	for _, id := range missing {
		plan.moved[id] = true
	}
	return s.startOver(ctx, cs, plan, missing, resume, fmt.Sprintf("the endpoint of %s was %v before", s.config.IoTHub, before))
}

// startOver starts partitions at a time, or at the earliest event if that is
// zero. One that is empty gets its checkpoint at once, since it may stay idle for long.
func (s *Source) startOver(ctx context.Context, cs *checkpoints, plan *startPlan, ids []string, at time.Time, why string) error {
	start := Start{Earliest: at.IsZero(), Time: at}
	var reread []string
	for _, id := range slices.Sorted(slices.Values(ids)) {
		end, ok := plan.properties[id]
		switch {
		case !ok: // the hub has fewer partitions than the other had
		case end.IsEmpty:
			c, err := cs.write(ctx, id, telemetry.Checkpoint{Position: lastPosition(end)}, plan.checkpoints[id])
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
		s.log.Error(why+": starting over where nothing is missed; alerts already sent are not repeated", zap.Strings("partitions", reread), zap.Stringer("at", start))
	}
	return nil
}

// position returns s for azeventhubs. A zero Start has none.
func (s Start) position() azeventhubs.StartPosition {
	if !s.Time.IsZero() {
		return azeventhubs.StartPosition{EnqueuedTime: &s.Time, Inclusive: true}
	}
	return azeventhubs.StartPosition{Earliest: &s.Earliest}
}

// pinLatest writes the current end of every partition as its checkpoint if this
// is the first start. It keeps, and waits for, what other replicas write at the
// same time. What a failure leaves unwritten is written at the next attempt.
func (s *Source) pinLatest(ctx context.Context, cs *checkpoints, plan *startPlan) (err error) {
	if len(plan.checkpoints)+len(plan.unreadable) == 0 && s.latest == nil {
		s.latest = make(map[string]telemetry.Position, len(plan.properties))
		for id, end := range plan.properties {
			s.latest[id] = lastPosition(end)
		}
		sequences := make(map[string]int64, len(s.latest))
		for id, p := range s.latest {
			sequences[id] = p.Sequence
		}
		s.log.Warn("first start of this consumer group: existing events are not read", zap.Any("last_sequences", sequences))
	}
	for id, p := range s.latest {
		if plan.unreadable[id] != nil {
			continue
		}
		if _, err := cs.write(ctx, id, telemetry.Checkpoint{Position: p}, StoredCheckpoint{}); err != nil && !errors.Is(err, records.ErrConflict) {
			return err
		}
	}
	if s.latest != nil {
		s.latest = nil
		if plan.checkpoints, plan.unreadable, err = cs.all(ctx); err != nil {
			return err
		}
	}
	// Another replica may be about to write the rest.
	for end := time.Now().Add(s.firstStartGrace); len(plan.missing()) > 0 && time.Now().Before(end); {
		backoff.Sleep(ctx, s.firstStartGrace/20)
		if plan.checkpoints, plan.unreadable, err = cs.all(ctx); err != nil {
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
	return telemetry.Position{Sequence: end.LastEnqueuedSequenceNumber, Offset: end.LastEnqueuedOffset, Time: end.LastEnqueuedOn}
}
