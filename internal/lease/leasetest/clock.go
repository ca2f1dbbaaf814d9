package leasetest

import (
	"context"
	"errors"
	"time"

	"alertworker/internal/lease"
)

// Ahead returns s as it would be if its service's clock were ahead of this
// machine's by so much, or behind if that is negative.
func Ahead(s lease.Store, by time.Duration) lease.Store { return ahead{s, by} }

type ahead struct {
	lease.Store
	by time.Duration
}

func (a ahead) record(r lease.Record) lease.Record {
	for _, t := range []*time.Time{&r.Claimed, &r.Written, &r.Now} {
		if !t.IsZero() {
			*t = t.Add(a.by).Round(0)
		}
	}

	return r
}

func (a ahead) Read(ctx context.Context, key string) (lease.Record, error) {
	r, err := a.Store.Read(ctx, key)
	return a.record(r), err
}

func (a ahead) Acquire(
	ctx context.Context,
	key string,
	ttl time.Duration,
	next func(lease.Record) (string, error),
) (lease.Lease, error) {
	l, err := a.Store.Acquire(ctx, key, ttl, func(r lease.Record) (string, error) { return next(a.record(r)) })
	if held := (*lease.HeldError)(nil); errors.As(err, &held) {
		err = &lease.HeldError{Key: held.Key, Record: a.record(held.Record), Until: held.Until}
	}
	return a.lease(l, a.by), err
}

func (a ahead) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	l, err := a.Store.Extend(ctx, a.lease(l, -a.by), note, ttl)
	return a.lease(l, a.by), err
}

func (a ahead) Release(ctx context.Context, l lease.Lease, note string) error {
	return a.Store.Release(ctx, a.lease(l, -a.by), note)
}

// lease returns l as it is by a clock that is ahead by so much.
func (a ahead) lease(l lease.Lease, by time.Duration) lease.Lease {
	if !l.Claimed.IsZero() {
		l.Claimed = l.Claimed.Add(by).Round(0)
	}
	return l
}
