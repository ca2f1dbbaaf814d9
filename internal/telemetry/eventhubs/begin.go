package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/telemetry"
)

// beforeFirst is the offset before the first event of any partition.
const beforeFirst = "-1"

// A beginning is what is known of a hub before it is read.
type beginning struct {
	partitions []string
	created    time.Time
	positions  azeventhubs.StartPositions // of partitions that have no checkpoint to go on from
	moved      map[string]bool            // those of them that go on from checkpoints at another place
}

// begin decides where partitions begin that have no checkpoint to go on from,
// before anything is read.
//
// "Latest" means another event every time it is asked for. So it is resolved
// and written down once, on the first start of the consumer group: otherwise a
// crash before the first checkpoint, or an idle partition, would lose what
// arrives until the next start. "Earliest" and a time need no such care.
//
// A checkpoint of another hub, one of the same name that was deleted or failed
// over, says nothing about this one but a time; and so do the checkpoints of a
// hub at another place that an IoT Hub has left.
func (s *Source) begin(ctx context.Context, client *azeventhubs.ConsumerClient, at endpoint, g *guard) (beginning, error) {
	hub, err := client.GetEventHubProperties(ctx, nil)
	if err != nil {
		return beginning{}, fmt.Errorf("ask event hub %s for its partitions: %w", at.hub, err)
	}
	b := beginning{partitions: hub.PartitionIDs, created: hub.CreatedOn, positions: azeventhubs.StartPositions{PerPartition: map[string]azeventhubs.StartPosition{}}}
	g.checkpoints.created = hub.CreatedOn
	last, err := s.lastRead(ctx)
	if err != nil {
		return beginning{}, err
	}
	have, unreadable, err := g.checkpoints.all(ctx)
	if err != nil {
		return beginning{}, err
	}
	// Asked after the checkpoints were read, ends are never before them in the same hub.
	ends, err := askPartitions(ctx, client, at, hub.PartitionIDs)
	if err != nil {
		return beginning{}, err
	}
	for _, id := range slices.Sorted(maps.Keys(unreadable)) {
		s.log.Error("a checkpoint cannot be read", zap.String("partition", id), zap.Error(unreadable[id]))
	}
	from := func(why string, at time.Time, ids ...string) {
		start := Start{Earliest: at.IsZero(), Time: at}
		s.log.Error(why+": starting over where nothing is missed; what was settled is not told again", zap.Strings("partitions", ids), zap.Stringer("at", start))
		for _, id := range ids {
			b.positions.PerPartition[id] = start.position()
		}
	}

	another := map[string]Checkpoint{}
	for id, c := range have {
		end, known := ends[id]
		switch {
		case g.checkpoints.distrusted(id, c):
			from("events contradict the checkpoint, so that the hub is not the one it was", time.Time{}, id)
		case g.checkpoints.isForeign(id, c):
			another[id] = c
		case known && c.Sequence > end.LastEnqueuedSequenceNumber:
			g.checkpoints.distrust(id, c)
			another[id] = c
		}
	}
	if len(another) > 0 {
		from("checkpoints are of another hub of this name, which was deleted or failed over", resumeTime(another), slices.Sorted(maps.Keys(another))...)
	}

	start, missing := s.config.Start, without(hub.PartitionIDs, have, unreadable)
	switch moved := last.at != (endpoint{}) && last.at != at.lower(); {
	case moved:
		before, broken, err := ReadCheckpoints(ctx, s.config.Checkpoints, NewGroup(last.at.namespace, last.at.hub, s.config.ConsumerGroup))
		if err != nil {
			return beginning{}, fmt.Errorf("checkpoint store: list checkpoints of %v: %w", last.at, err)
		}
		if len(before)+len(broken) > 0 && len(missing) > 0 {
			resume := resumeTime(before)
			if len(broken) > 0 {
				resume = time.Time{}
			}
			from(fmt.Sprintf("the events of %s were at %v before", s.config.IoTHub, last.at), resume, missing...)
			b.moved = map[string]bool{}
			for _, id := range missing {
				b.moved[id] = true
			}
			missing = nil
		}
	case start == (Start{}):
		if have, err = s.pinLatest(ctx, g, ends, len(have)+len(unreadable) == 0, unreadable); err != nil {
			return beginning{}, err
		}
		// Another replica may be about to write the rest.
		missing = without(hub.PartitionIDs, have, unreadable)
		for end := time.Now().Add(s.firstStartGrace); len(missing) > 0 && time.Now().Before(end); {
			sleep(ctx, s.firstStartGrace/20)
			if have, unreadable, err = g.checkpoints.all(ctx); err != nil {
				return beginning{}, err
			}
			missing = without(hub.PartitionIDs, have, unreadable)
		}
	}
	if start == (Start{}) {
		start = Start{Earliest: true}
	}
	if len(missing) > 0 {
		s.log.Warn("partitions have no checkpoint: starting over", zap.Strings("partitions", missing), zap.Stringer("at", start))
	}
	for id := range unreadable {
		b.positions.PerPartition[id] = Start{Earliest: true}.position()
	}
	b.positions.Default = start.position()
	// Until every partition has a checkpoint here, those from before are needed.
	if last.at == (endpoint{}) || len(without(hub.PartitionIDs, have, unreadable)) == 0 {
		return b, s.setLastRead(ctx, at.lower(), last)
	}
	return b, nil
}

