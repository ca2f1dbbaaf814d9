package eventhubs

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/telemetry"
)

const (
	startMin = 500 * time.Millisecond
	startMax = 30 * time.Second

	// shortTimeout is for an answer that is not worth a long wait: that a link is
	// closed, or where the hub is.
	shortTimeout = 5 * time.Second

	// resolveEvery is how often an IoT Hub is asked where its events are, in checks of the hub.
	resolveEvery = 5
)

type consumer = func(context.Context, telemetry.Partition) error

// Run implements [telemetry.Source]. It always returns nil: a later attempt may
// succeed whatever the error was. It starts again only if the hub is another one.
func (s *Source) Run(ctx context.Context, consume func(context.Context, telemetry.Partition) error) error {
	for n := 1; ; n++ {
		log := s.log.Debug // what lasts is in Stats
		h, err := s.newHub(ctx)
		if err == nil {
			n, log = 1, s.log.Warn
			s.hub.Store(h)
			err = h.run(ctx, consume)
			s.doubted = errors.Is(err, errAnotherHub)
			s.hub.Store(nil)
		}

		if ctx.Err() != nil {
			return nil
		}

		pause := backoff.Delay(n, startMin, startMax)
		log("the hub is not read; starting again", zap.Error(err), zap.Duration("in", pause))
		backoff.Sleep(ctx, pause)
		s.resolve(ctx)
	}
}
