package eventhubs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"
)

// Ends want to know where partitions end, to see how far behind a reader is.
type Ends interface {
	Wanted() []string                     // the partitions to ask about; the hub need not have them
	Partitions(n int)                     // how many the hub has
	End(partition string, sequence int64) // of its last event
}

// FollowEnds asks the hub now, and again every so often until ctx ends, and tells
// ends. While the hub does not answer it tells them nothing. It may run beside Run.
func (s *Source) FollowEnds(ctx context.Context, every time.Duration, ends Ends) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := s.askEnds(ctx, ends); err != nil && ctx.Err() == nil {
			s.log.Warn("the hub does not say where partitions end, so that their lag is not known; asking again", zap.Error(err))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Source) askEnds(ctx context.Context, ends Ends) error {
	wanted := ends.Wanted()
	type answer struct {
		partitions int
		last       map[string]int64
	}
	a, err := query(ctx, s, func(ctx context.Context, client *azeventhubs.ConsumerClient, at endpoint) (answer, error) {
		hub, err := client.GetEventHubProperties(ctx, nil)
		if err != nil {
			return answer{}, fmt.Errorf("ask event hub %s for its partitions: %w", at.hub, err)
		}
		ids := slices.DeleteFunc(wanted, func(id string) bool { return !slices.Contains(hub.PartitionIDs, id) })
		last, err := lastSequences(ctx, client, at, ids)
		return answer{len(hub.PartitionIDs), last}, err
	})
	if err != nil {
		return err
	}
	ends.Partitions(a.partitions)
	for id, sequence := range a.last {
		ends.End(id, sequence)
	}
	return nil
}

// lastSequences asks the hub for the sequence numbers of the last events.
func lastSequences(ctx context.Context, client *azeventhubs.ConsumerClient, at endpoint, ids []string) (map[string]int64, error) {
	ends, err := partitionProperties(ctx, client, at, ids)
	last := make(map[string]int64, len(ends))
	for id, end := range ends {
		last[id] = end.LastEnqueuedSequenceNumber
	}
	return last, err
}
