package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/telemetry"
)

const (
	restartMin = 500 * time.Millisecond
	restartMax = 30 * time.Second

	// closeTimeout is for the hub to answer what is not worth waiting for: that
	// a link is closed, or how many partitions there are.
	closeTimeout = 5 * time.Second
)

type consumer = func(context.Context, telemetry.Partition) error

// Run implements [telemetry.Source]. It returns nil only: there is nothing that
// a later attempt might not find mended.
func (s *Source) Run(ctx context.Context, consume func(context.Context, telemetry.Partition) error) error {
	for wait := restartMin; ; wait = min(2*wait, restartMax) {
		began := time.Now()
		err := s.live(ctx, consume)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > restartMax {
			wait = restartMin
		}
		pause := jitter(wait)
		s.count(func(stats *Stats) { stats.Restarts++ })
		s.log.Warn("reading stopped; starting again", zap.Error(err), zap.Duration("in", pause))
		sleep(ctx, pause)
	}
}

// A life is that of one Processor.
type life struct {
	source *Source
	guard  *guard

	recycle context.CancelCauseFunc // ends it

	mu      sync.Mutex
	reading map[string]*partition
	unread  map[string]time.Time // owned partitions without a reader, since when
}

// live runs one Processor until ctx ends, and then returns once all consumers
// have: until then their partitions are kept. If the Processor ends before, or
// something is wrong with it, the partitions are lost.
func (s *Source) live(ctx context.Context, consume consumer) error {
	client, err := s.connect()
	if err != nil {
		return fmt.Errorf("event hub client: %w", err)
	}
	hangUp := sync.OnceFunc(func() { _ = client.Close(context.Background()) }) // only drops the connection
	defer hangUp()

	g := newGuard(s)
	starting, cancel := context.WithTimeoutCause(ctx, s.beginTimeout, fmt.Errorf("event hub or checkpoint store did not answer within %v", s.beginTimeout))
	defer cancel()
	stop := context.AfterFunc(starting, hangUp) // a question about a partition ignores its context
	positions, partitions, err := s.begin(starting, client, g)
	if !stop() {
		return errors.Join(context.Cause(starting), err)
	}
	if err != nil {
		return err
	}

	processor, err := azeventhubs.NewProcessor(client, g, &azeventhubs.ProcessorOptions{
		// The balanced strategy takes one partition per interval: minutes
		// without a reader for the last of many.
		LoadBalancingStrategy:       azeventhubs.ProcessorStrategyGreedy,
		UpdateInterval:              s.config.BalanceInterval,
		PartitionExpirationDuration: s.config.OwnershipExpiry,
		StartPositions:              positions,
		Prefetch:                    -1, // partitions ask for events themselves
	})
	if err != nil {
		return fmt.Errorf("event hub processor: %w", err)
	}

	s.count(func(stats *Stats) { stats.Running = true })
	defer s.count(func(stats *Stats) { stats.Running = false })
	working, recycle := context.WithCancelCause(ctx)
	defer recycle(nil)
	l := &life{
		source:  s,
		guard:   g,
		recycle: recycle,
		reading: map[string]*partition{},
		unread:  map[string]time.Time{},
	}
	g.listed, g.claimed = l.listed, l.claimed
	g.called.Store(time.Now().UnixNano())

	// Renewal goes on while consumers settle: the Processor does not see ctx.
	renewing, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRenewing()
	var background, consumers sync.WaitGroup
	background.Go(func() {
		err := processor.Run(renewing)
		if err == nil {
			err = errors.New("processor stopped by itself")
		}
		recycle(err)
	})
	background.Go(func() { l.watch(working, client, partitions) })

	for {
		next := processor.NextPartitionClient(working)
		if next == nil {
			break
		}
		consumers.Add(1)
		background.Go(func() { l.consume(ctx, next, consume, consumers.Done) })
	}
	<-working.Done()

	g.draining.Store(true)
	if ctx.Err() == nil {
		l.loseAll()
	}
	consumers.Wait()

	// The Processor closes its links and hands its partitions back. If the hub
	// does not answer, hanging up unblocks it.
	g.stopping.Store(true)
	stopRenewing()
	timer := time.AfterFunc(s.closing, hangUp)
	defer timer.Stop()
	background.Wait()
	s.count(func(stats *Stats) { stats.Owned = 0 })
	return context.Cause(working)
}

