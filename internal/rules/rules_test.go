package rules_test

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/telemetrytest"
)

// A reading of one device: a value, and when the hub and the device took it, in seconds; the device's time is 0 if it
// has none.
type reading struct {
	value      float64
	at, device int64
}

func (r reading) moment() rules.Moment { return rules.Moment{Hub: r.at * 1e6, Device: r.device * 1e6} }

// run takes readings through a level and returns its state after each.
func run(r *rules.Rule, limit float64, readings []reading) (states []rules.State) {
	var s rules.State
	for _, one := range readings {
		s = r.Next(&r.Levels[0], s, one.value, limit, r.Levels[0].ClearOf(limit), one.moment())
		states = append(states, s)
	}
	return states
}

func TestNext(t *testing.T) {
	const normal, pending, open = rules.Normal, rules.Pending, rules.Open
	high := rules.Rule{Levels: []rules.Level{{Limit: 80, Clear: 80}}}
	clear := rules.Rule{Levels: []rules.Level{{Limit: 80, Clear: 75}}}
	freezer := rules.Rule{Levels: []rules.Level{{Limit: -15, Clear: -16}}}
	low := rules.Rule{Below: true, Levels: []rules.Level{{Limit: 2, Clear: 4}}}
	lasting := func(r rules.Rule, d time.Duration) rules.Rule {
		r.Levels = slices.Clone(r.Levels)
		r.Levels[0].For = d
		return r
	}
	settling := func(r rules.Rule, d time.Duration) rules.Rule {
		r.ClearedFor = d
		return r
	}
	for name, test := range map[string]struct {
		rule     rules.Rule
		override float64 // instead of the limit, unless 0
		readings []reading
		want     []rules.Phase
		since    int64 // of the last state
	}{
		"at the limit":                          {high, 0, []reading{{79.9, 1, 0}, {80, 2, 0}, {81, 3, 0}, {79.9, 4, 0}}, []rules.Phase{normal, open, open, normal}, 0},
		"below the limit":                       {low, 0, []reading{{2.1, 1, 0}, {2, 2, 0}, {1, 3, 0}}, []rules.Phase{normal, open, open}, 2},
		"between clear and limit":               {clear, 0, []reading{{76, 1, 0}, {80, 2, 0}, {76, 3, 0}, {75, 4, 0}, {74.9, 5, 0}, {76, 6, 0}}, []rules.Phase{normal, open, open, open, normal, normal}, 0},
		"between clear and limit, below":        {low, 0, []reading{{3, 1, 0}, {2, 2, 0}, {3, 3, 0}, {4, 4, 0}, {4.1, 5, 0}}, []rules.Phase{normal, open, open, open, normal}, 0},
		"it lasts":                              {lasting(high, 10*time.Second), 0, []reading{{80, 1, 0}, {80, 10, 0}, {80, 11, 0}, {80, 12, 0}}, []rules.Phase{pending, pending, open, open}, 1},
		"it does not last":                      {lasting(high, 10*time.Second), 0, []reading{{80, 1, 0}, {79, 5, 0}, {80, 11, 0}}, []rules.Phase{pending, normal, pending}, 11},
		"pending has no band":                   {lasting(clear, 10*time.Second), 0, []reading{{80, 1, 0}, {76, 5, 0}, {80, 11, 0}}, []rules.Phase{pending, normal, pending}, 11},
		"open has one":                          {lasting(clear, 10*time.Second), 0, []reading{{80, 1, 0}, {80, 11, 0}, {76, 12, 0}, {80, 13, 0}}, []rules.Phase{pending, open, open, open}, 1},
		"two readings far apart":                {lasting(high, 10*time.Second), 0, []reading{{80, 1, 0}, {80, 3600, 0}}, []rules.Phase{pending, open}, 1},
		"time stands still":                     {lasting(high, 10*time.Second), 0, []reading{{80, 5, 0}, {80, 5, 0}, {80, 4, 0}}, []rules.Phase{pending, pending, pending}, 5},
		"a burst lasts by the device's clock":   {lasting(high, 10*time.Second), 0, []reading{{80, 100, 50}, {80, 100, 59}, {80, 101, 60}}, []rules.Phase{pending, pending, open}, 100},
		"its clock lasts longer than the hub's": {lasting(high, 10*time.Second), 0, []reading{{80, 100, 100}, {80, 120, 105}, {80, 121, 110}}, []rules.Phase{pending, pending, open}, 100},
		"a time is missing":                     {lasting(high, 10*time.Second), 0, []reading{{80, 100, 50}, {80, 101, 0}, {80, 102, 59}, {80, 110, 0}}, []rules.Phase{pending, pending, pending, open}, 100},
		"the first time is missing":             {lasting(high, 10*time.Second), 0, []reading{{80, 100, 0}, {80, 101, 80}, {80, 110, 81}}, []rules.Phase{pending, pending, open}, 100},
		"out of order in a burst":               {lasting(high, 10*time.Second), 0, []reading{{80, 100, 50}, {80, 100, 20}, {80, 100, 59}, {80, 100, 60}}, []rules.Phase{pending, pending, pending, open}, 100},
		"its clock was set back":                {lasting(high, 10*time.Second), 0, []reading{{80, 100, 100}, {80, 105, 45}, {80, 110, 50}, {80, 170, 110}}, []rules.Phase{pending, pending, pending, open}, 100},
		"late ones do not interrupt":            {lasting(high, 10*time.Second), 0, []reading{{80, 100, 100}, {70, 105, 5}, {70, 106, 6}, {80, 110, 110}}, []rules.Phase{pending, pending, pending, open}, 100},
		"late ones do not clear":                {high, 0, []reading{{80, 100, 100}, {70, 105, 5}, {80, 110, 110}, {70, 111, 105}, {70, 112, 112}}, []rules.Phase{open, open, open, open, normal}, 0},
		"late ones open":                        {high, 0, []reading{{70, 100, 100}, {80, 105, 5}, {70, 106, 106}}, []rules.Phase{normal, open, normal}, 0},
		"it is clear for long enough":           {settling(high, 10*time.Second), 0, []reading{{80, 1, 0}, {79, 2, 0}, {79, 11, 0}, {79, 12, 0}}, []rules.Phase{open, open, open, normal}, 0},
		"it is not clear for long enough":       {settling(high, 10*time.Second), 0, []reading{{80, 1, 0}, {79, 2, 0}, {80, 11, 0}, {79, 12, 0}, {79, 21, 0}}, []rules.Phase{open, open, open, open, open}, 1},
		"between clear and limit for long":      {settling(clear, 10*time.Second), 0, []reading{{80, 1, 0}, {74, 2, 0}, {76, 8, 0}, {74, 13, 0}, {74, 23, 0}}, []rules.Phase{open, open, open, open, normal}, 0},
		"clear and far apart":                   {settling(low, 10*time.Second), 0, []reading{{2, 1, 0}, {5, 2, 0}, {5, 3600, 0}}, []rules.Phase{open, open, normal}, 0},
		"a burst is clear by the device's time": {settling(high, 10*time.Second), 0, []reading{{80, 100, 40}, {79, 100, 50}, {79, 100, 59}, {79, 101, 60}}, []rules.Phase{open, open, open, normal}, 0},
		"override above":                        {high, 95, []reading{{90, 1, 0}, {95, 2, 0}, {94, 3, 0}}, []rules.Phase{normal, open, normal}, 0},
		"override below":                        {high, 60, []reading{{59, 1, 0}, {60, 2, 0}, {59, 3, 0}}, []rules.Phase{normal, open, normal}, 0},
		"clear moves with an override":          {clear, 95, []reading{{94, 1, 0}, {95, 2, 0}, {90, 3, 0}, {89, 4, 0}}, []rules.Phase{normal, open, open, normal}, 0},
		"override beyond clear":                 {clear, 60, []reading{{60, 1, 0}, {55, 2, 0}, {54, 3, 0}}, []rules.Phase{open, open, normal}, 0},
		"override far above a low clear":        {freezer, 8, []reading{{9, 1, 0}, {7.5, 2, 0}, {2, 3, 0}}, []rules.Phase{open, open, normal}, 0},
		"override of a rule that is below":      {low, 10, []reading{{10, 1, 0}, {12, 2, 0}, {12.1, 3, 0}}, []rules.Phase{open, open, normal}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			limit := test.rule.Levels[0].Limit
			if test.override != 0 {
				limit = test.override
			}
			states := run(&test.rule, limit, test.readings)
			var got []rules.Phase
			for _, s := range states {
				got = append(got, s.Phase)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if last := states[len(states)-1]; last.Since.Hub != test.since*1e6 {
				t.Errorf("since %v µs, want %d s", last.Since, test.since)
			}
		})
	}
}

