package metrics_test

import (
	"flag"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"alertworker/internal/ops/metrics"
	"alertworker/internal/ops/metrics/metricstest"
)

var update = flag.Bool("update", false, "write the tables of docs/metrics.md")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// values are these samples by series, without alertworker_, spelled as in `lag{partition="0"}`.
func values(t testing.TB, m *metrics.Metrics) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, s := range metricstest.Samples(t, m) {
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
