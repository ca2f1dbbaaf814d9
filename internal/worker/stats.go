package worker

import (
	"sync/atomic"

	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// Stats counts what a worker has done since it started. Its fields may be read at any
// time.
type Stats struct {
	Events      [telemetry.ReasonCount]atomic.Int64 // by the result of decoding
	Over        atomic.Int64                        // readings at or over the threshold
	Suppressed  atomic.Int64                        // of these, the ones settled without an alert of their own
	Filtered    atomic.Int64                        // the ones that a receiver does not want, for each receiver
	Outcomes    [throttle.Unconfirmed + 1]atomic.Int64
	Ambiguous   atomic.Int64 // attempts that may have delivered an alert twice
	DeadLetters atomic.Int64
}

// read adds one batch, in few atomic operations.
func (s *Stats) read(n *[telemetry.ReasonCount]int64, over int64) {
	for reason, count := range n {
		if count > 0 {
			s.Events[reason].Add(count)
		}
	}
	if over > 0 {
		s.Over.Add(over)
	}
}
