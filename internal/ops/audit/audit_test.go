package audit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/ledger"
	"alertworker/internal/ops/audit"
	"alertworker/internal/partition"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/throttletest"
)

// The last that receivers should have got about an incident is compared with what its gate knows, whatever the incident's
// name: the alert while it lasts, and its end afterwards.
func TestIncidents(t *testing.T) {
	for _, test := range []struct {
		name  string
		end   bool // the end was due
		told  bool // the receiver got the alert
		ended bool // and the end
		later bool // the checkpoint has not passed the reading
		due   bool // the ledger has the end
		want  string
	}{
		{name: "told", told: true, want: audit.Recorded},
		{name: "not told", want: audit.Missing},
		{name: "not told yet", later: true, want: audit.Unsettled},
		{name: "told that it is over, which it is not", told: true, ended: true, want: audit.Missing},
		{name: "end", end: true, told: true, ended: true, want: audit.Recorded},
		{name: "end is lacking", end: true, told: true, want: audit.Missing},
		{name: "end is due", end: true, told: true, due: true, want: audit.Due},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := throttle.New(throttle.Config{
					Store: memlease.New(), Scope: "ns/hub", Receiver: "r", Rule: "warm", Per: "site", Window: time.Minute, SendTimeout: 10 * time.Second,
				})
				send := func(recovery bool) {
					request := throttle.Request{Device: "berlin", Incident: "ns/hub/incidents/I", Enqueued: time.Now(), Recovery: recovery}
					taken := func(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken }
					if result, err := throttletest.Do(t.Context(), gate, request, taken); err != nil || result.Outcome != throttle.Sent {
						t.Fatal(result, err)
					}
				}
				at := time.Now()
				expected := audit.Expected{}
				expect := func(recovery bool) {
					expected.Add(partition.BacktestNotice{
						At: at, Enqueued: at, Device: "freezer-7", About: sensor.Of("berlin"), Shared: true, Incident: "0/7", Rule: "warm",
						Recovery: recovery, Partition: "3", Sequence: 7, Request: throttle.Request{Device: "berlin", Incident: "0/7", Recovery: recovery},
					})
				}
				expect(false)
				if test.end {
					expect(true)
				}
				if test.told {
					send(false)
				}
				if test.ended {
					time.Sleep(2 * time.Minute)
					send(true)
				}
				stores := audit.Stores{
					Names:       []string{"hook"},
					Gates:       map[audit.Key]*throttle.Gate{{Rule: "warm", Shared: true}: gate},
					Checkpoints: map[string]telemetry.Position{"3": {Sequence: 7}},
				}
				if test.later {
					stores.Checkpoints["3"] = telemetry.Position{Sequence: 6}
				}
				if test.due {
					stores.Ledgers = []ledger.Content{{Ends: []ledger.End{{Rule: "warm", Value: "berlin"}}}}
				}
				r, err := audit.Compare(t.Context(), expected, at, stores, func(float64) {})
				if err != nil || r.Counts[test.want] != 1 || len(r.Counts) != 1 {
					t.Errorf("%v, %v: want %s", r.Counts, err, test.want)
				}
			})
		})
	}
}
