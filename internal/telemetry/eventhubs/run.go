package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	// closeTimeout is for an answer that is not worth waiting for: that a link is
	// closed, what a hub is like, or where it is.
	closeTimeout = 5 * time.Second
)

type consumer = func(context.Context, telemetry.Partition) error

// Run implements [telemetry.Source]. It returns nil only: there is nothing that
// a later attempt might not find mended.
func (s *Source) Run(ctx context.Context, consume func(context.Context, telemetry.Partition) error) error {
	for n := 1; ; n++ {
		began := time.Now()
		err := s.live(ctx, consume)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > restartMax {
			n = 1
		}
		pause := backoff.Delay(n, restartMin, restartMax)
		s.count(func(stats *Stats) { stats.Restarts++ })
		s.log.Warn("reading stopped; starting again", zap.Error(err), zap.Duration("in", pause))
		backoff.Sleep(ctx, pause)
		s.resolve(ctx)
	}
}

// A life is that of one Processor, at one endpoint.
type life struct {
	source *Source
	guard  *guard
	at     endpoint
	from   *beginning
	budget *budget

	recycle context.CancelCauseFunc // ends it
	doubt   chan struct{}           // a consumer failed: is the hub still the one it was?

	mu      sync.Mutex
	reading map[string]*partition
	unread  map[string]time.Time // owned partitions without a reader, since when
	ending  bool                 // partitions need no reader any more
}

// live runs one Processor until ctx ends, and then returns once all consumers
// have: until then their partitions are kept. If the Processor ends before, or
// something is wrong with it, the partitions are lost.
func (s *Source) live(ctx context.Context, consume consumer) error {
	client, at, err := s.newClient()
	if err != nil {
		return err
	}
	hangUp := sync.OnceFunc(func() { _ = client.Close(context.Background()) }) // only drops the connection
	defer hangUp()

	g := newGuard(s, at)
	starting, cancel := context.WithTimeoutCause(ctx, s.beginTimeout, fmt.Errorf("event hub or checkpoint store did not answer within %v", s.beginTimeout))
	defer cancel()
	stop := context.AfterFunc(starting, hangUp) // a question about a partition ignores its context
	from, err := s.begin(starting, client, at, g)
	if !stop() {
		return errors.Join(context.Cause(starting), err)
	}
	if err != nil {
		return err
	}

	processor, err := azeventhubs.NewProcessor(client, g, &azeventhubs.ProcessorOptions{
		// It must claim all that it sees, for it gets what the guard gives it.
		LoadBalancingStrategy: azeventhubs.ProcessorStrategyGreedy,
		UpdateInterval:        time.Millisecond, // the guard paces it
		StartPositions:        from.positions,
		Prefetch:              -1, // partitions ask for events themselves
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
		at:      at,
		from:    from,
		budget:  newBudget(s.config.BufferBytes, len(from.partitions)),
		recycle: recycle,
		doubt:   make(chan struct{}, 1),
		reading: map[string]*partition{},
		unread:  map[string]time.Time{},
	}
	g.member = ownership.New(ownership.Config{
		Store: s.config.Ownership, Scope: g.scope(), Owner: s.owner,
		Interval: s.config.BalanceInterval, Expiry: s.config.OwnershipExpiry,
		Seen: l.seen, Logger: s.log,
	})
	g.called.Store(time.Now().UnixNano())

	// Partitions are kept while consumers settle, and until links are closed:
	// neither Processor nor Member sees ctx.
	renewing, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRenewing()
	owning, stopOwning := context.WithCancel(context.WithoutCancel(ctx))
	defer stopOwning()
	var background, consumers, ownerships sync.WaitGroup
	ownerships.Go(func() { g.member.Run(owning, from.partitions) })
	background.Go(func() {
		err := processor.Run(renewing)
		if err == nil {
			err = errors.New("processor stopped by itself")
		}
		recycle(err)
	})
	background.Go(func() { l.watch(working) })

	for {
		next := processor.NextPartitionClient(working)
		if next == nil {
			break
		}
		consumers.Add(1)
		background.Go(func() { l.consume(ctx, next, consume, consumers.Done) })
	}
	<-working.Done()

	l.end()
	if ctx.Err() == nil {
		l.loseAll()
	}
	consumers.Wait()

	// The Processor closes its links. If the hub does not answer, hanging up
	// unblocks it. Then the partitions are given back.
	stopRenewing()
	timer := time.AfterFunc(s.closing, hangUp)
	defer timer.Stop()
	background.Wait()
	stopOwning()
	ownerships.Wait()
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
	p := l.partition(client.PartitionID(), client)
	p.log, p.held, p.lose = log, held, lose
	defer p.window.close()
	l.add(p)
	err := consume(consuming, p)
	l.guard.member.Doubt(p.id) // until it is known who owns it now
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
		select {
		case l.doubt <- struct{}{}:
		default:
		}
	}
	// Unless it is closed, the Processor never hands this partition out again.
	closing, stop := context.WithTimeout(context.WithoutCancel(ctx), s.closing)
	defer stop()
	_ = client.Close(closing)
}

