package eventhubs_test

import (
	"context"
	"sync"

	"alertworker/internal/telemetry/eventhubs"
)

// A faultyStore is a checkpoint store that fails on demand.
type faultyStore struct {
	eventhubs.MemoryCheckpoints

	mu   sync.Mutex
	fail func(method string) error // asked before each call, concurrently
}

func newFaultyStore() *faultyStore {
	return &faultyStore{fail: func(string) error { return nil }}
}

func (s *faultyStore) failWith(fail func(method string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

func (s *faultyStore) ask(method string) error {
	s.mu.Lock()
	fail := s.fail
	s.mu.Unlock()
	return fail(method)
}

func (s *faultyStore) List(ctx context.Context, prefix string) (map[string]eventhubs.Record, error) {
	if err := s.ask("List"); err != nil {
		return nil, err
	}
	return s.MemoryCheckpoints.List(ctx, prefix)
}

func (s *faultyStore) Read(ctx context.Context, name string) (eventhubs.Record, error) {
	if err := s.ask("Read"); err != nil {
		return eventhubs.Record{}, err
	}
	return s.MemoryCheckpoints.Read(ctx, name)
}

func (s *faultyStore) Write(ctx context.Context, name string, values map[string]string, etag string) (string, error) {
	if err := s.ask("Write"); err != nil {
		return "", err
	}
	return s.MemoryCheckpoints.Write(ctx, name, values, etag)
}
