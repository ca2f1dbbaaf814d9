package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/ownership"
)

const (
	restartMin = 500 * time.Millisecond
	restartMax = 30 * time.Second

	// shortTimeout is for an answer that is not worth a long wait: that a link is
	// closed, what a hub's properties are, or where it is.
	shortTimeout = 5 * time.Second
)

type consumer = func(context.Context, telemetry.Partition) error

// Run implements [telemetry.Source]. It always returns nil: a later attempt may
// succeed whatever the error was.
func (s *Source) Run(ctx context.Context, consume func(context.Context, telemetry.Partition) error) error {
	for n := 1; ; n++ {
		began := time.Now()
		err := s.runSession(ctx, consume)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > restartMax {
			n = 1
		}
		pause := backoff.Delay(n, restartMin, restartMax)
		s.count(func(stats *telemetry.SourceStats) { stats.Restarts++ })
		log := s.log.Debug // what lasts is in Stats
		if n == 1 {
			log = s.log.Warn
		}
		log("reading stopped; restarting", zap.Error(err), zap.Duration("in", pause))
		backoff.Sleep(ctx, pause)
		s.resolve(ctx)
	}
}

// runSession runs one Processor until ctx ends, and then returns once all
// consumers have: until then their partitions are kept. If the Processor ends
// earlier, or the session has to be replaced, the partitions are lost.
func (s *Source) runSession(ctx context.Context, consume consumer) error {
	client, at, err := s.newClient()
	if err != nil {
		return err
	}
	disconnect := sync.OnceFunc(func() { _ = client.Close(context.Background()) }) // does not block
	defer disconnect()

	store := newProcessorStore(s, at)
	starting, cancel := context.WithTimeoutCause(ctx, s.startLimit, fmt.Errorf("event hub or checkpoint store did not answer within %v", s.startLimit))
	defer cancel()
	stop := context.AfterFunc(starting, disconnect) // GetPartitionProperties ignores its context
	plan, err := s.planStart(starting, client, at, store.checkpoints)
	if !stop() {
		return errors.Join(context.Cause(starting), err)
	}
	if err != nil {
		return err
	}

	processor, err := azeventhubs.NewProcessor(client, store, &azeventhubs.ProcessorOptions{
		// It has to claim every partition, because the store tells it which ones it gets.
		LoadBalancingStrategy: azeventhubs.ProcessorStrategyGreedy,
		UpdateInterval:        time.Millisecond, // ClaimOwnership paces it
		StartPositions:        plan.positions,
		Prefetch:              -1, // partitions ask for events themselves
	})
	if err != nil {
		return fmt.Errorf("event hub processor: %w", err)
	}

	s.count(func(stats *telemetry.SourceStats) { stats.Running = true })
	defer s.count(func(stats *telemetry.SourceStats) { stats.Running = false })
	working, replace := context.WithCancelCause(ctx)
	defer replace(nil)
	se := &session{
		source:  s,
		store:   store,
		at:      at,
		plan:    plan,
		budget:  newBudget(s.config.BufferBytes, len(plan.partitions)),
		replace: replace,
		suspect: make(chan struct{}, 1),
		reading: map[string]*partition{},
		unread:  map[string]time.Time{},
	}
	store.member = ownership.New(ownership.Config{
		Store: s.config.Records, Scope: store.scope(), Owner: s.owner,
		Interval: s.config.BalanceInterval, Expiry: s.config.OwnershipExpiry,
		Seen: se.ownersSeen, Logger: s.log,
	})
	store.called.Store(time.Now().UnixNano())

	// Partitions are kept while consumers settle and until links are closed:
	// neither the Processor nor the Member gets ctx.
	renewing, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRenewing()
	owning, stopOwning := context.WithCancel(context.WithoutCancel(ctx))
	defer stopOwning()
	var background, consumers, ownerships sync.WaitGroup
	ownerships.Go(func() { store.member.Run(owning, plan.partitions) })
	background.Go(func() {
		err := processor.Run(renewing)
		if err == nil {
			err = errors.New("the processor stopped by itself")
		}
		replace(err)
	})
	background.Go(func() { se.watch(working) })

	for {
		next := processor.NextPartitionClient(working)
		if next == nil {
			break
		}
		consumers.Add(1)
		background.Go(func() { se.consume(ctx, next, consume, consumers.Done) })
	}
	<-working.Done()

	se.drain()
	if ctx.Err() == nil {
		se.loseAll()
	}
	consumers.Wait()

	// The Processor closes its links; disconnecting unblocks it if the hub does
	// not answer. Ownership is given back last.
	stopRenewing()
	timer := time.AfterFunc(s.closeLimit, disconnect)
	defer timer.Stop()
	background.Wait()
	stopOwning()
	ownerships.Wait()
	s.count(func(stats *telemetry.SourceStats) { stats.Owned = 0 })
	return context.Cause(working)
}
