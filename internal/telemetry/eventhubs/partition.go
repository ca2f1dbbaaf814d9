package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/telemetry"
)

const (
	openMin = 500 * time.Millisecond // the pause after a link has failed, doubled up to openMax
	openMax = time.Minute
)

// A partition is a [telemetry.Partition], for one consumer. A goroutine of its own, in read,
// opens its link again whenever that fails; the consumer only waits.
type partition struct {
	id  string
	hub *hub
	log *zap.Logger

	// held ends, with the cause ErrLost, when this replica no longer owns the partition.
	held context.Context

	resumed telemetry.Checkpoint // only a Generation if there was none
	over    bool                 // there was one, of another hub or unreadable
	start   azeventhubs.StartPosition
	begin   *telemetry.Position // to be read after instead; nil unless Rewind was called
	begun   chan struct{}       // closed by the first Receive

	want    chan struct{}                            // Receive wants events
	batches chan [2][]*azeventhubs.ReceivedEventData // what it gets for that

	// Used by read alone.
	wanted   bool   // and they were not sent yet
	received *int64 // the sequence number of the last event that azeventhubs returned
	refused  int    // positions in a row that the hub has refused
	stolen   time.Time

	// Used by Receive alone.
	started   bool // begun is closed
	asked     bool // for events that have not come yet
	events    []telemetry.Event
	texts     texts
	fresh     bool      // nothing has come since last, which is the checkpoint
	unproven  int64     // undecodable messages that have come since last
	gapLogged time.Time // when a gap was last logged
	second    time.Time // in which lines about undecodable messages were logged
	lines     int

	mu      sync.Mutex
	last    *telemetry.Position // the last decodable event that came, or else the checkpoint; nil if there is neither
	written *StoredCheckpoint   // the checkpoint as last seen in the store; nil if it is not known
	link    *link               // nil while there is none
	open    bool                // link is attached
	changed time.Time           // when open or the last event last changed
	turned  time.Time           // when open last changed
	fault   telemetry.Fault     // why link is not attached; zero if it is
	ahead   int64               // what the hub was ahead at when it was last asked and nothing had come; -1 if it was not
}

func (p *partition) ID() string { return p.id }

func (p *partition) Resumed() (telemetry.Checkpoint, bool) { return p.resumed, p.over }

// Last implements [telemetry.Partition].
func (p *partition) Last(ctx context.Context) (int64, time.Time, error) {
	state, err := p.hub.source.query(ctx, func(id string) bool { return id == p.id })
	end, ok := state.ends[p.id]
	if err == nil && (!ok || state.generation() != p.hub.generation) {
		err = errAnotherHub
	}
	return end.LastEnqueuedSequenceNumber, end.LastEnqueuedOn, err
}

