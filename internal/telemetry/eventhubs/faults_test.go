package eventhubs_test

import (
	"context"
	"strings"
	"sync"

	"alertworker/internal/records"
)

// A faultyStore is a store that fails on demand.
type faultyStore struct {
	records.Store
	well records.Memory // behind it

	mu   sync.Mutex
	fail func(method string) error // asked before each call, concurrently
}

func newFaultyStore() *faultyStore {
	s := &faultyStore{fail: func(string) error { return nil }}
	s.Store = records.Around(&s.well, func(ctx context.Context, op records.Op, name string, call func(context.Context) error) error {
		s.mu.Lock()
		fail := s.fail
		s.mu.Unlock()
		if err := fail(method(op, name)); err != nil {
			return err
		}
		return call(ctx)
	})
	return s
}

// method names what is done to a record of that name, or to those with that prefix.
func method(op records.Op, name string) string {
	switch {
	case op == records.OpList && strings.HasSuffix(name, "/owner"):
		return "ListOwnership"
	case op == records.OpList:
		return "List"
	case op == records.OpStat:
		return "Read"
	case op == records.OpWrite && strings.Contains(name, "/ownership/"):
		return "Claim"
	case op == records.OpWrite && strings.Contains(name, "/owner/"):
		return "Beat"
	case op == records.OpWrite:
		return "Write"
	}
	return string(op)
}

func (s *faultyStore) failWith(fail func(method string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}
