package eventhubs

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
)

// A LagRecorder records where partitions end, to compute how far behind their readers are.
type LagRecorder interface {
	Wanted() []string                              // the partitions to ask about; the hub need not have them
	HubPartitions(n int)                           // how many partitions the hub has
	LastSequence(partition string, sequence int64) // of the last event in the partition
}

// FollowLag asks the hub for the ends of partitions now and at every interval until ctx
// ends, and reports them to r. While the hub does not answer it reports nothing. It may run beside Run.
func (s *Source) FollowLag(ctx context.Context, every time.Duration, r LagRecorder) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	known := true
	for {
		err := s.recordLag(ctx, r)
		if err != nil && ctx.Err() == nil && known && s.Stats().Reading > 0 { // else the hub's error is in Stats
			s.log.Warn("partition lag is unknown: the hub does not report its last sequence numbers; retrying",
				zap.Error(s.explain(ctx, s.endpoint(), err)))
		}

		known = err == nil

		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Source) recordLag(ctx context.Context, r LagRecorder) error {
	wanted := r.Wanted()
	state, err := s.query(ctx, func(id string) bool { return slices.Contains(wanted, id) })
	if err != nil {
		return err
	}

	r.HubPartitions(len(state.partitions))
	for id, end := range state.ends {
		r.LastSequence(id, end.LastEnqueuedSequenceNumber)
	}

	return nil
}
