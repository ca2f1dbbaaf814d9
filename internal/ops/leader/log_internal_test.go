package leader

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"alertworker/internal/lease"
)

// add adds a run of a duty.
func (n *note) add(duty string, r runNote) {
	if n.Duties == nil {
		n.Duties = map[string]history{}
	}
	h := n.Duties[duty]
	h.Runs = append(h.Runs, r)
	n.Duties[duty] = h
}

// Ten runs of each duty, as version 1.0 kept them, fit into a note, whatever their texts are; texts of a usual length stay whole.
func TestNoteFits(t *testing.T) {
	at := time.Unix(1795261928, 0).UTC()
	usual := note{Leader: "alertworker-7d9f8c6b5-x2x4z", Duties: map[string]history{"janitor": {Last: 1795261928}, "heartbeat": {Last: 1795261928}}}
	for i := range 20 {
		usual.add([]string{"janitor", "heartbeat"}[i%2], runNote{Term: 1795261928000, Start: at, Seconds: 12.345, Outcome: Done, Detail: "9999 removed"})
	}
	if got := parseNote(usual.String()); !reflect.DeepEqual(got, usual) {
		t.Fatalf("%d bytes: %+v came back as %+v", len(usual.String()), usual, got)
	}

	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{strings.Repeat("<", 300), strings.Repeat("ü", 99), "\xff\x00", strings.Repeat("x", 2000)}))
		n := note{Leader: text.Draw(t, "leader"), Duties: map[string]history{"janitor": {Last: rapid.Int64().Draw(t, "last"), Mark: storable(text.Draw(t, "mark"))}}}
		for duty := range map[string]bool{"janitor": true, "heartbeat": true} {
			for range rapid.IntRange(0, 10).Draw(t, "runs") {
				n.add(duty, runNote{Term: 1795261928000, Start: at, Seconds: 300, Outcome: Failed, Detail: text.Draw(t, "detail")})
			}
		}
		s := n.String()
		if len(s) > lease.MaxNote || !utf8.ValidString(s) {
			t.Fatalf("%d bytes", len(s))
		}
		got := parseNote(s)
		for duty, want := range n.Duties {
			if h := got.Duties[duty]; len(h.Runs) != len(want.Runs) || h.Last != want.Last || h.Mark != want.Mark {
				t.Fatalf("%+v came back as %+v", n, got)
			}
		}
	})
}

// Whatever is in a note, reading it ends well, and what is written after is readable.
func FuzzParseNote(f *testing.F) {
	f.Add("")
	f.Add(`{"leader":"a","duties":{"janitor":{"last":1,"mark":"8e","runs":[[1,1795261928,2,1,"ok"]]}}}`)
	f.Add(`{"leader":"a","lost":"no","terms":[[1,"b",1,2,2,"no"],[],[7,"",0,0,9,""],[-1,"",0,0,-1]]}`)
	f.Add(`{"duties":{"a":{"runs":[[],[],[],[],[],[],[],[],[],[],[],[1,2,3,9]]}}}`)
	f.Fuzz(func(t *testing.T, s string) {
		n := parseNote(s)
		for _, d := range n.Duties {
			for _, r := range d.Runs {
				_ = r.Outcome.String()
			}
		}
		if again := parseNote(n.String()); len(again.Duties) != len(n.Duties) && len(n.String()) <= lease.MaxNote {
			t.Errorf("%q: %+v came back as %+v", s, n, again)
		}
	})
}

func TestFailuresInARow(t *testing.T) {
	var h history
	for i, want := range []int{1, 0, 1, 1, 2, 0} {
		h.ended(runNote{Outcome: []Outcome{Failed, Done, Failed, Interrupted, Failed, Reported}[i]})
		if h.Failed != want || len(h.Runs) != 1 {
			t.Errorf("after run %d %d have failed in a row, want %d: %+v", i, h.Failed, want, h.Runs)
		}
	}
}