// position is where the Processor begins; not for the latest event.
func (s Start) position() azeventhubs.StartPosition {
	if !s.Time.IsZero() {
		return azeventhubs.StartPosition{EnqueuedTime: &s.Time, Inclusive: true}
	}
	return azeventhubs.StartPosition{Earliest: &s.Earliest}
}

// pinLatest makes the present end of every partition its checkpoint if this is
// the first start, and returns the checkpoints there are then. What another
// replica wrote stays; what a failure left unwritten is written the next time.
func (s *Source) pinLatest(ctx context.Context, g *guard, ends map[string]azeventhubs.PartitionProperties, first bool, unreadable map[string]error) (map[string]Checkpoint, error) {
	if first && s.latest == nil {
		latest := make(map[string]telemetry.Position, len(ends))
		for id, end := range ends {
			latest[id] = telemetry.Position{Sequence: end.LastEnqueuedSequenceNumber, Offset: end.LastEnqueuedOffset, Time: end.LastEnqueuedOn}
			if end.IsEmpty || end.LastEnqueuedOffset == "" {
				latest[id] = telemetry.Position{Sequence: end.LastEnqueuedSequenceNumber, Offset: beforeFirst}
			}
		}
		s.log.Warn("first start of this consumer group: events from before now are not read", zap.Any("positions", latest))
		s.latest = latest
	}
	for id, p := range s.latest {
		if unreadable[id] != nil {
			continue
		}
		if _, err := g.checkpoints.write(ctx, id, p, Checkpoint{}); err != nil && !errors.Is(err, ErrConflict) {
			return nil, err
		}
	}
	s.latest = nil
	have, _, err := g.checkpoints.all(ctx)
	return have, err
}

// maxQuestions is how many partitions the hub is asked about at a time.
const maxQuestions = 8

// askPartitions asks the hub about partitions, several at a time. It does not
// end with ctx but with the connection.
func askPartitions(ctx context.Context, client *azeventhubs.ConsumerClient, at endpoint, ids []string) (map[string]azeventhubs.PartitionProperties, error) {
	answers := make([]azeventhubs.PartitionProperties, len(ids))
	errs := make([]error, len(ids))
	places := make(chan struct{}, maxQuestions)
	var asking sync.WaitGroup
	for i, id := range ids {
		places <- struct{}{}
		asking.Go(func() {
			defer func() { <-places }()
			if errs[i] = context.Cause(ctx); errs[i] == nil {
				answers[i], errs[i] = client.GetPartitionProperties(ctx, id, nil)
			}
		})
	}
	asking.Wait()
	all := make(map[string]azeventhubs.PartitionProperties, len(ids))
	for i, id := range ids {
		if errs[i] != nil {
			return nil, fmt.Errorf("ask event hub %s for partition %s: %w", at.hub, id, errs[i])
		}
		all[id] = answers[i]
	}
	return all, nil
}

// without are the ids that have no checkpoint, not even one that cannot be read.
func without(ids []string, have map[string]Checkpoint, unreadable map[string]error) []string {
	var missing []string
	for _, id := range ids {
		if _, ok := have[id]; !ok && unreadable[id] == nil {
			missing = append(missing, id)
		}
	}
	return missing
}