// anyRule draws a rule with one level, whose limit is 0 or near it, as its readings are.
func anyRule(t *rapid.T) rules.Rule {
	near := rapid.IntRange(0, 3)
	r := rules.Rule{Below: rapid.Bool().Draw(t, "below")}
	l := rules.Level{Limit: float64(near.Draw(t, "limit")), For: time.Duration(rapid.IntRange(0, 5).Draw(t, "for")) * time.Second}
	band := float64(near.Draw(t, "band"))
	if r.Below {
		band = -band
	}
	l.Clear = l.Limit - band
	r.ClearedFor = time.Duration(rapid.IntRange(0, 5).Draw(t, "clear for")) * time.Second
	r.Levels = []rules.Level{l}
	return r
}

// anyReadings draws readings, in the hub's order; its clock may stand still.
func anyReadings(t *rapid.T) (all []reading) {
	at := int64(1) // no moment is zero
	for range rapid.IntRange(0, 30).Draw(t, "n") {
		at += int64(rapid.IntRange(0, 4).Draw(t, "after"))
		device := int64(0)
		if rapid.IntRange(0, 2).Draw(t, "device") == 0 {
			device = at + int64(rapid.IntRange(-20, 2).Draw(t, "late"))
		}
		all = append(all, reading{float64(rapid.IntRange(-5, 5).Draw(t, "value")), at, max(0, device)})
	}
	return all
}

