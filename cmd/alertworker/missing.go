package main

import (
	"context"
	"errors"
	"sync/atomic"

	"alertworker/internal/azure"
	"alertworker/internal/lease"
)

// missingContainers tracks containers that were deleted while the replica runs and could not
// be created again. Without them no alert can leave, so the replica is not ready. It recovers
// by itself, because calls go on trying. A nil one tracks nothing.
type missingContainers struct {
	checkpoints []*azure.Container
	throttle    atomic.Pointer[azure.MissingError]
}

// observe is a lease.Observer of the throttle store.
func (m *missingContainers) observe(ctx context.Context, _ lease.Operation) (context.Context, func(lease.Call)) {
	return ctx, func(c lease.Call) {
		var missing *azure.MissingError
		if c.Outcome != lease.OutcomeError || errors.As(c.Err, &missing) {
			m.throttle.Store(missing)
		}
	}
}

// reason says what is missing and what to do; empty if nothing is.
func (m *missingContainers) reason() string {
	if m == nil {
		return ""
	}
	if err := m.throttle.Load(); err != nil {
		return err.Error()
	}
	for _, c := range m.checkpoints {
		if err := c.Missing(); err != nil {
			return err.Error()
		}
	}
	return ""
}
