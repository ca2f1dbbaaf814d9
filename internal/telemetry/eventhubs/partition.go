package eventhubs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
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

	want    chan struct{}          // Receive wants events
	batches chan []telemetry.Event // what it gets for that; the reader uses their memory again once more are wanted

	// Used by read alone.
	wanted    bool              // and they were not sent yet
	events    []telemetry.Event // of the last batch
	texts     texts
	confirmed bool      // the hub has come to where reading begins
	refused   int       // positions in a row that the hub has refused
	stolen    time.Time // when another reader last took the link
	taken     string    // what the hub said of that, until accuse has seen to it
	gapLogged time.Time // when a gap was last logged
	warned    time.Time // when an undecodable message was last logged

	asked bool // for events that have not come yet; used by Receive alone

	mu      sync.Mutex
	cursor  cursor            // written by read alone, once that has begun
	written *StoredCheckpoint // the checkpoint as last seen in the store; nil if it is not known
	link    *link             // nil while it is not attached
	waiting bool              // for an event to come on it
	ahead   time.Time         // since when the hub has been ahead and nothing has come; zero if it is not
	stalled int64             // after where the hub ended when a link was given up for that
	fault   telemetry.Fault   // why there is no link; zero if there is one
	rival   telemetry.Fault   // another program reads the partition too; Since its first link
	seen    time.Time         // when rival last had one
	gone    telemetry.Event   // stands for those that have expired, if link fails with errExpired
}

func (p *partition) ID() string { return p.id }

func (p *partition) Resumed() (telemetry.Checkpoint, bool) { return p.resumed, p.over }

// Last implements [telemetry.Partition].
func (p *partition) Last(ctx context.Context) (int64, time.Time, error) {
	end, err := p.end(ctx, toDecide)
	return end.LastEnqueuedSequenceNumber, end.LastEnqueuedOn, err
}

// newestEvery is how often the hub is asked at most for newest where a partition ends.
const newestEvery = 10 * time.Second

// Newest implements [telemetry.Partition]. All replicas may ask: together they take half of the pace that questions have.
func (p *partition) Newest(ctx context.Context, enough time.Time) (newest, asked time.Time, err error) {
	h := p.hub
	for _, read := range h.read() {
		read.mu.Lock()
		newest = read.cursor.last.Time // zero if nothing has come
		read.mu.Unlock()
		if !newest.Before(enough) {
			return newest, time.Now(), nil
		}
	}

	n := int(h.partitions.Load())
	replicas := n / max(1, h.member.Share())
	since := time.Now().Add(-max(newestEvery, time.Duration(2*replicas)*shownAfter(n)))
	state, err := h.source.query(ctx, toDecide, func(string) time.Time { return since })
	switch {
	case err != nil:
		return time.Time{}, time.Time{}, err
	case state.unanswered != nil:
		return time.Time{}, time.Time{}, state.unanswered
	case state.generation != h.generation:
		return time.Time{}, time.Time{}, errAnotherHub
	}

	newest = time.Time{}
	for _, end := range state.ends {
		if end.LastEnqueuedSequenceNumber >= 0 { // else it has never taken one
			newest = later(newest, end.LastEnqueuedOn)
		}
	}

	return newest, state.asked, nil
}

