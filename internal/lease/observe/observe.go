// Package observe has the calls of a lease.Store seen by who counts or times them. Neither stores nor their
// users know.
package observe

import (
	"context"
	"errors"
	"slices"
	"time"

	"alertworker/internal/lease"
)

// An Operation of a lease.Store.
type Operation string

const (
	OpAcquire Operation = "acquire"
	OpExtend  Operation = "extend"
	OpRelease Operation = "release"
	OpRead    Operation = "read"
)

// An Outcome is what came of a call of a lease.Store.
type Outcome string

const (
	OutcomeOK       Outcome = "ok"
	OutcomeHeld     Outcome = "held"     // an answer: somebody has the key
	OutcomeLost     Outcome = "lost"     // an answer: the lease is not current any more
	OutcomeDeclined Outcome = "declined" // the caller, shown the record, wanted no change
	OutcomeError    Outcome = "error"    // no usable answer
)

// A Call is one that has ended.
type Call struct {
	Outcome Outcome
	Err     error       // what it returned
	Lease   lease.Lease // that it granted, or was about; zero of a Read
}

// An Observer is called before each call of a lease.Store. It returns the context for
// it, and what to call when it has ended. It is called concurrently.
type Observer func(ctx context.Context, op Operation) (context.Context, func(Call))

// Store returns next, whose calls the observers see, the first of them
// outermost: it begins before the others and ends after them.
func Store(next lease.Store, observers ...Observer) lease.Store {
	for _, o := range slices.Backward(observers) {
		next = observed{next, o}
	}

	return next
}

type observed struct {
	next     lease.Store
	observer Observer
}

func (s observed) Acquire(
	ctx context.Context,
	key string,
	ttl time.Duration,
	next func(lease.Record) (string, error),
) (lease.Lease, error) {
	ctx, end := s.observer(ctx, OpAcquire)
	var declined error // what next returned last
	l, err := s.next.Acquire(ctx, key, ttl, func(r lease.Record) (note string, err error) {
		note, declined = next(r)
		return note, declined
	})
	c := Call{Outcome: outcomeOf(err), Err: err, Lease: l}
	if declined != nil && errors.Is(err, declined) {
		c.Outcome = OutcomeDeclined
	}

	end(c)
	return l, err
}

func (s observed) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	ctx, end := s.observer(ctx, OpExtend)
	extended, err := s.next.Extend(ctx, l, note, ttl)
	end(Call{Outcome: outcomeOf(err), Err: err, Lease: l})
	return extended, err
}

func (s observed) Release(ctx context.Context, l lease.Lease, note string) error {
	ctx, end := s.observer(ctx, OpRelease)
	err := s.next.Release(ctx, l, note)
	end(Call{Outcome: outcomeOf(err), Err: err, Lease: l})
	return err
}

func (s observed) Read(ctx context.Context, key string) (lease.Record, error) {
	ctx, end := s.observer(ctx, OpRead)
	r, err := s.next.Read(ctx, key)
	end(Call{Outcome: outcomeOf(err), Err: err})
	return r, err
}

func outcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return OutcomeOK
	case errors.Is(err, lease.ErrHeld):
		return OutcomeHeld
	case errors.Is(err, lease.ErrLost):
		return OutcomeLost
	}

	return OutcomeError
}
