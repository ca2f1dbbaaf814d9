package rules_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/telemetrytest"
)

// A number with which a message says a limit of its own, and what is none.
func TestLimitOfTheMessage(t *testing.T) {
	r := rules.Rule{Field: "t", Levels: []rules.Level{{Limit: 1, Clear: 1, LimitAt: rules.Reference{Name: "p"}}}}
	for _, tt := range []struct {
		value any
		want  float64
		kind  rules.Override
	}{
		{"85", 85, rules.OverrideUsed},
		{" -4.5 ", -4.5, rules.OverrideUsed},
		{"1e2", 100, rules.OverrideUsed},
		{"0", 0, rules.OverrideUsed},
		{85.5, 85.5, rules.OverrideUsed},
		{int32(-3), -3, rules.OverrideUsed},
		{uint8(85), 85, rules.OverrideUsed},
		{nil, 0, rules.OverrideAbsent},
		{"$twin.tags.maxTemp", 0, rules.OverrideAbsent},
		{"$twin.properties.desired.maxTemp", 0, rules.OverrideAbsent},
		{" $twin.tags.maxTemp", 0, rules.OverrideAbsent},
		{"$twin", 0, rules.OverrideOther},
		{"", 0, rules.OverrideOther},
		{"warm", 0, rules.OverrideOther},
		{"85 °C", 0, rules.OverrideOther},
		{"85,5", 85.5, rules.OverrideUsed},
		{"1,234", 0, rules.OverrideOther},
		{"0x55", 0, rules.OverrideOther},
		{"8_5", 0, rules.OverrideOther},
		{"NaN", 0, rules.OverrideOther},
		{"Infinity", 0, rules.OverrideOther},
		{"1e400", 0, rules.OverrideOther},
		{"1-2", 0, rules.OverrideOther},
		{strings.Repeat("9", 1000), 0, rules.OverrideOther},
		{math.NaN(), 0, rules.OverrideOther},
		{math.Inf(-1), 0, rules.OverrideOther},
		{float32(math.Inf(1)), 0, rules.OverrideOther},
		{true, 1, rules.OverrideUsed}, // as a reading
		{time.Unix(85, 0), 0, rules.OverrideOther},
		{[]byte("85"), 0, rules.OverrideOther},
	} {
		if tt.kind != rules.OverrideUsed {
			tt.want = 1
		}
		v := view(t, r, `{"t":1}`, map[string]any{"p": tt.value})
		if got := v.Levels[0]; got.Limit != tt.want || got.HasLimit != tt.kind || !v.Counts() {
			t.Errorf("%#v: got %+v; want %v, %v", tt.value, got, tt.want, tt.kind)
		}
	}
}

// A clear with which a message says its own counts on the good side of the device's limit, and else the distance of the
// rule's clear from its limit does.
func TestClearOfTheMessage(t *testing.T) {
	limit, clear := rules.Reference{Name: "limit"}, rules.Reference{Name: "clear"}
	high := rules.Rule{Field: "t", Levels: []rules.Level{{Limit: -15, Clear: -16, LimitAt: limit, ClearAt: clear}}}
	low := rules.Rule{Field: "t", Below: true, Levels: []rules.Level{{Limit: 2, Clear: 4, LimitAt: limit, ClearAt: clear}}}
	for _, tt := range []struct {
		rule  rules.Rule
		limit float64
		value any
		want  float64
		kind  rules.Override
	}{
		{high, 8, "5", 5, rules.OverrideUsed},
		{high, 8, 8, 8, rules.OverrideUsed},
		{high, 8, "8.5", 7, rules.OverrideBeyond},
		{high, 8, "cool", 7, rules.OverrideOther},
		{high, -15, "$twin.tags.clear", -16, rules.OverrideAbsent},
		{low, 0, 3, 3, rules.OverrideUsed},
		{low, 0, -1, 2, rules.OverrideBeyond},
		{low, 2, nil, 4, rules.OverrideAbsent},
	} {
		v := view(t, tt.rule, `{"t":1}`, map[string]any{"limit": tt.limit, "clear": tt.value})
		if got := v.Levels[0]; got.Limit != tt.limit || got.Clear != tt.want || got.HasClear != tt.kind {
			t.Errorf("%#v: got %+v; want %v, %v", tt.value, got, tt.want, tt.kind)
		}
	}
}

