package eventhubs

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
)

// A LagRecorder records where partitions end, to compute how far behind their readers are.
type LagRecorder interface {
	Wanted() []string                              // the partitions to ask about; the hub need not have them
	HubPartitions(n int)                           // how many partitions the hub has
	LastSequence(partition string, sequence int64) // of the last event in the partition
}

// FollowLag asks the hub for the ends of partitions now and at every interval until ctx ends, and reports them to r. On a
// hub of more than 300 partitions the interval is longer: all replicas may ask about 20 of them a second. While the hub
// does not answer it reports nothing. It may run beside Run, and checks the hub that Run reads.
func (s *Source) FollowLag(ctx context.Context, every time.Duration, r LagRecorder) {
	known := true
	for next := time.Now(); backoff.Sleep(ctx, time.Until(next)); {
		next = time.Now().Add(every)
		state, err := s.recordLag(ctx, r)
		if err != nil && ctx.Err() == nil && known && s.Stats().Reading > 0 { // else the hub's error is in Stats
			s.log.Warn("partition lag is unknown: the hub does not report its last sequence numbers; retrying",
				zap.Error(s.explain(ctx, s.endpoint(), err)))
		}

		known = err == nil
		if least := shownAfter(len(state.partitions)); least > every {
			next = next.Add(least - every)
		}
	}
}

func (s *Source) recordLag(ctx context.Context, r LagRecorder) (state hubState, err error) {
	asked := r.Wanted()
	wanted := func(id string) bool { return slices.Contains(asked, id) }
	if h := s.hub.Load(); h != nil {
		state, err = h.check(ctx, toShow, wanted)
	} else {
		state, err = s.query(ctx, toShow, wanted)
	}
	if err != nil {
		return state, err
	}

	r.HubPartitions(len(state.partitions))
	for id, end := range state.ends {
		r.LastSequence(id, end.LastEnqueuedSequenceNumber)
	}

	return state, state.unanswered
}
