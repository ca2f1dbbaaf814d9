package throttle

import (
	"crypto/rand"
	"math"
	"strings"
	"testing"

	"alertworker/internal/lease"
)

// A note fits into a record, with the longest IDs and figures.
func TestNoteFits(t *testing.T) {
	const most = math.MaxInt64
	name := strings.Repeat("n", 32) // a rule's or a level's
	origin := strings.Repeat("x", 63) + "/" + strings.Repeat("h", 256)
	id := origin + "/1023/9223372036854775807/9223372036854775807/" + name + "/" + name
	p := position{strings.Repeat("x", 12), most, math.MaxInt32, End, most}
	n := note{
		Phase: phaseWindow, Again: true, RecoveryID: id + recoveryOf,
		Replica: strings.Repeat("<", 200), Quiet: most, Proof: most, Notified: true, Posted: most, About: p, AboutAt: most, Recovered: p, Through: p,
		Ended: most, Sent: p, SentAt: most,
	}

	// Of what devices share, places do not count.
	incident := func() string { return origin + "/incidents/" + rand.Text() }
	old := note{
		Replica: n.Replica, Quiet: most, Proof: most, Notified: true, Posted: most, AboutAt: most,
		OfIncident: true, Told: incident(), ToldAt: most, MayTold: id, RecoveryID: incident() + recoveryOf,
	}
	of := Request{Incident: incident()}
	old.ID = of.Incident
	alert := old.claimIncident(of, lease.Record{})
	end := old.claimEnd(of, lease.Record{})
	alert.Proof, end.Proof = most, most

	for what, n := range map[string]note{"a device": n, "an incident's alert": alert, "an incident's end": end} {
		if s := n.String(); len(s) > lease.MaxNote || parseNote(s) != n {
			t.Errorf("%s: %d bytes: %s", what, len(s), s)
		}
	}
}