// consume runs a consumer for a partition and calls done when it returned.
func (l *life) consume(ctx context.Context, client *azeventhubs.ProcessorPartitionClient, consume consumer, done func()) {
	s := l.source
	held, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)
	consuming, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(held, func() { cancel(telemetry.ErrLost) })()

	log := s.log.With(zap.String("partition", client.PartitionID()))
	p := &partition{
		id:     client.PartitionID(),
		hub:    s.config.Hub,
		client: client,
		guard:  l.guard,
		log:    log,
		held:   held,
		lose:   lose,
		window: window{events: s.config.Prefetch, bytes: s.config.BufferBytes},
	}
	l.add(p)
	err := consume(consuming, p)
	l.remove(p)
	lost := held.Err() != nil
	lose(nil) // a consumer that has returned holds nothing
	done()

	switch {
	case ctx.Err() != nil:
		return // the Processor closes the client, or it would make another one
	case lost:
		log.Info("partition lost")
	case err != nil:
		log.Warn("consumer failed; it is started again from the last checkpoint", zap.Error(err))
	}
	// Unless it is closed, the Processor never hands this partition out again.
	closing, stop := context.WithTimeout(context.WithoutCancel(ctx), s.closing)
	defer stop()
	_ = client.Close(closing)
}

func (l *life) add(p *partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading[p.id] = p
	if _, ok := l.unread[p.id]; ok {
		delete(l.unread, p.id)
		l.source.patience = l.source.config.OwnershipExpiry
	}
	l.source.count(func(stats *Stats) { stats.Reading++ })
}

func (l *life) remove(p *partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reading, p.id)
	l.source.count(func(stats *Stats) {
		stats.Reading--
		if p.held.Err() != nil {
			stats.Lost++
		}
	})
}

func (l *life) loseAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.reading {
		p.lose(telemetry.ErrLost)
	}
}

// listed finds partitions that another replica owns now, whether or not their
// consumer is calling Receive.
func (l *life) listed(all []azeventhubs.Ownership) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range all {
		if p := l.reading[o.PartitionID]; p != nil && o.OwnerID != "" && o.OwnerID != l.guard.owner {
			p.lose(telemetry.ErrLost)
		}
	}
}

// claimed finds partitions that this replica owns and that nobody reads. The
// Processor opens a link in the same round in which it claims a partition; if
// it has not done so for long, it never will.
func (l *life) claimed(got []azeventhubs.Ownership) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, o := range got {
		since, waiting := l.unread[o.PartitionID]
		switch {
		case l.reading[o.PartitionID] != nil || l.guard.draining.Load():
		case !waiting:
			l.unread[o.PartitionID] = now
		case now.Sub(since) > l.source.patience:
			l.source.patience = min(2*l.source.patience, 16*l.source.config.OwnershipExpiry)
			l.source.count(func(stats *Stats) { stats.Unread++ })
			l.recycle(fmt.Errorf("partition %s is owned and was not read for %v", o.PartitionID, now.Sub(since).Round(time.Millisecond)))
		}
	}
	l.source.count(func(stats *Stats) { stats.Owned = len(got) })
}

// watch recycles a Processor that hangs, or whose hub has more partitions now:
// it asks for them only once.
func (l *life) watch(ctx context.Context, client *azeventhubs.ConsumerClient, partitions int) {
	s := l.source
	tick := time.NewTicker(s.config.BalanceInterval)
	defer tick.Stop()
	checked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if silent := time.Since(time.Unix(0, l.guard.called.Load())); silent > s.silence {
			l.recycle(fmt.Errorf("processor hangs: it renewed no partition for %v", silent.Round(time.Millisecond)))
			return
		}
		if time.Since(checked) < s.recheck {
			continue
		}
		checked = time.Now()
		asking, cancel := context.WithTimeout(ctx, closeTimeout)
		hub, err := client.GetEventHubProperties(asking, nil)
		cancel()
		if err == nil && len(hub.PartitionIDs) != partitions {
			l.recycle(fmt.Errorf("the hub has %d partitions now, and had %d", len(hub.PartitionIDs), partitions))
			return
		}
	}
}
