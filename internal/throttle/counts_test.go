package throttle

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/lease"
)

func TestCountsAdd(t *testing.T) {
	const day = 20_000
	at := func(d int64) time.Time { return time.Unix(d*secondsPerDay, 0) }
	had := counts{day, [2]int64{3, 2}, [2]int64{30, 20}}
	tests := []struct {
		name string
		now  time.Time
		want counts
	}{
		{"the same day", at(day), counts{day, [2]int64{4, 2}, [2]int64{35, 20}}},
		{"its last moment", at(day + 1).Add(-1), counts{day, [2]int64{4, 2}, [2]int64{35, 20}}},
		{"the next day", at(day + 1), counts{day + 1, [2]int64{1, 3}, [2]int64{5, 30}}},
		{"the day after next", at(day + 2), counts{day + 2, [2]int64{1, 0}, [2]int64{5, 0}}},
		{"the clock set back a little", at(day).Add(-1), counts{day, [2]int64{3, 3}, [2]int64{30, 25}}},
		{"the clock set back a lot", at(day - 1).Add(-1), counts{day - 2, [2]int64{1, 0}, [2]int64{5, 0}}},
	}
	for _, test := range tests {
		if got := had.add(test.now, 5); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
	if got, want := (counts{}).add(at(day), 0), (counts{Day: day, Alerts: [2]int64{1}}); got != want {
		t.Errorf("the first ever: %+v, want %+v", got, want)
	}
}

func TestCountsOn(t *testing.T) {
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	c := Counts{counts: counts{day.Unix() / secondsPerDay, [2]int64{3, 2}, [2]int64{30, 20}}}
	for at, want := range map[time.Time]Tally{
		day:                       {3, 30},
		day.Add(24*time.Hour - 1): {3, 30},
		day.Add(-1):               {2, 20},
		day.AddDate(0, 0, -1):     {2, 20},
		day.AddDate(0, 0, 1):      {},
		day.AddDate(0, 0, -2):     {},
		day.Add(time.Hour).In(time.FixedZone("", 2*60*60)): {3, 30},
	} {
		if got := c.On(at); got != want {
			t.Errorf("on %v: %+v, want %+v", at, got, want)
		}
	}
}

// A note fits into a record, with the longest ID and figures.
func TestNoteFits(t *testing.T) {
	n := note{
		Phase: phaseWindow, Again: true, ID: strings.Repeat("x", 63) + "/" + strings.Repeat("h", 256) + "/1023/9223372036854775807/9223372036854775807",
		Quiet: math.MaxInt64, Proof: math.MaxInt64,
		Counts: counts{math.MaxInt64, [2]int64{math.MaxInt64, math.MaxInt64}, [2]int64{math.MaxInt64, math.MaxInt64}},
	}
	if s := n.String(); len(s) > 1024 || parseNote(s) != n {
		t.Errorf("%d bytes: %s", len(s), s)
	}
}

// A note from before there were counts says the same as ever, and the first alert counts from nothing.
func TestNoteWithoutCounts(t *testing.T) {
	n := parseNote(`{"phase":"window","id":"a","quiet":1,"proof":80000}`)
	if n != (note{Phase: phaseWindow, ID: "a", Quiet: 1, Proof: 80000}) {
		t.Errorf("%+v", n)
	}
	if n.Counts.Day != 0 || strings.Contains(n.String(), "counts") {
		t.Errorf("no counts became %s", n)
	}
}

// Whatever a record holds, reading it ends well; what is written again says the same.
func FuzzNote(f *testing.F) {
	f.Add("")
	f.Add(`{"phase":"claim","id":"a","counts":{"day":20000,"alerts":[1,2],"suppressed":[3,4]}}`)
	f.Add(`{"counts":{"day":-1,"alerts":[-1],"suppressed":[1,2,3]}}`)
	f.Add(`{"counts":null,"proof":9223372036854775807}`)
	f.Fuzz(func(t *testing.T, s string) {
		n := parseNote(s)
		if again := parseNote(n.String()); again != n && json.Valid([]byte(s)) {
			t.Errorf("%q: %+v came back as %+v", s, n, again)
		}
		_ = n.quietUntil(lease.Record{})
		_ = n.Counts.sound()
	})
}

// Days are those of the alerts, and an alert is on one of them, however they come.
func TestCountsKeepTwoDays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		alerts, suppressed := map[int64]int64{}, map[int64]int64{}
		var c Counts
		for range rapid.IntRange(0, 30).Draw(t, "alerts") {
			now = now.Add(rapid.SampledFrom([]time.Duration{time.Minute, 7 * time.Hour, 23 * time.Hour, 50 * time.Hour}).Draw(t, "gap"))
			n := rapid.Int64Range(0, 100).Draw(t, "suppressed")
			c.counts = c.counts.add(now, n)
			alerts[now.Unix()/secondsPerDay]++
			suppressed[now.Unix()/secondsPerDay] += n
		}
		for back := range int64(2) {
			at := now.AddDate(0, 0, -int(back))
			d := at.Unix() / secondsPerDay
			if got, want := c.On(at), (Tally{alerts[d], suppressed[d]}); got != want {
				t.Fatalf("%d days before the last alert: %+v, want %+v", back, got, want)
			}
		}
	})
}
