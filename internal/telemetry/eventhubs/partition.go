package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs/amqpfilter"
)

// A partition is a [telemetry.Partition]: one Processor's client for it.
type partition struct {
	id     string
	hub    string
	client receiver
	guard  *guard
	log    *zap.Logger

	// held ends, with the cause ErrLost, when another replica owns the partition.
	held context.Context
	lose context.CancelCauseFunc

	missed func(gap) // is told of events that will not come; called by Receive

	// Receive's own.
	events     []telemetry.Event
	window     window
	fresh      bool      // nothing came since last, which is the checkpoint
	unproven   int64     // undecodable messages that came since last
	toldMissed time.Time // when a gap was logged last
	second     time.Time // in which lines about undecodable messages were logged
	lines      int

	mu      sync.Mutex
	last    *telemetry.Position // the last event that came and could be decoded, or the checkpoint; nil if neither is known
	written *Checkpoint         // what the store had when it was last seen; nil if that is not known
}

// A gap is events that should have come between two and did not.
type gap struct {
	events   int64
	from, to telemetry.Position // the events before and after it
	expired  bool               // from is the checkpoint: the hub had dropped them before they were asked for
}

// A receiver is a client of azeventhubs that gets its events without prefetch:
// it asks the hub for as many as it is asked for, and keeps what it has not yet
// handed out.
type receiver interface {
	ReceiveEvents(ctx context.Context, count int, _ *azeventhubs.ReceiveEventsOptions) ([]*azeventhubs.ReceivedEventData, error)
}

// over is a context that has ended.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (p *partition) ID() string { return p.id }

// Receive waits for one event, and then takes what is buffered by asking for
// more with a context that has ended: azeventhubs then returns what it has, and
// nothing happens to the link. The second call also asks the hub for as many
// events as the window allows.
func (p *partition) Receive(ctx context.Context) ([]telemetry.Event, error) {
	clear(p.events) // the caller is done with them
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.held, cancel)()

	first, err := p.client.ReceiveEvents(wait, 1, nil)
	if err != nil {
		return nil, p.failed(ctx, err)
	}
	p.events = appendEvents(p.events[:0], first)
	p.window.took(len(first))

	// More has come if the goroutine that decodes gets its turn. That is no
	// waiting: it takes what is there and blocks.
	runtime.Gosched()

	if n := p.window.ask(len(first)); n > 0 {
		// An error here is met again by the next call, which can mend it.
		rest, _ := p.client.ReceiveEvents(over, n, nil)
		p.events = appendEvents(p.events, rest)
		p.window.took(len(rest))
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

// errAnotherHub says that the hub is not the one whose positions are known.
var errAnotherHub = errors.New("the hub is not the one it was")

// notTold is an event's sequence number until follow gives it one.
const notTold = -1

// follow compares the sequence numbers of events with those that should come: a
// hub counts them one by one, unless it is a compacted one. False if these
// cannot be the events of the hub that was read so far. What an undecodable
// message says of its place proves nothing.
func (p *partition) follow(events []telemetry.Event) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range events {
		at := &events[i].Position
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
		case at.Time.After(p.last.Time): // earlier in the order, later in time
			if p.written != nil {
				p.guard.checkpoints.distrust(p.id, *p.written)
			}
			return false
		default: // it came again
			continue
		}
		*p.last, p.fresh, p.unproven = *at, false, 0
	}
	return true
}

// place completes the position of an undecodable message. One that does not tell its
// number gets the next; if not even the one before is known, it gets no checkpoint.
func (p *partition) place(at *telemetry.Position) {
	told := at.Sequence != notTold
	if p.last == nil {
		p.unproven++
		if !told {
			at.Sequence, at.Offset = p.unproven-1, ""
		}
		return
	}
	if !told || at.Sequence > p.last.Sequence { // else it came again
		p.unproven++
	}
	if !told {
		at.Sequence = p.last.Sequence + p.unproven
	}
	if at.Time.IsZero() {
		at.Time = p.last.Time
	}
}

