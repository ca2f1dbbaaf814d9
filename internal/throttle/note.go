package throttle

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"alertworker/internal/lease"
)

// Phases of a key.
const (
	phaseFree   = ""
	phaseClaim  = "claim"
	phaseWindow = "window"
)

// A note is what the gate keeps in a lease record. Short names: a record is
// read with every call.
type note struct {
	Phase string `json:"phase,omitempty"`
	// Replica made the last claim.
	Replica string `json:"replica,omitempty"`
	// ID of the alert last sent; unless in phase window, it may have been taken or not. Empty
	// once a recovery was sent after it.
	ID string `json:"id,omitempty"`
	// RecoveryID is that of a recovery that may have been taken or not, empty if there is none.
	RecoveryID string `json:"recoveryId,omitempty"`
	// Again: in phase claim, what it sends was sent under an earlier claim and may have been taken.
	Again bool `json:"again,omitempty"`
	// Quiet is the end of the last window before this record's own, in ms since 1970.
	Quiet int64 `json:"quiet,omitempty"`
	// Proof is claim + window in ms: how long after its claim was granted a
	// record still proves a delivery, or leaves it possible.
	Proof int64 `json:"proof,omitempty"`
	// Notified: the receiver may have got an alert since its last recovery. See the method notified.
	Notified bool `json:"notified,omitempty"`
	// About is the latest reading for whose alert the key was claimed, and AboutAt when the hub took it, in ms since
	// 1970, or the latest time of its log. See claimAlert.
	About   position `json:"about,omitzero"`
	AboutAt int64    `json:"aboutAt,omitempty"`
	// Posted is when the key was last claimed for an alert that only a time orders, in ms since 1970: about a
	// reading over HTTP, by the store's clock, or about one of another log that the hub took just when it took About.
	Posted int64 `json:"posted,omitempty"`
	// Recovered is the latest reading whose recovery was taken.
	Recovered position `json:"recovered,omitzero"`
	// Through is the latest reading for whose recovery the key was claimed, or whose alert was
	// given up. Readings up to it are covered, whatever Quiet says.
	Through position `json:"through,omitzero"`
	// Sent is the latest reading whose alert was taken under its own ID, and SentAt when the key was
	// claimed for it, by the store's clock in ms since 1970: see Request.Repeat.
	Sent   position `json:"sent,omitzero"`
	SentAt int64    `json:"sentAt,omitempty"`
	// Ended is the Quiet that a claim for a recovery has ended. It comes back if the recovery was certainly not sent.
	Ended int64 `json:"ended,omitempty"`
	// OfIncident: the last claim was about an incident. Then the receiver was told of Told, at ToldAt by the store's clock in
	// ms since 1970, and may have been told since of MayTold, whose alert was claimed at MayToldAt, or of ID, recently. All
	// are empty once it took the end.
	OfIncident bool   `json:"ofIncident,omitempty"`
	Told       string `json:"told,omitempty"`
	ToldAt     int64  `json:"toldAt,omitempty"`
	MayTold    string `json:"mayTold,omitempty"`
	MayToldAt  int64  `json:"mayToldAt,omitempty"`
	// Aside is the RecoveryID that a claim for an end has replaced. It comes back if the end was certainly not sent.
	Aside string `json:"aside,omitempty"`
}

// A position is that of a reading in the log that numbered it. The zero position is none.
type position struct {
	Log      string `json:"log"`
	Sequence int64  `json:"seq"`
	Element  int    `json:"elem,omitempty"` // of the event's message
	Part     Part   `json:"part,omitempty"`
	// of a silence when it was found, and of its End when that was, in ms since 1970: a device may be silent again after
	// the same event. 0 if it is not known
	At int64 `json:"at,omitempty"`
}

// A Part is a place of its own at one event: after the event itself, and before every later one.
type Part uint8

const (
	Event   Part = iota // the reading
	Silence             // that nothing came after it
	End                 // the end of that silence, other than by a later event
)

