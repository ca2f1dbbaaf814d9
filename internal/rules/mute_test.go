package rules_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"alertworker/internal/rules"
)

func TestMute(t *testing.T) {
	from := time.Date(2026, 3, 1, 14, 0, 0, 0, time.UTC)
	site := func(name string) string { return map[string]string{"site": "berlin"}[name] }
	for _, tt := range []struct {
		mute rules.Mute
		at   time.Duration
		want bool
	}{
		{rules.Mute{}, 0, true},
		{rules.Mute{}, -1, false},
		{rules.Mute{}, time.Hour - 1, true},
		{rules.Mute{}, time.Hour, false},
		{rules.Mute{Rule: "hot"}, 0, true},
		{rules.Mute{Rule: "cold"}, 0, false},
		{rules.Mute{Property: "site", Value: "berlin"}, 0, true},
		{rules.Mute{Property: "site", Value: "paris"}, 0, false},
		{rules.Mute{Property: "line", Value: "1"}, 0, false},
		{rules.Mute{Device: "oven-7", Rule: "hot", Property: "site", Value: "berlin"}, 0, true},
		{rules.Mute{Device: "oven-7", Rule: "hot", Property: "site", Value: "paris"}, 0, false},
		{rules.Mute{Device: "oven"}, 0, false},
		{rules.Mute{Device: "oven-*"}, 0, true},
		{rules.Mute{Device: "*-7"}, 0, true},
		{rules.Mute{Device: "*"}, 0, true},
		{rules.Mute{Device: "o*n*7"}, 0, true},
		{rules.Mute{Device: "oven-7*7"}, 0, false}, // one character is not two
		{rules.Mute{Device: "*n*v*"}, 0, false},
		{rules.Mute{Device: "OVEN-*"}, 0, false},
		{rules.Mute{Device: "oven-7", Sensor: "return"}, 0, true},
		{rules.Mute{Device: "oven-*", Sensor: "*"}, 0, true},
		{rules.Mute{Device: "oven-7", Sensor: "flow"}, 0, false},
		{rules.Mute{Device: "oven", Sensor: "return"}, 0, false},
		{rules.Mute{Sensor: "ret*"}, 0, true},
		{rules.Mute{Device: "oven-7/return"}, 0, false},
	} {
		tt.mute.From, tt.mute.Until = from, from.Add(time.Hour)
		about := rules.Subject{Device: "oven-7", Sensor: "return", Rule: "hot", Enqueued: from.Add(tt.at), Text: site}
		if got := tt.mute.Matches(&about); got != tt.want {
			t.Errorf("%+v matches at %v: %t", tt.mute, tt.at, got)
		}
	}
}

