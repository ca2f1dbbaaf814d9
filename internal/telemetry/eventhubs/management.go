package eventhubs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"golang.org/x/sync/errgroup"
)

const (
	maxQueries    = 4  // at a time
	maxPartitions = 64 // that one query asks about at a time
)

// A management is the connection on which a Source asks the hub about itself,
// apart from those on which it reads. It is kept: azeventhubs renews the claim of
// every client that has asked something for as long as the claim lasts, hours,
// even if the client was closed long ago. The client reconnects by itself; there
// is a new one only after the hub has moved or did not answer.
type management struct {
	mu      sync.Mutex
	client  *azeventhubs.ConsumerClient // nil if there is none yet
	at      endpoint
	running sync.WaitGroup
	slots   chan struct{} // one for each query under way
}

// An inquiry is what a query asks with.
type inquiry struct {
	client   *azeventhubs.ConsumerClient
	at       endpoint
	answered func() // called after each answer
}

// query calls ask and returns by the time ctx ends. The call itself may take longer, up to
// queryLimit after the last answer, since azeventhubs does not let it be cancelled; at
// most maxQueries are under way, and Close waits for them.
func query[T any](ctx context.Context, s *Source, ask func(context.Context, inquiry) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	m := &s.management
	var none T
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("ask event hub: %w", context.Cause(ctx))
	}
	answered := make(chan answer, 1)
	m.running.Go(func() {
		defer func() { <-m.slots }()
		client, at, err := m.connect(s)
		if err != nil {
			answered <- answer{err: err}
			return
		}
		asking, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		defer cancel(nil)
		defer context.AfterFunc(asking, func() { m.disconnect(client) })()
		silent := time.AfterFunc(s.queryLimit, func() { cancel(fmt.Errorf("no answer within %v: %w", s.queryLimit, context.DeadlineExceeded)) })
		defer silent.Stop()
		value, err := ask(asking, inquiry{client, at, func() { silent.Reset(s.queryLimit) }})
		switch {
		case err == nil:
			s.hubAnswered()
		case asking.Err() != nil:
			err = s.hubFailed(fmt.Errorf("%w (%w)", err, context.Cause(asking)))
		default:
			err = s.hubFailed(err)
		}
		answered <- answer{value, err}
	})
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		return none, fmt.Errorf("ask event hub: %w", context.Cause(ctx))
	}
}

// connect returns the client for where the hub is at present.
func (m *management) connect(s *Source) (*azeventhubs.ConsumerClient, endpoint, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client != nil && m.at == s.endpoint() {
		return m.client, m.at, nil
	}
	if m.client != nil {
		_ = m.client.Close(context.Background()) // does not block
		m.client = nil
	}
	var err error
	if m.client, m.at, err = s.newClient(); err != nil {
		m.client = nil
	}
	return m.client, m.at, err
}

// disconnect drops a client's connection; every query on it fails.
func (m *management) disconnect(client *azeventhubs.ConsumerClient) {
	m.mu.Lock()
	if m.client == client {
		m.client = nil
	}
	m.mu.Unlock()
	_ = client.Close(context.Background())
}

// close disconnects and waits for the queries under way.
func (m *management) close() {
	m.mu.Lock()
	client := m.client
	m.mu.Unlock()
	if client != nil {
		m.disconnect(client)
	}
	m.running.Wait()
}

// A hubState is what a hub says about itself.
type hubState struct {
	at         endpoint
	created    time.Time
	partitions []string
	last       map[string]int64 // sequence numbers of the last events, by partition
}

// queryHub asks the hub about itself and those of its partitions that are wanted.
func (s *Source) queryHub(ctx context.Context, wanted func(partition string) bool) (hubState, error) {
	return query(ctx, s, func(ctx context.Context, q inquiry) (hubState, error) {
		hub, err := q.hub(ctx)
		if err != nil {
			return hubState{}, err
		}
		ids := slices.DeleteFunc(slices.Clone(hub.PartitionIDs), func(id string) bool { return !wanted(id) })
		ends, err := q.partitions(ctx, ids)
		last := make(map[string]int64, len(ends))
		for id, end := range ends {
			last[id] = end.LastEnqueuedSequenceNumber
		}
		return hubState{q.at, hub.CreatedOn, hub.PartitionIDs, last}, err
	})
}

// queryPartitions asks the hub about partitions. It fails if the hub has moved from at.
func (s *Source) queryPartitions(ctx context.Context, at endpoint, ids []string) (map[string]azeventhubs.PartitionProperties, error) {
	return query(ctx, s, func(ctx context.Context, q inquiry) (map[string]azeventhubs.PartitionProperties, error) {
		if q.at != at {
			return nil, fmt.Errorf("the hub has moved from %v to %v", at, q.at)
		}
		return q.partitions(ctx, ids)
	})
}

func (q inquiry) hub(ctx context.Context) (azeventhubs.EventHubProperties, error) {
	hub, err := q.client.GetEventHubProperties(ctx, nil)
	if err != nil {
		return hub, fmt.Errorf("ask event hub %s for its partitions: %w", q.at.hub, err)
	}
	q.answered()
	return hub, nil
}

// partitions asks about partitions, several at a time. It does not end with ctx but with the
// connection.
func (q inquiry) partitions(ctx context.Context, ids []string) (map[string]azeventhubs.PartitionProperties, error) {
	var mu sync.Mutex
	all := make(map[string]azeventhubs.PartitionProperties, len(ids))
	var asking errgroup.Group
	asking.SetLimit(maxPartitions)
	for _, id := range ids {
		asking.Go(func() error {
			err := context.Cause(ctx)
			var answer azeventhubs.PartitionProperties
			if err == nil {
				answer, err = q.client.GetPartitionProperties(ctx, id, nil)
			}
			if err != nil {
				return fmt.Errorf("ask event hub %s for partition %s: %w", q.at.hub, id, err)
			}
			q.answered()
			mu.Lock()
			defer mu.Unlock()
			all[id] = answer
			return nil
		})
	}
	return all, asking.Wait()
}
