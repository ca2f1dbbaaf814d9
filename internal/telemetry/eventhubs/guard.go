package eventhubs

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/telemetry/ownership"
)

const (
	storeTimeout  = 10 * time.Second // for one answer of the checkpoint store
	storeRetryMin = 100 * time.Millisecond
	storeRetryMax = 10 * time.Second
)

// A guard stands between a Processor and its checkpoint store. About ownership
// it tells the Processor what the replica's [ownership.Member] holds; see
// owning.go. A failed ListCheckpoints (checkpoints.go) would leave a partition
// without a reader for good, so it is retried for as long as the Processor lives.
//
// It serves one consumer group of one hub and spells all three in lower case,
// as other readers of the checkpoints (KEDA) expect.
type guard struct {
	namespace, hub, group string
	checkpoints           *checkpoints
	member                *ownership.Member // what the Processor is told about ownership
	interval              time.Duration     // how often it is told, at least
	log                   *zap.Logger

	called atomic.Int64 // when the Processor last turned to the store, in Unix nanoseconds
}

func newGuard(s *Source, at endpoint) *guard {
	group := NewGroup(at.namespace, at.hub, s.config.ConsumerGroup)
	return &guard{
		namespace:   group.namespace,
		hub:         group.hub,
		group:       group.group,
		checkpoints: &checkpoints{records: s.config.Checkpoints, group: group, foreign: &s.foreign},
		interval:    s.config.BalanceInterval,
		log:         s.log,
	}
}

// scope is what the Member shares: one consumer group.
func (g *guard) scope() string { return g.checkpoints.group.String() }

// retry calls until it succeeds or ctx ends.
func (g *guard) retry(ctx context.Context, what string, call func(context.Context) error) error {
	for n := 1; ; n++ {
		g.called.Store(time.Now().UnixNano())
		err := attempt(ctx, what, call)
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause := backoff.Delay(n, storeRetryMin, storeRetryMax)
		g.log.Warn("checkpoint store failed; trying again", zap.Error(err), zap.Duration("in", pause))
		backoff.Sleep(ctx, pause)
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
