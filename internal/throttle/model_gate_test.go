package throttle

import (
	"time"

	"alertworker/internal/lease"
)

// What the two models have in common: the record of one device, the receiver, and messages on their way. Time is in
// whole seconds. What the gate decides and writes, its own code decides: decide, and the methods of note.

type sec = int8

const (
	modelWindow = 3
	modelClaim  = 2
	never       = -100 // a time
)

// Phases of a modelRecord, as they are in a note.
var modelPhases = [...]string{phaseFree, phaseClaim, phaseWindow}

// A place is that of a message in the partition's log: 4 for each event, 1 more for the silence about it, 2 more for
// the end of that. 0 is none.
type place int8

func eventPlace(i int8) place { return place(4 * i) }

func (p place) event() int8 { return int8(p) / 4 }

func (p place) position() position {
	if p == 0 {
		return position{}
	}
	sequence, element := numbers(p.event())
	return position{Log: "log", Sequence: sequence, Element: element, Part: Part(p % 4)}
}

// numbers returns what numbers event i has in the log: two events are the elements of one message.
func numbers(i int8) (sequence int64, element int) { return int64(i+1) / 2, int(i+1) % 2 }

func placeOf(p position) place {
	if p == (position{}) {
		return 0
	}
	return eventPlace(int8(2*p.Sequence-1)+int8(p.Element)) + place(p.Part)
}

// modelRecord is a lease.Record with the note in it, in little room.
type modelRecord struct {
	phase                     int8
	id, recovery              place // which alert or silence, which recovery, an ID is of
	again, notified           bool
	quiet, ended              sec // 0: none, so that time begins at 1
	proof                     int8
	about, recovered, through place
	sent                      place
	sentAt                    sec
	claimed, written          sec
	hold                      int8
	token                     int8
}

const epoch = 1000 // of the model's clock, in Unix seconds: the gate takes 0 for no time

func modelTime(t sec) time.Time { return time.Unix(epoch+int64(t), 0) }

func modelMillis(t sec) int64 {
	if t == 0 {
		return 0
	}
	return modelTime(t).UnixMilli()
}

func modelSec(millis int64) sec {
	if millis == 0 {
		return 0
	}
	return sec(millis/1000 - epoch)
}

// IDs as the gate sees them.
var alertIDs, recoveryIDs = modelIDs("a"), modelIDs("r")

func modelIDs(kind string) (ids [64]string) {
	for i := range ids {
		ids[i] = kind + string(rune('0'+i))
	}
	ids[0] = ""
	return ids
}

func placeOfID(id string) place {
	if id == "" {
		return 0
	}
	return place([]rune(id)[1] - '0')
}

func (r *modelRecord) note() note {
	return note{
		Phase:      modelPhases[r.phase],
		ID:         alertIDs[r.id],
		RecoveryID: recoveryIDs[r.recovery],
		Again:      r.again,
		Quiet:      modelMillis(r.quiet),
		Ended:      modelMillis(r.ended),
		Proof:      int64(r.proof) * 1000,
		Notified:   r.notified,
		About:      r.about.position(),
		Recovered:  r.recovered.position(),
		Through:    r.through.position(),
		Sent:       r.sent.position(),
		SentAt:     modelMillis(r.sentAt),
	}
}

// write puts n into the record at a time, to be held from then on.
func (r *modelRecord) write(n note, now sec, hold int8) {
	r.phase = 0
	for i, name := range modelPhases {
		if n.Phase == name {
			r.phase = int8(i)
		}
	}
	r.id = placeOfID(n.ID)
	r.recovery = placeOfID(n.RecoveryID)
	r.again = n.Again
	r.quiet = modelSec(n.Quiet)
	r.ended = modelSec(n.Ended)
	r.proof = int8(n.Proof / 1000)
	r.notified = n.Notified
	r.about = placeOf(n.About)
	r.recovered = placeOf(n.Recovered)
	r.through = placeOf(n.Through)
	r.sent = placeOf(n.Sent)
	r.sentAt = modelSec(n.SentAt)
	r.written = now
	r.hold = hold
}

func (r *modelRecord) lease(now sec) lease.Record {
	return lease.Record{
		Token:   int64(r.token),
		Claimed: modelTime(r.claimed),
		Written: modelTime(r.written),
		Hold:    time.Duration(r.hold) * time.Second,
		Now:     modelTime(now),
	}
}

func (r *modelRecord) held(now sec) bool { return now < r.written+r.hold }

// grant gives the key to a claim that leaves n in the record.
func (r *modelRecord) grant(n note, now sec) {
	n.Proof = (modelClaim + modelWindow) * 1000
	r.token++
	r.claimed = now
	r.write(n, now, modelClaim)
}

// mine reports whether the last claim is the one with this token.
func (r *modelRecord) mine(token int8) bool { return r.token == token && r.phase == 1 }

