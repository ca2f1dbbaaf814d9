package throttle

import (
	"strings"
	"time"

	"alertworker/internal/lease"
)

// recoveryOf is what the ID of an incident's end has after the incident's.
const recoveryOf = "/resolved"

// An incident's record says which one the receiver was told of and which one it may have been told of, in place of
// readings: its members are in several logs. R1 and R2 hold within an incident; another one's alert waits for the window, and for an ID whose
// fate is not known. An alert of the incident that was told is covered for Request.Repeat, unless the receiver may have got an end since.

// covering has d say which incident n's record covers.
func (d *decision) covering(n note, held bool, r Request) {
	//planted:told-covers-after-unknown-end if held && n.Phase == phaseClaim
	if n.RecoveryID != "" || held && n.Phase == phaseClaim {
		return
	}

	d.told, d.toldAt, d.repeat = n.Told, n.toldAt(), r.Repeat
}

func (d *decision) decideIncident(n note, record lease.Record, held bool, r Request, asked time.Time) {
	d.asked = asked
	d.covering(n, held, r)

	switch {
	case d.Covers(r):
		d.Outcome = Throttled
	case held:
		d.Outcome = Busy
	//planted:incident-does-not-wait-for-another case false
	case n.unresolved(record) && n.ID != r.Incident: // its ID would be sent again, and dropped
		d.Outcome = Busy
		d.wait = n.untilProofEnds(record)
	default:
		d.Outcome = Sent
		d.claim = n.claimIncident(r, record)
	}
}

func (d *decision) decideEnd(n note, record lease.Record, held bool, r Request) {
	switch {
	case n.Told != r.Incident && n.ID != r.Incident && n.MayTold != r.Incident:
		d.Outcome = Unneeded
	case held:
		d.Outcome = Busy
	//planted:end-does-not-wait case false
	case n.unresolved(record): // its alert may still be on the way
		d.Outcome = Busy
		d.wait = n.untilProofEnds(record)
	default:
		d.Outcome = Sent
		d.claim = n.claimEnd(r, record)
	}
}

// claimIncident returns the note of a claim for the alert of r's incident, after n in the record prev, less what is the
// gate's. An end of unknown fate stays so until the alert is taken.
func (n note) claimIncident(r Request, prev lease.Record) note {
	c := n.freed(prev)
	c.Phase = phaseClaim
	c.OfIncident = true

	switch {
	case c.unresolved(prev): // of the same incident
		c.Again = true
	case c.ID != "":
		c.MayTold = c.ID
	}

	c.ID = r.Incident

	return c
}

// endID returns the ID under which the end goes that r asks for. One of unknown fate goes again unless an alert may have
// come after it: the receiver has it, or has not, whatever was over since.
func (n note) endID(r Request) string {
	own := func(id string) bool { return strings.HasPrefix(id, r.Incident+"/") }
	switch {
	case own(n.RecoveryID) && n.ID == "" && n.MayTold != r.Incident:
		return n.RecoveryID
	case own(r.ID):
		return r.ID
	}

	return r.Incident + recoveryOf
}

// claimEnd returns the note of a claim for the end of r's incident, after n in the record prev, less what is the
// gate's.
func (n note) claimEnd(r Request, prev lease.Record) note {
	c := n.freed(prev)
	c.Phase = phaseClaim
	c.OfIncident = true

	id := n.endID(r)
	c.Again = c.RecoveryID == id
	if !c.Again {
		c.Aside, c.RecoveryID = c.RecoveryID, id
	}

	if c.ID == r.Incident {
		c.MayTold = c.ID
	}

	c.ID = ""

	return c
}

// afterIncident returns the note of the claim n once the receiver took the alert of an incident, at a time by the store's
// clock.
func (n note) afterIncident(incident string, at time.Time) note {
	n.Told, n.ToldAt, n.MayTold = incident, millis(at), ""
	n.RecoveryID, n.Aside = "", ""
	return n
}

// afterEnd returns what is left once the receiver took the end of the claim n.
func (n note) afterEnd() note {
	n.Phase = phaseFree
	n.Again = false
	n.Told, n.ToldAt, n.MayTold = "", 0, ""
	n.RecoveryID, n.Aside = "", ""
	return n
}

func (n note) toldAt() time.Time { return time.UnixMilli(n.ToldAt) }
