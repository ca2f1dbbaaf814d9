package leader

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Ten runs fit into a note, whatever their texts are; texts of a usual length stay whole.
func TestNoteFits(t *testing.T) {
	at := time.Unix(1795261928, 0).UTC()
	var usual note
	usual.Leader = "alertworker-7d9f8c6b5-x2x4z"
	usual.Last = map[string]int64{"janitor": 1795261928, "summary": 1795261928}
	for i := range 20 {
		usual.begin(Run{Duty: []string{"janitor", "summary"}[i%2], Replica: fmt.Sprint("alertworker-7d9f8c6b5-x2x4", i%3), Start: at, Took: 5 * time.Minute, Outcome: Done, Detail: "9999 removed"})
	}
	if got := parseNote(usual.String()); len(got.Runs) != 10 || !reflect.DeepEqual(got, usual) {
		t.Fatalf("%d bytes: %+v came back as %+v", len(usual.String()), usual, got)
	}

	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{strings.Repeat("<", 300), strings.Repeat("ü", 99), "\xff\x00", strings.Repeat("x", 2000)}))
		n := note{Leader: text.Draw(t, "leader"), Last: map[string]int64{"janitor": rapid.Int64().Draw(t, "last"), "summary": 1}}
		runs := rapid.IntRange(0, 12).Draw(t, "runs")
		for range runs {
			n.begin(Run{Duty: text.Draw(t, "duty"), Replica: text.Draw(t, "replica"), Start: at, Took: 5 * time.Minute, Outcome: Failed, Detail: text.Draw(t, "detail")})
		}
		mark := text.Draw(t, "mark")
		n.setMark("janitor", mark)
		s := n.String()
		if len(s) > maxNote || !utf8.ValidString(s) {
			t.Fatalf("%d bytes", len(s))
		}
		if got := parseNote(s); len(got.Runs) != min(runs, maxRuns) || !reflect.DeepEqual(got.Last, n.Last) || got.Marks["janitor"] != n.Marks["janitor"] {
			t.Fatalf("%+v came back as %+v", n, got)
		}
	})
}

// Whatever is in a note, reading it ends well, and what is written after is readable.
func FuzzParseNote(f *testing.F) {
	f.Add("")
	f.Add(`{"n":["a","janitor"],"last":{"janitor":1},"runs":[{"d":1,"s":1,"t":2,"o":1,"x":"ok"}]}`)
	f.Add(`{"runs":[{"o":9},{"o":-1},{},{},{},{},{},{},{},{},{},{}]}`)
	f.Fuzz(func(t *testing.T, s string) {
		n := parseNote(s)
		for _, r := range n.Runs {
			_ = r.Outcome.String()
		}
		if len(n.Runs) > maxRuns {
			t.Errorf("%d runs", len(n.Runs))
		}
		if again := parseNote(n.String()); len(again.Runs) != len(n.Runs) && len(n.String()) <= maxNote {
			t.Errorf("%q: %+v came back as %+v", s, n, again)
		}
	})
}
