package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"
)

const (
	storeTimeout  = 10 * time.Second // for one answer of the checkpoint store
	storeRetryMin = 100 * time.Millisecond
	storeRetryMax = 10 * time.Second
)

// A guard stands between a Processor and its checkpoint store, because one
// failed call ends the Processor (ListOwnership, ClaimOwnership) or leaves a
// partition without a reader for good (ListCheckpoints, in checkpoints.go). It retries these for as
// long as the Processor lives: reading goes on meanwhile, and the hub itself
// disconnects a reader whose partition another replica takes.
//
// Every answer about ownership passes through it, so it is also where the loss
// of a partition is noticed while nobody reads it.
//
// It serves one consumer group of one hub and spells all three in lower case,
// as other readers of the checkpoints (KEDA) expect.
type guard struct {
	store                 Store
	namespace, hub, group string
	checkpoints           *checkpoints
	owner                 string
	expiry                time.Duration
	log                   *zap.Logger

	// listed gets every answer of ListOwnership, claimed every one of
	// ClaimOwnership. Both are called by the Processor's goroutine.
	listed, claimed func([]azeventhubs.Ownership)

	called   atomic.Int64 // when the Processor last turned to the store, in Unix nanoseconds
	draining atomic.Bool  // claim no more partitions
	stopping atomic.Bool  // one attempt each

	warnSkew sync.Once

	mine map[string]bool // partitions of ours in the last list; the Processor's goroutine alone
}

func newGuard(s *Source, at endpoint) *guard {
	group := NewGroup(at.namespace, at.hub, s.config.ConsumerGroup)
	return &guard{
		store:       s.config.Checkpoints,
		namespace:   group.namespace,
		hub:         group.hub,
		group:       group.group,
		checkpoints: &checkpoints{records: s.config.Checkpoints, group: group, foreign: &s.foreign},
		owner:       s.owner,
		expiry:      s.config.OwnershipExpiry,
		log:         s.log,
		listed:      func([]azeventhubs.Ownership) {},
		claimed:     func([]azeventhubs.Ownership) {},
	}
}

// retry calls until it succeeds or ctx ends, and only once while stopping.
func (g *guard) retry(ctx context.Context, what string, call func(context.Context) error) error {
	for wait := storeRetryMin; ; wait = min(2*wait, storeRetryMax) {
		g.called.Store(time.Now().UnixNano())
		err := attempt(ctx, what, call)
		if err == nil || ctx.Err() != nil || g.stopping.Load() {
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

// ListOwnership implements [azeventhubs.CheckpointStore].
func (g *guard) ListOwnership(ctx context.Context, _, _, _ string, options *azeventhubs.ListOwnershipOptions) (all []azeventhubs.Ownership, err error) {
	err = g.retry(ctx, "list ownerships", func(ctx context.Context) (err error) {
		all, err = g.store.ListOwnership(ctx, g.namespace, g.hub, g.group, options)
		return err
	})
	if err != nil {
		return nil, err
	}
	g.mine = map[string]bool{}
	for _, o := range all {
		if o.OwnerID == g.owner {
			g.mine[o.PartitionID] = true
		}
	}
	g.listed(all)
	return all, nil
}

// ClaimOwnership implements [azeventhubs.CheckpointStore]. A partition that is
// missing in the answer is not lost: a first attempt may have taken it without
// our getting the answer. The next list tells.
func (g *guard) ClaimOwnership(ctx context.Context, wanted []azeventhubs.Ownership, options *azeventhubs.ClaimOwnershipOptions) (got []azeventhubs.Ownership, err error) {
	if ending := len(wanted) == 0 && g.stopping.Load(); ending || len(wanted) > 0 && wanted[0].OwnerID == "" {
		return nil, g.handBack(ctx)
	}
	claims := make([]azeventhubs.Ownership, 0, len(wanted))
	for _, o := range wanted {
		if o.OwnerID != "" && g.draining.Load() && !g.mine[o.PartitionID] {
			continue
		}
		o.FullyQualifiedNamespace, o.EventHubName, o.ConsumerGroup = g.namespace, g.hub, g.group
		claims = append(claims, o)
	}
	var began time.Time
	err = g.retry(ctx, "claim ownerships", func(ctx context.Context) (err error) {
		began = time.Now()
		got, err = g.store.ClaimOwnership(ctx, claims, options)
		return err
	})
	if err != nil {
		return nil, err
	}
	g.compareClocks(began, time.Now(), got)
	g.claimed(got)
	return got, nil
}

// handBack gives up what the store says is ours, until that is nothing. The
// Processor knows only what its last call brought: a round that the end cut
// short may have renewed or claimed partitions nobody heard of.
func (g *guard) handBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, fmt.Errorf("not done within %v", storeTimeout))
	defer cancel()
	for {
		all, err := g.ListOwnership(ctx, "", "", "", nil)
		if err != nil {
			return err
		}
		mine := slices.DeleteFunc(all, func(o azeventhubs.Ownership) bool { return o.OwnerID != g.owner })
		if len(mine) == 0 {
			return nil
		}
		for i := range mine {
			mine[i].OwnerID = ""
		}
		// What fails or is refused, the next list has again.
		err = attempt(ctx, "hand partitions back", func(ctx context.Context) error {
			_, err := g.store.ClaimOwnership(ctx, mine, nil)
			return err
		})
		if err != nil {
			sleep(ctx, storeRetryMin)
		}
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// compareClocks warns when the store stamped our claims with a time that this
// machine's clock cannot explain: the Processor compares the two to find
// ownerships that have expired.
func (g *guard) compareClocks(began, ended time.Time, got []azeventhubs.Ownership) {
	tolerance := g.expiry / 4
	for _, o := range got {
		stamp := o.LastModifiedTime
		if stamp.IsZero() || stamp.After(began.Add(-tolerance-time.Second)) && stamp.Before(ended.Add(tolerance)) {
			continue
		}
		g.warnSkew.Do(func() {
			g.log.Warn("this machine's clock and the checkpoint store's differ: partitions may change hands for nothing; synchronize the clock",
				zap.Duration("difference", ended.Sub(stamp)), zap.Duration("ownership_expiry", g.expiry))
		})
		return
	}
}
