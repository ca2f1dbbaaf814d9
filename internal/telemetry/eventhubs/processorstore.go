package eventhubs

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/telemetry/ownership"
)

const (
	storeRetryMin = 100 * time.Millisecond
	storeRetryMax = 10 * time.Second
)

// A processorStore is the [azeventhubs.CheckpointStore] of a Processor, for one
// consumer group.
//
// It keeps the Processor from balancing, which compares this machine's clock with
// the store's, knows only replicas that own something, takes partitions from the
// head of the list only, and waits for each link that it opens before it renews.
// The Processor is told that nobody owns anything, so it claims every partition,
// and gets those that the replica's [ownership.Member] holds. It opens links for
// these.
type processorStore struct {
	checkpoints *checkpoints
	member      *ownership.Member
	interval    time.Duration // after which a claim is answered at the latest
	log         *zap.Logger

	called atomic.Int64 // when the Processor last called, in Unix nanoseconds
}

func newProcessorStore(s *Source, at endpoint) *processorStore {
	return &processorStore{
		checkpoints: &checkpoints{store: s.config.Records, group: NewGroup(at.namespace, at.hub, s.config.ConsumerGroup), rejected: &s.rejected},
		interval:    s.config.BalanceInterval,
		log:         s.log,
	}
}

// scope is what the Member shares: one consumer group.
func (ps *processorStore) scope() string { return ps.checkpoints.group.String() }

// ListOwnership implements [azeventhubs.CheckpointStore].
func (ps *processorStore) ListOwnership(context.Context, string, string, string, *azeventhubs.ListOwnershipOptions) ([]azeventhubs.Ownership, error) {
	return nil, nil
}

// ClaimOwnership implements [azeventhubs.CheckpointStore]. It paces the
// Processor: it waits until the Member holds more than before, or for an
// interval, after which the Processor tries again to open links that it could not.
func (ps *processorStore) ClaimOwnership(ctx context.Context, wanted []azeventhubs.Ownership, _ *azeventhubs.ClaimOwnershipOptions) ([]azeventhubs.Ownership, error) {
	ps.called.Store(time.Now().UnixNano())
	if len(wanted) == 0 || wanted[0].OwnerID == "" {
		return nil, nil // it ends and gives everything back, which is left to the Member
	}
	timer := time.NewTimer(ps.interval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-ps.member.Changed():
	case <-timer.C:
	}
	held := ps.member.Held()
	owned := make([]azeventhubs.Ownership, len(held))
	for i, id := range held {
		owned[i] = wanted[0]
		owned[i].PartitionID = id
	}
	return owned, nil
}

// ListCheckpoints implements [azeventhubs.CheckpointStore]. A partition whose
// checkpoint is of another hub, or cannot be read, has none: the Processor then
// begins where the session's startPlan says. A failure would leave the partition
// without a reader for good, so ListCheckpoints retries until ctx ends.
func (ps *processorStore) ListCheckpoints(ctx context.Context, _, _, _ string, _ *azeventhubs.ListCheckpointsOptions) ([]azeventhubs.Checkpoint, error) {
	for n := 1; ; n++ {
		ps.called.Store(time.Now().UnixNano())
		resuming, err := ps.checkpoints.resume(ctx)
		if err == nil {
			return ps.encode(resuming), nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		pause := backoff.Delay(n, storeRetryMin, storeRetryMax)
		ps.log.Warn("checkpoint store failed; retrying", zap.Error(err), zap.Duration("in", pause))
		backoff.Sleep(ctx, pause)
	}
}

func (ps *processorStore) encode(resuming map[string]Checkpoint) []azeventhubs.Checkpoint {
	g := ps.checkpoints.group
	all := make([]azeventhubs.Checkpoint, 0, len(resuming))
	for partition, c := range resuming {
		all = append(all, azeventhubs.Checkpoint{
			FullyQualifiedNamespace: g.namespace, EventHubName: g.hub, ConsumerGroup: g.group,
			PartitionID: partition, SequenceNumber: &c.Sequence, Offset: &c.Offset,
		})
	}
	return all
}

// SetCheckpoint implements [azeventhubs.CheckpointStore]. Nobody calls it:
// consumers use [checkpoints.advance].
func (ps *processorStore) SetCheckpoint(context.Context, azeventhubs.Checkpoint, *azeventhubs.SetCheckpointOptions) error {
	return errors.ErrUnsupported
}