// read returns the sequence number of the last event that came. False if none did.
func (p *partition) read() (sequence int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		return 0, false
	}
	return p.last.Sequence, true
}

// failed is what the contract calls an error of azeventhubs.
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
	return fmt.Errorf("receive from partition %s of %s: %w", p.id, p.hub, err)
}

// Checkpoint takes one call of the store as long as nobody else writes this
// partition's checkpoint.
func (p *partition) Checkpoint(ctx context.Context, to telemetry.Position) error {
	owned := func() error {
		if p.held.Err() != nil {
			return telemetry.ErrLost
		}
		return nil
	}
	fail := func(err error) error {
		return fmt.Errorf("checkpoint partition %s of %s at %d: %w", p.id, p.hub, to.Sequence, err)
	}
	if err := owned(); err != nil {
		return fail(err)
	}
	if to.Offset == "" {
		return nil
	}
	p.mu.Lock()
	written := p.written
	if p.last != nil && to.Sequence > p.last.Sequence && to.Offset == p.last.Offset {
		to = *p.last // a guess, which a checkpoint must not hold: the hub may end before it
	}
	p.mu.Unlock()
	written, err := p.guard.checkpoints.advance(ctx, p.id, to, written, owned)
	p.mu.Lock()
	p.written = written
	p.mu.Unlock()
	if err != nil {
		return fail(err)
	}
	return nil
}

func appendEvents(events []telemetry.Event, received []*azeventhubs.ReceivedEventData) []telemetry.Event {
	events = slices.Grow(events, len(received))
	for _, r := range received {
		e := telemetry.Event{
			Position:      telemetry.Position{Sequence: r.SequenceNumber, Offset: r.Offset, Time: enqueued(r)},
			Device:        text(r.SystemProperties["iothub-connection-device-id"]),
			Body:          body(r),
			MessageSource: text(r.SystemProperties["iothub-message-source"]),
			Undecodable:   text(r.SystemProperties[amqpfilter.Annotation]),
			Properties:    r.Properties,
		}
		e.Enqueued = e.Time
		if guessed, _ := r.SystemProperties[amqpfilter.Guessed].(bool); guessed {
			e.Sequence = notTold
		}
		if r.ContentType != nil {
			e.ContentType = *r.ContentType
		}
		if p := r.RawAMQPMessage.Properties; p != nil && p.ContentEncoding != nil {
			e.ContentEncoding = *p.ContentEncoding
		}
		events = append(events, e)
	}
	return events
}

// undecodableLines is how many lines a second are logged about messages of a partition
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
	p.log.Warn("a message cannot be decoded; reading goes on after it",
		zap.Int64("sequence", e.Sequence), zap.String("device", e.Device), zap.String("cause", e.Undecodable), zap.Int("bytes", len(e.Body)))
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// body is the message's body, however it was encoded; nil if it has none that
// is bytes or text.
func body(r *azeventhubs.ReceivedEventData) []byte {
	b := &r.RawAMQPMessage.Body
	switch v := b.Value.(type) {
	case []byte:
		return v
	case string:
		return []byte(v)
	}
	switch len(b.Data) {
	case 0:
		return nil
	case 1:
		return b.Data[0]
	}
	return slices.Concat(b.Data...)
}

// enqueued is when the hub took the event: the Event Hub's time, or else the
// IoT Hub's, which comes as a timestamp, in milliseconds or as text.
func enqueued(r *azeventhubs.ReceivedEventData) time.Time {
	if r.EnqueuedTime != nil {
		return *r.EnqueuedTime
	}
	switch v := r.SystemProperties["iothub-enqueuedtime"].(type) {
	case time.Time:
		return v
	case int64:
		return time.UnixMilli(v).UTC()
	case string:
		if ms, err := strconv.ParseInt(v, 10, 64); err == nil {
			return time.UnixMilli(ms).UTC()
		}
		t, _ := time.Parse(time.RFC3339, v)
		return t
	}
	return time.Time{}
}
