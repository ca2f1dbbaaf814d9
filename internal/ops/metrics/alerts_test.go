package metrics_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"

	"alertworker/internal/worker"
)

const alertsFile = "../../../deploy/prometheus/alerts.yaml"

func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(alertsFile, false, model.LegacyValidation)
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	var rules []rulefmt.Rule
	for _, g := range groups.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

func TestAlerts(t *testing.T) {
	every := all(t)
	for _, r := range alerts(t) {
		check(t, r.Alert, r.Expr, every)
		for _, name := range []string{"summary", "description", "action"} {
			if strings.TrimSpace(r.Annotations[name]) == "" {
				t.Errorf("%s has no %s", r.Alert, name)
			}
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has severity %q", r.Alert, s)
		}
	}
}

// troubles are what goes wrong, before each step, for an alert to fire.
var troubles = map[string]func(w *world){
	"AlertworkerAbsent":           func(w *world) { w.m = nil },
	"AlertworkerPartitionsUnread": func(w *world) { w.source.Reading = 1 },
	"AlertworkerEventsLost":       func(w *world) { w.once(func() { w.source.Expired = 3 }) },
	"AlertworkerStartedOver":      func(w *world) { w.once(func() { w.source.StartedOver = 1 }) },
	"AlertworkerLag":              func(w *world) { w.stuck = true },
	"AlertworkerReceiverDown":     func(w *world) { w.receivers = []worker.ReceiverState{{Name: "hook", Down: true}} },
	"AlertworkerReceiverFails": func(w *world) {
		w.receiver.err = nil
		if w.rounds%5 == 0 {
			w.receiver.err = errBroken
		}
	},
	"AlertworkerAlertsWait": func(w *world) {
		if w.waiting.IsZero() {
			w.waiting = time.Now()
		}
	},
	"AlertworkerAmbiguousSends":  func(w *world) { w.once(func() { w.stats.Ambiguous.Add(1) }) },
	"AlertworkerDeadLetters":     func(w *world) { w.once(func() { w.stats.DeadLetters.Add(1) }) },
	"AlertworkerCheckpointStuck": func(w *world) { w.unmarked = true },
	"AlertworkerStoreFailing":    func(w *world) { w.backend.err = errBroken },
	"AlertworkerUndecodable":     func(w *world) { w.malformed = 20 },
	"AlertworkerRestarts":        func(w *world) { w.source.Restarts += w.rounds % 2 },
	"AlertworkerNobodyLeads":     func(w *world) { w.leaderless = true },
	"AlertworkerClockSkew":       func(w *world) { w.skew = 8 * time.Second },
}

// once does it in a single step.
func (w *world) once(do func()) {
	if w.rounds == 40 {
		do()
	}
}

// Each alert fires when what it is for happens, and for nothing else, and what
// it says can be written out.
func TestAlertsFire(t *testing.T) {
	rules := alerts(t)
	for name := range troubles {
		if !slices.ContainsFunc(rules, func(r rulefmt.Rule) bool { return r.Alert == name }) {
			t.Errorf("there is no alert %s", name)
		}
	}
	t.Run("Well", func(t *testing.T) {
		h, start, end := live(t, func(*world) {})
		for _, r := range rules {
			if got := firing(t, r, h, start, end); got != nil {
				t.Errorf("%s fires for nothing: %v", r.Alert, got)
			}
		}
	})
	for _, of := range rules {
		t.Run(of.Alert, func(t *testing.T) {
			goWrong, ok := troubles[of.Alert]
			if !ok {
				t.Fatal("nobody knows when it should fire")
			}
			h, start, end := live(t, goWrong)
			for _, r := range rules {
				got := firing(t, r, h, start, end)
				if want := r.Alert == of.Alert; want != (got != nil) {
					t.Errorf("%s fires: %v, want %v", r.Alert, got != nil, want)
				}
				for _, text := range got {
					t.Log(text)
				}
			}
		})
	}
}

// live has a replica work, well for ten minutes and then for 45 in which
// something goes wrong, and returns what Prometheus kept of it.
func live(t *testing.T, goWrong func(*world)) (h history, start, end time.Time) {
	h = history{}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		start = time.Now()
		for range 10 * time.Minute / scrapeEvery {
			w.step(t)
			h.scrape(samples(t, w.m), model.Now())
		}
		for range 45 * time.Minute / scrapeEvery {
			goWrong(w)
			if w.m == nil { // gone
				time.Sleep(scrapeEvery)
				continue
			}
			w.step(t)
			h.scrape(samples(t, w.m), model.Now())
		}
		end = time.Now()
	})
	return h, start, end
}

// firing evaluates a rule every minute, and returns what it says of itself where
// it held for long enough.
func firing(t *testing.T, r rulefmt.Rule, h history, start, end time.Time) (said []string) {
	t.Helper()
	const step = time.Minute
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	defer engine.Close()
	q, err := engine.NewRangeQuery(t.Context(), h, nil, r.Expr, start.Add(step), end, step)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	matrix, err := q.Exec(t.Context()).Matrix()
	if err != nil {
		t.Fatal(err)
	}
	for _, series := range matrix {
		since := int64(-1)
		for i, p := range series.Floats {
			if i == 0 || p.T-series.Floats[i-1].T > step.Milliseconds() {
				since = p.T
			}
			if time.Duration(p.T-since)*time.Millisecond >= time.Duration(r.For) {
				said = append(said, says(t, r, series.Metric.Map(), promql.Sample{T: p.T, F: p.F}))
				break
			}
		}
	}
	return said
}

// says writes out the annotations as Prometheus does.
func says(t *testing.T, r rulefmt.Rule, labels map[string]string, s promql.Sample) string {
	t.Helper()
	var b strings.Builder
	for _, name := range []string{"summary", "description"} {
		text := "{{$labels := .Labels}}{{$value := .Value}}" + r.Annotations[name]
		text, err := template.NewTemplateExpander(context.Background(), text, name, template.AlertTemplateData(labels, nil, "", s), model.Time(s.T), nil, &url.URL{}, []string{"missingkey=error"}).Expand()
		if err != nil {
			t.Errorf("%s: %s: %v", r.Alert, name, err)
		}
		fmt.Fprintf(&b, "%s. ", strings.TrimSuffix(text, "."))
	}
	return b.String()
}