// Receive implements [telemetry.Partition]. It gets what had come when it was called, or else the
// next event and what came with it.
func (p *partition) Receive(ctx context.Context) ([]telemetry.Event, error) {
	if !p.started {
		p.started = true
		p.mu.Lock()
		p.changed, p.turned = time.Now(), time.Now()
		p.mu.Unlock()
		close(p.begun)
	}
	clear(p.events) // the caller no longer uses them
	if !p.asked {
		p.asked = true
		p.want <- struct{}{}
	}
	select {
	case batch := <-p.batches:
		p.asked = false
		p.events = appendEvents(appendEvents(p.events[:0], batch[0], &p.texts), batch[1], &p.texts)
	case <-p.held.Done():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p.held.Err() != nil {
		return nil, fmt.Errorf("receive from partition %s of %s: %w", p.id, p.hub.at.hub, telemetry.ErrLost)
	}
	p.follow(p.events)
	for i := range p.events {
		if e := &p.events[i]; e.Undecodable != "" {
			p.warn(e)
		}
	}
	return p.events, nil
}

// Rewind implements [telemetry.Partition].
func (p *partition) Rewind(at telemetry.Position) { p.begin = &at }

// read keeps a link open, from the first Receive on, until ctx ends.
func (p *partition) read(ctx context.Context) {
	select {
	case <-p.begun:
	case <-ctx.Done():
		return
	}
	for failures := 1; p.awaitHeld(ctx); failures++ {
		opened, err := p.readLink(ctx)
		if ctx.Err() != nil {
			return
		}
		if opened {
			failures = 1
		}
		if busy(err) {
			p.stolen = time.Now()
		}
		p.failed(err)
		p.hub.suspect()
		if positionRefused(err) {
			p.refuse(ctx, err)
		}
		backoff.Sleep(ctx, backoff.Delay(failures, openMin, openMax))
	}
}

// awaitHeld waits until this replica certainly owns the partition: its heartbeat is in time, and
// if another reader took the link, the owners have been listed since. It returns false if ctx
// ends first.
func (p *partition) awaitHeld(ctx context.Context) bool {
	for !p.hub.member.Holds(p.id, p.stolen) {
		if !backoff.Sleep(ctx, p.hub.source.config.BalanceInterval/10) {
			return false
		}
	}
	return ctx.Err() == nil
}

// readLink opens a link and hands out what comes on it until it fails or ctx ends.
func (p *partition) readLink(ctx context.Context) (opened bool, err error) {
	h := p.hub
	c, err := h.connections.acquire()
	if err != nil {
		return false, err
	}
	defer h.connections.release(c, p.id)
	positions := p.positions()
	l, err := c.open(p.id, azeventhubs.PartitionClientOptions{
		StartPosition: positions[min(p.refused, len(positions)-1)],
		OwnerLevel:    new(int64),
		Prefetch:      int32(h.credit()),
	}, p.opened, h.source.openLimit, h.source.closeLimit)
	if err != nil {
		return false, err
	}
	defer l.close()
	defer context.AfterFunc(ctx, l.close)()
	p.mu.Lock()
	p.link = l
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.link = nil
	}()
	for {
		first, err := l.wait()
		if err != nil {
			return l.attached > 0, err
		}
		p.arrived()
		if !p.wanted {
			select {
			case <-p.want:
				p.wanted = true
			case <-l.closing:
				return true, errors.New("the link was closed") // what came comes again
			}
		}
		rest, err := l.more(h.credit() - 1)
		p.batches <- [2][]*azeventhubs.ReceivedEventData{first, rest}
		p.wanted, p.refused = false, 0
		last := first[len(first)-1].SequenceNumber
		if len(rest) > 0 {
			last = rest[len(rest)-1].SequenceNumber
		}
		p.received = &last
		if err != nil {
			return true, err
		}
	}
}

// positions returns where to begin, and where instead if the hub refuses that: offsets change
// their form with geo-replication, and other tools write what they like.
func (p *partition) positions() (all []azeventhubs.StartPosition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.received != nil:
		all = append(all, azeventhubs.StartPosition{SequenceNumber: p.received})
	case p.begin != nil:
		all = append(all, azeventhubs.StartPosition{Offset: &p.begin.Offset}, azeventhubs.StartPosition{SequenceNumber: &p.begin.Sequence})
	case p.last != nil:
		if p.resumed.Offset != "" {
			all = append(all, azeventhubs.StartPosition{Offset: &p.resumed.Offset})
		}
		all = append(all, azeventhubs.StartPosition{SequenceNumber: &p.resumed.Sequence})
	default:
		all = append(all, p.start)
	}
	if p.last != nil && !p.last.Time.IsZero() {
		all = append(all, Start{Time: p.last.Time.Add(-resumeMargin)}.position())
	}
	return append(all, Start{Earliest: true}.position())
}

// refuse goes on to the next position, if the hub still is the one that it was.
func (p *partition) refuse(ctx context.Context, err error) {
	if p.hub.check(ctx) != nil {
		return
	}
	p.refused++
	p.log.Warn("the hub rejects the position to continue from: trying by sequence number, then from 10 minutes before, then from the earliest event", zap.Int("refused", p.refused), zap.Error(err))
}