// Receive implements [telemetry.Partition]. It gets what had come when it was called, or else the
// next event and what came with it.
func (p *partition) Receive(ctx context.Context) (events []telemetry.Event, err error) {
	if !p.asked {
		p.asked = true
		p.want <- struct{}{}
	}

	select {
	case events = <-p.batches:
		p.asked = false
	case <-p.held.Done():
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	if lost := context.Cause(p.held); lost != nil {
		return nil, fmt.Errorf("receive from partition %s of %s: %w", p.id, p.hub.at.hub, lost)
	}

	return events, nil
}

// Rewind implements [telemetry.Partition].
func (p *partition) Rewind(at telemetry.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()

	settled := p.cursor.settled
	p.cursor = cursorAfter(at)
	p.cursor.settled = max(settled, at.Sequence)
}

// read keeps a link open, from the first Receive on, until ctx ends.
func (p *partition) read(ctx context.Context) {
	if p.awaitWanted(ctx) != nil {
		return
	}

	for failures := 1; ctx.Err() == nil; failures++ {
		// This replica must certainly own the partition: its heartbeat is in time, and if another reader took the link,
		// the owners have been listed since.
		for !p.hub.member.Holds(p.id, p.stolen) {
			if !backoff.Sleep(ctx, p.hub.source.config.BalanceInterval/10) {
				return
			}
		}

		p.accuse()
		opened, err := p.readLink(ctx)
		if ctx.Err() != nil {
			return
		}
		if opened {
			failures = 1
		}

		switch {
		case errors.Is(err, errExpired):
			p.handOverExpired(ctx)
			continue
		case busy(err):
			p.stolen = time.Now()
			p.taken = err.Error()
		}

		p.failed(err)
		p.hub.suspect()
		if positionRefused.MatchString(err.Error()) {
			if _, unanswered := p.end(ctx, toRead); unanswered == nil { // the hub still is the one that it was
				p.refused++
				p.log.Warn("the hub rejects the position to continue from: trying by sequence number, then from 10 minutes "+
					"before, then from the earliest event", zap.Int("refused", p.refused), zap.Error(err))
			}
		}

		backoff.Sleep(ctx, backoff.Delay(failures, openMin, openMax))
	}
}

// errOverdue is why a replica opens nothing.
var errOverdue = errors.New("this replica's heartbeat is overdue, so another one may own its partitions")

// readLink opens a link and hands out what comes on it until it fails or ctx ends.
func (p *partition) readLink(ctx context.Context) (opened bool, err error) {
	h := p.hub
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	c, err := h.connections.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer h.connections.release(c)
	defer func() {
		if unauthorized(err) { // another connection makes another claim
			c.end()
		}
	}()

	if !h.member.Holds(p.id, p.stolen) { // any more
		return false, errOverdue
	}

	p.mu.Lock()
	positions := p.cursor.restart()
	p.mu.Unlock()
	credit := h.source.config.credit(int(h.partitions.Load()))
	l, err := c.attach(ctx, p.id, positions[min(p.refused, len(positions)-1)], true, credit)
	if err != nil {
		return false, err
	}
	defer l.close()

	if err := p.confirm(ctx); err != nil {
		return false, err
	}

	l.fail = fail
	p.attached(l)
	defer p.detached()
	for {
		p.await(true)
		m, err := l.next(ctx)
		p.await(false)
		if err != nil {
			return true, err
		}
		if err := p.awaitWanted(ctx); err != nil {
			return true, err // what came comes again
		}

		clear(p.events) // the consumer no longer uses them
		if p.events, err = l.take(p.events[:0], m, &p.texts); err != nil {
			return true, err
		}
		p.refused = 0
		p.handOver()
	}
}

// confirm returns once the hub has said, to a question that was asked after a link was opened, that it is the one that is
// read, and the first time that it has come to where reading begins.
func (p *partition) confirm(ctx context.Context) error {
	if _, known := p.position(); !known || p.confirmed {
		_, err := p.hub.check(ctx, toRead)
		return err
	}

	_, err := p.end(ctx, toRead)
	p.confirmed = err == nil

	return err
}

// end asks the hub, if it is the one that is read, where the partition ends.
func (p *partition) end(ctx context.Context, u urgency) (end azeventhubs.PartitionProperties, err error) {
	state, err := p.hub.check(ctx, u, p)
	if err != nil {
		return end, err
	}

	end, ok := state.ends[p.id]
	if !ok {
		return end, cmp.Or(state.unanswered, errNoPartition)
	}

	return end, nil
}

var errNoPartition = errors.New("the hub does not name this partition any more")

// awaitWanted waits until Receive wants events.
func (p *partition) awaitWanted(ctx context.Context) error {
	if p.wanted {
		return nil
	}

	select {
	case <-p.want:
		p.wanted = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// handOver completes p.events and gives them to Receive, which wants them.
func (p *partition) handOver() {
	p.mu.Lock()
	for i := range p.events {
		e := &p.events[i]
		e.Generation = p.hub.generation
		before, fresh := p.cursor.last, p.cursor.fresh
		if missing := p.cursor.follow(e); missing > 0 {
			p.missed(missing, fresh, before, e.Position)
		}
		if e.Undecodable != "" && time.Since(p.warned) >= time.Second { // a metric counts all
			p.warned = time.Now()
			p.log.Warn("a message cannot be decoded; continuing with the next",
				zap.Int64("sequence", e.Sequence),
				zap.String("device", e.Device),
				zap.String("cause", e.Undecodable),
				zap.Int("bytes", len(e.Body)))
		}
	}
	p.mu.Unlock()

	p.wanted = false
	p.batches <- p.events
}

// handOverExpired gives Receive an event that stands for those that have expired.
func (p *partition) handOverExpired(ctx context.Context) {
	if p.awaitWanted(ctx) != nil {
		return
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	e, before := p.gone, p.cursor.last
	isFirst := !p.cursor.known            // what has expired before anything was read was never promised
	if e.Sequence <= p.cursor.reached() { // they have come meanwhile
		return
	}

	e.Generation = p.hub.generation
	missing := 1 + p.cursor.follow(&e)
	if !isFirst {
		p.missed(missing, true, before, e.Position)
	}

	p.wanted = false
	p.events = append(p.events[:0], e)
	p.batches <- p.events
}

// rivalFor is for how long another program that has taken a link is said to read the partition too.
const rivalFor = 5 * time.Minute

// accuse records that another program reads the partition too, if who took the link is none of the replicas that were
// listed since.
func (p *partition) accuse() {
	found := receiver.FindStringSubmatch(p.taken)
	p.taken = ""
	if found == nil || p.hub.member.Knows(found[1]) {
		return
	}

	const text = "another program reads the consumer group %s: its receiver %q took the partition: give each program a " +
		"consumer group of its own"
	err := fmt.Errorf(text, p.hub.source.config.ConsumerGroup, found[1])

	p.mu.Lock()
	defer p.mu.Unlock()

	if !p.hasRival() {
		p.rival.Since = time.Now()
		p.log.Warn("another reader keeps taking over the partition", zap.Error(err))
	}

	p.rival.Err = err
	p.seen = time.Now()
}

// hasRival reports whether another program reads the partition too. The caller holds p.mu.
func (p *partition) hasRival() bool { return time.Since(p.seen) < rivalFor }

// positionRefused is how a hub refuses to begin where it was asked to.
var positionRefused = regexp.MustCompile(`com\.microsoft:georeplication:invalid-offset|` +
	`(?s)com\.microsoft:argument-(error|out-of-range).*(offset|sequence|time)`)

// attached records that a link is attached.
func (p *partition) attached(l *link) {
	p.mu.Lock()
	before := p.fault
	p.link = l
	p.fault = telemetry.Fault{}
	p.mu.Unlock()

	p.hub.source.hubAnswered()
	if before.Err != nil {
		p.log.Info("the partition is being read again")
	}
}

// detached records that the link is attached no longer.
func (p *partition) detached() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link = nil
}

// failed records why the partition is not read.
func (p *partition) failed(err error) {
	p.mu.Lock()
	before := p.fault
	now := p.hub.source.fault(before, p.hub.at, err)
	said := busy(err) && p.hasRival()
	p.fault = now
	p.mu.Unlock()

	p.hub.source.add(&p.hub.source.stats.Reopened, 1)
	if !said && untracked(before.Err) != untracked(now.Err) {
		log := p.log.Warn
		if busy(err) { // another replica may have it for a moment, and accuse says if it is another program
			log = p.log.Info
		}

		log("the partition cannot be read; reopening its link until that works", zap.Error(now.Err))
	}

	p.hub.source.hubFailed(err)
}

// untracked returns what an error of the hub says, which may be nil, without what is different each time.
func untracked(err error) string {
	text, _, _ := strings.Cut(fmt.Sprint(err), "TrackingId:")
	return text
}

// await records that an event is waited for, or that one has come.
func (p *partition) await(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.waiting = is
	if !is {
		p.ahead = time.Time{}
	}
}

// errExpired makes a link fail because events that were to come on it have expired.
var errExpired = errors.New("the hub has dropped events that were not read yet")

// compare is called with what the hub says about the partition while a link may be waiting. It makes the link fail if
// the hub has been ahead for the source's stallLimit while nothing came, once for each end, and if what was to come
// has expired.
func (p *partition) compare(end azeventhubs.PartitionProperties) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if !p.waiting {
		return
	}

	if gone, ok := p.cursor.expired(end); ok {
		p.gone = gone
		p.link.fail(errExpired)
		return
	}

	last := end.LastEnqueuedSequenceNumber
	limit := p.hub.source.stallLimit
	switch {
	case !p.cursor.behind(end) || last < p.stalled:
		p.ahead = time.Time{}
	case p.ahead.IsZero(): // it may be on its way
		p.ahead = time.Now()
	case time.Since(p.ahead) >= limit:
		p.stalled = last + 1
		p.hub.source.add(&p.hub.source.stats.Stalled, 1)
		p.link.fail(fmt.Errorf("the hub is ahead, at %d, and has sent nothing for %v", last, limit))
	}
}

// errAnotherHub means that known positions are those of another hub.
var errAnotherHub = errors.New("the hub is no longer the one that was read before")

// missed counts events that should have come between two others and will never be read. The hub had dropped them
// before they were asked for if nothing has come since the checkpoint. On a compacted hub that is every other event,
// so a partition logs it at most once a minute.
func (p *partition) missed(events int64, fresh bool, from, to telemetry.Position) {
	log := p.log.With(
		zap.Int64("events", events),
		zap.Int64("after", from.Sequence),
		zap.Int64("before", to.Sequence),
		zap.Time("before_time", to.Time),
	)
	if !from.Time.IsZero() { // an old checkpoint
		log = log.With(zap.Time("after_time", from.Time))
	}

	s := p.hub.source
	if fresh {
		s.add(&s.stats.Expired, events)
		log.Error("events are lost: the hub had dropped them before they were read; its retention is shorter than this " +
			"consumer group was behind")
		return
	}

	s.add(&s.stats.Skipped, events)
	if now := time.Now(); now.Sub(p.gapLogged) > time.Minute {
		p.gapLogged = now
		log.Error("events are missing between two that were read: the client could not read them, the hub has dropped " +
			"them since, or the hub is compacted")
	}
}

// position returns the sequence number of the last event that came or was settled, false if there is none.
func (p *partition) position() (sequence int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.cursor.last.Sequence, p.cursor.settled), p.cursor.known
}

// Checkpoint takes one call to the store unless somebody else has written this
// partition's checkpoint.
func (p *partition) Checkpoint(ctx context.Context, c telemetry.Checkpoint) error {
	if lost := context.Cause(p.held); lost != nil || c.Offset == "" {
		return lost
	}

	p.mu.Lock()
	written := p.written
	if last := p.cursor.last; p.cursor.known && c.Sequence > last.Sequence && c.Offset == last.Offset {
		c.Position = last // c is a guess, and the hub may end before it
	}
	p.mu.Unlock()

	written, err := p.hub.checkpoints.advance(ctx, p.id, c, written, p.held)

	p.mu.Lock()
	p.written = written
	p.mu.Unlock()

	if err != nil {
		return fmt.Errorf("checkpoint partition %s of %s at %d: %w", p.id, p.hub.at.hub, c.Sequence, err)
	}

	return nil
}
