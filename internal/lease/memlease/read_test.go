package memlease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
)

func TestRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ctx := memlease.New(), t.Context()
		read := func() lease.Record {
			t.Helper()
			r, err := s.Read(ctx, "key")
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if got, want := read(), (lease.Record{Now: time.Now()}); got != want {
			t.Errorf("of a key never taken: %+v, want %+v", got, want)
		}

		l, err := s.Acquire(ctx, "key", time.Minute, func(lease.Record) (string, error) { return "held", nil })
		if err != nil {
			t.Fatalf("after a read the key is not free: %v", err)
		}
		taken := time.Now()
		time.Sleep(time.Second)
		want := lease.Record{Note: "held", Token: l.Token, Claimed: taken, Written: taken, Hold: time.Minute, Now: time.Now()}
		if got := read(); got != want {
			t.Errorf("of a held key: %+v, want %+v", got, want)
		}
		if _, err := s.Extend(ctx, l, "held", time.Minute); err != nil {
			t.Errorf("a read disturbs the holder: %v", err)
		}

		if err := s.Release(ctx, l, "released"); err != nil {
			t.Fatal(err)
		}
		if got := read(); got.Note != "released" || got.Hold != 0 || got.Token != l.Token {
			t.Errorf("of a released key: %+v", got)
		}
		if _, err := s.Acquire(ctx, "key", time.Minute, func(r lease.Record) (string, error) {
			if r.Note != "released" {
				t.Errorf("a read left the note %q", r.Note)
			}
			return "", nil
		}); err != nil {
			t.Errorf("a read took the key: %v", err)
		}
	})
}

func TestReadFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := memlease.New().Read(ctx, "key"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
