package eventhubs

import (
	"context"
	"fmt"
)

// Try returns nil if the hub that config names lets a client with its key or identity read: it opens a link to one
// partition, beside whoever reads there, and closes it again. It takes nothing from anybody, tries once and returns by
// the time ctx ends. An error is one line that says what to do; it holds no secret.
func Try(ctx context.Context, config Config) error {
	s, err := New(config)
	if err != nil {
		return err
	}
	defer s.Close()

	state, err := s.ask(ctx, toRead, none)
	if err != nil {
		return s.explain(ctx, s.endpoint(), err)
	}
	if len(state.partitions) == 0 {
		return fmt.Errorf("event hub %v has no partitions", state.at)
	}

	c, err := s.questions.connections.acquire(ctx)
	if err != nil {
		return s.explain(ctx, state.at, err)
	}
	defer s.questions.connections.release(c)

	from := cursorAt(Start{})
	// The hub looks at the claim before it looks at who else reads.
	l, err := c.attach(ctx, state.partitions[0], from.restart()[0], false, func() int { return 0 })
	switch {
	case busy(err):
		return nil
	case err != nil:
		return s.explain(ctx, state.at, err)
	}

	l.close()

	return nil
}
