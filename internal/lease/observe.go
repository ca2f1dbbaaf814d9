package lease

import (
	"context"
	"errors"
	"iter"
	"time"
)

// An Operation of a Store.
type Operation string

const (
	OpAcquire Operation = "acquire"
	OpExtend  Operation = "extend"
	OpRelease Operation = "release"
	OpBreak   Operation = "break"
)

// An Outcome is what came of a call of a Store.
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
	Err     error     // what it returned
	Lease   Lease     // that it granted, or was about; zero of a Break
	Record  Record    // the last one that it saw; zero if it saw none
	Seen    time.Time // when it saw Record
}

// An Observer is called before each call of a Store. It returns the context for
// it, and what to call when it has ended, or nil. It is called concurrently.
type Observer func(ctx context.Context, op Operation) (context.Context, func(Call))

// Observe returns next, whose calls o sees. It breaks and lists if next does;
// a List is not observed, for how long it takes is the caller's affair as well.
func Observe(next Store, o Observer) Store { return &observed{next, o} }

type observed struct {
	next     Store
	observer Observer
}

func (s *observed) Acquire(ctx context.Context, key string, ttl time.Duration, next func(Record) (string, error)) (Lease, error) {
	ctx, end := s.observer(ctx, OpAcquire)
	if end == nil {
		return s.next.Acquire(ctx, key, ttl, next)
	}
	var w witness
	l, err := s.next.Acquire(ctx, key, ttl, w.of(next))
	end(w.call(OpAcquire, l, err))
	return l, err
}

func (s *observed) Extend(ctx context.Context, l Lease, note string, ttl time.Duration) (Lease, error) {
	ctx, end := s.observer(ctx, OpExtend)
	extended, err := s.next.Extend(ctx, l, note, ttl)
	if end != nil {
		end(Call{Outcome: outcomeOf(OpExtend, err), Err: err, Lease: l})
	}
	return extended, err
}

func (s *observed) Release(ctx context.Context, l Lease, note string) error {
	ctx, end := s.observer(ctx, OpRelease)
	err := s.next.Release(ctx, l, note)
	if end != nil {
		end(Call{Outcome: outcomeOf(OpRelease, err), Err: err, Lease: l})
	}
	return err
}

// Break implements Breaker. The error Is errors.ErrUnsupported if the observed store is none.
func (s *observed) Break(ctx context.Context, key string, next func(Record) (string, error)) error {
	ctx, end := s.observer(ctx, OpBreak)
	if end == nil {
		return Break(ctx, s.next, key, next)
	}
	var w witness
	err := Break(ctx, s.next, key, w.of(next))
	end(w.call(OpBreak, Lease{}, err))
	return err
}

// List implements Lister. The error Is errors.ErrUnsupported if the observed store is none.
func (s *observed) List(ctx context.Context, prefix string) iter.Seq2[Entry, error] {
	return List(ctx, s.next, prefix)
}

// A witness sees what the store shows a caller's next, and what that answers last.
type witness struct {
	record   Record
	seen     time.Time
	declined error
}

func (w *witness) of(next func(Record) (string, error)) func(Record) (string, error) {
	return func(r Record) (note string, err error) {
		w.record, w.seen = r, time.Now()
		note, w.declined = next(r)
		return note, w.declined
	}
}

func (w *witness) call(op Operation, l Lease, err error) Call {
	c := Call{Outcome: outcomeOf(op, err), Err: err, Lease: l, Record: w.record, Seen: w.seen}
	var held *HeldError
	if errors.As(err, &held) {
		c.Record, c.Seen = held.Record, time.Now()
	}
	if w.declined != nil && errors.Is(err, w.declined) {
		c.Outcome = OutcomeDeclined
	}
	return c
}

func outcomeOf(op Operation, err error) Outcome {
	switch {
	case err == nil:
		return OutcomeOK
	case op == OpAcquire && errors.Is(err, ErrHeld):
		return OutcomeHeld
	case op == OpExtend && errors.Is(err, ErrLost):
		return OutcomeLost
	}
	return OutcomeError
}