// normal gives records that mean the same the same form. live are the tokens of claims that somebody may still settle.
func (r *modelRecord) normal(now sec, live func(token int8) bool) {
	if r.held(now) {
		return
	}
	switch {
	case r.phase == 2:
		n := r.note()
		quiet := millis(n.quietUntil(r.lease(now)))
		n = n.freed()
		n.Quiet = quiet
		r.write(n, now, 0)
	case r.phase == 1 && !live(r.token):
		n := r.note()
		n.Phase = phaseFree
		n.Again = false
		n.Ended = 0
		r.write(n, now, 0)
	}
	if r.phase != 0 {
		return
	}
	r.written = 0
	if ended := now >= r.claimed+r.proof; r.id == 0 || ended {
		r.claimed = 0
		r.proof = 0
	}
	r.notified = r.notified || r.quiet != 0 // which says so already: see note.notified
}

// A message is on its way to the receiver.
type message struct {
	recovery bool
	about    place // 0: there is no message
	deadline sec   // of a silence
	id       place
	token    int8
	expires  sec
}

// idOf tells the IDs of alerts and recoveries apart, and those of ends that two owners have found.
func (m message) idOf() int8 {
	kind := int8(0)
	switch {
	case m.recovery && m.id%4 != 0:
		kind = int8(m.id % 4)
	case m.recovery:
		kind = 1
	}
	return kind*(maxEvents+1) + m.id.event()
}

const (
	maxEvents    = 5
	modelIDCount = 4 * (maxEvents + 1)
)

// A modelReceiver does what docs/receivers.md asks of one.
type modelReceiver struct {
	ids       [modelIDCount]sec // when each was last taken; never
	token     int8              // the greatest that was taken or dropped, while it is remembered
	tokenAt   sec
	heard     int8 // last: 0 nothing, 1 an alert or a silence, 2 a recovery
	heardID   int8
	heardAt   sec   // the last alert or silence
	heardLate bool  // that one came late
	heardOf   place // what it was about
	taken     sec   // the last alert, dropped or not
	alerted   place // the latest that one was about, dropped or not
	recovered place // the latest that a recovery was about, dropped or not
	told      place // the latest that an alert was about, not dropped; kept if the rule has a repeat
	toldAt    sec   // the claim of that
	violation int8
}

func newModelReceiver() modelReceiver {
	r := modelReceiver{tokenAt: never, heardAt: never, taken: never}
	for i := range r.ids {
		r.ids[i] = never
	}
	return r
}

// forget drops what is remembered no longer.
func (r *modelReceiver) forget(now sec) {
	for i := range r.ids {
		if now-r.ids[i] >= modelWindow {
			r.ids[i] = never
		}
	}
	if now-r.tokenAt >= modelWindow {
		r.tokenAt = never
		r.token = 0
	}
	if now-r.heardAt >= modelWindow {
		r.heardAt = never
		r.heardLate = false
	}
}

// drops takes note of m and reports whether it is dropped: its ID was taken, or a greater token. A forgetful receiver
// does not remember the tokens of what it drops.
func (r *modelReceiver) drops(m message, now sec, forgetful bool) bool {
	id := m.idOf()
	drop := r.ids[id] != never || r.tokenAt != never && r.token > m.token
	if drop && forgetful {
		return true
	}
	if !drop {
		r.ids[id] = now
	}
	if !drop || m.token > r.token && r.tokenAt != never {
		r.token = m.token
		r.tokenAt = now
	}
	return drop
}

// What a receiver may find wrong.
var violations = [...]string{
	"",
	"a second alert within the window",
	"a recovery within the window of the alert before it",
	"a second recovery with another id",
	"an alert about a reading before a recovery",
	"a recovery about a reading before that of an alert",
	"a silence, and the hub took an event before its deadline",
	"a silence is claimed, and the hub has a later event",
	"a second silence about one event",
	"a recovery without an alert",
	"an alarm is sent again before its repeat is over",
}

// wrong notes the first violation.
func (r *modelReceiver) wrong(what string) {
	if r.violation != 0 {
		return
	}
	for i, v := range violations {
		if v == what {
			r.violation = int8(i)
		}
	}
}

// rank gives numbers their places in their order: 1 is the least but 0.
func rank(numbers []*int8) {
	for place := int8(1); ; place++ {
		least := int8(127)
		for _, n := range numbers {
			if *n >= place && *n < least {
				least = *n
			}
		}
		if least == 127 {
			return
		}
		for _, n := range numbers {
			if *n == least {
				*n = place
			}
		}
	}
}

// afterRecovery returns what is left of the claim n once the recovery about a place was taken.
func afterRecovery(n note, at position) note {
	return n.afterRecovery(Request{Log: at.Log, Sequence: at.Sequence, Element: at.Element, Part: at.Part, At: time.UnixMilli(at.At)})
}
