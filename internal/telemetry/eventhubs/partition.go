package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
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

	// Receive's own.
	events []telemetry.Event
	window window
	second time.Time // in which lines about undecodable messages were logged
	lines  int

	// Checkpoint's own: where the checkpoint stood when it was last seen.
	written *telemetry.Position
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
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.held, cancel)()

	first, err := p.client.ReceiveEvents(wait, 1, nil)
	if err != nil {
		return nil, p.failed(ctx, err)
	}
	clear(p.events)
	p.events = appendEvents(p.events[:0], first)
	p.window.took(len(first))

	// More has come if the goroutine that decodes gets its turn. That is no
	// waiting: it takes what is there and blocks.
	runtime.Gosched()

	// An error here is met again by the next call, which can mend it.
	rest, _ := p.client.ReceiveEvents(over, p.window.ask(), nil)
	p.events = appendEvents(p.events, rest)
	p.window.took(len(rest))
	p.window.fit(p.events)
	for i := range p.events {
		if e := &p.events[i]; e.Undecodable != "" {
			p.warn(e)
		}
	}
	return p.events, nil
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

// Checkpoint reads the present checkpoint before it writes one.
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
	if to.Offset == "" || p.written != nil && p.written.Sequence >= to.Sequence {
		return nil
	}
	written, err := p.guard.advance(ctx, p.id, to, owned)
	if err != nil {
		return fail(err)
	}
	p.written = &written
	return nil
}

// A window bounds what is buffered for a partition, in events and in bytes. The
// hub counts events only, so it is asked for as many as fit by the size that
// they had lately. It opens slowly, so that the first large events are few.
type window struct {
	events, bytes int // bounds
	open          int // how many events may be asked for and not yet taken
	asked         int // how many are
	mean          int // size of an event: up at once, down slowly
}

const (
	firstWindow = 64

	// eventOverhead is what an IoT Hub event takes in memory beside its body.
	eventOverhead = 2 << 10
)

// ask returns how many events to ask for, at least 1: what is asked for
// already, or once that is half used up all there is room for. So most calls
// need not tell the hub anything.
func (w *window) ask() int {
	if w.open == 0 {
		w.open = min(firstWindow, w.events)
	}
	if w.asked <= w.open/2 {
		w.asked = w.open
	}
	return w.asked
}

// took says that n events came.
func (w *window) took(n int) { w.asked = max(0, w.asked-n) }

// fit adapts the window to events like these, at least one.
func (w *window) fit(events []telemetry.Event) {
	size := 0
	for i := range events {
		size += len(events[i].Body)
	}
	w.mean = max(size/len(events)+eventOverhead, w.mean-w.mean/16)
	w.open = max(1, min(2*w.open, w.events, w.bytes/w.mean))
}

func appendEvents(events []telemetry.Event, received []*azeventhubs.ReceivedEventData) []telemetry.Event {
	events = slices.Grow(events, len(received))
	for _, r := range received {
		e := telemetry.Event{
			Position:      telemetry.Position{Sequence: r.SequenceNumber, Offset: r.Offset},
			Device:        text(r.SystemProperties["iothub-connection-device-id"]),
			Body:          body(r),
			Enqueued:      enqueued(r),
			MessageSource: text(r.SystemProperties["iothub-message-source"]),
			Undecodable:   text(r.SystemProperties[amqpfilter.Annotation]),
			Properties:    r.Properties,
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
