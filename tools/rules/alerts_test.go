package rules

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"

	"alertworker/internal/delivery"
	"alertworker/internal/ops/metrics/metricstest"
)

const alertsFile = "../../deploy/prometheus/alerts.yaml"

func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	rules, err := Read(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestAlerts(t *testing.T) {
	every := metricstest.All(t)
	for _, r := range alerts(t) {
		check(t, r.Alert, r.Expr, every)
		for _, name := range []string{"summary", "description", "action"} {
			if strings.TrimSpace(r.Annotations[name]) == "" {
				t.Errorf("%s has no %s", r.Alert, name)
			}
		}
		if url := r.Annotations["runbook_url"]; url != "https://github.com/OWNER/REPOSITORY/blob/main/docs/operations.md#"+strings.ToLower(r.Alert) {
			t.Errorf("the runbook of %s is %q", r.Alert, url)
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has severity %q", r.Alert, s)
		}
	}
}

// Log messages that the rules tell operators to look for are messages of ours.
func TestAlertsQuoteLogMessages(t *testing.T) {
	var sources []byte
	err := filepath.WalkDir("../../internal", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		sources = append(sources, text...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range alerts(t) {
		for _, quote := range regexp.MustCompile(`"[^"]+"`).FindAllString(r.Annotations["action"], -1) {
			if !bytes.Contains(sources, []byte(strings.Trim(quote, `"`))) {
				t.Errorf("%s: there is no log message %s", r.Alert, quote)
			}
		}
	}
}

// failures are what goes wrong, before each step, for an alert to fire.
var failures = map[string]func(r *metricstest.Replica){
	"AlertworkerAbsent":           func(r *metricstest.Replica) { r.Metrics = nil },
	"AlertworkerBlocked":          func(r *metricstest.Replica) { r.Blocked = true },
	"AlertworkerPartitionsUnread": func(r *metricstest.Replica) { r.SourceStats.Reading = 1 },
	"AlertworkerEventsLost":       once(func(r *metricstest.Replica) { r.SourceStats.Expired = 3 }),
	"AlertworkerStartedOver":      once(func(r *metricstest.Replica) { r.SourceStats.StartedOver = 1 }),
	"AlertworkerLag":              func(r *metricstest.Replica) { r.Stuck = true },
	"AlertworkerReceiverDown":     func(r *metricstest.Replica) { r.ReceiverStates = []delivery.ReceiverState{{Name: "hook", Down: true}} },
	"AlertworkerReceiverFails": func(r *metricstest.Replica) {
		r.Receiver.Err = nil
		if r.Steps%5 == 0 {
			r.Receiver.Err = metricstest.ErrBroken
		}
	},
	"AlertworkerAlertsWait": func(r *metricstest.Replica) {
		if r.WaitingSince.IsZero() {
			r.WaitingSince = time.Now()
		}
	},
	"AlertworkerAmbiguousSends":  once(func(r *metricstest.Replica) { r.Counts.Ambiguous.Add(1) }),
	"AlertworkerDeadLetters":     once(func(r *metricstest.Replica) { r.Counts.DeadLetters.Add(1) }),
	"AlertworkerCheckpointStuck": func(r *metricstest.Replica) { r.Unmarked = true },
	"AlertworkerLedger": func(r *metricstest.Replica) {
		if r.LedgerSince.IsZero() {
			r.LedgerSince = time.Now()
		}
	},
	"AlertworkerAlarmsUntracked": once(func(r *metricstest.Replica) { r.Counts.Untracked.Add(1) }),
	"AlertworkerStoreFailing":    func(r *metricstest.Replica) { r.Store.Err = metricstest.ErrBroken },
	"AlertworkerUndecodable":     func(r *metricstest.Replica) { r.Malformed = 20 },
	"AlertworkerNoReadings":      func(r *metricstest.Replica) { r.Silent = true },
	"AlertworkerLinksFail":       func(r *metricstest.Replica) { r.SourceStats.Reopened += r.Steps % 2 },
	"AlertworkerNobodyLeads":     func(r *metricstest.Replica) { r.Leaderless = true },
	"AlertworkerDutyFails":       func(r *metricstest.Replica) { r.Failing = int(r.Steps-20) / 4 },
	"AlertworkerStandby":         func(r *metricstest.Replica) { r.Standby = true },
	"AlertworkerNewSecret":       func(r *metricstest.Replica) { r.NewSecret = true },
	"AlertworkerCredentialEnds":  func(r *metricstest.Replica) { r.Ends = time.Now().Add(13 * 24 * time.Hour) },
	"AlertworkerClockSkew":       func(r *metricstest.Replica) { r.Skew = 8 * time.Second },
}

// once does it before a single step.
func once(do func(*metricstest.Replica)) func(*metricstest.Replica) {
	return func(r *metricstest.Replica) {
		if r.Steps == 40 {
			do(r)
		}
	}
}

// Each alert fires for its own failure and for no other, and its texts can be
// expanded.
func TestAlertsFire(t *testing.T) {
	rules := alerts(t)
	for name := range failures {
		if !slices.ContainsFunc(rules, func(r rulefmt.Rule) bool { return r.Alert == name }) {
			t.Errorf("there is no alert %s", name)
		}
	}
	for name, live := range map[string]func(r *metricstest.Replica){
		"Well": func(*metricstest.Replica) {},
		"OneOfFewAttemptsFails": func(r *metricstest.Replica) {
			r.Receiver.Err = nil
			r.Idle = r.Steps != 40 && r.Steps != 41
			if r.Steps == 40 {
				r.Receiver.Err = metricstest.ErrBroken
			}
		},
		"OtherDevices": func(r *metricstest.Replica) { r.Missing = 100 },
	} {
		t.Run(name, func(t *testing.T) {
			h, start, end := lived(t, func(*metricstest.Replica) {}, live)
			for _, r := range rules {
				if got := firing(t, r, h, start, end); got != nil {
					t.Errorf("%s fires: %v", r.Alert, got)
				}
			}
		})
	}
	for _, of := range rules {
		t.Run(of.Alert, func(t *testing.T) {
			fail, ok := failures[of.Alert]
			if !ok {
				t.Fatal("no failure is listed for which it should fire")
			}
			h, start, end := lived(t, func(*metricstest.Replica) {}, fail)
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

// What went wrong before the first scrape is not lost on a rule because no counter grew since. And telemetry in which
// nothing has the field is not that of other devices.
func TestAlertsFireToo(t *testing.T) {
	rules := alerts(t)
	for _, test := range []struct {
		alert       string
		begin, fail func(*metricstest.Replica)
	}{
		{"AlertworkerEventsLost", func(r *metricstest.Replica) { r.SourceStats.Expired = 3 }, nil},
		{"AlertworkerStartedOver", func(r *metricstest.Replica) { r.SourceStats.StartedOver = 1 }, nil},
		{"AlertworkerDeadLetters", func(r *metricstest.Replica) { r.Counts.DeadLetters.Add(1) }, nil},
		{"AlertworkerAmbiguousSends", func(r *metricstest.Replica) { r.Counts.Ambiguous.Add(1) }, nil},
		{"AlertworkerAlarmsUntracked", func(r *metricstest.Replica) { r.Counts.Untracked.Add(1) }, nil},
		{"AlertworkerUndecodable", nil, func(r *metricstest.Replica) { r.Malformed, r.Missing = 0, 200 }},
		{"AlertworkerUndecodable", nil, func(r *metricstest.Replica) { r.Unread = 1 }},
	} {
		t.Run(test.alert, func(t *testing.T) {
			nothing := func(*metricstest.Replica) {}
			for _, f := range []*func(*metricstest.Replica){&test.begin, &test.fail} {
				if *f == nil {
					*f = nothing
				}
			}
			h, start, end := lived(t, test.begin, test.fail)
			for _, r := range rules {
				if got := firing(t, r, h, start, end); (got != nil) != (r.Alert == test.alert) {
					t.Errorf("%s fires: %v", r.Alert, got)
				}
			}
		})
	}
}

// lived begins with a replica, runs it for ten minutes without failures and then for 45 minutes in
// which fail is called before each step, and returns what Prometheus stored.
func lived(t *testing.T, begin, fail func(*metricstest.Replica)) (h history, start, end time.Time) {
	h = history{}
	synctest.Test(t, func(t *testing.T) {
		r := metricstest.NewReplica()
		begin(r)
		start = time.Now()
		for range 10 * time.Minute / metricstest.ScrapeInterval {
			r.Step(t)
			h.scrape(metricstest.Samples(t, r.Metrics), model.Now())
		}
		for range 45 * time.Minute / metricstest.ScrapeInterval {
			fail(r)
			if r.Metrics == nil { // gone
				time.Sleep(metricstest.ScrapeInterval)
				continue
			}
			r.Step(t)
			h.scrape(metricstest.Samples(t, r.Metrics), model.Now())
		}
		end = time.Now()
	})
	return h, start, end
}

// firing evaluates a rule every minute, and returns the texts of those series for which
// it held for long enough.
func firing(t *testing.T, r rulefmt.Rule, h history, start, end time.Time) (said []string) {
	t.Helper()
	fired, err := h.firing(t.Context(), r, start, end)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fired {
		said = append(said, says(t, r, f.Metric.Map(), f))
	}
	return said
}

// says expands the annotations as Prometheus does.
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
