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

	"alertworker/internal/ops/metrics/metricstest"
)

const docsFile = "../../../docs/metrics.md"

// free are labels whose values docs/metrics.md describes, for they depend on
// what is set up or built. Those of the others are written out.
var free = []string{"partition", "receiver", "rule", "level", "store", "version", "revision", "goversion"}

// The tables of docs/metrics.md are those of the registry. They are also the list
// of names that operators hold on to: think before you change them with -update.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	for heading, table := range tables(t) {
		before, rest, ok := strings.Cut(doc, heading+"\n")
		if !ok {
			t.Fatalf("%s has no %q", docsFile, heading)
		}
		i := strings.Index(rest, "\n\n")
		if i < 0 {
			i = len(rest) - 1
		}
		is, after := rest[:i+1], rest[i+1:]
		if is != table && !*update {
			t.Errorf("%s, below %q, is not what the registry has; go test ./internal/ops/metrics -update writes:\n%s\nit is:\n%s", docsFile, heading, table, is)
		}
		doc = before + heading + "\n" + table + after
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

// tables are what the registry has, by the heads of the tables of docs/metrics.md.
func tables(t *testing.T) map[string]string {
	t.Helper()
	var metrics, labels strings.Builder
	fmt.Fprintln(&metrics, "|---|---|---|---|")
	fmt.Fprintln(&labels, "|---|---|---|")
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
			names := slices.Sorted(maps.Keys(values))
			fmt.Fprintf(&metrics, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), quoted(names), f.GetHelp())
			for _, name := range names {
				if !slices.Contains(free, name) {
					fmt.Fprintf(&labels, "| `%s` | `%s` | %s |\n", f.GetName(), name, quoted(slices.Sorted(maps.Keys(values[name]))))
				}
			}
		}
	})
	return map[string]string{
		"| metric | type | labels | |": metrics.String(),
		"| metric | label | values |":  labels.String(),
	}
}

func quoted(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "` `") + "`"
}
