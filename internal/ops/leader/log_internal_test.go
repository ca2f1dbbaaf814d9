package leader

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"alertworker/internal/lease"
)

// Ten terms and ten runs fit into a note, whatever their texts are; texts of a usual length stay whole.
func TestNoteFits(t *testing.T) {
	at := time.Unix(1795261928, 0).UTC()
	var usual note
	usual.Leader = "alertworker-7d9f8c6b5-x2x4z"
	usual.Last = map[string]int64{"janitor": 1795261928, "summary": 1795261928}
	for i := range 20 {
		usual.begin(Run{Duty: []string{"janitor", "summary"}[i%2], Replica: fmt.Sprint("alertworker-7d9f8c6b5-x2x4", i%3), Start: at, Took: 5 * time.Minute, Outcome: Done, Detail: "9999 removed"})
	}
	for i := range 20 {
		usual.addTerm(Ended{Leader: fmt.Sprint("alertworker-7d9f8c6b5-x2x4", i%3), From: at, Until: at.Add(time.Hour), End: End(i % 2)})
	}
	usual.Terms[4].End, usual.Terms[4].Cause = Lost, "lease lost: not renewed in time: renewals have failed since 12:00:00, the last: connection refused"
	if got := parseNote(usual.String()); len(got.Runs) != 10 || len(got.Terms) != 10 || !reflect.DeepEqual(got, usual) {
		t.Fatalf("%d bytes: %+v came back as %+v", len(usual.String()), usual, got)
	}

	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{strings.Repeat("<", 300), strings.Repeat("ü", 99), "\xff\x00", strings.Repeat("x", 2000)}))
		n := note{Leader: text.Draw(t, "leader"), Last: map[string]int64{"janitor": rapid.Int64().Draw(t, "last"), "summary": 1}}
		runs := rapid.IntRange(0, 12).Draw(t, "runs")
		for range runs {
			n.begin(Run{Duty: text.Draw(t, "duty"), Replica: text.Draw(t, "replica"), Start: at, Took: 5 * time.Minute, Outcome: Failed, Detail: text.Draw(t, "detail")})
		}
		terms := rapid.IntRange(0, 12).Draw(t, "terms")
		for range terms {
			n.addTerm(Ended{Leader: text.Draw(t, "of"), From: at, Until: at, End: Lost, Cause: text.Draw(t, "cause")})
		}
		n.Lost = text.Draw(t, "lost")
		mark := text.Draw(t, "mark")
		n.setMark("janitor", mark)
		s := n.String()
		if len(s) > lease.MaxNote || !utf8.ValidString(s) {
			t.Fatalf("%d bytes", len(s))
		}
		if got := parseNote(s); len(got.Runs) != min(runs, maxRuns) || len(got.Terms) != min(terms, maxTerms) || !reflect.DeepEqual(got.Last, n.Last) || got.Marks["janitor"] != n.Marks["janitor"] {
			t.Fatalf("%+v came back as %+v", n, got)
		}
	})
}

// Whatever is in a note, reading it ends well, and what is written after is readable.
func FuzzParseNote(f *testing.F) {
	f.Add("")
	f.Add(`{"n":["a","janitor"],"last":{"janitor":1},"runs":[{"d":1,"s":1,"t":2,"o":1,"x":"ok"}]}`)
	f.Add(`{"n":["a","b"],"lost":"no","terms":[{"r":1,"f":1,"u":2,"e":2,"x":"no"},{"e":7},{"e":-1},{"r":-1}]}`)
	f.Add(`{"runs":[{"o":9},{"o":-1},{},{},{},{},{},{},{},{},{},{}]}`)
	f.Fuzz(func(t *testing.T, s string) {
		n := parseNote(s)
		for _, r := range n.Runs {
			_ = r.Outcome.String()
		}
		for _, r := range n.Terms {
			_ = r.End.String()
		}
		if len(n.Runs) > maxRuns || len(n.Terms) > maxTerms {
			t.Errorf("%d runs, %d terms", len(n.Runs), len(n.Terms))
		}
		if again := parseNote(n.String()); (len(again.Runs) != len(n.Runs) || len(again.Terms) != len(n.Terms)) && len(n.String()) <= lease.MaxNote {
			t.Errorf("%q: %+v came back as %+v", s, n, again)
		}
	})
}

// What earlier versions wrote is read, and the term of such a leader is listed.
func TestNoteOfAnEarlierVersion(t *testing.T) {
	const earlier = `{"n":["a","janitor"],"last":{"janitor":1795261928},"marks":{"janitor":"8e"},"runs":[{"d":1,"s":1795261928,"t":2,"o":1,"x":"ok"}]}`
	n := parseNote(earlier)
	if n.Leader != "a" || n.Last["janitor"] != 1795261928 || n.Marks["janitor"] != "8e" || len(n.Runs) != 1 || n.Runs[0].Duty != "janitor" || n.Runs[0].Replica != "a" {
		t.Fatalf("%+v", n)
	}
	at := time.Unix(1795261900, 0).UTC()
	n.endTerm(lease.Record{Note: earlier, Token: 1, Claimed: at, Written: at.Add(time.Minute), Hold: ttl, Now: at.Add(time.Hour)})
	if want := []Ended{{Leader: "a", From: at, Until: at.Add(time.Minute + ttl), End: Expired}}; !reflect.DeepEqual(n.Terms, want) {
		t.Errorf("%+v, want %+v", n.Terms, want)
	}
}

func TestFailuresInARow(t *testing.T) {
	var n note
	for _, o := range []Outcome{Failed, Done, Failed, Interrupted, Begun, Failed} {
		n.begin(Run{Duty: "a", Outcome: o})
		n.begin(Run{Duty: "b", Outcome: Done})
	}
	if a, b, c := n.failures("a"), n.failures("b"), n.failures("c"); a != 3 || b != 0 || c != 0 {
		t.Errorf("%d, %d and %d in a row, want 3, 0 and 0", a, b, c)
	}
}
