package eventhubs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

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
