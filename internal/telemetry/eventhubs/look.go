package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"alertworker/internal/telemetry"
)

// A look reads a hub beside those who share its partitions: it takes none from them, tries everything once and writes
// nothing.
type look struct {
	source *Source
	hub    hubState // when the look was opened
}

// openLook asks the hub that config names for its partitions and their ends.
func openLook(ctx context.Context, config Config) (*look, error) {
	s, err := New(config)
	if err != nil {
		return nil, err
	}

	state, err := s.askAll(ctx, toRead)
	if err != nil {
		s.Close()
		return nil, s.explain(ctx, s.endpoint(), err)
	}

	return &look{s, state}, nil
}

// errSilent means that nothing came.
var errSilent = errors.New("nothing was received")

// read opens a link at a cursor, which it moves, and gives take what comes, until that has enough. It fails with
// errSilent if nothing comes for so long.
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

	link, err := c.attach(ctx, id, at.restart()[0], false, func() int { return credit })
	if err != nil {
		return err
	}
	defer link.close()

	var kept texts
	for {
		waiting, cancel := context.WithTimeoutCause(ctx, silence, errSilent)
		m, err := link.next(waiting)
		cancel()
		switch {
		case errors.Is(err, errSilent):
			return fmt.Errorf("%w for %v, although the hub has more events", err, silence)
		case err != nil:
			return err
		}

		events := link.take(nil, m, &kept)
		link.taken = nil // whoever looks may keep them
		for i := range events {
			at.follow(&events[i])
		}

		if !take(events) {
			return nil
		}
	}
}
