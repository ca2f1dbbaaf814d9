package partition_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/rules"
)

// A limit is counted from a number in the message. A message without it says nothing: it neither opens nor ends an
// alarm.
func TestLimitFromTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) {
			r.Levels = []rules.Level{{Limit: 3, Clear: 1, LimitAt: rules.Reference{Name: "setpoint", Plus: true}}}
		}, r)
		s.start(p)

		readings := []struct {
			value    float64
			setpoint any
		}{
			{22, 20},        // below 23
			{90, nil},       // says nothing
			{20, 15},        // an alert at 18
			{10, "unknown"}, // says nothing
			{18, 15.5},      // below its limit of 18.5, not below 16.5
			{18, 17.5},      // below 18.5: a recovery
		}
		for _, one := range readings {
			body := fmt.Sprintf(`{"temperature":%v}`, one.value)
			if one.setpoint != nil {
				body = fmt.Sprintf(`{"temperature":%v,"setpoint":%q}`, one.value, fmt.Sprint(one.setpoint))
			}
			p.publishProperties("oven", body, nil)
			time.Sleep(2 * time.Minute)
		}
		s.end()

		if got := r.notified("oven"); got != "alert 3, recovery 6" {
			t.Fatalf("notified of %s", got)
		}
		all := r.alerts("oven")
		if alert, recovery := all[0], all[1]; alert.Threshold != 18 || recovery.Threshold != 18.5 {
			t.Errorf("limits %v and %v", alert.Threshold, recovery.Threshold)
		}
		counts := &s.stats.Override
		used := counts[rules.OverrideUsed].Load()
		absent := counts[rules.OverrideAbsent].Load()
		other := counts[rules.OverrideOther].Load()
		if used != 4 || absent != 1 || other != 1 {
			t.Errorf("counted %d, %d absent and %d other", used, absent, other)
		}
		wantCheckpoint(t, p, int64(len(readings)))
	})
}

// A number in the message takes the place of a limit, or of a clear, where there is one; each level counts its own.
func TestLimitInTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) {
			r.Levels = []rules.Level{
				{Name: "warning", Limit: 30, Clear: 25, LimitAt: rules.Reference{Name: "maxTemp"}, ClearAt: rules.Reference{Name: "okTemp"}},
				{Name: "critical", Limit: 80, Clear: 80},
			}
		}, r)
		s.start(p)
		p.say("oven", 2*time.Minute,
			`{"temperature":40,"maxTemp":50}`,
			`{"temperature":40,"maxTemp":"?"}`, // an alert at 30
			`{"temperature":28,"okTemp":35}`,   // beyond its limit: 25
			`{"temperature":28,"okTemp":29}`,   // a recovery
		)
		s.end()
		if got, want := r.notified("oven"), "warning alert 2, warning recovery 4"; got != want {
			t.Fatalf("notified of %s, want %s", got, want)
		}
		counts := &s.stats.Override
		got := fmt.Sprint(counts[rules.OverrideUsed].Load(), counts[rules.OverrideAbsent].Load(), counts[rules.OverrideOther].Load(), counts[rules.OverrideBeyond].Load())
		if want := "2 4 1 1"; got != want {
			t.Errorf("counted %s, want %s", got, want)
		}
	})
}
