package eventhubs

import (
	"context"
	"time"

	"alertworker/internal/telemetry"
)

// Hurry shortens the bounds that a test would have to wait for.
func (s *Source) Hurry(firstStartGrace, recheck, silence, begin time.Duration) {
	s.firstStartGrace, s.recheck, s.silence, s.beginTimeout = firstStartGrace, recheck, silence, begin
}

// Reader is a partition that only reads.
func Reader(client receiver, prefetch, bytes int) telemetry.Partition {
	return &partition{
		client: client,
		held:   context.Background(),
		lose:   func(error) {},
		window: window{events: prefetch, bytes: bytes},
	}
}
