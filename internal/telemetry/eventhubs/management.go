package eventhubs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

const (
	queryTimeout  = 10 * time.Second // for the hub to answer one query
	maxQueries    = 4                // at a time
	maxPartitions = 8                // that one query asks about at a time
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

// query calls ask and returns by the time ctx ends. The call itself may take
// longer, up to queryTimeout, since azeventhubs does not let it be cancelled; at
// most maxQueries are under way, and Close waits for them.
func query[T any](ctx context.Context, s *Source, ask func(context.Context, *azeventhubs.ConsumerClient, endpoint) (T, error)) (T, error) {
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
		asking, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), queryTimeout, fmt.Errorf("no answer within %v", queryTimeout))
		defer cancel()
		defer context.AfterFunc(asking, func() { m.disconnect(client) })()
		value, err := ask(asking, client, at)
		if err == nil {
			s.hubAnswered()
		} else {
			err = s.hubFailed(asking, err)
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
	created    time.Time
	partitions []string
	last       map[string]int64 // sequence numbers of the last events, by partition
}

// queryHub asks the hub about itself and those of its partitions that are wanted.
func (s *Source) queryHub(ctx context.Context, wanted func(partition string) bool) (hubState, error) {
	return query(ctx, s, func(ctx context.Context, client *azeventhubs.ConsumerClient, at endpoint) (hubState, error) {
		hub, err := client.GetEventHubProperties(ctx, nil)
		if err != nil {
			return hubState{}, fmt.Errorf("ask event hub %s for its partitions: %w", at.hub, err)
		}
		ids := slices.DeleteFunc(slices.Clone(hub.PartitionIDs), func(id string) bool { return !wanted(id) })
		last, err := lastSequences(ctx, client, at, ids)
		return hubState{hub.CreatedOn, hub.PartitionIDs, last}, err
	})
}

// partitionProperties asks the hub about partitions, several at a time. It does
// not end with ctx but with the connection.
func partitionProperties(ctx context.Context, client *azeventhubs.ConsumerClient, at endpoint, ids []string) (map[string]azeventhubs.PartitionProperties, error) {
	answers := make([]azeventhubs.PartitionProperties, len(ids))
	errs := make([]error, len(ids))
	slots := make(chan struct{}, maxPartitions)
	var asking sync.WaitGroup
	for i, id := range ids {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			if errs[i] = context.Cause(ctx); errs[i] == nil {
				answers[i], errs[i] = client.GetPartitionProperties(ctx, id, nil)
			}
		})
	}
	asking.Wait()
	all := make(map[string]azeventhubs.PartitionProperties, len(ids))
	for i, id := range ids {
		if errs[i] != nil {
			return nil, fmt.Errorf("ask event hub %s for partition %s: %w", at.hub, id, errs[i])
		}
		all[id] = answers[i]
	}
	return all, nil
}
