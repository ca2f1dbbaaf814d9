package eventhubs

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/telemetry"
)

// beforeFirst is the offset before the first event of any partition.
const beforeFirst = "-1"

// begin decides where partitions without a checkpoint begin, before anything is
// read, and returns what the Processor needs to know of it and the partitions.
//
// "Latest" means another event every time it is asked for. So it is resolved
// and written down once, on the first start of the consumer group: otherwise a
// crash before the first checkpoint, or an idle partition, would lose what
// arrives until the next start. "Earliest" and a time need no such care.
func (s *Source) begin(ctx context.Context, client *azeventhubs.ConsumerClient, g *guard) (azeventhubs.StartPositions, []string, error) {
	fail := func(err error) (azeventhubs.StartPositions, []string, error) {
		return azeventhubs.StartPositions{}, nil, err
	}
	hub, err := client.GetEventHubProperties(ctx, nil)
	if err != nil {
		return fail(fmt.Errorf("ask event hub %s for its partitions: %w", s.config.Hub, err))
	}
	have, err := g.positions(ctx)
	if err != nil {
		return fail(err)
	}
	for _, id := range hub.PartitionIDs {
		if p, ok := have[id]; ok {
			if err := s.checkAge(ctx, client, g, id, p); err != nil {
				return fail(err)
			}
		}
	}

	start := s.config.Start
	if start == (Start{}) {
		if have, err = s.pinLatest(ctx, client, g, hub.PartitionIDs, have); err != nil {
			return fail(err)
		}
		// Another replica may be about to write the rest.
		for end := time.Now().Add(s.firstStartGrace); len(without(hub.PartitionIDs, have)) > 0 && time.Now().Before(end); {
			sleep(ctx, s.firstStartGrace/20)
			if have, err = g.positions(ctx); err != nil {
				return fail(err)
			}
		}
		start = Start{Earliest: true}
	}
	if missing := without(hub.PartitionIDs, have); len(missing) > 0 {
		s.log.Warn("partitions have no checkpoint: starting over", zap.Strings("partitions", missing), zap.Stringer("at", start))
	}

	positions := azeventhubs.StartPositions{Default: azeventhubs.StartPosition{Earliest: &start.Earliest}}
	if !start.Time.IsZero() {
		positions.Default = azeventhubs.StartPosition{EnqueuedTime: &start.Time, Inclusive: true}
	}
	return positions, hub.PartitionIDs, nil
}

// pinLatest makes the present end of every partition its checkpoint if there is
// no checkpoint yet, and returns the checkpoints there are then. What another
// replica wrote stays; what a failure left unwritten is written the next time.
func (s *Source) pinLatest(ctx context.Context, client *azeventhubs.ConsumerClient, g *guard, ids []string, have map[string]telemetry.Position) (map[string]telemetry.Position, error) {
	if len(have) == 0 && s.latest == nil {
		latest := make(map[string]telemetry.Position, len(ids))
		for _, id := range ids {
			properties, err := s.partition(ctx, client, id)
			if err != nil {
				return nil, err
			}
			latest[id] = telemetry.Position{Sequence: properties.LastEnqueuedSequenceNumber, Offset: properties.LastEnqueuedOffset}
			if properties.IsEmpty || properties.LastEnqueuedOffset == "" {
				latest[id] = telemetry.Position{Sequence: properties.LastEnqueuedSequenceNumber, Offset: beforeFirst}
			}
		}
		s.log.Warn("first start of this consumer group: events from before now are not read", zap.Any("positions", latest))
		s.latest = latest
	}
	if s.latest == nil {
		return have, nil
	}
	have, err := g.positions(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range without(ids, have) {
		p, ok := s.latest[id]
		if !ok {
			continue
		}
		if err := g.set(ctx, id, p); err != nil {
			return nil, err
		}
		have[id] = p
	}
	s.latest = nil
	return have, nil
}

// checkAge starts a partition over whose checkpoint lies beyond its last event:
// it is from a hub of this name that was deleted, or from before a fail-over.
func (s *Source) checkAge(ctx context.Context, client *azeventhubs.ConsumerClient, g *guard, id string, p telemetry.Position) error {
	properties, err := s.partition(ctx, client, id)
	if err != nil {
		return err
	}
	if p.Sequence <= properties.LastEnqueuedSequenceNumber {
		return nil
	}
	s.log.Error("a checkpoint lies beyond the partition's last event, so the hub is not the one it was written for: starting over at the earliest event",
		zap.String("partition", id), zap.Int64("checkpoint", p.Sequence), zap.Int64("last", properties.LastEnqueuedSequenceNumber))
	return g.set(ctx, id, telemetry.Position{Sequence: properties.BeginningSequenceNumber - 1, Offset: beforeFirst})
}

func (s *Source) partition(ctx context.Context, client *azeventhubs.ConsumerClient, id string) (azeventhubs.PartitionProperties, error) {
	properties, err := client.GetPartitionProperties(ctx, id, nil)
	if err != nil {
		return azeventhubs.PartitionProperties{}, fmt.Errorf("ask event hub %s for partition %s: %w", s.config.Hub, id, err)
	}
	return properties, nil
}

// without are the ids that have no position.
func without(ids []string, have map[string]telemetry.Position) []string {
	var missing []string
	for _, id := range ids {
		if _, ok := have[id]; !ok {
			missing = append(missing, id)
		}
	}
	return missing
}