// upTo reports whether p is not after q. Positions in different logs are never up to one another.
func (p position) upTo(q position) bool {
	if p == (position{}) || p.Log != q.Log {
		return false
	}

	at := 0
	if p.At != 0 && q.At != 0 {
		at = cmp.Compare(p.At, q.At)
	}

	return cmp.Or(cmp.Compare(p.Sequence, q.Sequence), cmp.Compare(p.Element, q.Element), at, cmp.Compare(p.Part, q.Part)) <= 0
}

// later returns the later of p and q: q, unless it is known to be the earlier one.
func later(p, q position) position {
	if q == (position{}) || q.upTo(p) {
		return p
	}
	return q
}

// aboutAt returns when the hub took About, or a later time if r, which holds n, does not say.
func (n note) aboutAt(r lease.Record) int64 { return cmp.Or(n.AboutAt, millis(r.Claimed)) }

// overtakes reports whether the key may have been claimed for an alert about a later reading than that of r, a
// recovery: between two logs, and readings over HTTP, one of the same time is later.
func (n note) overtakes(r Request, prev lease.Record) bool {
	at, when := r.position(), millis(cmp.Or(r.AsOf, r.Enqueued))
	posted := when <= n.Posted

	switch {
	case n.About == (position{}):
		return posted
	case at.Log != n.About.Log:
		//planted:recovery-after-other-log return posted
		return posted || when <= n.aboutAt(prev)
	case at.upTo(n.About) && at != n.About:
		return true
	}

	return posted && n.aboutAt(prev) <= n.Posted // else it comes after About, and that after what was posted
}

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
// The members of an incident are in several logs, so that the places of readings say nothing about it: the record says which
// incident the receiver was told of, and which one it may have been told of. R1 and R2 hold within an incident; another one's
// alert waits for the window, and for an ID whose fate is not known.
func decide(n note, record lease.Record, held bool, r Request, asked time.Time) decision {
	claimed := held && n.Phase == phaseClaim
	if claimed {
		// Where reads lag, the claim may be over and a recovery may have ended that window: the free record tells.
		n.Quiet = 0
	}

	var d decision
	d.Now = record.Now
	d.asked = asked

	done := Throttled // the outcome if there is nothing to send
	if r.Recovery {
		done = Unneeded
	}

	var isDone bool               // there is nothing to send
	waits := n.unresolved(record) // unless it is done or held: for an alert that may still be on the way
	var claim func(note, Request, lease.Record) note

	switch {
	case r.Incident != "" && r.Recovery:
		isDone = n.Told != r.Incident && n.ID != r.Incident && n.MayTold != r.Incident
		//planted:end-does-not-wait if waits { waits = false }
		claim = note.claimEnd

	case r.Incident != "":
		//planted:told-covers-after-unknown-end if !claimed
		if n.RecoveryID == "" && !claimed { // else the receiver may have got an end since
			d.told, d.toldAt = n.Told, time.UnixMilli(n.ToldAt)
		}

		isDone = d.Covers(r)
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
		d.Quiet = n.quietUntil(record)
		d.through = n.Through
		d.recovered = n.Recovered
		//planted:recovered-alarm-is-told if true
		if n.RecoveryID == "" && !n.Sent.upTo(n.Recovered) { // else the receiver may have got its recovery since
			d.sent = n.Sent
			//planted:claimed-is-sent if r.Repeat > 0 && n.About != n.Sent { d.sent = n.About }
			d.sentAt = time.UnixMilli(n.SentAt)
		}

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
		d.wait = max(n.proofEnds(record).Sub(record.Now), pollHeld)
	default:
		d.Outcome = Sent
		d.claim = claim(n, r, record)
	}

	return d
}

// holds reports whether r's claim or window held its key when it was read, apart from a store's own margin.
func holds(r lease.Record) bool { return r.Now.Before(r.Written.Add(r.Hold)) }

// parseNote reads what String wrote. Anything else counts as no note: it
// proves nothing.
func parseNote(s string) note {
	var n note
	if json.Unmarshal([]byte(s), &n) != nil {
		return note{}
	}
	return n
}

func (n note) String() string {
	var b strings.Builder
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false) // it would take six bytes for one
	_ = to.Encode(n)        // strings and integers: cannot fail

	return strings.TrimSuffix(b.String(), "\n")
}

