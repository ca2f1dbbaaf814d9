package rules

import (
	"maps"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// check parses expr. Each selector in it must find something among every, and
// nothing may be grouped by a label that is not there.
func check(t *testing.T, where, expr string, every model.Vector) {
	t.Helper()
	parsed, err := parser.ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v in\n%s", where, err, expr)
		return
	}
	grouped := func(labels []string, by parser.Expr) {
		known := maps.Clone(scraped)
		parser.Inspect(by, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok {
				for _, m := range selected(every, s) {
					for name := range m {
						known[string(name)] = ""
					}
				}
			}
			return nil
		})
		for _, name := range labels {
			if _, ok := known[name]; !ok {
				t.Errorf("%s: no label %q to group by in %s", where, name, by)
			}
		}
	}
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			if len(selected(every, n)) == 0 {
				t.Errorf("%s: %s selects nothing that we have", where, n)
			}
		case *parser.AggregateExpr:
			grouped(n.Grouping, n.Expr)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				grouped(n.VectorMatching.MatchingLabels, n)
			}
		}
		return nil
	})
}

func selected(every model.Vector, s *parser.VectorSelector) (found []model.Metric) {
	for _, sample := range every {
		if matches(sample.Metric, s.LabelMatchers) {
			found = append(found, sample.Metric)
		}
	}
	return found
}
