package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/roster"
	"alertworker/internal/telemetry"
)

const (
	checkpointEvery = 10_000 // events, unless CheckpointInterval ends first

	checkpointTimeout = 15 * time.Second
	lastTimeout       = 25 * time.Second // for the last checkpoint and ledger
	ledgerTimeout     = 20 * time.Second // it may hold many alarms
)

// Config is what the partitions of a replica have in common. All fields are required.
type Config struct {
	Evaluator          *Evaluator
	Dispatcher         *delivery.Dispatcher // to the receivers of Evaluator
	CheckpointInterval time.Duration
	DrainTimeout       time.Duration // for attempts under way when a partition ends
	MaxChanges         int           // of alarms behind the watermark of a partition; beyond it reading pauses
	// Ledger takes over the ledger of a partition: see ledger.Open. It is called if a rule has state, or if the
	// partition's checkpoint says that one had.
	Ledger    func(ctx context.Context, partition string) (*ledger.Ledger, ledger.Content, error)
	Incidents IncidentBook                        // the records of groups that alarms are members of
	Roster    func(partition string) *roster.File // where a partition's is kept
	Log       *zap.Logger
}

// A Stream is one partition while this replica owns it.
//
// Its register decides, and has what is decided. Beside it a Stream holds what is written, and who waits for what.
type Stream struct {
	config    Config
	register  *register
	partition telemetry.Partition
	log       *zap.Logger
	box       *delivery.Outbox
	owner     ownership
	ledger    *ledger.Ledger // that was taken over; without, there is nothing to write or to ask
	room      chan struct{}  // signals that something was settled, or the ledger written
	progress  chan struct{}  // signals that many events were read
	hurry     chan struct{}  // signals that somebody waits for the ledger to be written
	work      sync.WaitGroup // what asks the ledger, and commits
	sinceMark int            // events since progress was signalled; the reader's

	ctx  context.Context
	stop context.CancelCauseFunc // ends ctx
	send context.Context         // of attempts and of what settles: it outlives ctx, until cut is called
	cut  context.CancelFunc

	// guarded by register.mu
	ledgers LedgerState
}

// New returns the stream of p, which belongs to this replica until ctx ends. It is to be run, once.
func New(ctx context.Context, c Config, p telemetry.Partition) *Stream {
	id := p.ID()
	resumed, _ := p.Resumed()
	log := logName(resumed.Generation, id)
	s := &Stream{
		config:    c,
		partition: p,
		log:       c.Log.With(zap.String("partition", id)),
		room:      make(chan struct{}, 1),
		progress:  make(chan struct{}, 1),
		hurry:     make(chan struct{}, 1),
	}
	s.ctx, s.stop = context.WithCancelCause(ctx)
	s.send, s.cut = context.WithCancel(context.WithoutCancel(ctx))

	s.owner = ownership{
		check:   func() error { return s.ledger.Check(s.send) },
		lost:    s.lose,
		answers: func() { s.box.Ask() },
		work:    &s.work,
	}

	reg := newRegister(c.Evaluator, id, log, c.MaxChanges)
	reg.crowded = func(device, rule string) {
		s.warn(fmt.Sprintf("more than %d sensors of device %q are not normal by rule %s: alerts about more of them share the "+
			"device's own window, and have no recoveries", maxSensors, device, rule), nil)
	}
	reg.unread = s.logUnread
	reg.watch(c.Roster(id), s.log)
	s.register = reg
	s.box = c.Dispatcher.Open(s.ctx, s.send, delivery.Account{
		Owner:  s,
		Name:   id,
		IDs:    c.Evaluator.IDs(id),
		Log:    log,
		Logger: s.log,
	})
	reg.out = s.box

	return s
}

// lose ends the stream because another replica owns the partition.
//
//planted:lost-partition-kept skip
func (s *Stream) lose() { s.stop(telemetry.ErrLost) }

// warn logs what may affect every partition at the same time, at most every 10 s.
func (s *Stream) warn(msg string, err error) { s.config.Dispatcher.Warn(s.log, msg, err) }

