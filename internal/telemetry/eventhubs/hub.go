package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/ownership"
)

// A hub is one generation of the hub, and what this replica reads of it.
type hub struct {
	source      *Source
	at          endpoint
	generation  string
	plan        *startPlan
	checkpoints *checkpoints
	connections *connections
	member      *ownership.Member

	replace   context.CancelCauseFunc // the hub is no longer the one that is read; the cause says why
	suspected chan struct{}           // something failed: check whether it still is

	opened     time.Time
	partitions atomic.Int64 // that the hub has

	mu   sync.Mutex
	held map[string]*ownedPartition
}

// An ownedPartition is one that this replica holds.
type ownedPartition struct {
	lose      context.CancelCauseFunc
	partition atomic.Pointer[partition] // nil between two consumers
}

// run reads the hub until ctx ends or the hub is another one, and returns once all consumers
// have. In the second case their partitions are lost.
func (h *hub) run(ctx context.Context, consume consumer) error {
	working, replace := context.WithCancelCause(ctx)
	defer replace(nil)
	h.replace = replace

	// Partitions are kept while consumers settle: the member does not get ctx.
	owning, stopOwning := context.WithCancel(context.WithoutCancel(ctx))
	defer stopOwning()

	var members, others, consumers sync.WaitGroup
	members.Go(func() { h.member.Run(owning) })
	others.Go(func() { h.watch(working) })
	follow := func(until context.Context) {
		for until.Err() == nil {
			h.follow(ctx, h.member.Owned(), &consumers, consume)
			select {
			case <-h.member.Changed():
			case <-until.Done():
			}
		}
	}
	follow(working)
	h.member.Drain()

	if ctx.Err() != nil { // else all are lost
		others.Go(func() { follow(owning) })
	} else {
		h.follow(ctx, nil, &consumers, consume)
	}

	consumers.Wait()
	h.connections.running.Wait()
	stopOwning() // gives back what is owned
	members.Wait()
	others.Wait()

	return context.Cause(working)
}

// follow takes from their consumers all partitions but those that are owned, and starts consumers
// for these unless ctx has ended.
func (h *hub) follow(ctx context.Context, owned map[string]bool, consumers *sync.WaitGroup, consume consumer) {
	h.mu.Lock()
	defer h.mu.Unlock()

	for id, r := range h.held {
		if !owned[id] {
			r.lose(telemetry.ErrLost)
		}
	}

	for id := range owned {
		if ctx.Err() != nil || h.held[id] != nil || !h.member.Holds(id, time.Time{}) {
			continue
		}

		held, lose := context.WithCancelCause(context.WithoutCancel(ctx))
		r := &ownedPartition{lose: lose}
		h.held[id] = r
		consumers.Go(func() { h.hold(ctx, held, id, r, consume) })
	}
}

// hold runs consumers of a partition, one after another, until it is lost or ctx ends.
func (h *hub) hold(ctx, held context.Context, id string, r *ownedPartition, consume consumer) {
	log := h.source.log.With(zap.String("partition", id))
	consuming, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(held, func() { cancel(telemetry.ErrLost) })()

	for failures := 1; ; failures++ {
		began := time.Now()
		p, err := h.newPartition(consuming, id, log)
		if err == nil {
			p.held = held
			err = h.consume(consuming, p, r, consume)
		}

		if ctx.Err() != nil || held.Err() != nil {
			break
		}

		if time.Since(began) > openMax {
			failures = 1
		}

		log.Warn("the partition has no consumer; starting one from the last checkpoint", zap.Error(err))
		h.suspect()
		backoff.Sleep(consuming, backoff.Delay(failures, openMin, openMax))
	}

	lost := held.Err() != nil
	r.lose(telemetry.ErrLost) // a consumer that has returned holds nothing

	if lost {
		log.Info("partition lost")
		h.source.add(&h.source.stats.Lost, 1)
	}

	h.mu.Lock()
	delete(h.held, id)
	h.mu.Unlock()
	h.member.Recheck() // it may be ours again
}

// consume runs a consumer of a partition beside the goroutine that reads it.
func (h *hub) consume(ctx context.Context, p *partition, r *ownedPartition, consume consumer) error {
	r.partition.Store(p)
	defer r.partition.Store(nil)

	// While the consumer settles, what has come is of no use.
	reading, stop := context.WithCancel(ctx)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer stop()

	reader.Go(func() { p.read(reading) })

	return consume(ctx, p)
}

