package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/ownership"
)

const (
	probeLinks = 8               // partitions that Probe looks at at a time
	probeWait  = 5 * time.Second // for the events of one of them
)

// A Snapshot is what a hub looked like.
type Snapshot struct {
	Created    time.Time         // when the hub was
	Partitions []PartitionState  // in the hub's order
	Events     []telemetry.Event // the newest of each partition; they stay valid
}

// A PartitionState is what a partition looked like.
type PartitionState struct {
	ID          string
	First, Last int64     // sequence numbers of the events that it keeps
	Enqueued    time.Time // when it got the last one
	Empty       bool      // it keeps none
	Busy        bool      // a worker reads it in this consumer group: its events could not be looked at
}

// Probe looks at the hub that config names: its partitions, and up to
// perPartition of the newest events of each. It takes a partition from nobody
// and uses no checkpoint store. It tries once and returns by the time ctx ends.
// An error is of one line that says what to do; it holds no secret.
func Probe(ctx context.Context, config Config, perPartition int) (Snapshot, error) {
	config.Checkpoints, config.Ownership = &MemoryCheckpoints{}, &ownership.Memory{} // New wants them
	s, err := New(config)
	if err != nil {
		return Snapshot{}, err
	}
	client, err := s.connectOnce()
	if err != nil {
		return Snapshot{}, fmt.Errorf("event hub client: %w", err)
	}
	hangUp := sync.OnceFunc(func() { _ = client.Close(context.Background()) }) // only drops the connection
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)() // a question about a partition ignores its context

	hub, err := client.GetEventHubProperties(ctx, nil)
	if err != nil {
		return Snapshot{}, s.explain(ctx, err)
	}
	states := make([]PartitionState, len(hub.PartitionIDs))
	events := make([][]telemetry.Event, len(states))
	errs := make([]error, len(states))
	var looking sync.WaitGroup
	links := make(chan struct{}, probeLinks)
	for i, id := range hub.PartitionIDs {
		links <- struct{}{}
		looking.Go(func() {
			defer func() { <-links }()
			states[i], events[i], errs[i] = s.look(ctx, client, id, perPartition)
		})
	}
	looking.Wait()

	snapshot := Snapshot{Created: hub.CreatedOn, Partitions: states}
	for i, err := range errs {
		if err != nil {
			return Snapshot{}, fmt.Errorf("partition %s: %w", hub.PartitionIDs[i], s.explain(ctx, err))
		}
		snapshot.Events = append(snapshot.Events, events[i]...)
	}
	return snapshot, nil
}

// connectOnce is connect without retries, which hide what is wrong.
func (s *Source) connectOnce() (*azeventhubs.ConsumerClient, error) {
	options := &azeventhubs.ConsumerClientOptions{
		ApplicationID: "alertworker",
		InstanceID:    s.owner,

		NewWebSocketConn: s.dialer().dial,
		RetryOptions:     azeventhubs.RetryOptions{MaxRetries: -1},
	}
	if s.config.ConnectionString == "" {
		return azeventhubs.NewConsumerClient(s.config.Namespace, s.config.Hub, s.config.ConsumerGroup, s.config.Credential, options)
	}
	hub := s.config.Hub
	if properties, err := azeventhubs.ParseConnectionString(s.config.ConnectionString); err == nil && properties.EntityPath != nil {
		hub = "" // azeventhubs refuses a hub that is named twice
	}
	return azeventhubs.NewConsumerClientFromConnectionString(s.config.ConnectionString, hub, s.config.ConsumerGroup, options)
}

// look looks at one partition and up to n of its newest events.
func (s *Source) look(ctx context.Context, client *azeventhubs.ConsumerClient, id string, n int) (PartitionState, []telemetry.Event, error) {
	properties, err := client.GetPartitionProperties(ctx, id, nil)
	if err != nil {
		return PartitionState{}, nil, err
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
		return state, nil, nil
	}

	// Without an owner level it is refused where a worker reads, and makes way
	// for one that comes.
	partition, err := client.NewPartitionClient(id, &azeventhubs.PartitionClientOptions{
		StartPosition: azeventhubs.StartPosition{SequenceNumber: &after},
		Prefetch:      -1,
	})
	if err != nil {
		return state, nil, err
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
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil: // they have expired meanwhile
	case err != nil:
		return state, nil, err
	}
	return state, appendEvents(nil, received), nil
}
