package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"alertworker/internal/telemetry"
)

const (
	probeLinks = 8               // partitions that Probe reads at a time
	probeWait  = 5 * time.Second // for the events of one partition
)

// A Snapshot is what Probe found in a hub.
type Snapshot struct {
	Generation string           // of the hub: see telemetry.Position
	Partitions []PartitionState // in the hub's order
}

// A PartitionState is what Probe found in a partition.
type PartitionState struct {
	ID          string
	First, Last int64     // sequence numbers of the events that it holds
	Enqueued    time.Time // when it got the last one
	Empty       bool      // it holds none
	Busy        bool      // a worker reads it in this consumer group, so its events could not be read

	Events []telemetry.Event // the newest; they stay valid
}

// Events returns those of all partitions.
func (s Snapshot) Events() (all []telemetry.Event) {
	for _, p := range s.Partitions {
		all = append(all, p.Events...)
	}

	return all
}

// Probe returns the partitions of the hub that config names and up to perPartition
// of the newest events of each. It takes partitions from no other reader and uses
// no checkpoint store. It tries once and returns by the time ctx ends. An error is
// one line that says what to do; it holds no secret.
func Probe(ctx context.Context, config Config, perPartition int) (Snapshot, error) {
	l, err := openLook(ctx, config)
	if err != nil {
		return Snapshot{}, err
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
		return Snapshot{}, err
	}

	return Snapshot{Generation: l.hub.generation(), Partitions: states}, nil
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
