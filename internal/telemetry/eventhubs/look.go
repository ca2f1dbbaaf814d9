package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
	"golang.org/x/sync/errgroup"

	"alertworker/internal/telemetry"
)

// A look reads a hub beside those who share its partitions: it takes none from them, tries everything once and writes
// nothing.
type look struct {
	source *Source
	hub    hubState // when the look was opened
}

// openLook asks the hub that config names for its partitions, and for the ends of those that are wanted.
func openLook(ctx context.Context, config Config, since wanted) (*look, error) {
	s, err := New(config)
	if err != nil {
		return nil, err
	}

	state, err := s.query(ctx, toRead, since)
	if err == nil {
		err = state.unanswered
	}
	if err != nil {
		s.Close()
		return nil, s.explain(ctx, s.endpoint(), err)
	}

	return &look{s, state}, nil
}

// errSilent means that nothing came.
var errSilent = errors.New("nothing was received")

// read opens a link at a cursor, which it moves, and gives take what comes, until that has enough. It fails with
// errSilent if nothing comes for so long. Without a credit it only opens the link.
//
// Without an epoch the link is refused where a worker reads, and gives way to a worker that comes.
func (l *look) read(
	ctx context.Context, id string, at *cursor, credit int, silence time.Duration,
	take func([]telemetry.Event) (more bool),
) error {
	c, err := l.source.questions.connections.acquire(ctx)
	if err != nil {
		return err
	}
	defer l.source.questions.connections.release(c)

	link, err := c.attach(ctx, id, at.restart()[0], false, credit)
	if err != nil {
		return err
	}
	defer link.close()

	var kept texts
	silent := fmt.Errorf("%w for %v, although the hub has more events", errSilent, silence)
	for more := credit > 0; more; {
		waiting, cancel := context.WithTimeoutCause(ctx, silence, silent)
		m, err := link.next(waiting)
		cancel()
		if err != nil {
			return err
		}

		events, err := link.take(nil, m, &kept)
		if err != nil {
			return err
		}

		link.taken = nil // whoever looks may keep them
		for i := range events {
			at.follow(&events[i])
		}
		more = take(events)
	}

	return nil
}

const (
	probeLinks = 8               // partitions that Probe reads at a time
	probeWait  = 5 * time.Second // for the events of one partition
)

// A PartitionState is what Probe found in a partition.
type PartitionState struct {
	ID          string
	First, Last int64     // sequence numbers of the events that it holds
	Enqueued    time.Time // when it got the last one
	Empty       bool      // it holds none
	Busy        bool      // a worker reads it in this consumer group, so its events could not be read

	Events []telemetry.Event // the newest; they stay valid
}

// Probe returns the partitions of the hub that config names, in its order, and up to perPartition
// of the newest events of each. It takes partitions from no other reader and uses
// no checkpoint store. It tries once and returns by the time ctx ends. An error is
// one line that says what to do; it holds no secret.
func Probe(ctx context.Context, config Config, perPartition int) ([]PartitionState, error) {
	l, err := openLook(ctx, config, every)
	if err != nil {
		return nil, err
	}
	defer l.source.Close()

	states := make([]PartitionState, len(l.hub.partitions))
	var probing errgroup.Group
	probing.SetLimit(probeLinks)
	for i, id := range l.hub.partitions {
		end, p := l.hub.ends[id], &states[i]
		*p = PartitionState{
			ID:       id,
			First:    end.BeginningSequenceNumber,
			Last:     end.LastEnqueuedSequenceNumber,
			Enqueued: end.LastEnqueuedOn,
			Empty:    end.IsEmpty,
		}

		if !p.Empty && perPartition > 0 {
			probing.Go(func() error { return l.newest(ctx, p, perPartition) })
		}
	}

	if err := probing.Wait(); err != nil {
		return nil, err
	}

	return states, nil
}

// newest reads up to n of the newest events of a partition.
func (l *look) newest(ctx context.Context, p *PartitionState, n int) error {
	after := max(p.Last-int64(n), p.First-1)
	at := cursorAfter(telemetry.Position{Sequence: after})
	err := l.read(ctx, p.ID, &at, n, probeWait, func(events []telemetry.Event) bool {
		p.Events = append(p.Events, events...)
		return at.reached() < p.Last
	})

	switch {
	case busy(err):
		p.Busy = true
	case err != nil && !errors.Is(err, errSilent): // else they have expired in the meantime
		return fmt.Errorf("partition %s: %w", p.ID, l.source.explain(ctx, l.hub.at, err))
	}

	return nil
}

// Try returns nil if the hub that config names lets a client with its key or identity read: it opens a link to one
// partition, beside whoever reads there, and closes it again. It takes nothing from anybody, tries once and returns by
// the time ctx ends. An error is one line that says what to do; it holds no secret.
func Try(ctx context.Context, config Config) error {
	l, err := openLook(ctx, config, none)
	if err != nil {
		return err
	}
	defer l.source.Close()

	from := cursorAt(Start{})
	err = l.read(ctx, l.hub.partitions[0], &from, 0, 0, nil)
	if err != nil && !busy(err) { // the hub looks at the claim before it looks at who else reads
		return l.source.explain(ctx, l.hub.at, err)
	}

	return nil
}

// Send sends a message of device to the hub that config names, as an IoT Hub would, and returns when the hub has it, or
// when ctx ends. It needs the right to send, which nobody but its devices has on an IoT Hub's own endpoint. An error is
// one line that holds no secret.
func Send(ctx context.Context, config Config, device string, body []byte) (err error) {
	s, err := New(config)
	if err != nil {
		return err
	}
	defer s.Close()
	defer func() {
		if err != nil {
			err = s.explain(ctx, s.endpoint(), err)
		}
	}()

	c, err := s.questions.connections.acquire(ctx)
	if err != nil {
		return err
	}
	defer s.questions.connections.release(c)

	session, err := c.amqp.NewSession(ctx, nil)
	if err != nil {
		return err
	}

	sender, err := session.NewSender(ctx, c.at.hub, nil)
	if err != nil {
		return err
	}

	annotations := amqp.Annotations{
		"x-opt-partition-key": device, "iothub-connection-device-id": device, "iothub-message-source": "Telemetry",
	}
	message := &amqp.Message{Annotations: annotations, Data: [][]byte{body}}
	defer context.AfterFunc(ctx, c.end)() // by which the library's Send ends in time: docs/dev/upstream.md

	return expired(ctx, sender.Send(context.WithoutCancel(ctx), message, nil))
}