// lasted is how long a run of readings that began at since has lasted: by the device's clock, unless one of the two has no
// time by it.
func lasted(since rules.Moment, r reading) time.Duration {
	now := r.moment()
	if from := since.Device; from > 0 && now.Device > 0 {
		return time.Duration(now.Device-from) * time.Microsecond
	}
	return time.Duration(now.Hub-since.Hub) * time.Microsecond
}

// What the states of a level promise, against a description of them that keeps all readings of an alarm instead of a
// state.
func TestNextAgainstAllReadings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, readings := anyRule(t), anyReadings(t)
		l := &r.Levels[0]
		limit := l.Limit
		if rapid.Bool().Draw(t, "overridden") {
			limit = float64(rapid.IntRange(-2, 5).Draw(t, "override"))
		}

		var alarm []reading // those since it began, without late ones
		var clear []reading // the last ones of an open alarm, if all are clear
		open := false
		for i, s := range run(&r, limit, readings) {
			is := readings[i]
			late := slices.ContainsFunc(alarm, func(was reading) bool { return is.device > 0 && is.device < was.device })
			breaching := r.Breaching(is.value, limit)
			cleared := r.Cleared(is.value, l.ClearOf(limit))
			switch {
			case late:
			case !open && !breaching:
				alarm = nil
			case open && cleared && lasted(append(clear, is)[0].moment(), is) >= r.ClearedFor:
				alarm, clear, open = nil, nil, false
			case open && cleared:
				alarm, clear = append(alarm, is), append(clear, is)
			default:
				clear = nil
				alarm = append(alarm, is)
				open = open || lasted(alarm[0].moment(), is) >= l.For
			}

			want := rules.State{}
			if len(alarm) > 0 {
				want.Phase, want.Since = rules.Pending, alarm[0].moment()
			}
			if open {
				want.Phase = rules.Open
			}
			for _, was := range alarm {
				want.Newest = max(want.Newest, was.moment().Device)
			}
			if len(clear) > 0 {
				want.Cleared = clear[0].moment()
			}
			if s != want {
				t.Fatalf("after reading %d: got %v, want %v", i, s, want)
			}
			if cleared && breaching {
				t.Fatalf("reading %d breaches and clears", i)
			}
		}
	})
}

