package metrics_test

import (
	"context"
	"errors"
	"flag"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/ops/metrics"
	"alertworker/internal/telemetry"
	"alertworker/internal/worker"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// state is a metrics.Worker and its source, as a test sets them.
type state struct {
	stats worker.Stats

	mu         sync.Mutex
	partitions []worker.PartitionState
	receivers  []worker.ReceiverState
	source     metrics.SourceStats
}

func (s *state) Stats() *worker.Stats { return &s.stats }

func (s *state) Partitions() []worker.PartitionState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.partitions)
}

func (s *state) Receivers() []worker.ReceiverState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.receivers)
}

func (s *state) Source() metrics.SourceStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source
}

func at(sequence int64) telemetry.Position {
	return telemetry.Position{Sequence: sequence, Offset: "offset"}
}

// samples are what a scrape sees of our own metrics.
func samples(t testing.TB, m *metrics.Metrics) model.Vector {
	t.Helper()
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "alertworker_") })
	all, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.Now()}, families...)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// values are these samples by series, without alertworker_, spelled as in `lag{partition="0"}`.
func values(t testing.TB, m *metrics.Metrics) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, s := range samples(t, m) {
		all[strings.TrimPrefix(s.Metric.String(), "alertworker_")] = float64(s.Value)
	}
	return all
}

// expect checks some values.
func expect(t testing.TB, m *metrics.Metrics, want map[string]float64) {
	t.Helper()
	got := values(t, m)
	for series, w := range want {
		if v, ok := got[series]; !ok {
			t.Errorf("there is no %s", series)
		} else if v != w {
			t.Errorf("%s is %v, want %v", series, v, w)
		}
	}
}

// answers is a lease.Store and a notify.Notifier that answer what they are told to.
type answers struct {
	record lease.Record // what Acquire shows next, if next is asked at all
	err    error
}

func (a *answers) Acquire(_ context.Context, _ string, _ time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	if a.err != nil {
		return lease.Lease{}, a.err
	}
	if _, err := next(a.record); err != nil {
		return lease.Lease{}, err
	}
	return lease.Lease{}, nil
}

func (a *answers) Extend(context.Context, lease.Lease, string, time.Duration) (lease.Lease, error) {
	return lease.Lease{}, a.err
}

func (a *answers) Release(context.Context, lease.Lease, string) error { return a.err }

func (a *answers) Read(context.Context, string) (lease.Record, error) { return a.record, a.err }

func (a *answers) Break(_ context.Context, _ string, next func(lease.Record) (string, error)) error {
	if a.err != nil {
		return a.err
	}
	_, err := next(a.record)
	return err
}

func (a *answers) Notify(context.Context, notify.Alert) error { return a.err }

var errBroken = errors.New("broken")
