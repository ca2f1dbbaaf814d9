package throttle

import (
	"time"

	"alertworker/internal/lease"
)

// A decision is what a record says of a request.
type decision struct {
	Result               // Throttled, Unneeded or Busy; or Sent, if nothing stands in the way of a claim. Retry is not set
	wait   time.Duration // Busy: until it is worth asking again; 0 if the record does not say
	claim  note          // Sent: what the claim leaves in the record, less what is the gate's
}

// decide decides about r by the note n in record, which was read in a call that began at asked. held says that the
// record's claim or window holds the key. It is pure: [Gate.Claim] makes this decision about exactly the record that its
// claim replaces, [Gate.Predict] predicts it, and [Gate.Prove] repeats it afterwards.
func decide(n note, record lease.Record, held bool, r Request, asked time.Time) decision {
	if held && n.Phase == phaseClaim {
		// Where reads lag, the claim may be over and a recovery may have ended that window: the free record tells.
		n.Quiet = 0
	}

	var d decision
	d.Now = record.Now

	switch {
	case r.Incident != "" && r.Recovery:
		d.decideEnd(n, record, held, r)
	case r.Incident != "":
		d.decideIncident(n, record, held, r, asked)
	case r.Recovery:
		d.decideRecovery(n, record, held, r)
	default:
		d.decideAlert(n, record, held, r, asked)
	}

	return d
}

func (d *decision) decideAlert(n note, record lease.Record, held bool, r Request, asked time.Time) {
	d.asked = asked
	d.Quiet = n.quietUntil(record)
	d.through = n.Through
	d.recovered = n.Recovered
	d.sent = n.Sent
	//planted:claimed-is-sent if r.Repeat > 0 && n.About != n.Sent { d.sent = n.About }
	d.sentAt = time.UnixMilli(n.SentAt)

	switch {
	//planted:replays-sent case record.Now.Before(d.Quiet)
	case record.Now.Before(d.Quiet) || d.Covers(r):
		d.Outcome = Throttled
	case held:
		d.Outcome = Busy
	default:
		d.Outcome = Sent
		d.claim = n.claimAlert(r, record)
	}
}

func (d *decision) decideRecovery(n note, record lease.Record, held bool, r Request) {
	recovered := r.position().upTo(n.Recovered)

	//planted:recovery-twice if recovered && !held {
	//planted:recovery-twice 	d.Outcome, d.claim = Sent, n.claimRecovery(r, record)
	//planted:recovery-twice 	d.claim.RecoveryID += "/again"
	//planted:recovery-twice 	return
	//planted:recovery-twice }
	switch {
	//planted:overtaken-recovery-sent case recovered
	case recovered || n.overtakes(r, record):
		d.Outcome = Unneeded
	case held:
		d.Outcome = Busy
	//planted:recovery-does-not-wait case false
	case n.unresolved(record): // its alert may still be on the way
		d.Outcome = Busy
		d.wait = n.untilProofEnds(record)
	case !n.notified():
		d.Outcome = Unneeded
	default:
		d.Outcome = Sent
		d.claim = n.claimRecovery(r, record)
	}
}

// decideIncident decides by what an incident's record says, in place of readings, because its members are in several logs:
// which one the receiver was told of, and which one it may have been told of. R1 and R2 hold within an incident; another
// one's alert waits for the window, and for an ID whose fate is not known. An alert of the incident that was told is covered
// for Request.Repeat, unless the receiver may have got an end since.
func (d *decision) decideIncident(n note, record lease.Record, held bool, r Request, asked time.Time) {
	d.asked = asked
	//planted:told-covers-after-unknown-end if !held || n.Phase != phaseClaim
	if n.RecoveryID == "" && (!held || n.Phase != phaseClaim) { // else the receiver may have got an end since
		d.told, d.toldAt, d.repeat = n.Told, time.UnixMilli(n.ToldAt), r.Repeat
	}

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

// holds reports whether r's claim or window held its key when it was read, apart from a store's own margin.
func holds(r lease.Record) bool { return r.Now.Before(r.Written.Add(r.Hold)) }