// Devices share alerts by a text, number or boolean that the message has at a name.
func TestShared(t *testing.T) {
	for _, tt := range []struct {
		value any
		want  string
	}{
		{"berlin", "berlin"}, {" berlin ", "berlin"}, {int32(7), "7"}, {strings.Repeat("x", 256), strings.Repeat("x", 256)},
		{nil, ""}, {"", ""}, {" ", ""}, {"$twin.tags.site", ""}, {strings.Repeat("x", 257), ""}, {true, "true"},
	} {
		v := view(t, rules.Rule{Field: "t", Per: "p"}, `{"t":1}`, map[string]any{"p": tt.value})
		if v.Shared != tt.want {
			t.Errorf("%#v: got %q, want %q", tt.value, v.Shared, tt.want)
		}
	}
	if v := view(t, rules.Rule{Field: "t", Per: "p"}, `{"t":1,"p":"of the body"}`, map[string]any{"p": "x"}); v.Shared != "of the body" {
		t.Errorf("got %q", v.Shared)
	}
}

// Limits are shown as rules write them.
func TestLimitText(t *testing.T) {
	counted, own := rules.Reference{Name: "setpoint", Plus: true}, rules.Reference{Name: "maxTemp"}
	r := rules.Rule{Unit: "°C"}
	for want, l := range map[string]rules.Level{
		"80 °C, 75 °C":                       {Limit: 80, Clear: 75},
		"maxTemp or 80 °C, 75 °C":            {Limit: 80, Clear: 75, LimitAt: own},
		"80 °C, minTemp or 75 °C":            {Limit: 80, Clear: 75, ClearAt: rules.Reference{Name: "minTemp"}},
		"setpoint + 3 °C, setpoint - 3.5 °C": {Limit: 3, Clear: -3.5, LimitAt: counted},
	} {
		if got := r.LimitText(&l) + ", " + r.ClearText(&l); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// view returns what a rule, which gets a level if it has none, finds in a message with one measurement.
func view(t *testing.T, r rules.Rule, body string, properties map[string]any) rules.View {
	t.Helper()
	if len(r.Levels) == 0 {
		r.Levels = []rules.Level{{}}
	}
	set := rules.Set{Rules: []rules.Rule{r}}
	reader, err := set.Reader()
	if err != nil {
		t.Fatal(err)
	}
	e := telemetry.Event{Device: "d", Body: []byte(body), Properties: telemetrytest.Properties(properties)}
	views, _ := reader.Read(&e)
	if len(views) != 1 {
		t.Fatalf("%s has %d measurements", body, len(views))
	}
	return views[0]
}

func TestConditionHolds(t *testing.T) {
	mode := rules.Rule{Field: "t", Only: []rules.Condition{{Name: "p", Values: []string{"run", "3", "true"}}}}
	for _, tt := range []struct {
		value any
		want  bool
	}{
		{"run", true}, {" RUN ", true}, {"3.0", true}, {int32(3), true}, {3.0, true}, {true, true}, {"true", true},
		{"stop", false}, {"", false}, {int64(4), false}, {false, false}, {nil, false}, {[]byte("run"), false}, {"$twin.tags.p", false},
	} {
		if v := view(t, mode, `{"t":1}`, map[string]any{"p": tt.value}); (v.Excluded == nil) != tt.want {
			t.Errorf("property %#v: got %+v, want %v", tt.value, v, tt.want)
		}
	}
	// What the body has counts, and a property of the same name does not.
	if v := view(t, mode, `{"t":1,"P":3}`, map[string]any{"p": "stop"}); v.Excluded != nil {
		t.Error("the property hides what the body has")
	}
	if v := view(t, mode, `{"t":1,"p":4}`, map[string]any{"p": "run"}); v.Excluded == nil || v.Has != "4" {
		t.Errorf("the property hides what the body has: %+v", v)
	}
	long := strings.Repeat("x", 100_000)
	for body, properties := range map[string]map[string]any{`{"t":1}`: {"p": long}, `{"t":1,"p":"` + long + `"}`: nil} {
		if v := view(t, mode, body, properties); v.Excluded == nil || len(v.Has) > 40 {
			t.Errorf("people would be shown %d bytes", len(v.Has))
		}
	}
}

// A limit is counted from a field of the body, or where that has none, from an application property.
func TestLimitCountedFromTheMessage(t *testing.T) {
	r := rules.Rule{Name: "hot", Field: "temp", Levels: []rules.Level{{Limit: 2.2, Clear: 1.2, LimitAt: rules.Reference{Name: "setpoint", Plus: true}}}}
	for _, test := range []struct {
		body       string
		properties map[string]any
		has        rules.Override
		limit      float64
	}{
		{`{"temp":1,"setpoint":20}`, nil, rules.OverrideUsed, 22.2},
		{`{"temp":1,"setpoint":"1.1"}`, map[string]any{"setpoint": 7}, rules.OverrideUsed, 3.3},
		{`{"temp":1}`, map[string]any{"setpoint": "-7"}, rules.OverrideUsed, -4.8},
		{`{"temp":1,"setpoint":null}`, map[string]any{"setpoint": 7}, rules.OverrideUsed, 9.2},
		{`{"temp":1}`, nil, rules.OverrideAbsent, 0},
		{`{"temp":1}`, map[string]any{"setpoint": "$twin.tags.setpoint"}, rules.OverrideAbsent, 0},
		{`{"temp":1}`, map[string]any{"setpoint": "warm"}, rules.OverrideOther, 0},
		{`{"temp":1,"setpoint":"warm"}`, map[string]any{"setpoint": 7}, rules.OverrideOther, 0},
		{`{'temp':1,'setpoint':20}`, map[string]any{"setpoint": 7}, rules.OverrideUsed, 22.2},
		{`{"temp":1,"setp`, map[string]any{"setpoint": 7}, rules.OverrideUsed, 9.2}, // what breaks off may have none
		{`{"temp":1,"setp`, nil, rules.OverrideAbsent, 0},
	} {
		set := rules.Set{Rules: []rules.Rule{r}}
		reader, err := set.Reader()
		if err != nil {
			t.Fatal(err)
		}
		e := telemetry.Event{Device: "d", Body: []byte(test.body), Properties: telemetrytest.Properties(test.properties)}
		views, reason := reader.Read(&e)
		v := views[0]
		if !reason.HasReading() || v.HasLimits != test.has || v.Counts() != (test.has == rules.OverrideUsed) {
			t.Errorf("%s, %v: %+v", test.body, test.properties, v)
		}
		if test.has != rules.OverrideUsed {
			continue
		}
		if l := v.Levels[0]; l.Limit != test.limit || math.Abs(l.Limit-1-l.Clear) > 1e-12 {
			t.Errorf("%s, %v: %+v", test.body, test.properties, l)
		}
	}
}

// A limit that is counted from another number is what one would write, however large or small both are. So is the clear
// that moves with a device's own limit.
func TestCounted(t *testing.T) {
	for _, test := range []struct{ base, distance, want float64 }{
		{1.1, 2.2, 3.3},
		{0.3, -0.1, 0.2},
		{-20, 3, -17},
		{1000.1, -1000, 0.1},
		{1e6, 0.1, 1000000.1},
		{123456789.1, 0.2, 123456789.3},
		{2e-10, 5e-10, 7e-10},
		{3e-10, -1e-10, 2e-10},
		{1.1e-40, 2.2e-40, 3.3e-40},
		{1.1e18, 2.2e18, 1.1e18 + 2.2e18},
		{0, 0.1, 0.1},
		{5e-10, 0, 5e-10},
		{5e-324, 5e-324, 1e-323},
		{math.MaxFloat64, math.MaxFloat64, math.Inf(1)},
		{math.Inf(1), -5, math.Inf(1)},
	} {
		if got := rules.Counted(test.base, test.distance); got != test.want {
			t.Errorf("%v + %v is %v, want %v", test.base, test.distance, got, test.want)
		}
	}
	if got := rules.Counted(math.NaN(), 1); !math.IsNaN(got) {
		t.Errorf("NaN + 1 is %v", got)
	}

	r := &rules.Rule{Levels: []rules.Level{{Limit: 5e-10, Clear: 4e-10, LimitAt: rules.Reference{Name: "maxLeak"}}, {Limit: 1000000.1, Clear: 1000000, LimitAt: rules.Reference{Name: "max"}}}}
	for i, test := range []struct{ limit, want float64 }{{3e-10, 2e-10}, {1, 0.9}} {
		if got := r.Levels[i].ClearOf(test.limit); got != test.want {
			t.Errorf("an alarm with the limit %v ends below %v, want %v", test.limit, got, test.want)
		}
	}
}

// Numbers of at most 15 digits, written with the same decimals, have the sum that is written so. Integers beyond that
// count as float64 does.
func TestCountedLikeDecimals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		digits := rapid.Int64Range(-99_999_999_999_999, 99_999_999_999_999)
		a, b := digits.Draw(t, "a"), digits.Draw(t, "b")
		exponent := rapid.IntRange(-60, 0).Draw(t, "exponent")
		number := func(n int64) float64 {
			f, err := strconv.ParseFloat(fmt.Sprint(n, "e", exponent), 64)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		if got, want := rules.Counted(number(a), number(b)), number(a+b); got != want {
			t.Fatalf("%v + %v is %v, want %v", number(a), number(b), got, want)
		}
	})
}
