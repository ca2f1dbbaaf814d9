package eventhubs_test

import (
	"context"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

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

func (s *faultyStore) ListCheckpoints(ctx context.Context, namespace, hub, group string, o *azeventhubs.ListCheckpointsOptions) ([]azeventhubs.Checkpoint, error) {
	if err := s.ask("ListCheckpoints"); err != nil {
		return nil, err
	}
	return s.MemoryCheckpoints.ListCheckpoints(ctx, namespace, hub, group, o)
}

func (s *faultyStore) SetCheckpoint(ctx context.Context, c azeventhubs.Checkpoint, o *azeventhubs.SetCheckpointOptions) error {
	if err := s.ask("SetCheckpoint"); err != nil {
		return err
	}
	return s.MemoryCheckpoints.SetCheckpoint(ctx, c, o)
}