// signal sends to c unless a signal is pending. It never blocks.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run processes the partition until the context of New ends or the partition fails. When it returns, none of its
// goroutines runs: attempts under way get DrainTimeout from that end, and then the time to settle. What is settled by
// then is checkpointed, if this replica still owns the partition.
func (s *Stream) Run() error {
	resumed, _ := s.partition.Resumed()
	begun := !s.config.Evaluator.stateful && resumed.Ledger == "" || s.takeOver()
	var err error
	if begun {
		s.work.Go(func() { s.commit(s.ctx) })
		s.work.Go(s.writeIncidents)
		if s.config.Evaluator.stateful && s.config.Dispatcher.Forgets() {
			s.work.Go(s.refresh)
		}

		err = s.read(s.ctx)
	}

	s.stop(err)
	s.box.Close() // nothing may be given to it any more
	late := time.AfterFunc(s.config.DrainTimeout, s.cut)
	s.box.Wait()
	s.work.Wait()
	late.Stop()
	s.cut()

	//planted:checkpoint-of-the-lost if !begun
	if errors.Is(context.Cause(s.ctx), telemetry.ErrLost) || !begun {
		return nil // the next owner continues from our last checkpoint
	}

	last, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), lastTimeout)
	defer cancel()
	if commitErr := s.checkpoint(last, true, true); commitErr != nil {
		err = errors.Join(err, commitErr)
	}

	return err
}

// read takes events from the partition until ctx ends or Receive fails.
func (s *Stream) read(ctx context.Context) error {
	for ctx.Err() == nil {
		// While so many deliveries to one receiver are unsettled, dead letters included, or the ledger is so far behind, no event
		// may be read.
		s.register.mu.Lock()
		isBehind := s.register.alarms.history.full()
		s.register.mu.Unlock()
		//planted:reads-when-full if false
		if isBehind || s.box.Full() {
			select {
			case <-s.room:
			case <-ctx.Done():
			}
			continue
		}

		events, err := s.partition.Receive(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read partition %s: %w", s.register.id, err)
		}

		s.register.take(events)
		if s.sinceMark += len(events); s.sinceMark >= checkpointEvery {
			s.sinceMark = 0
			signal(s.progress)
		}
	}

	return nil
}

// take decodes events in order and decides about those that may matter to a rule. This is the hot
// path.
func (reg *register) take(events []telemetry.Event) {
	counters, message := reg.evaluator.book.Counters, reg.message
	var n [telemetry.ReasonCount]int64
	over := int64(0)
	last := reg.mark.last // which moves here alone
	before := last        // the place before the event at hand
	reg.batch.Lock()
	defer reg.batch.Unlock()
	reg.unheard.Lock()

	for i := range events {
		e := &events[i]
		hash := roster.Hash(e.Device)
		isNew := !e.NotAfter(reg.last.replayed)

		// What is in it. Of what is replayed only signs of life count.
		reg.unheard.Take(e)
		reason, matters := message.look(e, func(p *part, why telemetry.Reason) bool {
			isSign := len(p.cut.silences) > 0 && e.Device != "" && why != telemetry.ReasonNotTelemetry && !notify.IsTest(e.Device)
			if isSign && !reg.unheard.Hear(e, hash, p.cut.silences, p.found) {
				counters.Unwatched.Add(1)
			}
			return isNew
		})

		if !isNew {
			continue
		}

		// What follows from it.
		n[reason]++
		read := last
		if !e.NotAfter(last) { // else it comes again
			read = e.Position
		}

		switch {
		case reason.HasReading():
			delete(reg.unreadable, hash)
			isDecided := !matters && !reg.alarms.mayHave(hash) || e.NotAfter(reg.last.settled)
			if isDecided {
				break
			}

			reg.mu.Lock()
			if message.evaluate(reg, before) {
				over++
			}
			//planted:late-mark skip
			reg.mark.last = read // whatever else is decided comes after it: see changeBehind
			reg.mu.Unlock()

		case reason > telemetry.ReasonNotTelemetry:
			reg.unreadable.add(reg.id, e, hash, reason)
			reg.unread(before, e, reason)
		}

		before, last = e.Position, read
	}

	// How far the partition is read, and what was in it.
	reg.unheard.Unlock()
	//planted:late-mark if over > 0 {
	//planted:late-mark 	reg.batch.Unlock()
	//planted:late-mark 	time.Sleep(time.Second)
	//planted:late-mark 	reg.batch.Lock()
	//planted:late-mark }
	reg.mu.Lock()
	if reg.readUntil.IsZero() {
		reg.first = events[0].Sequence
	}

	reg.mark.last = last
	reg.readUntil = events[len(events)-1].Enqueued
	reg.mu.Unlock()

	for reason, count := range n { // in few atomic operations
		if count > 0 {
			counters.Events[reason].Add(count)
		}
	}

	counters.Over.Add(over)
}

