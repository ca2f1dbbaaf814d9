package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/ops/status"
	"alertworker/internal/records"
	"alertworker/internal/records/recordstest"
	"alertworker/internal/telemetry"
	"alertworker/internal/worker"
)

// Every call for a record says how the checkpoint store is, and who is refused was answered.
func TestRecordsAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		var network recordstest.Network
		store := watched(network.Via(&records.Memory{}), &monitor.Checkpoints)
		noAnswer := errors.New("no answer")
		const calm = 20 * time.Second // with no failure, until a store counts as usable again
		for what, call := range map[string]func() error{
			"read": func() error { _, err := store.Read(t.Context(), "name", 1); return err },
			"stat": func() error { _, err := store.Stat(t.Context(), "name"); return err },
			"list": func() error { _, err := store.List(t.Context(), "name", ""); return err },
			"write": func() error {
				_, err := store.Write(t.Context(), records.Record{Name: "name", ETag: "another"})
				return err
			},
			"delete": func() error { return store.Delete(t.Context(), "name", "another") },
		} {
			network.Fail = func(records.Op, string) error { return noAnswer }
			_ = call()
			time.Sleep(5 * time.Second) // so that it counts
			if err := call(); !errors.Is(err, noAnswer) || !down() {
				t.Errorf("%s: %v; the store is down: %t", what, err, down())
			}
			network.Fail = nil
			err := call()
			time.Sleep(calm)
			if err != nil && !errors.Is(err, records.ErrNotFound) && !errors.Is(err, records.ErrConflict) {
				t.Errorf("%s: %v", what, err)
			}
			// A conflict is an answer, and nothing was written.
			if conflict := errors.Is(err, records.ErrConflict); down() != conflict {
				t.Errorf("%s: %v; the store is down: %t", what, err, down())
			}
			_, err = store.Write(t.Context(), records.Record{Name: what})
			time.Sleep(calm)
			if err != nil || down() {
				t.Errorf("write after %s: %v; the store is down: %t", what, err, down())
			}
		}
	})
}
