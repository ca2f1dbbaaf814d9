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

// A session is the time of one Processor, at one endpoint.
type session struct {
	source *Source
	store  *processorStore
	at     endpoint
	plan   *startPlan
	budget *budget

	replace context.CancelCauseFunc // ends the session; the cause says why
	suspect chan struct{}           // a consumer failed: check whether the hub is still the same

	mu       sync.Mutex
	reading  map[string]*partition
	unread   map[string]time.Time // owned partitions without a reader, since when
	draining bool                 // partitions no longer need a reader
}

// consume runs a consumer for a partition and calls done once it has returned.
func (s *session) consume(ctx context.Context, client *azeventhubs.ProcessorPartitionClient, consume consumer, done func()) {
	held, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)
	consuming, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(held, func() { cancel(telemetry.ErrLost) })()

	log := s.source.log.With(zap.String("partition", client.PartitionID()))
	p := s.newPartition(client.PartitionID(), client)
	p.log, p.held, p.lose = log, held, lose
	defer p.credit.close()
	s.add(p)
	err := consume(consuming, p)
	s.store.member.Doubt(p.id) // until the next listing says who owns it now
	s.remove(p)
	lost := held.Err() != nil
	lose(nil) // a consumer that has returned holds nothing
	done()

	switch {
	case ctx.Err() != nil:
		return // the Processor closes the client; if we did, it would open another
	case lost:
		log.Info("partition lost")
	case err != nil:
		log.Warn("consumer failed; restarting it from the last checkpoint", zap.Error(err))
		select {
		case s.suspect <- struct{}{}:
		default:
		}
	}
	// Unless the client is closed, the Processor never hands this partition out again.
	closing, stop := context.WithTimeout(context.WithoutCancel(ctx), s.source.closeLimit)
	defer stop()
	_ = client.Close(closing)
}

// newPartition returns what a consumer gets, and counts the partition if it does
// not continue from its checkpoint.
func (s *session) newPartition(id string, client receiver) *partition {
	p := &partition{
		id:          id,
		hub:         s.at.hub,
		client:      client,
		checkpoints: s.store.checkpoints,
		credit:      credit{budget: s.budget, limit: s.source.config.Prefetch},
	}
	p.missed = func(g gap) { s.missed(p, g) }
	p.unanswered = func(err error) {
		_ = s.source.hubFailed(context.Background(), fmt.Errorf("read partition %s: %w", id, err))
	}
	switch c, ok, withheld := s.store.checkpoints.resumed(id); {
	case ok:
		last := c.Position
		p.written, p.last, p.fresh = &c, &last, true
		p.resumed = telemetry.Checkpoint{Position: c.Position, Ledger: c.Ledger}
		p.resumed.Generation = s.store.checkpoints.generation
	case withheld || s.plan.moved[id]:
		p.over = true
		s.source.count(func(stats *telemetry.SourceStats) { stats.StartedOver++ })
	}
	return p
}

// missed counts events that will never be read. On a compacted hub that is every
// other event, so a partition logs it at most once a minute.
func (s *session) missed(p *partition, g gap) {
	log := s.source.log.With(zap.String("partition", p.id), zap.Int64("events", g.events),
		zap.Int64("after", g.from.Sequence), zap.Int64("before", g.to.Sequence), zap.Time("before_time", g.to.Time))
	if !g.from.Time.IsZero() { // an old checkpoint
		log = log.With(zap.Time("after_time", g.from.Time))
	}
	s.source.count(func(stats *telemetry.SourceStats) {
		if g.expired {
			stats.Expired += g.events
		} else {
			stats.Skipped += g.events
		}
	})
	switch now := time.Now(); {
	case g.expired:
		log.Error("events are lost: the hub had dropped them before they were read; its retention is shorter than this consumer group was behind")
	case now.Sub(p.gapLogged) > time.Minute:
		p.gapLogged = now
		log.Error("events are missing between two that were read: the client could not read them, the hub has dropped them since, or the hub is compacted")
	}
}

