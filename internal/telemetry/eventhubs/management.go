package eventhubs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"golang.org/x/sync/errgroup"

	"alertworker/internal/backoff"
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

// A hubState is what a hub says about itself.
type hubState struct {
	at         endpoint
	created    time.Time
	partitions []string
	ends       map[string]azeventhubs.PartitionProperties // of the partitions that it was asked about
}

func (state hubState) generation() string { return state.at.generation(state.created) }

func every(string) bool { return true }

// query asks the hub about itself and those of its partitions that are wanted. It returns by the time
// ctx ends. The call itself may take longer, up to queryLimit after the last answer, since azeventhubs
// does not let it be cancelled; at most maxQueries are under way, and Close waits for them.
func (s *Source) query(ctx context.Context, wanted func(partition string) bool) (hubState, error) {
	type answer struct {
		state hubState
		err   error
	}
	m := &s.management
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		return hubState{}, fmt.Errorf("ask event hub: %w", context.Cause(ctx))
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
		state, err := ask(asking, client, at, wanted, func() { silent.Reset(s.queryLimit) })
		switch {
		case err == nil:
			s.hubAnswered()
		case asking.Err() != nil:
			err = s.hubFailed(fmt.Errorf("%w (%w)", err, context.Cause(asking)))
		default:
			err = s.hubFailed(err)
		}
		answered <- answer{state, err}
	})
	select {
	case a := <-answered:
		return a.state, a.err
	case <-ctx.Done():
		return hubState{}, fmt.Errorf("ask event hub: %w", context.Cause(ctx))
	}
}

// queryAgain is query, some time after an answer that may have been stale: one answer proves nothing.
func (s *Source) queryAgain(ctx context.Context, wanted func(partition string) bool) (hubState, error) {
	backoff.Sleep(ctx, s.secondThought)
	return s.query(ctx, wanted)
}

// ask asks the hub that client is for, about several partitions at a time, and calls answered after each answer. It does
// not end with ctx but with the connection.
func ask(ctx context.Context, client *azeventhubs.ConsumerClient, at endpoint, wanted func(partition string) bool, answered func()) (hubState, error) {
	hub, err := client.GetEventHubProperties(ctx, nil)
	if err != nil {
		return hubState{}, fmt.Errorf("ask event hub %s for its partitions: %w", at.hub, err)
	}
	answered()
	state := hubState{at: at, created: hub.CreatedOn, partitions: hub.PartitionIDs, ends: map[string]azeventhubs.PartitionProperties{}}
	var mu sync.Mutex
	var asking errgroup.Group
	asking.SetLimit(maxPartitions)
	for _, id := range hub.PartitionIDs {
		if !wanted(id) {
			continue
		}
		asking.Go(func() error {
			err := context.Cause(ctx)
			var end azeventhubs.PartitionProperties
			if err == nil {
				end, err = client.GetPartitionProperties(ctx, id, nil)
			}
			if err != nil {
				return fmt.Errorf("ask event hub %s for partition %s: %w", at.hub, id, err)
			}
			answered()
			mu.Lock()
			defer mu.Unlock()
			state.ends[id] = end
			return nil
		})
	}
	return state, asking.Wait()
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
	client, at, err := s.newClient(retries)
	if err == nil {
		m.client, m.at = client, at
	}
	return client, at, err
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