// proofEnds is when r stops saying anything about its alert.
func (n note) proofEnds(r lease.Record) time.Time {
	return r.Claimed.Add(time.Duration(n.Proof) * time.Millisecond)
}

// quietUntil returns the end of the last window that r, holding n, proves; zero
// if none. A reading that the hub took before it needs no alert of its own. A
// record written late proves nothing past the time at which a record written in
// time would have ended.
func (n note) quietUntil(r lease.Record) time.Time {
	if n.Phase == phaseWindow {
		end := r.Written.Add(r.Hold)
		if limit := n.proofEnds(r); limit.Before(end) {
			return limit
		}
		return end
	}

	if n.Quiet == 0 {
		return time.Time{}
	}

	return time.UnixMilli(n.Quiet)
}

// unresolved reports whether n's alert may have been taken so recently that a
// receiver asked to drop its ID would still be right to.
func (n note) unresolved(r lease.Record) bool {
	return n.Phase != phaseWindow && n.ID != "" && r.Now.Before(n.proofEnds(r))
}

// notified reports whether the receiver may have got an alert since its last recovery. A window
// and an alert's ID say so by themselves: a recovery leaves neither behind.
func (n note) notified() bool {
	if n.OfIncident {
		return n.Told != "" || n.MayTold != "" || n.ID != ""
	}
	return n.Notified || n.Phase == phaseWindow || n.Quiet != 0 || n.ID != ""
}

// freed returns what is left of n once its key is free. The end of a window is the caller's to keep, as Quiet: only its record
// knows it.
func (n note) freed() note {
	if n.Phase == phaseWindow {
		n.ID = ""
	}

	n.Phase = phaseFree
	n.Again = false
	n.Ended = 0
	n.Aside = ""

	return n
}

// claimAlert returns the note of a claim for r's alert, after n in the record prev, less what
// is the gate's. Readings of one log are in the order of their numbers, those of two in the order of their times. An alert
// that has ended, because its recovery was sent, is before all that come.
func (n note) claimAlert(r Request, prev lease.Record) note {
	at, when := r.position(), millis(r.Enqueued)
	last := n.aboutAt(prev)
	c := note{
		Phase:     phaseClaim,
		ID:        r.ID,
		Quiet:     millis(n.quietUntil(prev)),
		Notified:  n.notified(),
		About:     n.About,
		AboutAt:   n.AboutAt,
		Recovered: n.Recovered,
		Through:   n.Through,
		Sent:      n.Sent,
		SentAt:    n.SentAt,
	}
	if c.Notified {
		c.Posted = n.Posted
	}

	if n.unresolved(prev) {
		c.ID, c.Again = n.ID, true
	}

	//planted:claim-forgets-recovery if false
	if n.RecoveryID != "" { // the receiver may have got it, which nothing else says from here on: see decide
		c.Sent, c.SentAt = position{}, 0
	}

	switch {
	case at == (position{}):
		c.Posted = millis(prev.Now)

	case at.Log == n.About.Log: // its clock may have gone back
		c.About, c.AboutAt = later(n.About, at), max(last, when)

	case n.About == (position{}) || !c.Notified || when > last:
		c.About, c.AboutAt = at, when

	case when == last:
		c.Posted = max(c.Posted, when)
	}

	return c
}

// claimRecovery returns the note of a claim for r's recovery, after n, less what is the
// gate's. The window is over with the claim already: the recovery may be taken
// without our hearing of it, and an alert after it must not count as a replay.
func (n note) claimRecovery(r Request, prev lease.Record) note {
	c := note{
		Phase:      phaseClaim,
		RecoveryID: r.ID,
		Notified:   n.notified(),
		About:      n.About,
		AboutAt:    n.AboutAt,
		Posted:     n.Posted,
		Recovered:  n.Recovered,
		Through:    later(n.Through, r.position()),
		Sent:       n.Sent,
		SentAt:     n.SentAt,
	}

	if n.RecoveryID != "" { // no alert was claimed since: it says the same
		c.RecoveryID, c.Again = n.RecoveryID, true
		return c
	}

	c.Ended = millis(n.quietUntil(prev))
	return c
}

