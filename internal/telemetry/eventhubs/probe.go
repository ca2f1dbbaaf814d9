package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"golang.org/x/sync/errgroup"

	"alertworker/internal/records"
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
	config.Records = &records.Memory{} // New requires it
	s, err := New(config)
	if err != nil {
		return Snapshot{}, err
	}
	client, err := s.connect(azeventhubs.RetryOptions{MaxRetries: -1}, s.dialer().dial) // retries hide what is wrong
	if err != nil {
		return Snapshot{}, fmt.Errorf("event hub client: %w", err)
	}
	disconnect := sync.OnceFunc(func() { _ = client.Close(context.Background()) }) // does not block
	defer disconnect()
	defer context.AfterFunc(ctx, disconnect)() // GetPartitionProperties ignores its context

	hub, err := client.GetEventHubProperties(ctx, nil)
	if err != nil {
		return Snapshot{}, s.explain(ctx, s.endpoint(), err)
	}
	states := make([]PartitionState, len(hub.PartitionIDs))
	var probing errgroup.Group
	probing.SetLimit(probeLinks)
	for i, id := range hub.PartitionIDs {
		probing.Go(func() (err error) {
			if states[i], err = s.probePartition(ctx, client, id, perPartition); err != nil {
				return fmt.Errorf("partition %s: %w", id, s.explain(ctx, s.endpoint(), err))
			}
			return nil
		})
	}
	if err := probing.Wait(); err != nil {
		return Snapshot{}, err
	}
	return Snapshot{Generation: s.endpoint().generation(hub.CreatedOn), Partitions: states}, nil
}

// probePartition returns one partition and up to n of its newest events.
func (s *Source) probePartition(ctx context.Context, client *azeventhubs.ConsumerClient, id string, n int) (PartitionState, error) {
	properties, err := client.GetPartitionProperties(ctx, id, nil)
	if err != nil {
		return PartitionState{}, err
	}
	state := PartitionState{
		ID:       id,
		First:    properties.BeginningSequenceNumber,
		Last:     properties.LastEnqueuedSequenceNumber,
		Enqueued: properties.LastEnqueuedOn,
		Empty:    properties.IsEmpty,
	}
	after := max(state.Last-int64(n), state.First-1)
	if state.Empty || after >= state.Last {
		return state, nil
	}

	// Without an owner level the link is refused where a worker reads, and gives way
	// to a worker that comes.
	partition, err := client.NewPartitionClient(id, &azeventhubs.PartitionClientOptions{
		StartPosition: azeventhubs.StartPosition{SequenceNumber: &after},
		Prefetch:      -1,
	})
	if err != nil {
		return state, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = partition.Close(closing)
	}()
	waiting, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	received, err := partition.ReceiveEvents(waiting, int(state.Last-after), nil)
	switch {
	case busy(err):
		state.Busy = true
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil: // they have expired in the meantime
	case err != nil:
		return state, err
	}
	state.Events = appendEvents(nil, received, nil)
	return state, nil
}
