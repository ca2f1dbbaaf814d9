package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/telemetry"
)

// A partition is a [telemetry.Partition]: one Processor's client for it.
type partition struct {
	id     string
	hub    string
	client receiver
	log    *zap.Logger

	checkpoints *checkpoints

	// held ends, with the cause ErrLost, when another replica owns the partition.
	held context.Context
	lose context.CancelCauseFunc

	missed     func(gap)   // called by Receive for events that will not come
	unanswered func(error) // called by Receive when the hub has failed

	resumed telemetry.Checkpoint // zero if there was none
	over    bool                 // there was one, of another hub or unreadable

	// Used by Receive alone.
	events    []telemetry.Event
	texts     texts
	credit    credit
	fresh     bool      // nothing has come since last, which is the checkpoint
	unproven  int64     // undecodable messages that have come since last
	gapLogged time.Time // when a gap was last logged
	second    time.Time // in which lines about undecodable messages were logged
	lines     int

	mu      sync.Mutex
	last    *telemetry.Position // the last decodable event that came, or else the checkpoint; nil if there is neither
	written *Checkpoint         // the checkpoint as last seen in the store; nil if it is not known
}

// A gap is a run of events that should have come between two others and did not.
type gap struct {
	events   int64
	from, to telemetry.Position // the events before and after it
	expired  bool               // from is the checkpoint: the hub had dropped them before they were asked for
}

// A receiver is a partition client of azeventhubs without prefetch: it asks the hub
// for as many events as the call asks for, and buffers those that the call did not
// return.
type receiver interface {
	ReceiveEvents(ctx context.Context, count int, _ *azeventhubs.ReceiveEventsOptions) ([]*azeventhubs.ReceivedEventData, error)
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (p *partition) ID() string { return p.id }

func (p *partition) Resumed() (telemetry.Checkpoint, bool) { return p.resumed, p.over }

// Receive waits for one event and then takes what is buffered, by asking for more
// with a context that has ended: azeventhubs then returns what it has and leaves
// the link alone. The second call also asks the hub for as many events as the
// credit allows.
func (p *partition) Receive(ctx context.Context) ([]telemetry.Event, error) {
	clear(p.events) // the caller no longer uses them
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.held, cancel)()

	first, err := p.client.ReceiveEvents(wait, 1, nil)
	if err != nil {
		return nil, p.failed(ctx, err)
	}
	p.events = appendEvents(p.events[:0], first, &p.texts)
	p.credit.took(len(first))

	// Let the goroutine that decodes run: it takes what is there and blocks again.
	runtime.Gosched()

	if n := p.credit.ask(len(first)); n > 0 {
		// An error here comes again with the next call, which can recover from it.
		rest, _ := p.client.ReceiveEvents(ended, n, nil)
		p.events = appendEvents(p.events, rest, &p.texts)
		p.credit.took(len(rest))
	}
	if !p.follow(p.events) {
		return nil, p.failed(ctx, errAnotherHub)
	}
	for i := range p.events {
		if e := &p.events[i]; e.Undecodable != "" {
			p.warn(e)
		}
	}
	return p.events, nil
}

// errAnotherHub means that known positions are those of another hub.
var errAnotherHub = errors.New("the hub is no longer the one that was read before")

// unknownSequence is an event's sequence number until follow assigns one.
const unknownSequence = -1

// follow compares the sequence numbers of events with the expected ones: a hub
// numbers events without gaps, unless it is compacted. It returns false if these
// cannot be events of the hub that was read so far. The position that an
// undecodable message claims is no evidence of either.
func (p *partition) follow(events []telemetry.Event) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range events {
		at := &events[i].Position
		at.Generation = p.checkpoints.generation
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
				p.missed(gap{missing, *p.last, *at, p.fresh})
			}
		case at.Time.After(p.last.Time): // a lower number, but a later time
			if p.written != nil {
				p.checkpoints.reject(p.id, *p.written)
			}
			return false
		default: // a repetition
			continue
		}
		*p.last, p.fresh, p.unproven = *at, false, 0
	}
	return true
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

// read returns the sequence number of the last event that came, false if none has.
func (p *partition) read() (sequence int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		return 0, false
	}
	return p.last.Sequence, true
}

// failed turns an error of azeventhubs into one of the contract's.
func (p *partition) failed(ctx context.Context, err error) error {
	if lost := new(azeventhubs.Error); errors.As(err, &lost) && lost.Code == azeventhubs.ErrorCodeOwnershipLost {
		p.lose(telemetry.ErrLost)
	}
	switch {
	case p.held.Err() != nil:
		return fmt.Errorf("receive from partition %s of %s: %w", p.id, p.hub, telemetry.ErrLost)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if !errors.Is(err, errAnotherHub) {
		p.unanswered(err)
	}
	return fmt.Errorf("receive from partition %s of %s: %w", p.id, p.hub, err)
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
		return fmt.Errorf("checkpoint partition %s of %s at %d: %w", p.id, p.hub, c.Sequence, err)
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
	written, err := p.checkpoints.advance(ctx, p.id, c, written, owned)
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