// A message mutes itself by what a property is, or until the time that one has, and a device of which it was the last is
// not expected to send before that.
func TestMuteByMessage(t *testing.T) {
	enqueued := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	where, until := rules.Mute{Property: "p", Value: "true"}, rules.Mute{UntilAt: "p"}
	for _, tt := range []struct {
		mute  rules.Mute
		value any
		quiet time.Duration // after enqueued; 0: not at all, always: nothing says until when
		want  bool
	}{
		{where, true, always, true},
		{where, "true", always, true},
		{where, "TRUE", always, true},
		{where, " True ", always, true},
		{where, false, 0, false},
		{where, "truer", 0, false},
		{where, "1", 0, false},
		{where, nil, 0, false},
		{where, []byte("true"), 0, false},
		{until, enqueued.Add(time.Millisecond), time.Millisecond, true},
		{until, "2026-03-01T12:00:01Z", time.Second, true},
		{until, "2026-03-01T12:00:00.001Z", time.Millisecond, true},
		{until, "2026-03-01T13:30:00+01:00", 30 * time.Minute, true},
		{until, "2026-03-01T12:00:00.000000001-00:00", time.Millisecond, true}, // rounded up
		{until, "2026-03-01T13:00:00+01:00", 1, false},                         // enqueued itself
		{until, "2026-03-01T11:59:59Z", -time.Second, false},
		{until, enqueued.Add(-time.Hour), -time.Hour, false},
		{until, nil, 0, false},
		{until, true, 0, false},
		{until, "true", 0, false},
		{until, "", 0, false},
		{until, int64(1), 0, false},
		{until, "2026-03-02", 0, false},
		{until, "2026-03-01 13:00:00Z", 0, false},
		{until, "2026-13-41T99:00:00Z", 0, false},
		{until, "$twin.tags.quiet", 0, false},
		{until, "2026-03-01T13:00:00." + strings.Repeat("0", 1000) + "Z", 0, false},
		{rules.Mute{Device: "oven*", Rule: "hot", UntilAt: "p"}, "2026-03-01T12:00:01Z", time.Second, true},
		{rules.Mute{Device: "kiln", UntilAt: "p"}, "2026-03-01T12:00:01Z", 0, false},
		{rules.Mute{Rule: "cold", UntilAt: "p"}, "2026-03-01T12:00:01Z", 0, false},
		{rules.Mute{Property: "q", Value: "1", UntilAt: "p"}, "2026-03-01T12:00:01Z", 0, false},
		{rules.Mute{Property: "p", Value: "true", From: enqueued, Until: enqueued.Add(time.Hour)}, true, 0, true}, // that of people
		{rules.Mute{Property: "p", Value: "true", Times: &rules.Times{Days: rules.EveryDay, To: rules.MinutesOfDay, Zone: time.UTC}}, true, 0, true},
	} {
		all := rules.Mutes{{Device: "nobody"}, tt.mute}
		about := rules.Subject{Device: "oven", Rule: "hot", Enqueued: enqueued}
		text := ""
		if tt.value != nil {
			text = view(t, rules.Rule{Field: "t", Per: "p"}, `{"t":1}`, map[string]any{"p": tt.value}).Shared
		}
		about.Text = func(name string) string {
			if name == "p" {
				return text
			}
			return ""
		}
		quiet := int64(0)
		switch {
		case tt.quiet == always:
			quiet = math.MaxInt64
		case tt.quiet != 0:
			quiet = enqueued.Add(tt.quiet).UnixMilli()
		}
		if match, got := all.Match(&about), all.Quiet(&about); match != tt.want || got != quiet {
			t.Errorf("%v with %#v: matches %t, quiet until %d; want %t, %d", &tt.mute, tt.value, match, got, tt.want, quiet)
		}
		const noTime = "2026-13-41T99:00:00Z" // what looks like a time, and is none, is an error of package time's
		if n := testing.AllocsPerRun(100, func() { all.Match(&about); all.Quiet(&about) }); n != 0 && tt.value != noTime {
			t.Errorf("%v with %#v: %v allocations", &tt.mute, tt.value, n)
		}
	}
}

const always = time.Duration(math.MaxInt64)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// days returns the days of Times.
func days(of ...time.Weekday) (all [7]bool) {
	for _, day := range of {
		all[day] = true
	}
	return all
}