// Opens and closes take turns; nothing opens before it has lasted, on a reading that does not
// breach, or from a state of which it was not pending.
func TestNextTakesTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, readings := anyRule(t), anyReadings(t)
		limit := r.Levels[0].Limit
		was := rules.State{}
		for i, s := range run(&r, limit, readings) {
			opened := s.Phase == rules.Open && was.Phase != rules.Open
			closed := s.Phase != rules.Open && was.Phase == rules.Open
			switch {
			case opened && (!r.Breaching(readings[i].value, limit) || lasted(s.Since, readings[i]) < r.Levels[0].For):
				t.Fatalf("opens with reading %d: %v", i, s)
			case opened && was.Phase == rules.Normal && r.Levels[0].For > 0:
				t.Fatalf("opens with reading %d without having been pending", i)
			case closed && (!r.Cleared(readings[i].value, r.Levels[0].ClearOf(limit)) || s != (rules.State{})):
				t.Fatalf("closes with reading %d: %v", i, s)
			case closed && was.Cleared == (rules.Moment{}) && r.ClearedFor > 0:
				t.Fatalf("closes with reading %d, the first that is clear", i)
			case closed && was.Cleared != (rules.Moment{}) && lasted(was.Cleared, readings[i]) < r.ClearedFor:
				t.Fatalf("closes with reading %d too early after %v", i, was)
			case was.Phase != rules.Normal && s.Phase != rules.Normal && s.Since != was.Since:
				t.Fatalf("begins anew with reading %d: %v after %v", i, s, was)
			}
			was = s
		}
	})
}

// Reading again from any position with the state that was kept there gives the same, which
// is what a take-over does.
func TestNextReplays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, readings := anyRule(t), anyReadings(t)
		limit := r.Levels[0].Limit
		states := run(&r, limit, readings)
		cut := rapid.IntRange(0, len(readings)).Draw(t, "cut")
		s := rules.State{}
		if cut > 0 {
			s = states[cut-1]
		}
		for i := cut; i < len(readings); i++ {
			if s = r.Next(&r.Levels[0], s, readings[i].value, limit, r.Levels[0].ClearOf(limit), readings[i].moment()); s != states[i] {
				t.Fatalf("reading %d: got %v, want %v", i, s, states[i])
			}
		}
	})
}

// A rule without state decides by one reading.
func TestStateless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, readings := anyRule(t), anyReadings(t)
		if r.Stateful() != (r.Levels[0].For > 0 || r.Levels[0].Clear != r.Levels[0].Limit || r.ClearedFor > 0) {
			t.Fatal("Stateful is wrong")
		}
		if r.Stateful() {
			return
		}
		for i := range readings {
			readings[i].device = 0 // late readings change nothing about a state that is kept
		}
		for i, s := range run(&r, r.Levels[0].Limit, readings) {
			if (s.Phase == rules.Open) != r.Breaching(readings[i].value, r.Levels[0].Limit) || s.Phase == rules.Pending {
				t.Fatalf("reading %d: %v", i, s)
			}
		}
	})
	r := rules.Rule{Levels: []rules.Level{{}, {Limit: 1, Clear: 1, For: time.Second}}}
	if !r.Stateful() {
		t.Error("a rule one of whose levels has a duration has no state")
	}
	resolved := rules.Threshold("temp", 80, time.Minute)
	if resolved.Stateful() {
		t.Error("one threshold has state")
	}
	if resolved.Rules[0].Resolved = true; !resolved.Stateful() {
		t.Error("a rule that tells when a device is normal again has no state")
	}
}

