package partition_test

import (
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// A message that is not quite JSON may alert, and neither clears, interrupts nor ends anything.
func TestDamagedMessages(t *testing.T) {
	const hot, cool = `{"temperature":95}`, `{"temperature":20}`
	const damagedHot, damagedCool, cutCool = `{'temperature':95,}`, `[{"temperature":20,}, {"temperature":21,},]`, `{"temperature":20,"hum`
	forMinute := func(r *rules.Rule) { r.Levels[0].For = 25 * time.Second }
	settling := func(r *rules.Rule) { r.ClearedFor = 25 * time.Second }
	whenRunning := func(r *rules.Rule) { r.Only = []rules.Condition{{Name: "mode", Values: []string{"run"}}} }
	levels := func(r *rules.Rule) {
		r.Levels = []rules.Level{{Name: "warning", Limit: threshold, Clear: threshold}, {Name: "critical", Limit: 90, Clear: 90}}
	}
	for _, tt := range []struct {
		name   string
		change func(*rules.Rule)
		bodies []string
		want   string
	}{
		{"one opens an alarm", nil, []string{damagedHot}, "alert 1"},
		{"none ends one", nil, []string{hot, damagedCool, cutCool}, "alert 1"},
		{"a whole one does", nil, []string{hot, damagedCool, cool}, "alert 1, recovery 3"},
		{"none interrupts what must last", forMinute, []string{hot, damagedCool, cutCool, hot}, "alert 4"},
		{"a whole one does that", forMinute, []string{hot, cool, hot, hot}, ""},
		{"one counts for what must last", forMinute, []string{hot, damagedHot, damagedHot, damagedHot}, "alert 4"},
		{"none counts for what must be clear", settling, []string{hot, damagedCool, damagedCool, damagedCool, cool, cool}, "alert 1"},
		{"a hot one interrupts that", settling, []string{hot, cool, cool, damagedHot, cool, cool}, "alert 1"},
		{"no condition in one ends an alarm", whenRunning, []string{`{"temperature":95,"mode":"run"}`, `{'temperature':95,'mode':'clean'}`, `{"temperature":20,"mode":"clean`}, "alert 1"},
		{"one in a whole message does", whenRunning, []string{`{"temperature":95,"mode":"run"}`, `{"temperature":95,"mode":"clean"}`}, "alert 1, recovery 2"},
		{"none ends the higher level", levels, []string{hot, `{'temperature':81}`}, "critical alert 1"},
		{"what breaks off in a number is none", nil, []string{`{"temperature":95`, `{"temperature":95,5}`}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				s := with(t, tt.change, r)
				s.start(p)
				p.say("oven", 10*time.Second, tt.bodies...)
				time.Sleep(5 * time.Minute)
				s.end()
				if got := r.notified("oven"); !sameSet(got, tt.want) {
					t.Errorf("notified of %s; want %s", got, tt.want)
				}
				for _, a := range r.alerts("oven") {
					if isDamaged := tt.bodies[a.Sequence-1][1] == '\''; a.Damaged != isDamaged {
						t.Errorf("alert %d: damaged %v", a.Sequence, a.Damaged)
					}
				}
			})
		})
	}
}

// The device is heard by one.
func TestDamagedMessageIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) {
			r.Name, r.Levels, r.Silent, r.Forget = "offline", []rules.Level{{}}, time.Minute, rules.DefaultForget
		}, r)
		s.start(p)
		for range 20 {
			p.publishBody("oven", `{'temperature':20,}`)
			synctest.Wait()
			time.Sleep(30 * time.Second)
		}
		if got := r.notified("oven"); got != "" {
			t.Errorf("notified of %s of a device that sends", got)
		}
		if n := s.stats.Events[telemetry.ReasonDamaged].Load(); n != 20 {
			t.Errorf("%d messages are counted as damaged", n)
		}
		s.end()
	})
}
