package main

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/ops/status"
	"alertworker/internal/partition"
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
			Worker: worker.New(worker.Config{Partitions: partition.Config{Log: zap.NewNop()}}), Source: func() telemetry.SourceStats { return telemetry.SourceStats{} },
			Standby: func() string { return "" },
		})
		down := func() bool { return saysCheckpoints(monitor) }
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

// saysCheckpoints reports whether m says that the checkpoint store cannot be used, or could not a moment ago.
func saysCheckpoints(m *status.Monitor) bool {
	return slices.ContainsFunc(m.Report().Problems, func(p status.Problem) bool { return p.By == status.ByCheckpoints })
}

// A checkpoint store that answers one request in three is said to fail, soon and for as long as it does, although few
// calls go there and nearly all succeed when they are repeated. One short burst of failures is not said.
func TestStoreThatAnswersOneInThree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		monitor := status.New(zap.NewNop())
		monitor.Watch(status.Replica{
			Worker: worker.New(worker.Config{Partitions: partition.Config{Log: zap.NewNop()}}), Source: func() telemetry.SourceStats { return telemetry.SourceStats{} },
			Standby: func() string { return "" },
		})
		var network recordstest.Network
		store := watched(records.Reliable(network.Via(&records.Memory{})), &monitor.Checkpoints)
		noAnswer := errors.New("no answer")
		use := func() { // what a replica that owns little does every three seconds, looked at once a second
			if _, err := store.Write(t.Context(), records.Record{Name: "owner", ETag: records.Any}); err != nil && network.Fail == nil {
				t.Error(err)
			}
			if _, err := store.List(t.Context(), "", ""); err != nil && network.Fail == nil {
				t.Error(err)
			}
			time.Sleep(3 * time.Second)
		}

		burst := time.Now().Add(2 * time.Second)
		network.Fail = func(records.Op, string) error {
			if time.Now().Before(burst) {
				return noAnswer
			}
			return nil
		}
		for range 100 {
			use()
			if saysCheckpoints(monitor) {
				t.Fatalf("two seconds without an answer are said: %+v", monitor.Report())
			}
		}

		random := rand.New(rand.NewPCG(1, 2))
		network.Fail = func(records.Op, string) error {
			if random.IntN(3) > 0 {
				return noAnswer
			}
			return nil
		}
		began := time.Now()
		for !saysCheckpoints(monitor) {
			use()
			if took := time.Since(began); took > 90*time.Second {
				t.Fatalf("after %v it says %q", took, monitor.Report().Headline)
			}
		}
		t.Logf("said after %v", time.Since(began))
		for range 200 {
			use()
			if !saysCheckpoints(monitor) {
				t.Fatalf("it does not stay said: %v after the fault began", time.Since(began))
			}
		}

		network.Fail = nil
		for range 6 {
			use()
		}
		if saysCheckpoints(monitor) {
			t.Errorf("18 s after it was mended: %+v", monitor.Report().Problems)
		}
	})
}