// newPartition returns what a consumer gets: it continues from the checkpoint, or begins where the plan says.
func (h *hub) newPartition(ctx context.Context, id string, log *zap.Logger) (*partition, error) {
	start, startsOver := h.plan.positions[id]
	if !startsOver {
		start = h.plan.others
	}
	p := &partition{
		id:      id,
		hub:     h,
		log:     log,
		want:    make(chan struct{}, 1),
		batches: make(chan []telemetry.Event, 1),
		cursor:  cursorAt(start),
	}

	c, err := h.checkpoints.read(ctx, id)
	switch {
	case err != nil:
		return nil, err

	case c.etag == "":
		p.over = startsOver

	case h.checkpoints.ofOtherHub(id, c):
		p.over = true
		if !startsOver { // it was written since, by who may know the hub that has replaced ours
			if _, err := h.check(ctx, toRead); err != nil {
				return nil, err
			}
			p.cursor.start = Start{Earliest: true}
		}

	default:
		p.written = &c
		p.cursor = cursorAfter(c.Position)
		p.resumed = c.Checkpoint
		end, known := h.plan.ends[id]
		p.confirmed = known && c.Sequence <= end.LastEnqueuedSequenceNumber
	}

	p.resumed.Generation = h.generation // another tool does not write one
	if p.over {
		h.source.add(&h.source.stats.StartedOver, 1)
	}

	return p, nil
}

// read returns the partitions that have a consumer.
func (h *hub) read() map[string]*partition {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]*partition{}
	for id, r := range h.held {
		if p := r.partition.Load(); p != nil {
			all[id] = p
		}
	}

	return all
}

// suspect makes watch check the hub soon.
func (h *hub) suspect() {
	select {
	case h.suspected <- struct{}{}:
	default:
	}
}

// resolveEvery is how often an IoT Hub is asked where its events are, in checks of the hub.
const resolveEvery = 20

// watch checks the hub at every checkInterval, soon after something has failed, and again until the hub answers, until
// ctx ends. It asks where the partitions read here end; if it has more than 300, at some of the checks.
func (h *hub) watch(ctx context.Context) {
	s := h.source
	tick := time.NewTicker(s.checkInterval)
	defer tick.Stop()

	var asked time.Time // about the partitions
	unanswered := 0
	for n := 1; ctx.Err() == nil; n++ {
		suspected := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-h.suspected:
			suspected = true
		}

		if (suspected || n%resolveEvery == 0) && s.resolve(ctx) {
			h.replace(errors.New("the hub has moved"))
			return
		}

		var about []*partition
		if time.Since(asked) >= shownAfter(int(h.partitions.Load())) {
			about, asked = slices.Collect(maps.Values(h.read())), time.Now()
		}

		unanswered++
		if state, err := h.check(ctx, toShow, about...); err != nil {
			h.suspect()
		} else {
			unanswered = 0
			last := map[string]int64{}
			for id, end := range state.ends {
				last[id] = end.LastEnqueuedSequenceNumber
			}
			s.record(len(state.partitions), last)
		}

		if suspected { // about as often as owners are listed
			backoff.Sleep(ctx, backoff.Delay(unanswered+1, s.config.BalanceInterval, openMax))
		}
	}
}

// RecordEnds has record called about every 15 s with how many partitions the hub has, and with the last sequence number of
// each of those that are read, none of which is before what was read when the hub was asked. On a hub of more than 300
// partitions it takes longer: all replicas may ask about 20 of them a second. While the hub does not answer record is not
// called. Call RecordEnds before Run.
func (s *Source) RecordEnds(record func(partitions int, last map[string]int64)) { s.record = record }

// check asks the hub about itself and some of its partitions. If it says twice that it is not the one that is read, it is
// replaced. check returns why, which is not errAnotherHub if the hub does not say what it is. It takes notice of new
// partitions and of links on which nothing comes.
func (h *hub) check(ctx context.Context, u urgency, partitions ...*partition) (hubState, error) {
	about, before := map[string]*partition{}, map[string]int64{}
	for _, p := range partitions {
		about[p.id] = p
		if sequence, ok := p.position(); ok {
			before[p.id] = sequence
		}
	}

	since := func(id string) (at time.Time) {
		if about[id] != nil {
			at = time.Now()
		}
		return at
	}
	state, err := h.source.query(ctx, u, since)
	if err == nil && h.another(state, before) != nil {
		backoff.Sleep(ctx, h.source.secondThought) // the answer may have been stale: one proves nothing
		state, err = h.source.query(ctx, u, since)
	}
	if err != nil {
		return hubState{}, err
	}

	if err := h.another(state, before); err != nil {
		h.replace(err)
		return hubState{}, err
	}

	now := int64(len(state.partitions))
	if before := h.partitions.Swap(now); now > before {
		h.source.log.Warn("the hub has more partitions", zap.Int64("partitions", now), zap.Int64("before", before))
		h.member.SetPartitions(state.partitions)
	}

	for id, end := range state.ends {
		about[id].compare(end)
	}

	return state, nil
}

// another returns why a hub of this state is not the one that is read, nil if it is. read has the numbers that its
// partitions had come to.
func (h *hub) another(state hubState, read map[string]int64) error {
	if state.generation != h.generation {
		return fmt.Errorf("%w: it was recreated at %v", errAnotherHub, state.created)
	}

	for id, sequence := range read {
		end, ok := state.ends[id]
		if last := end.LastEnqueuedSequenceNumber; ok && last < sequence {
			const text = "%w: partition %s ends at %d and was read up to %d"
			return fmt.Errorf(text, errAnotherHub, id, last, sequence)
		}
	}

	return nil
}
