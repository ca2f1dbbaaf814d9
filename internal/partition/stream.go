package partition

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/silence"
	"alertworker/internal/telemetry"
)

// A Stream is one partition while this replica owns it.
type Stream struct {
	Config
	id        string
	partition telemetry.Partition // nil for a Backtest
	log       *zap.Logger
	out       Outgoing                                // who brings notices to receivers
	box       *delivery.Outbox                        // the same, unless it is a Backtest: nil then
	watcher   func(key alarmKey, was, is rules.State) // of alarms that become others; nil: nobody watches
	room      chan struct{}                           // signals that something was settled, or the ledger written
	progress  chan struct{}                           // signals that many events were read
	caughtUp  chan struct{}                           // signals, while behind, that events were read
	hurry     chan struct{}                           // signals that somebody waits for the ledger to be written
	work      sync.WaitGroup                          // what keeps malformed events, and commit
	lastRead  telemetry.Position
	found     []telemetry.Found // in the event being taken, reused
	seen      *Seen
	started   time.Time
	ledger    *ledger.Ledger     // nil if no rule has state, and none had
	skip      telemetry.Position // events up to here were settled by the last owner: its ledger says so
	replay    telemetry.Position // events up to here are read only to know who was heard
	since     time.Time          // the take-over of the ledger
	logName   string             // of the partition: see logName
	unheard   *silence.Watch     // nil if no rule is about silence

	ctx  context.Context
	stop context.CancelCauseFunc // ends ctx
	send context.Context         // of attempts and of what settles: it outlives ctx, until cut is called
	cut  context.CancelFunc

	mu         sync.Mutex
	mark       watermark
	alarms     *alarms // nil without a ledger
	behind     bool    // what the hub held at the take-over has not been read: no recovery starts
	ledgers    LedgerState
	removed    []*level           // that are not configured any more, and had alarms at the take-over
	forgotten  []ledger.Forgotten // devices that operators have removed
	forgetting []forgetting       // those of them that the ledger in the store does not name yet
	rereading  map[string]int64   // those of whom a former owner had read more: see forgetAgain
	opened     []opened           // silences that the ledger in the store does not hold yet
	question   *ownerCheck        // to the ledger, that has not been asked yet
	asking     bool               // a question has been asked and not been answered
	askOwnerAt time.Duration      // when the ledger may be asked again, by now; 0 unless it did not answer
	malformed  int                // malformed events being kept
	sinceMark  int                // events since progress was signalled
	first      int64              // sequence number of the first event read
	readUntil  time.Time          // when the last event read was enqueued
	begun      telemetry.Position // where reading began at the take-over
	committed  telemetry.Position // the last checkpoint; checkpoint calls come one at a time

	told    []order    // what out is to be told, in this order: see handOver
	spare   []order    // for the next of told
	telling bool       // somebody is in handOver
	heard   *sync.Cond // that nobody is any more
}

// New returns the stream of p, which belongs to this replica until ctx ends. It is to be run, once.
func New(ctx context.Context, c Config, p telemetry.Partition) *Stream {
	resumed, _ := p.Resumed()
	s := newStream(ctx, c, p.ID(), logName(resumed.Generation, p.ID()))
	s.partition = p
	s.connect()

	return s
}

// newStream returns the stream of a partition. It must be drained after ctx has ended.
func newStream(ctx context.Context, c Config, id, logName string) *Stream {
	s := &Stream{
		Config:   c,
		id:       id,
		logName:  logName,
		log:      c.Log.With(zap.String("partition", id)),
		room:     make(chan struct{}, 1),
		progress: make(chan struct{}, 1),
		caughtUp: make(chan struct{}, 1),
		hurry:    make(chan struct{}, 1),
		seen:     NewSeen(time.Now()),
		found:    make([]telemetry.Found, c.fields),
		started:  time.Now(),
	}
	s.heard = sync.NewCond(&s.mu)
	s.ctx, s.stop = context.WithCancelCause(ctx)
	s.send, s.cut = context.WithCancel(context.WithoutCancel(ctx))
	s.unheard = newWatch(s)

	return s
}

