package eventhubs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

const (
	// askTimeout is for the hub to answer one round of questions.
	askTimeout = 10 * time.Second

	maxInquiries = 4 // at a time
)

// An inquirer is the connection on which a Source asks the hub about itself,
// beside those on which it reads. It is kept: azeventhubs renews the claim of
// every client that has asked something for as long as the claim lasts, hours,
// even if the client was closed long ago. The client mends its connection by
// itself; there is a new one only if the hub is elsewhere or did not answer.
type inquirer struct {
	mu      sync.Mutex
	client  *azeventhubs.ConsumerClient // nil if there is none yet
	at      endpoint
	running sync.WaitGroup
	places  chan struct{}
}

// inquire asks question and returns by the time ctx ends. The question itself may
// take longer, up to askTimeout, since azeventhubs does not let it be cancelled;
// no more than maxInquiries are under way, and Close waits for them.
func inquire[T any](ctx context.Context, s *Source, question func(context.Context, *azeventhubs.ConsumerClient, endpoint) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	select {
	case s.inquirer.places <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("ask event hub: %w", context.Cause(ctx))
	}
	answered := make(chan answer, 1)
	s.inquirer.running.Go(func() {
		defer func() { <-s.inquirer.places }()
		client, at, err := s.inquirer.dial(s)
		if err != nil {
			answered <- answer{err: err}
			return
		}
		asking, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), askTimeout, fmt.Errorf("no answer within %v", askTimeout))
		defer cancel()
		defer context.AfterFunc(asking, func() { s.inquirer.hangUp(client) })()
		value, err := question(asking, client, at)
		answered <- answer{value, err}
	})
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		return none, fmt.Errorf("ask event hub: %w", context.Cause(ctx))
	}
}

// dial returns the client for where the hub is.
func (i *inquirer) dial(s *Source) (*azeventhubs.ConsumerClient, endpoint, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.client != nil && i.at == s.endpoint() {
		return i.client, i.at, nil
	}
	if i.client != nil {
		_ = i.client.Close(context.Background()) // only drops the connection
		i.client = nil
	}
	var err error
	if i.client, i.at, err = s.newClient(); err != nil {
		i.client = nil
	}
	return i.client, i.at, err
}

// hangUp drops a client's connection; all that is asked on it fails.
func (i *inquirer) hangUp(client *azeventhubs.ConsumerClient) {
	i.mu.Lock()
	if i.client == client {
		i.client = nil
	}
	i.mu.Unlock()
	_ = client.Close(context.Background())
}

// Close ends what questions to the hub have left open. Call it when Run has
// returned and nobody asks any more.
func (s *Source) Close() {
	s.inquirer.mu.Lock()
	client := s.inquirer.client
	s.inquirer.client = nil
	s.inquirer.mu.Unlock()
	if client != nil {
		_ = client.Close(context.Background()) // only drops the connection
	}
	s.inquirer.running.Wait()
}
