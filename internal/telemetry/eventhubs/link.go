package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/Azure/go-amqp"

	"alertworker/internal/backoff"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs/amqpfilter"
)

// A link is one opening of a partition. One goroutine uses it.
type link struct {
	connection *connection
	session    *amqp.Session
	receiver   *amqp.Receiver
	credit     int                     // how many events it may have on request
	requested  int                     // and not taken yet
	taken      []amqpfilter.Messages   // the memory of the events that take has returned
	fail       context.CancelCauseFunc // makes whoever waits for a message fail
}

// attach opens a link to what a partition has after a position. Opening does not end with ctx at once: the library
// would end a session that it has not begun, and the hub would close the connection with all its links.
func (c *connection) attach(
	ctx context.Context, partition string, after selector, epoch bool, credit int,
) (*link, error) {
	s := c.source
	opening, cancel := backoff.Lasting(ctx, s.openLimit, s.closeLimit)
	defer cancel()

	// As azeventhubs' receivers are, but for the credit.
	properties := map[string]any{"com.microsoft:receiver-name": s.owner}
	if epoch {
		properties["com.microsoft:epoch"] = int64(0)
	}

	l := &link{connection: c, credit: credit}
	var err error
	if l.session, err = c.amqp.NewSession(opening, nil); err == nil {
		source := fmt.Sprintf("%s/ConsumerGroups/%s/Partitions/%s", c.at.hub, c.config.ConsumerGroup, partition)
		l.receiver, err = l.session.NewReceiver(opening, source, &amqp.ReceiverOptions{
			Credit:              -1, // what IssueCredit says
			SettlementMode:      amqp.ReceiverSettleModeFirst.Ptr(),
			Filters:             []amqp.LinkFilter{amqp.NewSelectorFilter(string(after))},
			Properties:          properties,
			TargetAddress:       s.owner,
			DesiredCapabilities: []string{georeplication},
		})
	}
	if err == nil {
		return l, nil
	}

	if opening.Err() != nil { // the hub does not answer
		c.end()
		err = errNotOpened
	}
	l.close()

	return nil, err
}

// next waits for the next message of the library, which take has to get. It asks for more events once a quarter of the
// credit is free.
func (l *link) next(ctx context.Context) (*amqp.Message, error) {
	if free := l.credit - l.requested; free >= max(1, l.credit/4) {
		if err := l.receiver.IssueCredit(uint32(free)); err != nil {
			return nil, err
		}
		l.requested = l.credit
	}

	m, err := l.receiver.Receive(ctx, nil)
	return m, expired(ctx, err)
}

// errGone means that the session has ended, and so has what came on it and was not taken yet.
var errGone = errors.New("the hub has ended the session")

// take appends to events those that m stands for, and as many as have come besides, up to the credit. It ends the use
// of those in taken.
func (l *link) take(events []telemetry.Event, m *amqp.Message, kept *texts) ([]telemetry.Event, error) {
	for _, messages := range l.taken {
		l.connection.filter.Reuse(messages)
	}
	clear(l.taken)
	l.taken = l.taken[:0]

	for ; m != nil; m = l.receiver.Prefetched() {
		messages, ok := l.connection.filter.Take(m.GetData())
		if !ok {
			return nil, errGone
		}

		l.taken = append(l.taken, messages)
		for len(messages) > 0 {
			var e amqpfilter.Event
			e, messages = messages.Next()
			l.requested--
			events = append(events, telemetry.Event{ // the cursor completes its position
				Position:      telemetry.Position{Sequence: e.Sequence, Offset: string(e.Offset), Time: e.Enqueued},
				Device:        sensor.Device(kept.get(e.Device)),
				Module:        kept.get(e.Module),
				Component:     kept.get(e.Component),
				Body:          e.Body,
				Enqueued:      e.Enqueued,
				MessageSource: kept.get(e.Source),
				Properties:    e.Properties,
				Undecodable:   e.Undecodable,
			})
		}
		if len(events) >= l.credit {
			break
		}
	}

	return events, nil
}

// close returns when the link is closed. Until then the hub may still send, so that the partition
// must not be opened again.
func (l *link) close() {
	ctx, cancel := context.WithTimeout(context.Background(), l.connection.source.closeLimit)
	defer cancel()

	if l.receiver != nil {
		_ = l.receiver.Close(ctx)
	}
	if l.session != nil {
		_ = l.session.Close(ctx)
	}
	if ctx.Err() != nil {
		l.connection.end()
	}
}

const (
	// maxEventBytes is the largest event that IoT Hub accepts. Every event that has been asked
	// for counts as that large, since its size is not known before it comes.
	maxEventBytes = 256 << 10

	// minCredit is how many events each partition may ask for, however many there are: with
	// fewer, it would wait for the hub after every other event.
	minCredit = 8
)

// credit returns how many events a partition may ask for of a hub that has n of them, all of which this replica may
// come to read. A consumer holds as many again: those of its last Receive.
func (c *Config) credit(n int) int {
	return min(c.Prefetch, max(minCredit, c.BufferBytes/maxEventBytes/max(1, n)))
}

const (
	maxTexts   = 1 << 13 // 128 KiB of headers, and at most 2 MiB of text
	maxTextLen = 256     // bytes; longer ones are not kept
)

// texts keeps strings that come again and again, as the ids of devices do, so that they
// are allocated once. The zero value is empty. Not safe for concurrent use.
type texts struct {
	seed maphash.Seed
	kept []string // by hash; a later one replaces an earlier one
}

// get returns b as a string.
func (t *texts) get(b []byte) string {
	switch {
	case len(b) == 0:
		return ""
	case len(b) > maxTextLen:
		return string(b)
	case t.kept == nil:
		t.seed, t.kept = maphash.MakeSeed(), make([]string, maxTexts)
	}

	kept := &t.kept[maphash.Bytes(t.seed, b)%maxTexts]
	if *kept != string(b) {
		*kept = string(b)
	}

	return *kept
}