func TestTimes(t *testing.T) {
	berlin, beirut := zone(t, "Europe/Berlin"), zone(t, "Asia/Beirut")
	const hour = 60
	night := rules.Times{Days: days(time.Friday), From: 22 * hour, To: 6*hour + 30, Zone: berlin}
	weekend := rules.Times{Days: days(time.Saturday, time.Sunday), To: 24 * hour, Zone: berlin}
	every := func(from, to int, zone *time.Location) rules.Times {
		return rules.Times{Days: rules.EveryDay, From: from, To: to, Zone: zone}
	}
	for _, tt := range []struct {
		name  string
		times rules.Times
		at    string // in UTC
		want  bool
	}{
		{"before a night", night, "2026-11-27T20:59:59Z", false},
		{"its begin", night, "2026-11-27T21:00:00Z", true},
		{"after midnight", night, "2026-11-28T05:29:59Z", true},
		{"its end", night, "2026-11-28T05:30:00Z", false},
		{"the morning of its day", night, "2026-11-27T03:00:00Z", false},
		{"the next evening", night, "2026-11-28T22:00:00Z", false},
		{"whole days begin at midnight of the zone", weekend, "2026-11-27T23:00:00Z", true},
		{"not at that of UTC", weekend, "2026-11-27T22:59:59Z", false},
		{"between two of them", weekend, "2026-11-28T23:00:00Z", true},
		{"they end", weekend, "2026-11-29T23:00:00Z", false},
		{"until midnight", every(22*hour, 0, time.UTC), "2026-11-29T23:59:59Z", true},
		{"not after it", every(22*hour, 0, time.UTC), "2026-11-29T00:00:00Z", false},
		{"in summer an hour earlier", night, "2026-07-03T20:00:00Z", true},

		// Berlin, 2026-03-29: after 01:59:59 comes 03:00:00, at 01:00 UTC.
		{"a begin that is skipped: before", every(2*hour+30, 5*hour, berlin), "2026-03-29T00:59:59Z", false},
		{"a begin that is skipped: from 03:00 on", every(2*hour+30, 5*hour, berlin), "2026-03-29T01:00:00Z", true},
		{"an end that is skipped: before", every(hour, 2*hour+30, berlin), "2026-03-29T00:59:59Z", true},
		{"an end that is skipped: at 03:00", every(hour, 2*hour+30, berlin), "2026-03-29T01:00:00Z", false},
		{"one that is skipped", every(2*hour, 3*hour, berlin), "2026-03-29T01:00:00Z", false},

		// Berlin, 2026-10-25: after 02:59:59 comes 02:00:00 once more, at 01:00 UTC.
		{"one that comes twice: at first", every(2*hour, 2*hour+30, berlin), "2026-10-25T00:15:00Z", true},
		{"between", every(2*hour, 2*hour+30, berlin), "2026-10-25T00:45:00Z", false},
		{"again", every(2*hour, 2*hour+30, berlin), "2026-10-25T01:15:00Z", true},
		{"over", every(2*hour, 2*hour+30, berlin), "2026-10-25T01:30:00Z", false},
		{"a night is an hour longer", night, "2026-10-25T00:30:00Z", false}, // it is that of Friday
		{"it goes on", every(22*hour, 6*hour, berlin), "2026-10-25T04:59:59Z", true},

		// Beirut, 2026-03-29: after 23:59:59 of Saturday comes 01:00:00 of Sunday, at 22:00 UTC.
		{"a midnight that is skipped", every(22*hour, 2*hour, beirut), "2026-03-28T22:30:00Z", true},
		{"its end", every(22*hour, 2*hour, beirut), "2026-03-28T23:00:00Z", false},
		{"of its day", rules.Times{Days: days(time.Saturday), From: 22 * hour, To: 2 * hour, Zone: beirut},
			"2026-03-28T22:59:59Z", true},
	} {
		at, err := time.Parse(time.RFC3339, tt.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := tt.times.Contain(at); got != tt.want {
			t.Errorf("%s: %v contain %s: %t", tt.name, &tt.times, tt.at, got)
		}
	}
}

// Times have a begin and an end, by the clock on the wall, and say when they are.
func TestTimesAround(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	const hour = 60
	for _, tt := range []struct {
		times           rules.Times
		at, from, until string
		says            string
	}{
		{rules.Times{Days: rules.EveryDay, From: 22 * hour, To: 6 * hour, Zone: berlin},
			"2026-03-29T00:00:59Z", "2026-03-28T21:00:00Z", "2026-03-29T04:00:00Z",
			"every day from 22:00 to 06:00 of the next day, Europe/Berlin"},
		{rules.Times{Days: days(time.Sunday, time.Saturday), To: 24 * hour, Zone: time.UTC},
			"2026-11-28T00:00:00Z", "2026-11-28T00:00:00Z", "2026-11-30T00:00:00Z", "Sat, Sun from 00:00 to 24:00, UTC"},
		{rules.Times{Days: days(1, 2, 3, 4, 5, 6), From: 6 * hour, To: 6 * hour, Zone: time.UTC},
			"2026-11-27T12:00:00Z", "2026-11-23T06:00:00Z", "2026-11-29T06:00:00Z",
			"Mon, Tue, Wed, Thu, Fri, Sat from 06:00 to 06:00 of the next day, UTC"},
	} {
		at, err := time.Parse(time.RFC3339, tt.at)
		if err != nil {
			t.Fatal(err)
		}
		from, until := tt.times.Around(at)
		got := []string{from.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339), tt.times.String()}
		if want := []string{tt.from, tt.until, tt.says}; !slices.Equal(got, want) || tt.times.Always() {
			t.Errorf("%v, want %v", got, want)
		}
	}
	always := rules.Times{Days: rules.EveryDay, From: 7 * hour, To: 7 * hour, Zone: time.UTC}
	if from, until := always.Around(time.Now()); !always.Always() || until.Sub(from) < 9*24*time.Hour {
		t.Errorf("always, and yet from %v to %v", from, until)
	}
}