func (s *session) add(p *partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading[p.id] = p
	if _, ok := s.unread[p.id]; ok {
		delete(s.unread, p.id)
		s.source.unreadLimit = s.source.minUnreadLimit()
	}
	s.source.count(func(stats *telemetry.SourceStats) { stats.Reading, stats.Hub = stats.Reading+1, telemetry.Fault{} }) // its link is open
}

func (s *session) remove(p *partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reading, p.id)
	s.source.count(func(stats *telemetry.SourceStats) {
		stats.Reading--
		if p.held.Err() != nil {
			stats.Lost++
		}
	})
}

// drain keeps what is owned and takes no more.
func (s *session) drain() {
	s.store.member.Drain()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
}

func (s *session) loseAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.reading {
		p.lose(telemetry.ErrLost)
	}
}

// ownersSeen gets the owner of every partition. It takes from their consumers the
// partitions that another replica owns now, also while no Receive is under way. It
// ends the session if this replica has owned a partition for long and nobody reads
// it: the Processor opens a link as soon as it gets a partition, or never.
func (s *session) ownersSeen(owners map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	source := s.source
	for id, p := range s.reading {
		if owner := owners[id]; owner != "" && owner != source.owner {
			p.lose(telemetry.ErrLost)
		}
	}
	owned, now := 0, time.Now()
	unread := map[string]time.Time{}
	for id, owner := range owners {
		if owner != source.owner {
			continue
		}
		owned++
		if s.reading[id] != nil || s.draining {
			continue
		}
		since, waiting := s.unread[id]
		switch {
		case !waiting:
			since = now
		case now.Sub(since) > source.unreadLimit:
			source.unreadLimit = min(2*source.unreadLimit, 16*source.minUnreadLimit())
			source.count(func(stats *telemetry.SourceStats) { stats.Unread++ })
			s.replace(fmt.Errorf("partition %s is owned but has not been read for %v", id, now.Sub(since).Round(time.Millisecond)))
			s.draining = true
		}
		unread[id] = since
	}
	s.unread = unread
	source.count(func(stats *telemetry.SourceStats) { stats.Owned = owned })
}

// watch ends the session if the Processor hangs, or if the hub has moved, is
// another one of the same name, or has more partitions: the Processor asks for
// them only once.
func (s *session) watch(ctx context.Context) {
	tick := time.NewTicker(s.source.config.BalanceInterval)
	defer tick.Stop()
	checked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if idle := time.Since(time.Unix(0, s.store.called.Load())); idle > s.source.hangLimit {
			s.replace(fmt.Errorf("the processor hangs: it has asked for no partition for %v", idle.Round(time.Millisecond)))
			return
		}
		suspect := false
		select {
		case <-s.suspect:
			suspect = true
		default:
		}
		if !suspect && time.Since(checked) < s.source.checkInterval {
			continue
		}
		checked = time.Now()
		if s.source.resolve(ctx) {
			s.replace(errors.New("the hub has moved"))
			return
		}
		if err := s.checkHub(ctx); err != nil {
			s.replace(err)
			return
		}
	}
}

// checkHub asks the hub whether it still is the one that is read, and returns why
// it is not. It returns nil if the hub does not answer.
func (s *session) checkHub(ctx context.Context) error {
	s.mu.Lock()
	read := map[string]int64{}
	for id, p := range s.reading {
		if sequence, ok := p.read(); ok {
			read[id] = sequence
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, shortTimeout)
	defer cancel()
	hub, err := s.source.queryHub(ctx, func(id string) bool { _, ok := read[id]; return ok })
	switch {
	case err != nil:
		return nil
	case !hub.created.Equal(s.plan.created):
		return fmt.Errorf("%w: this one was created at %v, the other at %v", errAnotherHub, hub.created, s.plan.created)
	case len(hub.partitions) != len(s.plan.partitions):
		return fmt.Errorf("the hub has %d partitions now, and had %d", len(hub.partitions), len(s.plan.partitions))
	}
	for id, last := range hub.last {
		if last < read[id] {
			return fmt.Errorf("%w: partition %s ends at %d and was read up to %d", errAnotherHub, id, last, read[id])
		}
	}
	return nil
}
