package throttle

import (
	"crypto/rand"
	"math"
	"strings"
	"testing"

	"alertworker/internal/lease"
)

// A note fits into a record, with the longest ID and figures.
func TestNoteFits(t *testing.T) {
	name := strings.Repeat("n", 32) // a rule's or a level's
	incident := rand.Text()
	p := position{strings.Repeat("x", 12), math.MaxInt64, math.MaxInt32, End, math.MaxInt64}
	n := note{
		Phase: phaseWindow, Again: true, RecoveryID: strings.Repeat("x", 63) + "/" + strings.Repeat("h", 256) + "/1023/9223372036854775807/9223372036854775807/" + name + "/" + name + "/resolved",
		Replica: strings.Repeat("<", 200), Quiet: math.MaxInt64, Proof: math.MaxInt64, Notified: true, Posted: math.MaxInt64, About: p, AboutAt: math.MaxInt64, Recovered: p, Through: p,
		Ended: math.MaxInt64, Sent: p, SentAt: math.MaxInt64,
		OfIncident: true, Told: incident, ToldAt: math.MaxInt64, MayTold: strings.Repeat("x", 63) + "/" + strings.Repeat("h", 256) + "/1023/9223372036854775807/9223372036854775807/", Aside: incident + recoveryOf,
	}
	if s := n.String(); len(s) > lease.MaxNote || parseNote(s) != n {
		t.Errorf("%d bytes: %s", len(s), s)
	}
}
