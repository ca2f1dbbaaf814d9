package observe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/lease/observe"
)

// An observer sees what came of each call, and the call gets its context.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var seen []string
		var last observe.Call
		inner := &contexts{Store: memlease.New(), key: key{}}
		s := observe.Store(inner, func(ctx context.Context, op observe.Operation) (context.Context, func(observe.Call)) {
			return context.WithValue(ctx, key{}, "observed"), func(c observe.Call) {
				last = c
				seen = append(seen, fmt.Sprint(op, " ", c.Outcome, " ", c.Lease.Token > 0))
			}
		})
		note := func(text string) func(lease.Record) (string, error) {
			return func(lease.Record) (string, error) { return text, nil }
		}
		no := errors.New("no")
		ctx := t.Context()

		l, err := s.Acquire(ctx, "k", time.Minute, note("claim"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.Acquire(ctx, "k", time.Minute, note("other"))
		if !errors.Is(last.Err, lease.ErrHeld) {
			t.Errorf("of a refusal it sees %+v", last)
		}
		_, _ = s.Extend(ctx, l, "window", time.Minute)
		_ = s.Release(ctx, l, "")
		_, _ = s.Extend(ctx, l, "late", time.Minute)
		_, err = s.Acquire(ctx, "k", time.Minute, func(lease.Record) (string, error) { return "", no })
		if err != no { //nolint:errorlint // as it is
			t.Errorf("Acquire returned %v, want next's error as it is", err)
		}
		inner.err = errors.New("service unavailable")
		_, _ = s.Acquire(ctx, "k", time.Minute, note(""))
		_, _ = s.Extend(ctx, l, "", time.Minute)
		_ = s.Release(ctx, l, "")

		want := []string{
			"acquire ok true", "acquire held false", "extend ok true", "release ok true", "extend lost true", "acquire declined false",
			"acquire error false", "extend error true", "release error true",
		}
		if !slices.Equal(seen, want) {
			t.Errorf("seen\n%q, want\n%q", seen, want)
		}
		if inner.strange > 0 {
			t.Errorf("%d calls without the observer's context", inner.strange)
		}
	})
}

// contexts is a store that looks for a key in the contexts of its calls.
type contexts struct {
	*memlease.Store
	key     any
	err     error
	strange int
}

func (s *contexts) look(ctx context.Context) error {
	if ctx.Value(s.key) == nil {
		s.strange++
	}
	return s.err
}

func (s *contexts) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	if err := s.look(ctx); err != nil {
		return lease.Lease{}, err
	}
	return s.Store.Acquire(ctx, key, ttl, next)
}

func (s *contexts) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	if err := s.look(ctx); err != nil {
		return lease.Lease{}, err
	}
	return s.Store.Extend(ctx, l, note, ttl)
}

func (s *contexts) Release(ctx context.Context, l lease.Lease, note string) error {
	if err := s.look(ctx); err != nil {
		return err
	}
	return s.Store.Release(ctx, l, note)
}