// connect has s's notices go to the receivers.
func (s *Stream) connect() {
	s.box = s.Dispatcher.Open(s.ctx, s.send, delivery.Account{
		Owner:   s,
		Name:    s.id,
		IDs:     s.IDs(s.id),
		Log:     s.logName,
		FromHub: true,
		Logger:  s.log,
	})
	s.out = s.box
}

// Run processes the partition until the context of New ends or the partition fails. When it returns, none of its
// goroutines runs: attempts under way get DrainTimeout from that end, and then the time to settle. What is settled by
// then is checkpointed, if this replica still owns the partition.
func (s *Stream) Run() error {
	resumed, _ := s.partition.Resumed()
	begun := !s.stateful && resumed.Ledger == "" || s.takeOver()
	var err error
	if begun {
		s.work.Go(func() { s.commit(s.ctx) })
		err = s.read(s.ctx)
	}

	s.stop(err)
	s.drain()
	if errors.Is(context.Cause(s.ctx), telemetry.ErrLost) || !begun {
		return nil // the next owner continues from our last checkpoint
	}

	last, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), checkpointTimeout+ledgerTimeout)
	defer cancel()
	if commitErr := s.checkpoint(last, true, true); commitErr != nil {
		err = errors.Join(err, commitErr)
	}

	return err
}

// now is the time since s was created, by the monotonic clock.
func (s *Stream) now() time.Duration { return time.Since(s.started) }

// Outgoing brings notices to receivers: see delivery.Outbox.
type Outgoing interface {
	Alert(*delivery.Alert, delivery.Details) []*delivery.Ticket
	Give(delivery.Key, *delivery.Notice)
	Withdraw(delivery.Key, *delivery.Notice)
}

// An order is what is to be told to whoever brings notices to receivers: of an alert, or of a notice that is due, or
// not any more.
type order struct {
	key            delivery.Key
	give, withdraw *delivery.Notice
	alert          Alert
}

// tell does what o says.
func (o *order) tell(out Outgoing) {
	switch {
	case o.give != nil:
		out.Give(o.key, o.give)
	case o.withdraw != nil:
		out.Withdraw(o.key, o.withdraw)
	default:
		out.Alert(&o.alert.Alert, &o.alert)
	}
}

// handOver tells out what it is to be told so far, in the order in which it was decided. It is called without a lock.
// The watermark does not pass what has not been handed over.
func (s *Stream) handOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.telling {
		s.heard.Wait()
	}

	orders, upTo := s.told, s.mark.last
	if len(orders) > 0 {
		s.told, s.telling = s.spare, true
		s.mu.Unlock()
		for i := range orders {
			orders[i].tell(s.out)
		}

		clear(orders)
		s.mu.Lock()
		s.spare, s.telling = orders[:0], false
		s.heard.Broadcast()
	}

	s.mark.told = upTo
}

// lose ends the stream because another replica owns the partition.
func (s *Stream) lose() { s.stop(telemetry.ErrLost) }

// drain ends s.ctx, drops the deliveries that wait and waits for the attempts under way, which
// it cancels after DrainTimeout. Nothing may be admitted any more.
func (s *Stream) drain() {
	s.stop(nil)
	s.box.Close()
	late := time.AfterFunc(s.DrainTimeout, s.cut)
	s.box.Wait()
	s.work.Wait()
	late.Stop()
	s.cut()
}

// read takes events from the partition until ctx ends or Receive fails.
func (s *Stream) read(ctx context.Context) error {
	for {
		if err := s.waitForRoom(ctx); err != nil {
			return nil
		}

		events, err := s.partition.Receive(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read partition %s: %w", s.id, err)
		}

		s.take(events)
	}
}