// positionRefused reports whether the hub refuses to begin where it was asked to.
func positionRefused(err error) bool {
	for _, condition := range []string{"com.microsoft:argument-error", "com.microsoft:argument-out-of-range", "com.microsoft:georeplication:invalid-offset"} {
		if err != nil && strings.Contains(err.Error(), condition) {
			return true
		}
	}
	return false
}

// opened records that the link is attached, or no longer is.
func (p *partition) opened(is bool) {
	p.mu.Lock()
	was := p.open
	recovered := is && p.fault.Err != nil
	p.open, p.changed = is, time.Now()
	p.turned = p.changed
	if is {
		p.fault = telemetry.Fault{}
	}
	p.mu.Unlock()
	if is == was {
		return
	}
	p.hub.source.count(func(stats *telemetry.SourceStats) {
		if is {
			stats.Reading++
			stats.Hub = telemetry.Fault{}
		} else {
			stats.Reading--
		}
	})
	if recovered {
		p.log.Info("the partition is read again")
	}
}

// failed records why the partition is not read.
func (p *partition) failed(err error) {
	at := p.hub.at
	text := p.hub.source.explain(context.Background(), at, err)
	p.mu.Lock()
	before := p.fault
	p.fault.Err, p.fault.Refused = text, refused(err)
	if before.Err == nil {
		p.fault.Since = time.Now()
	}
	p.mu.Unlock()
	p.hub.source.count(func(stats *telemetry.SourceStats) { stats.Reopened++ })
	if before.Err == nil || untracked(before.Err) != untracked(text) {
		p.log.Warn("the partition cannot be read; reopening its link until that works", zap.Error(text))
	}
	_ = p.hub.source.hubFailed(err)
}

// untracked returns what an error of the hub says, without what is different each time.
func untracked(err error) string {
	text, _, _ := strings.Cut(err.Error(), "TrackingId:")
	return text
}

// arrived records that an event has come.
func (p *partition) arrived() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed, p.ahead = time.Now(), -1
}

// steady is how long a link must have been open to count: a hub that refuses one may open it first, and close
// it with the reason.
const steady = time.Second

