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
	return l, err
}