// take decodes events in order and decides about those that may matter to a rule. This is the hot
// path.
func (s *Stream) take(events []telemetry.Event) {
	var n [telemetry.ReasonCount]int64
	over := int64(0)
	at := s.lastRead
	now := time.Now().UnixMicro()
	s.seen.mu.Lock()
	if s.unheard != nil {
		s.unheard.Lock()
	}

	for i := range events {
		e := &events[i]
		reason, hash := s.Decoder.DecodeAll(e, s.found), roster.Hash(e.Device)

		if s.unheard != nil {
			s.hear(e, hash, reason)
			if e.NotAfter(s.replay) {
				at = e.Position
				continue
			}
		}

		n[reason]++
		o := s.seen.add(e, hash, reason, s.found, now)
		switch {
		case reason == telemetry.ReasonOK && s.mayMatter(e, hash, s.found, o):
			if e.NotAfter(s.skip) {
				break
			}
			if s.evaluate(at, e, s.found, o) {
				over++
			}

		case reason > telemetry.ReasonNotTelemetry:
			s.malformedEvent(at, e, reason)
		}

		at = e.Position
	}

	if s.unheard != nil {
		s.unheard.Unlock()
	}

	s.lastRead = at
	s.advance(events[0].Sequence, at, events[len(events)-1].Enqueued, len(events))
	s.seen.mu.Unlock()
	s.handOver()
	s.Counters.read(&n, over)
}

// logName returns a short name for the log of one partition of one generation of a hub: that of the generation, and
// the partition. Sequence numbers are compared within one log.
func logName(generation, partition string) string {
	sum := sha256.Sum256([]byte(generation))
	return base64.RawURLEncoding.EncodeToString(sum[:9]) + "/" + partition
}

// A Scattered is a device that sends to more than one partition of a hub.
type Scattered struct {
	Device     string
	Partitions [2]string
}

func (d Scattered) String() string {
	return fmt.Sprintf(
		"device %q is in the partitions %s and %s: durations, recoveries and silence need all of its readings in one; "+
			"read the IoT Hub's own endpoint, or have senders use the device as the partition key",
		d.Device,
		d.Partitions[0],
		d.Partitions[1],
	)
}

// malformedEvent logs e and keeps it, if that is configured. before is the position of
// the event before e.
func (s *Stream) malformedEvent(before telemetry.Position, e *telemetry.Event, reason telemetry.Reason) {
	if line := s.log.Check(zap.DebugLevel, "event without a reading"); line != nil {
		detail := zap.Skip()
		if e.Undecodable != "" {
			detail = zap.String("detail", e.Undecodable)
		}
		line.Write(zap.Int64("sequence", e.Sequence), zap.String("device", e.Device), zap.Stringer("reason", reason), detail)
	}

	if s.Malformed != nil {
		s.keepMalformed(before, *e, reason)
	}
}

// keepMalformed starts to keep a malformed event, which holds the watermark until it
// is kept. With too many of them under way the event is only counted. before is the
// position of the event before e.
func (s *Stream) keepMalformed(before telemetry.Position, e telemetry.Event, reason telemetry.Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.malformed >= maxMalformed {
		s.warn("too many malformed events are waiting to be kept; further ones are only counted", nil)
		return
	}

	s.malformed++
	e.Body, e.Properties = bytes.Clone(e.Body), bytes.Clone(e.Properties)
	held := &delivery.Hold{}
	s.mark.held.Add(held, placeOf(before), micros(e.Enqueued))
	s.work.Go(func() {
		for n := 1; ; n++ {
			err := s.Malformed.KeepMalformed(s.send, telemetry.MalformedEvent{Partition: s.id, Reason: reason, Event: e})
			if err == nil {
				break
			}

			s.warn("cannot keep a malformed event; it stays unsettled", err)
			if !backoff.Sleep(s.ctx, backoff.Delay(n, minBackoff, maxBackoff)) {
				return
			}
		}

		s.mu.Lock()
		defer s.mu.Unlock()
		s.malformed--
		s.mark.held.Release(held)
		signal(s.room)
	})
}

// advance records that events from sequence number first up to p have been settled or
// admitted.
func (s *Stream) advance(first int64, p telemetry.Position, enqueued time.Time, events int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readUntil.IsZero() {
		s.first = first
	}

	s.mark.read(p)
	if s.readUntil = enqueued; s.behind {
		signal(s.caughtUp)
	}

	if s.sinceMark += events; s.sinceMark >= checkpointEvery {
		s.sinceMark = 0
		signal(s.progress)
	}
}

// warn logs what may affect every partition at the same time, at most every 10 s.
func (s *Stream) warn(msg string, err error) { s.Dispatcher.Warn(s.log, msg, err) }

