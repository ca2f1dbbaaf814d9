package status_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/ops/status"
	"alertworker/internal/telemetry"
)

func TestWouldArrive(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	well := status.Report{State: status.GoingOut, Ready: true, Headline: "Alerts are going out."}
	down := status.Report{State: status.Partly, Ready: true, Headline: "Some alerts aren't going out: 1 of 2 receivers is down.", Problems: []status.Problem{
		{What: "receiver pager is down", Since: now.Add(-time.Minute), Why: "answered 503", Effect: "Alerts wait until it accepts them, or until NOTIFY_GIVE_UP."},
	}}
	sentence := "Some alerts aren't going out: 1 of 2 receivers is down. Receiver pager is down, for 60 s (since 2026-01-01T00:00:00Z): answered 503. Alerts wait until it accepts them, or until NOTIFY_GIVE_UP."
	impaired := status.Report{State: status.Impaired, Ready: true, Headline: "Alerts are going out, but a new secret does not work.", Problems: []status.Problem{
		{By: status.BySecrets, What: "a new secret does not work"},
	}}
	owned := []telemetry.PartitionStatus{{Partition: "0", Owner: "a"}, {Partition: "1", Owner: "b"}}
	unowned := []telemetry.PartitionStatus{{Partition: "0"}, {Partition: "1", Owner: "b"}, {Partition: "2"}}
	self := status.Statement{Replica: "a", Status: well}
	for name, c := range map[string]struct {
		self       status.Statement
		others     []status.Statement
		partitions []telemetry.PartitionStatus
		err        error
		want       string
	}{
		"alone":            {self: self, partitions: owned},
		"a new secret":     {self: self, others: []status.Statement{{Replica: "b", Status: impaired}}, partitions: owned},
		"all well":         {self: self, others: []status.Statement{{Replica: "b", Status: well, Late: time.Minute}}, partitions: owned},
		"a receiver":       {self: status.Statement{Status: down}, partitions: owned, want: sentence},
		"of another":       {self: self, others: []status.Statement{{Replica: "b", Status: down}}, partitions: owned, want: "replica b: " + sentence},
		"another starts":   {self: self, others: []status.Statement{{Replica: "b", Status: status.Report{State: status.Starting, Headline: "Starting."}}}, partitions: owned},
		"this one starts":  {self: status.Statement{Status: status.Report{State: status.Starting, Headline: "Starting."}}, want: "Starting."},
		"another waits":    {self: self, others: []status.Statement{{Replica: "b", Status: status.Report{State: status.Standby, Headline: "Standing by."}}}, partitions: owned},
		"late":             {self: self, others: []status.Statement{{Replica: "b", Status: well, Late: 6 * time.Minute}}, partitions: owned, want: "replica b: Readings are read 6 min late."},
		"nobody reads one": {self: self, partitions: unowned[:2], want: "Partition 0 is not being read by any replica."},
		"nobody reads two": {self: self, partitions: unowned, want: "Partitions 0 and 2 are not being read by any replica."},
		"unknown":          {self: self, err: errors.New("no answer"), want: "Cannot tell who reads the partitions: no answer"},
	} {
		if got := status.WouldArrive(now, c.self, c.others, c.partitions, c.err); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	of := []status.Statement{self, {Replica: "b", Status: impaired}}
	if got := status.Warning(now, of); !strings.HasPrefix(got, "replica b: a new secret does not work, for ") {
		t.Errorf("of a new secret it says %q", got)
	}
	if got := status.Warning(now, of[:1]); got != "" {
		t.Errorf("without a new secret it says %q", got)
	}
}

// However many receivers are down, what the others are told fits, and its sentence can be read.
func TestStatementFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New(strings.Repeat("answered 503 ", 100))
		r := replica{source: telemetry.SourceStats{Running: true, Owned: 1, Reading: 1}}
		for i := range 400 {
			name := fmt.Sprint("depot-", i)
			r.receivers = append(r.receivers, delivery.ReceiverState{Name: name, Down: true, Since: time.Now(), Err: why})
		}
		report := r.watch(zap.NewNop(), nil).Report()
		if len(report.Headline) > 300 || !strings.HasSuffix(report.Headline, "receiver depot-7 is down and 392 more.") {
			t.Errorf("%d bytes: %s", len(report.Headline), report.Headline)
		}

		const limit = 64 << 10
		rules := map[string]string{"hot": strings.Repeat("above: 80\n", limit/8)}
		for _, of := range []status.Report{report, {State: status.GoingOut}} {
			if b := (status.Statement{Replica: "a", Status: of, Rules: rules}).JSON(limit); len(b) > limit {
				t.Errorf("with many rules it has %d bytes", len(b))
			}
		}
		b := status.Statement{Replica: "a", Status: report}.JSON(limit)
		var m status.Statement
		err := json.Unmarshal(b, &m)
		if err != nil || len(b) > limit || len(m.Status.Problems) == 0 || m.Status.Headline != report.Headline {
			t.Errorf("%d bytes with %d problems: %v", len(b), len(m.Status.Problems), err)
		}
	})
}

func TestDiffering(t *testing.T) {
	here := map[string]string{"": "time: at\nmute: rule hot sat", "hot": "above: 60 °C\nfor: 5m0s\nwindow: 1m0s", "cold": "below: 5"}
	for name, test := range map[string]struct {
		there map[string]string
		want  string
	}{
		"the same":        {map[string]string{"": "mute: rule hot sat\ntime: at", "hot": "above: 60 °C\nwindow: 1m0s\nfor: 5m0s", "cold": "below: 5"}, ""},
		"of 1.0":          {nil, ""},
		"a limit":         {map[string]string{"": here[""], "hot": "above: 300 °C\nfor: 5m0s\nwindow: 1m0s", "cold": "below: 5"}, "replica w2 has hot above 300 °C, here 60 °C"},
		"a key":           {map[string]string{"": here[""], "hot": here["hot"] + "\nclear: 50", "cold": "below: 5"}, "replica w2 has hot clear 50, here none"},
		"no such key":     {map[string]string{"": here[""], "hot": "above: 60 °C\nwindow: 1m0s", "cold": "below: 5"}, "replica w2 has hot for none, here 5m0s"},
		"the other side":  {map[string]string{"": here[""], "hot": here["hot"], "cold": "above: 5"}, "replica w2 has cold above 5, here none (and 1 more)"},
		"no such rule":    {map[string]string{"": here[""], "hot": here["hot"]}, "replica w2 has cold below none, here 5"},
		"one more rule":   {map[string]string{"": here[""], "hot": here["hot"], "cold": "below: 5", "damp": "above: 9"}, "replica w2 has damp above 9, here none"},
		"what is for all": {map[string]string{"": "mute: rule hot sat\nmute: rule cold", "hot": here["hot"], "cold": "below: 5"}, "replica w2 has mute rule cold, rule hot sat, here rule hot sat (and 1 more)"},
	} {
		others := []status.Statement{{Replica: "w3", Rules: here}, {Replica: "w2", Rules: test.there}}
		self := status.Statement{Replica: "w1", Rules: here}
		if got := status.Differing(self, others); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		m := status.New(zap.NewNop())
		if alike := m.Compare(self, others, 2); alike != (test.there != nil && test.want == "") {
			t.Errorf("%s: all decide alike: %t", name, alike)
		}
		if m.Compare(self, others, 3) {
			t.Errorf("%s: all decide alike, although one says nothing", name)
		}
	}
}