// unopened returns how long there has been no link, zero if there is one. It is not known of a link that has just
// been opened.
func (p *partition) unopened() (d time.Duration, known bool) {
	select {
	case <-p.begun:
	default:
		return 0, false // its consumer is not ready
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open {
		return 0, time.Since(p.turned) >= steady
	}
	return time.Since(p.turned), true
}

// stalled is called with the number of the hub's last event, and closes the link if that has been
// ahead for the source's stallLimit while nothing came.
func (p *partition) stalled(last int64) {
	p.mu.Lock()
	l := p.link
	idle := time.Since(p.changed)
	switch {
	case l == nil || !p.open || !l.waiting.Load() || p.last != nil && last <= p.last.Sequence || p.last == nil && last < 0:
		p.ahead = -1
		l = nil
	case p.ahead < 0: // it may be on its way
		p.ahead = last
		l = nil
	case idle < p.hub.source.stallLimit:
		l = nil
	}
	p.mu.Unlock()
	if l == nil {
		return
	}
	p.hub.source.count(func(stats *telemetry.SourceStats) { stats.Stalled++ })
	go l.fail(fmt.Errorf("the hub is ahead, at %d, and has sent nothing for %v", last, idle.Round(time.Second)))
}

// errAnotherHub means that known positions are those of another hub.
var errAnotherHub = errors.New("the hub is no longer the one that was read before")

// unknownSequence is an event's sequence number until follow assigns one.
const unknownSequence = -1

// follow compares the sequence numbers of events with the expected ones: a hub
// numbers events without gaps, unless it is compacted. The position that an undecodable
// message claims is no evidence of one.
func (p *partition) follow(events []telemetry.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range events {
		at := &events[i].Position
		at.Generation = p.hub.generation
		if events[i].Undecodable != "" {
			p.place(at)
			continue
		}
		if p.last == nil {
			p.last = &telemetry.Position{Sequence: at.Sequence - 1 - p.unproven}
		}
		switch {
		case at.Sequence == p.last.Sequence+1:
		case at.Sequence > p.last.Sequence:
			if missing := at.Sequence - p.last.Sequence - 1 - p.unproven; missing > 0 {
				p.missed(missing, *p.last, *at)
			}
		default: // a repetition
			continue
		}
		*p.last, p.fresh, p.unproven = *at, false, 0
	}
}

// missed counts events that should have come between two others and will never be read. The hub had dropped them before they
// were asked for if nothing has come since the checkpoint. On a compacted hub that is every other event, so a partition logs it
// at most once a minute.
func (p *partition) missed(events int64, from, to telemetry.Position) {
	log := p.log.With(zap.Int64("events", events), zap.Int64("after", from.Sequence), zap.Int64("before", to.Sequence), zap.Time("before_time", to.Time))
	if !from.Time.IsZero() { // an old checkpoint
		log = log.With(zap.Time("after_time", from.Time))
	}
	p.hub.source.count(func(stats *telemetry.SourceStats) {
		if p.fresh {
			stats.Expired += events
		} else {
			stats.Skipped += events
		}
	})
	switch now := time.Now(); {
	case p.fresh:
		log.Error("events are lost: the hub had dropped them before they were read; its retention is shorter than this consumer group was behind")
	case now.Sub(p.gapLogged) > time.Minute:
		p.gapLogged = now
		log.Error("events are missing between two that were read: the client could not read them, the hub has dropped them since, or the hub is compacted")
	}
}

// place completes the position of an undecodable message. Without a sequence number
// it gets the next one; if the one before is not known either, it cannot become a
// checkpoint.
func (p *partition) place(at *telemetry.Position) {
	numbered := at.Sequence != unknownSequence
	if p.last == nil {
		p.unproven++
		if !numbered {
			at.Sequence, at.Offset = p.unproven-1, ""
		}
		return
	}
	if !numbered || at.Sequence > p.last.Sequence { // else it is a repetition
		p.unproven++
	}
	if !numbered {
		at.Sequence = p.last.Sequence + p.unproven
	}
	if at.Time.IsZero() {
		at.Time = p.last.Time
	}
}

// position returns the sequence number of the last event that came, false if none has.
func (p *partition) position() (sequence int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		return 0, false
	}
	return p.last.Sequence, true
}

// Checkpoint takes one call to the store unless somebody else has written this
// partition's checkpoint.
func (p *partition) Checkpoint(ctx context.Context, c telemetry.Checkpoint) error {
	owned := func() error {
		if p.held.Err() != nil {
			return telemetry.ErrLost
		}
		return nil
	}
	fail := func(err error) error {
		return fmt.Errorf("checkpoint partition %s of %s at %d: %w", p.id, p.hub.at.hub, c.Sequence, err)
	}
	if err := owned(); err != nil {
		return fail(err)
	}
	if c.Offset == "" {
		return nil
	}
	p.mu.Lock()
	written := p.written
	if p.last != nil && c.Sequence > p.last.Sequence && c.Offset == p.last.Offset {
		c.Position = *p.last // c is a guess, and the hub may end before it
	}
	p.mu.Unlock()
	written, err := p.hub.checkpoints.advance(ctx, p.id, c, written, owned)
	p.mu.Lock()
	p.written = written
	p.mu.Unlock()
	if err != nil {
		return fail(err)
	}
	return nil
}

// undecodableLines bounds the lines logged per second and partition about messages
// that cannot be decoded. A metric counts all of them.
const undecodableLines = 10

// warn logs that a message cannot be decoded.
func (p *partition) warn(e *telemetry.Event) {
	if now := time.Now(); now.Sub(p.second) >= time.Second {
		p.second, p.lines = now, 0
	}
	if p.lines++; p.lines > undecodableLines {
		return
	}
	p.log.Warn("a message cannot be decoded; continuing with the next",
		zap.Int64("sequence", e.Sequence), zap.String("device", e.Device), zap.String("cause", e.Undecodable), zap.Int("bytes", len(e.Body)))
}
