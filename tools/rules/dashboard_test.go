package rules

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"alertworker/internal/ops/metrics/metricstest"
)

const dashboardFile = "../../deploy/grafana/alertworker.json"

var (
	legendLabels = regexp.MustCompile(`{{\s*(\w+)\s*}}`)
	labelValues  = regexp.MustCompile(`^label_values\((.*), *(\w+)\)$`)

	// grafana is what Grafana puts in place of its variables.
	grafana = strings.NewReplacer("$__rate_interval", "1m", "$job", "alertworker")
)

// Grafana can read the dashboard, and every panel shows something we have.
func TestDashboard(t *testing.T) {
	every := metricstest.All(t)
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		UID, Title string
		Panels     []struct {
			ID          int
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr, LegendFormat, RefID string }
		}
		Templating struct {
			List []struct {
				Name, Type string
				Query      json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.UID == "" || dashboard.Title == "" {
		t.Error("the dashboard has no uid or no title")
	}

	shown := map[string]bool{}
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] {
			t.Errorf("%s: id %d is another panel's", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok || x >= 24 {
					t.Fatalf("%s lies over %q or off the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			expr := grafana.Replace(target.Expr)
			check(t, p.Title, expr, every)
			for _, l := range legendLabels.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !regexp.MustCompile(`by \([^)]*\b` + l[1] + `\b`).MatchString(expr) {
					t.Errorf("%s: the legend names %q, by which nothing is grouped", p.Title, l[1])
				}
			}
			for _, s := range every {
				if name := string(s.Metric["__name__"]); strings.Contains(expr, name) {
					shown[family(name)] = true
				}
			}
		}
	}
	for _, s := range every {
		if name := family(string(s.Metric["__name__"])); !shown[name] {
			t.Errorf("no panel shows %s", name)
			shown[name] = true
		}
	}

	for _, v := range dashboard.Templating.List {
		if v.Type != "query" {
			continue
		}
		var q struct{ Query string }
		if err := json.Unmarshal(v.Query, &q); err != nil {
			t.Fatal(err)
		}
		if parts := labelValues.FindStringSubmatch(q.Query); parts == nil {
			t.Errorf("variable %s: %q is not understood", v.Name, q.Query)
		} else {
			check(t, "variable "+v.Name, parts[1], every)
		}
	}
}

// family is the name of a histogram's series without what it is of it.
func family(name string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}
