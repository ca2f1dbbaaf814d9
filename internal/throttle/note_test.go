package throttle

import (
	"crypto/rand"
	"math"
	"strings"
	"testing"
	"time"

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
		Phase: phaseWindow, Again: true, RecoveryID: id + "/end/9223372036854775807/resolved",
		Replica: strings.Repeat("<", 200), Quiet: most, Proof: most, Notified: true, Posted: most, About: p, AboutAt: most, Recovered: p, Through: p,
		Ended: most, Sent: p, SentAt: most,
	}

	// Of what devices share, places do not count.
	incident := func() string { return origin + "/incidents/" + rand.Text() }
	old := note{
		Replica: n.Replica, Quiet: most, Proof: most, Notified: true, Posted: most, AboutAt: most,
		OfIncident: true, Told: incident(), ToldAt: most, MayTold: id, RecoveryID: incident() + "/9223372036854775807/resolved",
	}
	of := Request{Incident: incident()}
	old.ID, old.MayToldAt = of.Incident, most
	prev := lease.Record{Claimed: time.UnixMilli(most)}
	alert := old.claimIncident(of, prev)
	end := old.claimEnd(of, prev)
	alert.Proof, end.Proof = most, most

	for what, n := range map[string]note{"a device": n, "an incident's alert": alert, "an incident's end": end} {
		if s := n.String(); len(s) > lease.MaxNote || parseNote(s) != n {
			t.Errorf("%s: %d bytes: %s", what, len(s), s)
		}
	}
}

// Places at one event come in the order in which they were found; those whose time is not known by their kind.
func TestPlacesAtOneEventHaveAnOrder(t *testing.T) {
	at := func(part Part, at int64) position { return position{Log: "0", Sequence: 7, Part: part, At: at} }
	for _, tt := range []struct {
		p, q position
		want bool
	}{
		{at(Event, 0), at(Event, 0), true},
		{at(Silence, 5), at(End, 5), true},
		{at(End, 5), at(Silence, 5), false},
		{at(End, 5), at(Silence, 6), true},
		{at(Silence, 6), at(End, 5), false},
		{at(Event, 0), at(Silence, 6), true},
		{at(End, 9), at(Silence, 0), false},
		{at(Silence, 0), at(End, 5), true},
		{at(End, 0), at(Silence, 6), false},
		{at(Silence, 9), at(End, 0), true},
		{position{}, at(Event, 0), false},
		{position{Log: "1", Sequence: 7}, at(Event, 0), false},
	} {
		if got := tt.p.upTo(tt.q); got != tt.want {
			t.Errorf("%+v is up to %+v: %t", tt.p, tt.q, got)
		}
	}
	if p := at(Event, 0); later(p, position{}) != p || later(position{}, p) != p {
		t.Error("no position is later than one")
	}
}

// Between two logs the time of a reading decides; whose recovery was sent is before all that come.
func TestReadingsOfTwoLogsAreOrderedByTime(t *testing.T) {
	prev := lease.Record{Now: time.UnixMilli(9000)}
	n := note{About: position{Log: "0", Sequence: 7}, AboutAt: 5000, Notified: true}
	of := func(ms int64) Request { return Request{Log: "1", Sequence: 3, Enqueued: time.UnixMilli(ms)} }
	ended := n
	ended.Notified = false
	for name, tt := range map[string]struct {
		n      note
		at     int64
		about  string
		posted int64
	}{
		"earlier":                    {n, 4000, "0", 0},
		"at the same time":           {n, 5000, "0", 5000},
		"later":                      {n, 6000, "1", 0},
		"earlier, after a recovery":  {ended, 4000, "1", 0},
		"the first that is known of": {note{Notified: true}, 4000, "1", 0},
	} {
		c := tt.n.claimAlert(of(tt.at), prev)
		if c.About.Log != tt.about || c.Posted != tt.posted {
			t.Errorf("%s: about %+v at %d, posted %d", name, c.About, c.AboutAt, c.Posted)
		}
	}

	posted := note{Posted: 5000, Notified: true}
	for at, want := range map[int64]bool{4999: true, 5000: true, 5001: false} {
		if got := posted.overtakes(of(at), prev); got != want {
			t.Errorf("an alert posted at 5000 overtakes a recovery of %d: %t", at, got)
		}
	}
	both := note{About: position{Log: "1", Sequence: 2}, AboutAt: 5000, Posted: 5000, Notified: true}
	if !both.overtakes(of(5000), prev) {
		t.Error("an alert that was posted when the last reading was taken does not overtake the recovery of the next one")
	}
}