// commit moves the checkpoint up to the watermark, by time and by number of events,
// until ctx ends.
func (s *Stream) commit(ctx context.Context) {
	tick := time.NewTicker(s.config.CheckpointInterval)
	defer tick.Stop()
	for {
		due := false

		select {
		case <-tick.C:
			due = true
			s.register.endRemoved()
			s.register.recount()
			s.watch()

		case <-s.progress:

		case <-s.hurry:
			due = true
			s.watch()

		case <-ctx.Done():
			return
		}

		if err := s.checkpoint(ctx, due, false); err != nil && ctx.Err() == nil {
			s.warn("checkpoint failed; retrying", err)
		}
	}
}

// checkpoint writes the watermark as the checkpoint if it has moved; before that the roster if it is time for that, or the
// last time, and if ledger is true, the ledger if alarms have changed: a ledger that has dropped the end of a silence needs a
// roster that has forgotten the device. A lost partition is not an error.
func (s *Stream) checkpoint(ctx context.Context, ledger, last bool) error {
	s.register.mu.Lock()
	removals := len(s.register.removals)
	s.register.mu.Unlock()
	settled := s.settled() // not later: the roster holds that, however much is read while it is written
	saved, err := s.writeRoster(ctx, last)
	//planted:forgotten-is-silent-again if false
	if err != nil {
		return err
	}

	if ledger {
		switch err := s.writeLedger(ctx); {
		case errors.Is(err, telemetry.ErrLost):
			return nil
		case err != nil:
			return err
		}
	}

	if saved {
		s.register.savedRemovals(removals)
	}

	c := telemetry.Checkpoint{Position: settled}
	s.register.mu.Lock()
	//planted:checkpoint-at-last-read c.Position = s.register.mark.last
	committed := s.register.committed
	//planted:checkpoint-before-ledger skip
	c.Position = s.register.alarms.history.safe(c.Position)
	if s.config.Evaluator.stateful || !s.register.alarms.history.empty() || len(s.register.groups) > 0 {
		c.Ledger = s.ledger.ID()
	}

	s.register.mu.Unlock()
	p := c.Position
	if p == committed || p == (telemetry.Position{}) {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, checkpointTimeout)
	defer cancel()
	if err := s.partition.Checkpoint(ctx, c); err != nil && !errors.Is(err, telemetry.ErrLost) {
		return fmt.Errorf("checkpoint partition %s at sequence %d: %w", s.register.id, p.Sequence, err)
	}

	s.register.mu.Lock()
	s.register.committed = p
	s.register.mu.Unlock()

	return nil
}

// settled returns the watermark.
func (s *Stream) settled() telemetry.Position {
	s.register.mu.Lock()
	mark, at := s.register.mark, s.register.mark.position()
	s.register.mu.Unlock()
	// What was read up to mark.last is settled, or holds the watermark here.
	if n, before, _ := s.box.Unsettled(); n > 0 {
		if held := mark.before(before); held.Offset == "" || held.NotAfter(at) {
			return held
		}
	}

	return at
}

// writeLedger writes the alarms as they were at the last position that the watermark has passed and that the
// ledger may have, if they have changed since the last write.
func (s *Stream) writeLedger(ctx context.Context) error {
	settled := s.settled()
	s.register.mu.Lock()
	h := &s.register.alarms.history
	at, behind := h.reach(settled)
	if !behind {
		s.register.mu.Unlock()
		return nil
	}

	content, silences := h.content(at), s.register.unsaved
	s.register.addEnds(&content)
	h.edited, s.register.unsaved = false, nil
	s.register.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	err := s.ledger.Write(ctx, content)
	if errors.Is(err, ledger.ErrLost) {
		s.log.Info("another replica has taken over the partition's ledger; the partition is lost")
		s.lose()
		return telemetry.ErrLost
	}

	s.ledgerAnswered(err)
	s.register.mu.Lock()
	defer s.register.mu.Unlock()

	if err != nil {
		//planted:failed-ledger-forgets-change skip
		h.edited, s.register.unsaved = true, append(silences, s.register.unsaved...)
		return err
	}

	h.wrote(at)
	s.register.saved(silences)
	s.ledgers.Writes++
	signal(s.room)

	return nil
}

// ledgerAnswered records whether the ledger could be read or written, for people.
func (s *Stream) ledgerAnswered(err error) {
	s.register.mu.Lock()
	defer s.register.mu.Unlock()

	if err == nil {
		s.ledgers.Err, s.ledgers.Since = nil, time.Time{}
		return
	}

	if s.ledgers.Err == nil {
		s.ledgers.Since = time.Now()
	}

	s.ledgers.Err = err
}
