package metrics_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"alertworker/internal/ops/metrics/metricstest"
)

const (
	docsFile = "../../../docs/metrics.md"
	head     = "| metric | labels | |"
)

// free are labels whose values docs/metrics.md describes, because they depend on
// what is set up or built. The values of the others are written out.
var free = []string{"partition", "receiver", "rule", "level", "store", "version", "revision", "goversion"}

// The table of docs/metrics.md is that of the registry. It is also the list
// of names that operators hold on to: think before you change it with -update.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	before, rest, ok := strings.Cut(doc, head+"\n")
	if !ok {
		t.Fatalf("%s has no %q", docsFile, head)
	}
	i := strings.Index(rest, "\n\n")
	if i < 0 {
		i = len(rest) - 1
	}
	if want := table(t); rest[:i+1] != want && !*update {
		t.Errorf("%s is not what the registry has; go test ./internal/ops/metrics -update writes:\n%s\nit is:\n%s", docsFile, want, rest[:i+1])
	} else {
		doc = before + head + "\n" + want + rest[i+1:]
	}
	if *update {
		if err := os.WriteFile(docsFile, []byte(doc), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Names, units and help follow Prometheus' practice.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := metricstest.NewReplica()
		w.Step(t)
		problems, err := promlint.NewWithMetricFamilies(metricstest.Families(t, w.Metrics)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
}

// table is what the registry has, below the head of the table of docs/metrics.md.
func table(t *testing.T) string {
	t.Helper()
	var rows strings.Builder
	fmt.Fprintln(&rows, "|---|---|---|")
	synctest.Test(t, func(t *testing.T) {
		w := metricstest.NewReplica()
		w.Step(t)
		for _, f := range metricstest.Families(t, w.Metrics) {
			values := map[string]map[string]bool{}
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if values[l.GetName()] == nil {
						values[l.GetName()] = map[string]bool{}
					}
					values[l.GetName()][l.GetValue()] = true
				}
			}
			var labels []string
			for _, name := range slices.Sorted(maps.Keys(values)) {
				label := "`" + name + "`"
				if !slices.Contains(free, name) {
					label += ": `" + strings.Join(slices.Sorted(maps.Keys(values[name])), "` `") + "`"
				}
				labels = append(labels, label)
			}
			if got, want := f.GetType(), kind(f.GetName()); got != want {
				t.Errorf("%s is a %v, and its name says %v", f.GetName(), got, want)
			}
			fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", f.GetName(), strings.Join(labels, "; "), f.GetHelp())
		}
	})
	return rows.String()
}

// kind is the type that a name stands for, as docs/metrics.md says.
func kind(name string) dto.MetricType {
	switch {
	case strings.HasSuffix(name, "_total"):
		return dto.MetricType_COUNTER
	case strings.HasSuffix(name, "_duration_seconds"), strings.HasSuffix(name, "_delay_seconds"):
		return dto.MetricType_HISTOGRAM
	}
	return dto.MetricType_GAUGE
}
