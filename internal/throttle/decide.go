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
//
// Of incidents the record says, in place of readings, because their members are in several logs, which one the receiver
// was told of, and which one it may have been told of. R1 and R2 hold within an incident; another one's alert waits for the
// window, and for an ID whose fate is not known.
func decide(n note, record lease.Record, held bool, r Request, asked time.Time) decision {
	claimed := held && n.Phase == phaseClaim
	if claimed {
		// Where reads lag, the claim may be over and a recovery may have ended that window: the free record tells.
		n.Quiet = 0
	}

	var d decision
	d.Now = record.Now

	done := Unneeded              // the outcome if there is nothing to send
	var isDone bool               // there is nothing to send
	waits := n.unresolved(record) // unless it is done or held: for an alert that may still be on the way
	var claim func(note, Request, lease.Record) note

	switch {
	case r.Incident != "" && r.Recovery:
		isDone = n.Told != r.Incident && n.ID != r.Incident && n.MayTold != r.Incident
		//planted:end-does-not-wait if waits { waits = false }
		claim = note.claimEnd

	case r.Incident != "":
		d.asked = asked
		//planted:told-covers-after-unknown-end if !claimed
		if n.RecoveryID == "" && !claimed { // else the receiver may have got an end since
			d.told, d.toldAt, d.repeat = n.Told, time.UnixMilli(n.ToldAt), r.Repeat
		}

		done, isDone = Throttled, d.Covers(r)
		waits = waits && n.ID != r.Incident // the ID of another one would be sent again, and dropped
		//planted:incident-does-not-wait-for-another if waits { waits = false }
		claim = note.claimIncident

	case r.Recovery:
		recovered := r.position().upTo(n.Recovered)
		//planted:recovery-twice if recovered && !held {
		//planted:recovery-twice 	d.Outcome, d.claim = Sent, n.claimRecovery(r, record)
		//planted:recovery-twice 	d.claim.RecoveryID += "/again"
		//planted:recovery-twice 	return d
		//planted:recovery-twice }
		//planted:overtaken-recovery-sent if !recovered && n.overtakes(r, record) { skip }
		isDone = recovered || n.overtakes(r, record) || !held && !n.notified()
		//planted:recovery-does-not-wait if waits { waits = false }
		claim = note.claimRecovery

	default:
		d.asked = asked
		d.Quiet = n.quietUntil(record)
		d.through = n.Through
		d.recovered = n.Recovered
		d.sent = n.Sent
		//planted:claimed-is-sent if r.Repeat > 0 && n.About != n.Sent { d.sent = n.About }
		d.sentAt = time.UnixMilli(n.SentAt)

		done = Throttled
		//planted:replays-sent if !record.Now.Before(d.Quiet) && d.Covers(r) { skip }
		isDone = record.Now.Before(d.Quiet) || d.Covers(r)
		waits = false // its ID is sent again
		claim = note.claimAlert
	}

	switch {
	case isDone:
		d.Outcome = done
	case held:
		d.Outcome = Busy
	case waits:
		d.Outcome = Busy
		d.wait = n.untilProofEnds(record)
	default:
		d.Outcome = Sent
		d.claim = claim(n, r, record)
	}

	return d
}

// holds reports whether r's claim or window held its key when it was read, apart from a store's own margin.
func holds(r lease.Record) bool { return r.Now.Before(r.Written.Add(r.Hold)) }
