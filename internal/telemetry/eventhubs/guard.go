package eventhubs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/ownership"
)

const (
	storeTimeout  = 10 * time.Second // for one answer of the checkpoint store
	storeRetryMin = 100 * time.Millisecond
	storeRetryMax = 10 * time.Second
)

// A guard stands between a Processor and its checkpoint store. About ownership
// it tells the Processor what the replica's [ownership.Member] holds; see
// owning.go. A failed ListCheckpoints would leave a partition without a reader for
// good, so it is retried for as long as the Processor lives.
//
// It serves one consumer group of one hub and spells all three in lower case,
// as other readers of the checkpoints (KEDA) expect.
type guard struct {
	store                 CheckpointStore
	namespace, hub, group string
	member                *ownership.Member // what the Processor is told about ownership
	interval              time.Duration     // how often it is told, at least
	log                   *zap.Logger

	called atomic.Int64 // when the Processor last turned to the store, in Unix nanoseconds
}

// CheckpointNames returns a namespace's host name, a hub and a consumer group as
// they stand in the checkpoint store.
func CheckpointNames(host, hub, group string) (string, string, string) {
	return strings.ToLower(host), strings.ToLower(hub), strings.ToLower(group)
}

func newGuard(s *Source) *guard {
	namespace, hub, group := CheckpointNames(s.namespace, s.config.Hub, s.config.ConsumerGroup)
	return &guard{
		store:     s.config.Checkpoints,
		namespace: namespace,
		hub:       hub,
		group:     group,
		interval:  s.config.BalanceInterval,
		log:       s.log,
	}
}

// scope is what the Member shares: one consumer group.
func (g *guard) scope() string { return g.namespace + "/" + g.hub + "/" + g.group }

// retry calls until it succeeds or ctx ends.
func (g *guard) retry(ctx context.Context, what string, call func(context.Context) error) error {
	for wait := storeRetryMin; ; wait = min(2*wait, storeRetryMax) {
		g.called.Store(time.Now().UnixNano())
		err := attempt(ctx, what, call)
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause := jitter(wait)
		g.log.Warn("checkpoint store failed; trying again", zap.Error(err), zap.Duration("in", pause))
		sleep(ctx, pause)
	}
}

// attempt calls once, for at most storeTimeout.
func attempt(ctx context.Context, what string, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, fmt.Errorf("no answer within %v", storeTimeout))
	defer cancel()
	err := call(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("checkpoint store: %s: %w (%w)", what, err, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("checkpoint store: %s: %w", what, err)
	}
	return nil
}

// jitter is d, give or take a fifth.
func jitter(d time.Duration) time.Duration {
	return time.Duration((0.8 + 0.4*rand.Float64()) * float64(d))
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// ListCheckpoints implements [azeventhubs.CheckpointStore].
func (g *guard) ListCheckpoints(ctx context.Context, _, _, _ string, options *azeventhubs.ListCheckpointsOptions) (all []azeventhubs.Checkpoint, err error) {
	err = g.retry(ctx, "list checkpoints", func(ctx context.Context) (err error) {
		all, err = g.store.ListCheckpoints(ctx, g.namespace, g.hub, g.group, options)
		return err
	})
	return all, err
}

// SetCheckpoint implements [azeventhubs.CheckpointStore]: one attempt, and it
// writes what it is given. Consumers use advance.
func (g *guard) SetCheckpoint(ctx context.Context, c azeventhubs.Checkpoint, options *azeventhubs.SetCheckpointOptions) error {
	c.FullyQualifiedNamespace, c.EventHubName, c.ConsumerGroup = g.namespace, g.hub, g.group
	return attempt(ctx, "set checkpoint", func(ctx context.Context) error {
		return g.store.SetCheckpoint(ctx, c, options)
	})
}

// set writes p as the checkpoint of a partition.
func (g *guard) set(ctx context.Context, partition string, p telemetry.Position) error {
	return g.SetCheckpoint(ctx, azeventhubs.Checkpoint{PartitionID: partition, SequenceNumber: &p.Sequence, Offset: &p.Offset}, nil)
}

// positions are the checkpoints by partition. One attempt.
func (g *guard) positions(ctx context.Context) (map[string]telemetry.Position, error) {
	var all []azeventhubs.Checkpoint
	err := attempt(ctx, "list checkpoints", func(ctx context.Context) (err error) {
		all, err = g.store.ListCheckpoints(ctx, g.namespace, g.hub, g.group, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	positions := make(map[string]telemetry.Position, len(all))
	for _, c := range all {
		var p telemetry.Position
		if c.SequenceNumber != nil {
			p.Sequence = *c.SequenceNumber
		}
		if c.Offset != nil {
			p.Offset = *c.Offset
		}
		positions[c.PartitionID] = p
	}
	return positions, nil
}

// advance moves a checkpoint forward to p unless the store has a later one, and
// returns where it stands. It reads before it writes: another owner may have
// come further than this one knows. owned is asked right before the write.
func (g *guard) advance(ctx context.Context, partition string, p telemetry.Position, owned func() error) (telemetry.Position, error) {
	positions, err := g.positions(ctx)
	if err != nil {
		return telemetry.Position{}, err
	}
	if there, ok := positions[partition]; ok && there.Sequence >= p.Sequence {
		return there, nil
	}
	if err := owned(); err != nil {
		return telemetry.Position{}, err
	}
	return p, g.set(ctx, partition, p)
}