// claimIncident returns the note of a claim for the alert of r's incident, after n in the record prev, less what is the
// gate's. An end of unknown fate stays so until the alert is taken.
func (n note) claimIncident(r Request, prev lease.Record) note {
	c := n.freed()
	c.Phase = phaseClaim
	c.Quiet = millis(n.quietUntil(prev))
	c.OfIncident = true

	switch {
	case c.unresolved(prev): // of the same incident
		c.Again = true
	case c.ID != "":
		c.MayTold, c.MayToldAt = c.ID, millis(prev.Claimed)
	}

	c.ID = r.Incident

	return c
}

// claimEnd returns the note of a claim for the end of r's incident, after n in the record prev, less what is the gate's.
// Receivers remember an end's ID for long, so that the next end must have another one. The ID is that of the incident and of
// the time at which the last alert that the receiver got was taken, or the last that it may have got was claimed. It follows
// from the record alone, whether or not the caller knows yet that the incident went on: an end of unknown fate is sent again
// under its ID until there was another alert.
func (n note) claimEnd(r Request, prev lease.Record) note {
	c := n.freed()
	c.Phase = phaseClaim
	c.Quiet = millis(n.quietUntil(prev))
	c.OfIncident = true

	if c.ID == r.Incident {
		c.MayTold, c.MayToldAt = c.ID, millis(prev.Claimed)
	}

	c.ID = ""

	at := c.ToldAt
	if c.MayTold == r.Incident {
		at = c.MayToldAt
	}

	//planted:end-of-before-sent at = 0
	id := r.Incident + "/" + strconv.FormatInt(at, 10) + "/resolved"
	c.Again = c.RecoveryID == id
	if !c.Again {
		c.Aside, c.RecoveryID = c.RecoveryID, id
	}

	return c
}

// afterAlert returns the note of the window that begins once the receiver took r's alert, sent under the claim n. claimed is
// when that was made, and taken when the receiver took the alert, both by the store's clock.
func (n note) afterAlert(r Request, claimed, taken time.Time) note {
	n.Phase = phaseWindow
	n.Again = false

	switch {
	case r.Incident != "":
		n.Told, n.ToldAt, n.MayTold, n.MayToldAt = r.Incident, millis(taken), "", 0
		n.RecoveryID, n.Aside = "", ""
	case r.Repeat > 0 && n.ID == r.ID: // else the receiver may have dropped it, because it knows an earlier alert
		n.Sent = later(n.Sent, r.position())
		n.SentAt = millis(claimed)
	}

	return n
}

// afterRecovery returns what is left once the receiver took r's recovery, sent under the claim n.
func (n note) afterRecovery(r Request) note {
	n = n.freed()
	n.RecoveryID = ""
	n.Notified = false
	n.Told, n.ToldAt, n.MayTold, n.MayToldAt = "", 0, "", 0
	n.Recovered = later(n.Recovered, r.position())

	return n
}

// givenBack returns what is left of the claim n, whose message was not taken, or may have been.
func (n note) givenBack(answer Answer) note {
	if answer == NotTaken && !n.Again {
		if n.ID != "" { // an incident's alert leaves an end of unknown fate as it was
			n.ID = ""
		} else {
			//planted:unsent-end-forgotten n.Told = ""
			n.RecoveryID = n.Aside
		}

		//planted:unsent-recovery-ends-window if n.Ended > n.Quiet { skip }
		n.Quiet = max(n.Quiet, n.Ended)
	}

	return n.freed()
}

// givenUp returns the note after n in the record prev, whose key is free, once the alert about the reading at was
// given up.
func (n note) givenUp(prev lease.Record, at position) note {
	g := n.freed()
	g.Quiet = millis(n.quietUntil(prev))
	// Counted from now on, and no longer than before.
	g.Proof = max(0, g.proofEnds(prev).Sub(prev.Now).Milliseconds())
	g.Through = later(g.Through, at)
	return g
}

// sends returns the ID that the claim n is for: of an alert, or of a recovery, whose claim leaves no alert's.
func (n note) sends() string { return cmp.Or(n.ID, n.RecoveryID) }

// millis returns t in ms since 1970, 0 if it is zero. It rounds down: a window must not be taken for longer than it was.
func millis(t time.Time) int64 { return max(0, t.UnixMilli()) }
