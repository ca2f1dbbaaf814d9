package partition_test

import (
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// What a message must have for a rule to look at it, and readings that are words or not valid.
func TestWhatARuleLooksAt(t *testing.T) {
	door := func(r *rules.Rule) {
		r.Name, r.Field, r.Is = "door", "door", []string{"open", "ajar"}
		r.Levels = []rules.Level{{Limit: 1, Clear: 1}}
	}
	for _, tt := range []struct {
		name   string
		change func(*rules.Rule)
		bodies []string
		want   string
		words  []string // of the alerts
	}{
		{"a word", door, []string{`{"door":"closed"}`, `{"door":"ajar"}`, `{"door":"closed"}`}, "alert 2, recovery 3", []string{"ajar", "open or ajar"}},
		{"a word for a time", func(r *rules.Rule) { door(r); r.Levels[0].For = 3 * time.Minute }, []string{
			`{"door":"open"}`, `{"door":"ajar"}`, `{"door":"closed"}`, `{"door":"open"}`, `{"door":"open"}`, `{"door":"open"}`, `{"door":"open"}`, `{}`,
		}, "alert 6, alert 7", []string{"open", "open"}},
		{"not valid", func(r *rules.Rule) { r.Valid = &telemetry.Range{From: -60, To: 60} }, []string{`{"temperature":50}`, `{"temperature":-127}`, `{"temperature":85}`}, "alert 1", []string{""}},
		{"only while the mode is run", func(r *rules.Rule) { r.Only = []rules.Condition{{Name: "mode", Values: []string{"run", "start"}}} }, []string{
			`{"temperature":99,"mode":"service"}`, `{"temperature":99}`, `{"mode":"RUN"}`, `{"temperature":99,"mode":"RUN"}`, `{"temperature":0,"mode":"service"}`, `{"temperature":0,"mode":"start"}`,
		}, "alert 4, recovery 5", []string{"", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				s := with(t, tt.change, r)
				s.start(p)
				p.say("oven", 2*time.Minute, tt.bodies...)
				s.end()
				if got := r.notified("oven"); !sameSet(got, tt.want) {
					t.Errorf("notified of %s; want %s", got, tt.want)
				}
				if n := int64(len(tt.bodies)); p.checkpoint() != n {
					t.Errorf("checkpoint %d of %d", p.checkpoint(), n)
				}
				for i, a := range r.alerts("oven")[:min(len(r.alerts("oven")), len(tt.words))] {
					if a.Word != tt.words[i] {
						t.Errorf("alert %d: the word is %q, want %q", i+1, a.Word, tt.words[i])
					}
				}
			})
		})
	}
}

// A truck is used for chilled goods now: its alarms as a frozen one end, and whoever was alerted hears why.
func TestExcludedDevice(t *testing.T) {
	const frozen, chilled = `{"temperature":99,"kind":"frozen"}`, `{"temperature":99,"kind":"chilled"}`
	for name, tt := range map[string]struct {
		sustained time.Duration
		bodies    []string // one each 2 min
		want      string
	}{
		"open":                        {0, []string{frozen, chilled}, "alert 1, recovery 2"},
		"and back":                    {0, []string{frozen, chilled, frozen}, "alert 1, recovery 2, alert 3"},
		"pending":                     {3 * time.Minute, []string{frozen, chilled, frozen, frozen, frozen}, "alert 5"},
		"a message without a reading": {0, []string{frozen, `{"kind":"chilled"}`, chilled}, "alert 1, recovery 3"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				s := with(t, func(r *rules.Rule) {
					r.Only = []rules.Condition{{Name: "kind", Values: []string{"frozen"}}}
					r.Levels[0].For = tt.sustained
				}, r)
				s.start(p)
				for _, body := range tt.bodies {
					p.publishBody("truck", body)
					time.Sleep(2 * time.Minute)
				}
				s.end()
				if got := r.notified("truck"); got != tt.want {
					t.Errorf("notified of %q, want %q", got, tt.want)
				}
				for _, a := range r.alerts("truck") {
					if a.Resolved != (a.Excluded == `kind is "chilled", not frozen`) {
						t.Errorf("%+v", a)
					}
				}
			})
		})
	}
}

// A recovery has the limit that its reading is beyond, or of an alarm that ends by a condition that of the alarm, and what its
// message shows. What reaches a limit, and what has no measurement, is counted.
func TestWhatARecoverySays(t *testing.T) {
	for name, tt := range map[string]struct {
		end   string
		limit float64
	}{
		"a reading beyond clear": {`{"temperature":1,"kind":"frozen","site":"rome"}`, threshold - 5},
		"a condition":            {`{"temperature":1,"kind":"chilled","site":"rome"}`, threshold},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				s := with(t, func(r *rules.Rule) {
					r.Only = []rules.Condition{{Name: "kind", Values: []string{"frozen"}}}
					r.Levels[0].Clear = threshold - 5
				}, r)
				s.config.Rules.Show = []string{"site", "none"}
				s.start(p)
				p.publishBody("truck", `{"temperature":99,"kind":"frozen","site":"paris"}`)
				time.Sleep(2 * time.Minute)
				p.publishBody("truck", tt.end)
				p.publishBody("truck", `{}`)
				time.Sleep(2 * time.Minute)
				s.end()
				alerts := r.alerts("truck")
				if len(alerts) != 2 || !alerts[1].Resolved || alerts[1].Threshold != tt.limit {
					t.Fatalf("notified of %+v", alerts)
				}
				for i, site := range []string{"paris", "rome"} {
					if want := notify.Shown("").With("site", site); alerts[i].Shown != want {
						t.Errorf("it shows %q, want %q", alerts[i].Shown, want)
					}
				}
				if n := s.stats.Events[telemetry.ReasonMissing].Load(); n != 1 {
					t.Errorf("%d events without a reading", n)
				}
				if n := s.stats.Over.Load(); n != 1 {
					t.Errorf("%d events over the limit", n)
				}
			})
		})
	}
}

// A message without any measurement is counted as one that has no reading.
func TestNoMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		s := with(t, func(r *rules.Rule) { r.Each = "readings" })
		s.start(p)
		p.say("truck", time.Second, `{"readings":[]}`, `{"readings":[{"temperature":1},{"temperature":2}]}`)
		s.end()
		if missing, ok := s.stats.Events[telemetry.ReasonMissing].Load(), s.stats.Events[telemetry.ReasonOK].Load(); missing != 1 || ok != 1 {
			t.Errorf("%d without, %d with one", missing, ok)
		}
	})
}