// A rule about silence expects to hear from a device by what its messages say of it; what they lack says nothing.
func TestExpects(t *testing.T) {
	s := rules.Set{Rules: []rules.Rule{{Name: "offline", Silent: time.Minute, Levels: []rules.Level{{}}, Only: []rules.Condition{
		{Name: "kind", Values: []string{"frozen"}}, {Name: "load", Values: []string{"full", "half"}},
	}}}}
	d, err := s.Decoder()
	if err != nil {
		t.Fatal(err)
	}
	cut := &d.Cuts[0]
	for _, tt := range []struct {
		body    string
		load    any // the property
		because string
		all     bool
	}{
		{`{"kind": "Frozen", "load": "half"}`, nil, "", true},
		{`{"kind": "frozen"}`, "full", "", true},
		{`{"kind": "frozen"}`, nil, "", false},
		{`{"kind": null}`, "full", "", false},
		{`not JSON`, nil, "", false},
		{`{"kind": "chilled"}`, nil, "kind", false},
		{`{"kind": "frozen"}`, "empty", "load", false},
		{`not JSON`, "empty", "load", false},
		{`{'kind': 'frozen', 'load': 'half'}`, nil, "", true},
		{`{'kind': 'chilled'}`, nil, "", false}, // it is damaged, and says of nobody that nothing is expected
		{`{'kind': 'frozen'}`, "empty", "", false},
		{`{"kind": "chilled", "load": "empty", "x`, nil, "", false},
	} {
		e := telemetry.Event{Device: "d", Body: []byte(tt.body)}
		if tt.load != nil {
			e.Properties = telemetrytest.Properties(map[string]any{"load": tt.load})
		}
		found := make([]telemetry.Found, 2)
		m := telemetry.NewMeasurements(nil)
		m.Split(&e)
		if reason := m.Read(cut.Decoder, 0, found); !reason.HasReading() {
			t.Errorf("%s: %v, and no rule reads anything of it", tt.body, reason)
		}
		because, all := s.Rules[0].Expects(found, &cut.Reads[0])
		name := ""
		if because != nil {
			name = because.Name
		}
		if name != tt.because || all != tt.all {
			t.Errorf("%s, load %v: excluded by %q, all %t; want %q, %t", tt.body, tt.load, name, all, tt.because, tt.all)
		}
	}
}