// partition makes what a consumer gets, and says so if it does not go on from its
// checkpoint.
func (l *life) partition(id string, client receiver) *partition {
	p := &partition{
		id:     id,
		hub:    l.at.hub,
		client: client,
		guard:  l.guard,
		window: window{budget: l.budget, limit: l.source.config.Prefetch},
	}
	p.missed = func(g gap) { l.missed(p, g) }
	switch c, ok, withheld := l.guard.checkpoints.resumed(id); {
	case ok:
		last := c.Position
		p.written, p.last, p.fresh = &c, &last, true
	case withheld || l.from.moved[id]:
		l.source.count(func(stats *Stats) { stats.StartedOver++ })
	}
	return p
}

// missed counts what will never be read. A compacted hub would have it log at
// every other event: once a minute is enough.
func (l *life) missed(p *partition, g gap) {
	log := l.source.log.With(zap.String("partition", p.id), zap.Int64("events", g.events),
		zap.Int64("after", g.from.Sequence), zap.Int64("before", g.to.Sequence), zap.Time("before_time", g.to.Time))
	if !g.from.Time.IsZero() { // an old checkpoint
		log = log.With(zap.Time("after_time", g.from.Time))
	}
	l.source.count(func(stats *Stats) {
		if g.expired {
			stats.Expired += g.events
		} else {
			stats.Skipped += g.events
		}
	})
	switch now := time.Now(); {
	case g.expired:
		log.Error("events are lost: the hub has dropped them, its retention was shorter than reading was behind")
	case now.Sub(p.toldMissed) > time.Minute:
		p.toldMissed = now
		log.Error("events are missing between two that were read: the client could not read them, the hub has dropped them meanwhile, or it is compacted")
	}
}

func (l *life) add(p *partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading[p.id] = p
	if _, ok := l.unread[p.id]; ok {
		delete(l.unread, p.id)
		l.source.patience = l.source.unreadAfter()
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

// end keeps what is owned, and takes no more.
func (l *life) end() {
	l.guard.member.Drain()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = true
}

func (l *life) loseAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.reading {
		p.lose(telemetry.ErrLost)
	}
}

// seen gets the owner of every partition. It finds those that another replica
// owns now, whether or not their consumer is calling Receive, and those that this
// replica owns and nobody reads: the Processor opens a link as soon as it is
// told of a partition; if it has not done so for long, it never will.
func (l *life) seen(owners map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, p := range l.reading {
		if owner := owners[id]; owner != "" && owner != l.source.owner {
			p.lose(telemetry.ErrLost)
		}
	}
	owned, now := 0, time.Now()
	unread := map[string]time.Time{}
	for id, owner := range owners {
		if owner != l.source.owner {
			continue
		}
		owned++
		if l.reading[id] != nil || l.ending {
			continue
		}
		since, waiting := l.unread[id]
		switch {
		case !waiting:
			since = now
		case now.Sub(since) > l.source.patience:
			l.source.patience = min(2*l.source.patience, 16*l.source.unreadAfter())
			l.source.count(func(stats *Stats) { stats.Unread++ })
			l.recycle(fmt.Errorf("partition %s is owned and was not read for %v", id, now.Sub(since).Round(time.Millisecond)))
			l.ending = true
		}
		unread[id] = since
	}
	l.unread = unread
	l.source.count(func(stats *Stats) { stats.Owned = owned })
}

// watch recycles a Processor that hangs, or whose hub is another one now, is
// elsewhere, or has more partitions: the Processor asks for them only once.
func (l *life) watch(ctx context.Context) {
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
			l.recycle(fmt.Errorf("processor hangs: it asked for no partition for %v", silent.Round(time.Millisecond)))
			return
		}
		doubt := false
		select {
		case <-l.doubt:
			doubt = true
		default:
		}
		if !doubt && time.Since(checked) < s.recheck {
			continue
		}
		checked = time.Now()
		if s.resolve(ctx) {
			l.recycle(errors.New("the hub is elsewhere now"))
			return
		}
		if err := l.verify(ctx); err != nil {
			l.recycle(err)
			return
		}
	}
}

// verify asks the hub whether it still is the one that is read, and returns what
// says that it is not. No answer says nothing.
func (l *life) verify(ctx context.Context) error {
	l.mu.Lock()
	read, ids := map[string]int64{}, []string{}
	for id, p := range l.reading {
		if sequence, ok := p.read(); ok {
			read[id], ids = sequence, append(ids, id)
		}
	}
	l.mu.Unlock()
	type answer struct {
		hub  azeventhubs.EventHubProperties
		last map[string]int64
	}
	asking, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	a, err := inquire(asking, l.source, func(ctx context.Context, client *azeventhubs.ConsumerClient, at endpoint) (a answer, err error) {
		if a.hub, err = client.GetEventHubProperties(ctx, nil); err != nil {
			return a, err
		}
		ids := slices.DeleteFunc(ids, func(id string) bool { return !slices.Contains(a.hub.PartitionIDs, id) })
		a.last, err = lastSequences(ctx, client, at, ids)
		return a, err
	})
	switch {
	case err != nil:
		return nil
	case !a.hub.CreatedOn.Equal(l.from.created):
		return fmt.Errorf("%w: it was created at %v, and that one at %v", errAnotherHub, a.hub.CreatedOn, l.from.created)
	case len(a.hub.PartitionIDs) != len(l.from.partitions):
		return fmt.Errorf("the hub has %d partitions now, and had %d", len(a.hub.PartitionIDs), len(l.from.partitions))
	}
	for id, last := range a.last {
		if last < read[id] {
			return fmt.Errorf("%w: partition %s ends at %d and was read up to %d", errAnotherHub, id, last, read[id])
		}
	}
	return nil
}
