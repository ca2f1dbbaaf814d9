package humanize_test

import (
	"math"
	"testing"
	"time"

	"alertworker/internal/humanize"
)

func TestHumanize(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{humanize.Count(0, "event"), "0 events"},
		{humanize.Count(1, "event"), "1 event"},
		{humanize.Count(2, "event"), "2 events"},
		{humanize.And(nil), ""},
		{humanize.And([]string{"a"}), "a"},
		{humanize.And([]string{"a", "b"}), "a and b"},
		{humanize.Or([]string{"a", "b", "c"}), "a, b or c"},
		{humanize.Capital(""), ""},
		{humanize.Capital("öl"), "Öl"},
		{humanize.Span(-time.Second), "0 ms"},
		{humanize.Span(40 * time.Millisecond), "40 ms"},
		{humanize.Span(119 * time.Second), "119 s"},
		{humanize.Span(3*time.Minute + 40*time.Second), "3 min"},
		{humanize.Span(2*time.Hour + 40*time.Second), "2 h"},
		{humanize.Span(5*time.Hour + 12*time.Minute), "5 h 12 min"},
		{humanize.Span(5*time.Hour + 20*time.Second), "5 h"},
		{humanize.Span(71 * time.Hour), "2 days"},
		{humanize.ClockOff(59 * time.Second), ""},
		{humanize.ClockOff(20*time.Minute - 400*time.Millisecond), "this machine's clock is 20 min behind"},
		{humanize.ClockOff(-8*time.Minute - 300*time.Millisecond), "this machine's clock is 8 min ahead"},
		{humanize.Middle("äöü", 3), "äöü"},
		{humanize.Middle("oven-1234567", 8), "oven-…67"},
		{humanize.Middle("ä\U0001F525öüßabcdefgh", 8), "ä\U0001F525öüß…gh"},
		{humanize.Number(80), "80"},
		{humanize.Number(-0.25), "-0.25"},
		{humanize.Number(999_999_999_999_999), "999999999999999"},
		{humanize.Number(1e300), "1e+300"},
		{humanize.Number(-5e-10), "-5e-10"},
		{humanize.Number(math.Copysign(0, -1)), "0"},
		{humanize.Clean("a\x1b[2J\u202eb\n"), "a\uFFFD[2J\uFFFDb\uFFFD"},
		{humanize.OneLine(" a\n\tb\xff\x00"), "a b\uFFFD\uFFFD"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