// signal sends to c unless a signal is pending. It never blocks.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// full reports whether so many deliveries to one receiver are unsettled, dead letters
// included, or the ledger is so far behind, that no event may be read.
func (s *Stream) full() bool {
	s.mu.Lock()
	behind := s.alarms != nil && s.alarms.history.full()
	s.mu.Unlock()
	return behind || s.box.Full()
}

// settled returns the watermark.
func (s *Stream) settled() telemetry.Position {
	s.mu.Lock()
	mark, at := s.mark, s.mark.position()
	s.mu.Unlock()
	// What was read up to mark.last has been handed over: it is settled, or holds the watermark here.
	if n, before, _ := s.box.Unsettled(); n > 0 {
		if held := mark.before(before); held.Offset == "" || held.NotAfter(at) {
			return held
		}
	}

	return at
}

// waitForRoom waits until s is not full. It returns ctx's error once ctx has ended.
func (s *Stream) waitForRoom(ctx context.Context) error {
	for {
		if !s.full() {
			return ctx.Err()
		}

		select {
		case <-s.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// commit moves the checkpoint up to the watermark, by time and by number of events,
// until ctx ends.
func (s *Stream) commit(ctx context.Context) {
	tick := time.NewTicker(s.CheckpointInterval)
	defer tick.Stop()
	failing := false
	for {
		due := false

		select {
		case <-tick.C:
			due = true
			s.endRemoved()
			s.endReread()
			s.watch()

		case <-s.progress:

		case <-s.hurry:
			due = true

		case <-ctx.Done():
			return
		}

		err := s.checkpoint(ctx, due, false)
		if err != nil && ctx.Err() == nil && !failing {
			s.log.Warn("checkpoint failed; retrying", zap.Error(err))
		}

		failing = err != nil
	}
}

// checkpoint writes the watermark as the checkpoint if it has moved; before that, if
// ledger is true, the ledger if alarms have changed, and the roster if it is time for that, or the last
// time. A lost partition is not an error.
func (s *Stream) checkpoint(ctx context.Context, ledger, last bool) error {
	if s.ledger != nil && ledger {
		switch err := s.writeLedger(ctx); {
		case errors.Is(err, telemetry.ErrLost):
			return nil
		case err != nil:
			return err
		}
	}

	if err := s.writeRoster(ctx, last); err != nil {
		return err
	}

	c := telemetry.Checkpoint{Position: s.settled()}
	s.mu.Lock()
	committed := s.committed
	if s.ledger != nil {
		c.Position = s.alarms.history.safe(c.Position)
	}

	if s.ledger != nil && (s.stateful || !s.alarms.history.empty()) {
		c.Ledger = s.ledger.ID()
	}

	s.mu.Unlock()
	p := c.Position
	if p == committed || p == (telemetry.Position{}) {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, checkpointTimeout)
	defer cancel()
	if err := s.partition.Checkpoint(ctx, c); err != nil && !errors.Is(err, telemetry.ErrLost) {
		return fmt.Errorf("checkpoint partition %s at sequence %d: %w", s.id, p.Sequence, err)
	}

	s.mu.Lock()
	s.committed = p
	s.mu.Unlock()

	return nil
}

// State returns the progress of s.
func (s *Stream) State() State {
	known := 0
	if s.unheard != nil {
		s.unheard.View(func(r *roster.Roster) { known = r.Len() })
	}

	p := State{
		Partition:  s.id,
		Settled:    s.settled(),
		Delivering: s.box.Len(),
		Known:      known,
	}

	var oldest int64
	p.Unsettled, _, oldest = s.box.Unsettled()
	s.mu.Lock()
	defer s.mu.Unlock()

	if n := s.mark.held.Len(); n > 0 {
		_, enqueued := s.mark.held.First()
		if p.Unsettled == 0 || enqueued < oldest {
			oldest = enqueued
		}
		p.Unsettled += n
	}

	p.Oldest = fromMicros0(oldest)
	p.First = s.first
	p.ReadUntil = s.readUntil
	p.Committed = s.committed
	if !s.readUntil.IsZero() { // else mark.last is where reading begins
		p.Read = s.mark.last
	}

	p.Ledger = s.ledgers

	if s.alarms != nil {
		p.Ledger.Position = s.alarms.history.position.Sequence
		for _, n := range s.alarms.total {
			p.Ledger.Alarms += n
		}
	}

	return p
}
