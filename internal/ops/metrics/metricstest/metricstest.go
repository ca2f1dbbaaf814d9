// Package metricstest simulates replicas for tests of metrics, and of the alert
// rules and the dashboard that are built on them.
package metricstest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"alertworker/internal/delivery"
	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/ops/metrics"
	"alertworker/internal/partition"
	"alertworker/internal/telemetry"
	"alertworker/internal/worker"
)

// ErrBroken is what stubs fail with.
var ErrBroken = errors.New("broken")

// At returns a position in a partition.
func At(sequence int64) telemetry.Position {
	return telemetry.Position{Sequence: sequence, Offset: "offset"}
}

// A Worker is a metrics.Worker and its source, as a test sets them. The lock
// guards all fields but Counts.
type Worker struct {
	sync.Mutex
	Counts          worker.Stats
	PartitionStates []partition.State
	ReceiverStates  []delivery.ReceiverState
	SourceStats     telemetry.SourceStats
	Alarms          []partition.AlarmCounts // as many as Counts.Levels
	UnreadDevices   partition.Unreadables
}

func (w *Worker) Stats() *worker.Stats { return &w.Counts }

func (w *Worker) Partitions() []partition.State {
	w.Lock()
	defer w.Unlock()
	return slices.Clone(w.PartitionStates)
}

func (w *Worker) Receivers() []delivery.ReceiverState {
	w.Lock()
	defer w.Unlock()
	return slices.Clone(w.ReceiverStates)
}

func (w *Worker) AlarmCounts() []partition.AlarmCounts {
	w.Lock()
	defer w.Unlock()
	return slices.Clone(w.Alarms)
}

func (w *Worker) Unreadable() partition.Unreadables {
	w.Lock()
	defer w.Unlock()
	return w.UnreadDevices
}

func (w *Worker) Source() telemetry.SourceStats {
	w.Lock()
	defer w.Unlock()
	return w.SourceStats
}

// Families returns what a scrape of m returns, of our own metrics.
func Families(t testing.TB, m *metrics.Metrics) []*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("scrape: status %d: %s", w.Code, w.Body)
	}

	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}

	var own []*dto.MetricFamily
	for name, f := range all {
		if strings.HasPrefix(name, "alertworker_") {
			own = append(own, f)
		}
	}

	slices.SortFunc(own, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })

	return own
}

// Samples returns the samples of Families.
func Samples(t testing.TB, m *metrics.Metrics) model.Vector {
	t.Helper()
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.Now()}, Families(t, m)...)
	if err != nil {
		t.Fatal(err)
	}

	return samples
}

// A Stub is a lease.Store and a notify.Notifier that answer as a test says.
type Stub struct {
	Err   error
	Delay time.Duration // of Notify
}

func (s *Stub) Acquire(
	_ context.Context,
	_ string,
	_ time.Duration,
	next func(lease.Record) (string, error),
) (lease.Lease, error) {
	if s.Err != nil {
		return lease.Lease{}, s.Err
	}
	_, err := next(lease.Record{})
	return lease.Lease{}, err
}

func (s *Stub) Extend(context.Context, lease.Lease, string, time.Duration) (lease.Lease, error) {
	return lease.Lease{}, s.Err
}

func (s *Stub) Release(context.Context, lease.Lease, string) error { return s.Err }

func (s *Stub) Read(context.Context, string) (lease.Record, error) { return lease.Record{}, s.Err }

func (s *Stub) Notify(context.Context, ...notify.Alert) error {
	time.Sleep(s.Delay)
	return s.Err
}
