package throttle

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"alertworker/internal/lease"
)

// A note fits into a record, with the longest ID and figures.
func TestNoteFits(t *testing.T) {
	name := strings.Repeat("n", 32) // a rule's or a level's
	p := position{math.MaxInt64, math.MaxInt64}
	n := note{
		Phase: phaseWindow, Again: true, ResolvedID: strings.Repeat("x", 63) + "/" + strings.Repeat("h", 256) + "/1023/9223372036854775807/9223372036854775807/" + name + "/" + name + "/resolved",
		Replica: strings.Repeat("<", 200), Quiet: math.MaxInt64, Proof: math.MaxInt64, Heard: true, About: p, Resolved: p, Through: p,
	}
	if s := n.String(); len(s) > lease.MaxNote || parseNote(s) != n {
		t.Errorf("%d bytes: %s", len(s), s)
	}
}

// A note with the counts that earlier versions kept says the same as ever.
func TestNoteWithCounts(t *testing.T) {
	n := parseNote(`{"phase":"window","id":"a","quiet":1,"proof":80000,"counts":{"day":20000,"alerts":[1,2],"suppressed":[3,4]}}`)
	if n != (note{Phase: phaseWindow, ID: "a", Quiet: 1, Proof: 80000}) {
		t.Errorf("%+v", n)
	}
}

// Whatever a record holds, reading it ends well; what is written again says the same.
func FuzzNote(f *testing.F) {
	f.Add("")
	f.Add(`{"phase":"claim","id":"a","counts":{"day":20000,"alerts":[1,2],"suppressed":[3,4]}}`)
	f.Add(`{"phase":"claim","resolvedId":"a","told":true,"about":{"at":1,"seq":2},"resolved":{"at":-1},"through":null}`)
	f.Add(`{"counts":null,"proof":9223372036854775807}`)
	f.Fuzz(func(t *testing.T, s string) {
		n := parseNote(s)
		if again := parseNote(n.String()); again != n && json.Valid([]byte(s)) {
			t.Errorf("%q: %+v came back as %+v", s, n, again)
		}
		_ = n.quietUntil(lease.Record{})
	})
}