// Whoever may have been told of an incident gets its end.
func TestReceiverOfAnIncidentIsNotified(t *testing.T) {
	for name, n := range map[string]note{"told": {Told: "a"}, "may have been told": {MayTold: "a"}, "may just have been told": {ID: "a"}} {
		n.OfIncident = true
		if !n.notified() {
			t.Error(name)
		}
	}
	if (note{OfIncident: true, Quiet: 1, Notified: true}).notified() {
		t.Error("a window alone says nothing of an incident")
	}
}

// A key that is free has nothing of the claim or window that held it but the end of the last window that was recorded, which
// only the record knows if that is the one.
func TestFreedNote(t *testing.T) {
	held := lease.Record{Written: time.UnixMilli(1000), Claimed: time.UnixMilli(1000), Now: time.UnixMilli(1000), Hold: time.Second}
	n := note{Phase: phaseWindow, ID: "1", Again: true, Quiet: 3, Ended: 5, Aside: "2", Proof: 60_000, Told: "a"}
	if got, want := n.freed(), (note{Quiet: 3, Proof: 60_000, Told: "a"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	at := position{Log: "0", Sequence: 7}
	for name, tt := range map[string]struct{ got, want note }{
		"given up":             {n.givenUp(held, at), note{Quiet: 2000, Proof: 60_000, Told: "a", Through: at}},
		"claimed for an alert": {n.claimIncident(Request{Incident: "a"}, held), note{Phase: phaseClaim, OfIncident: true, ID: "a", Quiet: 2000, Proof: 60_000, Told: "a"}},
		"claimed for its end":  {n.claimEnd(Request{Incident: "a"}, held), note{Phase: phaseClaim, OfIncident: true, RecoveryID: "a/0/resolved", Quiet: 2000, Proof: 60_000, Told: "a"}},
	} {
		if tt.got != tt.want {
			t.Errorf("%s:\n%+v, want\n%+v", name, tt.got, tt.want)
		}
	}
}

// What a claim leaves in the record, by what the receiver answered.
func TestNotesAfterAClaim(t *testing.T) {
	at := position{Log: "0", Sequence: 7}
	alert := note{Phase: phaseClaim, ID: "1", Again: true, Ended: 5, Quiet: 3, Aside: "2", Notified: true}
	end := alert
	end.ID, end.RecoveryID = "", "1/resolved"
	first := alert
	first.Again = false
	repeated := Request{ID: "1", Log: "0", Sequence: 7, Repeat: time.Hour}
	plain, other := repeated, repeated
	plain.Repeat, other.ID = 0, "2"
	incident := note{Phase: phaseClaim, OfIncident: true, RecoveryID: "a/resolved", Again: true, Quiet: 3, Told: "a", ToldAt: 1, MayTold: "b", MayToldAt: 2, Aside: "b/resolved"}
	taken := alert
	taken.Phase, taken.Again = phaseWindow, false
	sent := taken
	sent.Sent, sent.SentAt = at, 9000

	for name, tt := range map[string]struct{ got, want note }{
		"the window":                    {alert.afterAlert(Request{}, time.Time{}, time.Time{}), note{Phase: phaseWindow, ID: "1", Ended: 5, Quiet: 3, Aside: "2", Notified: true}},
		"a recovery":                    {end.afterRecovery(repeated), note{Quiet: 3, Recovered: at}},
		"the end of an incident":        {incident.afterRecovery(Request{Incident: "1"}), note{OfIncident: true, Quiet: 3}},
		"an answer that is not known":   {alert.givenBack(Unknown), note{ID: "1", Quiet: 3, Notified: true}},
		"an id that was sent before":    {alert.givenBack(NotTaken), note{ID: "1", Quiet: 3, Notified: true}},
		"what was certainly not taken":  {first.givenBack(NotTaken), note{Quiet: 5, Notified: true}},
		"an alarm that is sent again":   {alert.afterAlert(repeated, time.UnixMilli(9000), time.UnixMilli(9500)), sent},
		"a rule without a repeat":       {alert.afterAlert(plain, time.UnixMilli(9000), time.UnixMilli(9500)), taken},
		"an alert under an earlier id":  {alert.afterAlert(other, time.UnixMilli(9000), time.UnixMilli(9500)), taken},
		"an alert that was given up":    {first.givenUp(lease.Record{}, at), note{ID: "1", Quiet: 3, Notified: true, Aside: "", Through: at}},
		"its proof, counted from later": {note{Proof: 5000}.givenUp(lease.Record{Claimed: time.UnixMilli(1000), Now: time.UnixMilli(3000)}, at), note{Proof: 3000, Through: at}},
	} {
		if tt.got != tt.want {
			t.Errorf("%s:\n%+v, want\n%+v", name, tt.got, tt.want)
		}
	}
}