// Rules with the same each take messages apart in the same way. What a rule reads beside its field is of one element.
func TestCuts(t *testing.T) {
	door := []rules.Condition{{Name: "door", Values: []string{"open"}}}
	valid := &telemetry.Range{From: 1, To: 2}
	s := rules.Set{Rules: []rules.Rule{
		{Field: "t", Each: "r", Sensor: []string{"id", "$key"}}, {Field: "a", Only: door}, {Field: "b", Valid: valid}, {Field: "a", Below: true}, {Field: "a", Levels: []rules.Level{{LimitAt: rules.Reference{Name: "c", Plus: true}}}},
		{Field: "b", Valid: &telemetry.Range{From: 1, To: 2}}, {Field: "a", Only: door}, {Field: "u", Each: "r", Flags: door},
	}}
	d, err := s.Decoder()
	if err != nil {
		t.Fatal(err)
	}
	open := func(group int) telemetry.Field {
		return telemetry.Field{Paths: "door", Words: []string{"open"}, Condition: true, Group: group}
	}
	flag := open(2)
	flag.Flag = true
	for i, want := range []rules.Cut{
		{
			Rules: []int{1, 2, 3, 4, 5, 6}, Readings: 4,
			Fields: []telemetry.Field{{Paths: "a", Group: 1}, {Paths: "b", Valid: valid}, {Paths: "a", Lowest: true}, {Paths: "a", Group: 2}, open(1), {Paths: "c", Condition: true, Limit: true, Group: 2}},
			Reads: []rules.Reads{
				{Field: 0, Only: []int{4}}, {Field: 1}, {Field: 2}, {Field: 3, Limits: []int{5}, Clears: []int{-1}}, {Field: 1}, {Field: 0, Only: []int{4}},
			},
		},
		{
			Rules: []int{0, 7}, Readings: 2,
			Fields: []telemetry.Field{{Paths: "t", Group: 1}, {Paths: "u", Group: 2}, {Paths: "id", Text: true, Condition: true, Group: 1}, {Paths: "$key", Text: true, Condition: true, Group: 1}, flag},
			Reads:  []rules.Reads{{Field: 0, Sensor: []int{2, 3}}, {Field: 1}},
		},
	} {
		got := d.Cuts[i]
		if (got.Each != nil) != (i == 1) || got.Decoder == nil {
			t.Errorf("cut %d: %+v", i, got)
		}
		got.Decoder, got.Each = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("cut %d: got %+v\nwant %+v", i, got, want)
		}
	}
}

// A rule about silence expects more devices than another one if none of its conditions asks for more.
func TestExpectsAllOf(t *testing.T) {
	only := func(conditions ...rules.Condition) *rules.Rule { return &rules.Rule{Only: conditions} }
	kind := func(values ...string) rules.Condition { return rules.Condition{Name: "kind", Values: values} }
	site := rules.Condition{Name: `si"te]`, Values: []string{`a "b" c`, "] and kind is [", `\`}}
	for _, test := range []struct {
		of, was *rules.Rule
		want    bool
	}{
		{only(kind("frozen")), only(kind("frozen")), true},
		{only(kind("frozen", "fresh")), only(kind("frozen")), true},
		{only(kind("FROZEN")), only(kind("frozen")), true},
		{only(kind("frozen")), only(kind("frozen", "fresh")), false},
		{only(kind("fresh")), only(kind("frozen")), false},
		{only(), only(kind("frozen")), true},
		{only(kind("frozen")), only(), false},
		{only(kind("frozen")), only(site, kind("frozen")), true},
		{only(site, kind("frozen")), only(kind("frozen")), false},
		{only(site), only(kind("frozen"), site), true},
		{only(), only(), true},
	} {
		if got := test.of.ExpectsAllOf(test.was.ExpectedBy()); got != test.want {
			t.Errorf("%v after %v: %t", test.of.Only, test.was.Only, got)
		}
	}
	for _, odd := range []string{"kind", "kind is [", `kind is ["frozen"`, "kind is [frozen]"} {
		if only().ExpectsAllOf(odd) {
			t.Errorf("%q is understood", odd)
		}
	}
}

// People mute by any name, so a decoder does not remember all that it was ever asked for.
func TestNamesAreBounded(t *testing.T) {
	set := rules.Threshold("temperature", 80, time.Minute)
	d, err := set.Decoder()
	if err != nil {
		t.Fatal(err)
	}
	m := telemetry.NewMeasurements(nil)
	m.Split(&telemetry.Event{Device: "oven", Body: []byte(`{"line":"a"}`)})
	memory := func() int64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	before := memory()
	for i := range 20_000 {
		d.Text(m, 0, fmt.Sprint("name-", i))
	}
	if grown := memory() - before; grown > 8<<20 {
		t.Errorf("20,000 names take %d KiB", grown>>10)
	}
	if got := d.Text(m, 0, "line"); got != "a" { // which is one too many
		t.Errorf("line is %q", got)
	}
}
