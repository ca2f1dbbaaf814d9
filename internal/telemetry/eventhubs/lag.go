package eventhubs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"
)

// A LagRecorder records where partitions end, to compute how far behind their readers are.
type LagRecorder interface {
	Wanted() []string                              // the partitions to ask about; the hub need not have them
	HubPartitions(n int)                           // how many partitions the hub has
	LastSequence(partition string, sequence int64) // of the last event in the partition
}

// FollowLag asks the hub for the ends of partitions now and at every interval until ctx
// ends, and reports them to r. While the hub does not answer it reports nothing. It may run beside Run.
func (s *Source) FollowLag(ctx context.Context, every time.Duration, r LagRecorder) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	known := true
	for {
		err := s.recordLag(ctx, r)
		if err != nil && ctx.Err() == nil && known {
			s.log.Warn("partition lag is unknown: the hub does not report its last sequence numbers; retrying", zap.Error(err))
		}
		known = err == nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Source) recordLag(ctx context.Context, r LagRecorder) error {
	wanted := r.Wanted()
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
	r.HubPartitions(a.partitions)
	for id, sequence := range a.last {
		r.LastSequence(id, sequence)
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
