package main

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/zap"

	"alertworker/internal/ledger"
	"alertworker/internal/ops/status"
	"alertworker/internal/telemetry"
	"alertworker/internal/worker"
)

// failingLedgers fails while it has an error.
type failingLedgers struct {
	ledger.Memory
	err error
}

func (f *failingLedgers) Read(ctx context.Context, name string) (ledger.Record, error) {
	if f.err != nil {
		return ledger.Record{}, f.err
	}
	return f.Memory.Read(ctx, name)
}

func (f *failingLedgers) Owner(ctx context.Context, name string) (string, error) {
	if f.err != nil {
		return "", f.err
	}
	return f.Memory.Owner(ctx, name)
}

func (f *failingLedgers) Write(ctx context.Context, name string, r ledger.Record) (string, error) {
	if f.err != nil {
		return "", f.err
	}
	return f.Memory.Write(ctx, name, r)
}

// Every call for a ledger says how the checkpoint store is, and who is refused was answered.
func TestLedgersAreWatched(t *testing.T) {
	monitor := status.New(zap.NewNop())
	monitor.Watch(status.Replica{
		Worker: worker.New(worker.Config{Log: zap.NewNop()}), Source: func() telemetry.SourceStats { return telemetry.SourceStats{} },
		Standby: func() string { return "" },
	})
	down := func() bool {
		for _, p := range monitor.Report().Problems {
			if p.By == status.ByCheckpoints {
				return true
			}
		}
		return false
	}
	store := &failingLedgers{}
	watched := watchedLedgers{store, &monitor.Checkpoints}
	for what, call := range map[string]func() error{
		"read":  func() error { _, err := watched.Read(t.Context(), "name"); return err },
		"owner": func() error { _, err := watched.Owner(t.Context(), "name"); return err },
		"write": func() error {
			_, err := watched.Write(t.Context(), "name", ledger.Record{ETag: "another"})
			if errors.Is(err, ledger.ErrConflict) {
				return nil
			}
			return err
		},
	} {
		store.err = errors.New("no answer")
		if err := call(); !errors.Is(err, store.err) || !down() {
			t.Errorf("%s: %v; the store is down: %t", what, err, down())
		}
		store.err = nil
		if err := call(); err != nil || down() {
			t.Errorf("%s: %v; the store is down: %t", what, err, down())
		}
	}
}
