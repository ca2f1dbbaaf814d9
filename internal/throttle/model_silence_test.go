package throttle

import (
	"cmp"
	"fmt"
	"testing"
	"time"
)

// The model of silence: events of a device and of others in one partition, some of which the hub drops before anybody
// reads them; a rule about silence, one receiver; ledger, checkpoint and roster; and two owners as in the model of
// alerts. What a message may do, the gate's own code decides.

type eventKind int8

const (
	own     eventKind = iota // of the device
	other                    // of another device
	dropped                  // of the device, and never read
)

// Faults beside those of the model of alerts.
const (
	rosterLost = faultKinds + iota
	rosterLate
	rosterOld // too much of the log lies between it and the start
	silenceFaultKinds
)

// silenceModel is what one search looks at. Times are in seconds.
type silenceModel struct {
	events int8
	kinds  []eventKind
	drift  int8 // by how much the hub's clock may go back
	forget int8 // after how long a device is not known any more; 0: never
	stop   int8 // the watermark does not pass this event; 0: it passes all
	last   sec
	end    sec
	faults []int
	total  int8
	plant  string
}

const (
	modelSilent = 2 // after how long a device is silent
	modelFresh  = 2 // how old a proof may be
)

// A silenceAlarm is one in the ledger. open is the event that the silence is about, due whether it is still to be
// sent; recovery is the place of a recovery that is due.
type silenceAlarm struct {
	open     int8
	deadline sec
	due      bool
	recovery place
}

type watcher struct {
	mode     ownerMode
	roster   bool // taking: it has written the ledger back, and reads the roster
	current  bool
	read     int8
	heard    int8 // the device's last event, or 0
	floor    sec
	floorAt  int8 // events up to it may be missing
	rosterAt int8 // the position of the roster that it took over
	asked    sec  // when it last asked the hub for the last event
	answer   int8 // what the hub said
	proof    sec  // the latest time of an event that was read
	alarms   [maxEvents + 1]silenceAlarm
	position int8
	written  silenceAlarm
	delivery silenceDelivery
}

type silenceDelivery struct {
	phase          deliveryPhase
	recovery       bool
	about          int8
	deadline       sec
	place, id      place
	token          int8
	claimed, taken sec
	again, final   bool // final: refused for good
}

type modelRoster struct {
	exists  bool
	at      int8
	heard   int8
	floor   sec
	floorAt int8
}

type silenceState struct {
	now            sec
	count          int8
	kinds          [maxEvents]eventKind
	at             [maxEvents]sec
	record         modelRecord
	keeper         int8
	position       int8
	alarm          silenceAlarm
	checkpoint     int8
	roster         modelRoster
	lateRoster     modelRoster
	receiver       modelReceiver
	late           message
	watchers       [2]watcher
	letter         place // the greatest of a silence that became a dead letter
	recoveryLetter bool
	unknown        bool // whether a silence was accepted
	deleted        bool
	rosterGone     bool
	rosterAged     bool
	spent          [silenceFaultKinds]bool
	total          int8
}

func (m *silenceModel) initial() silenceState {
	s := silenceState{now: 1, receiver: newModelReceiver()}
	s.watchers[0] = newWatcher(running)
	s.roster.exists = m.plant != "no roster is written before the first event"
	return s
}

func newWatcher(mode ownerMode) watcher {
	return watcher{mode: mode, current: mode == running || mode == taking, asked: never, proof: never}
}

func (m *silenceModel) silencePlace(event int8) place {
	if m.plant == "a silence has the place of its event" {
		return eventPlace(event)
	}
	return eventPlace(event) + place(Silence)
}

func (m *silenceModel) endPlace(event int8) place {
	if m.plant == "the end of a silence has the place of its event" {
		return eventPlace(event)
	}
	return eventPlace(event) + place(End)
}

func (s *silenceState) can(m *silenceModel, fault int) bool {
	if s.spent[fault] || s.total >= m.total {
		return false
	}
	for _, f := range m.faults {
		if f == fault {
			return true
		}
	}
	return false
}

func (s *silenceState) spend(fault int) {
	s.spent[fault] = true
	s.total++
}

// floors reports whether floors may rise in m.
func (m *silenceModel) floors() bool {
	for _, k := range m.kinds {
		if k == dropped {
			return true
		}
	}
	for _, f := range m.faults {
		if f == rosterOld || f == rosterLost {
			return true
		}
	}
	return false
}

// ---- what an owner knows

// hear takes event i to what o knows of the device.
func (m *silenceModel) hear(s *silenceState, o *watcher, i int8) {
	switch s.kinds[i-1] {
	case own:
		o.heard = max(o.heard, i)
	case dropped:
		if m.plant != "a gap raises no floor" {
			o.floor = s.now
			o.floorAt = i
		}
		return
	}
	o.proof = max(o.proof, s.at[i-1])
}

// proven reports whether o has read all that the hub took until a time; fresh: and has known that for a short time
// only.
func (m *silenceModel) proven(s *silenceState, o *watcher, until sec, fresh bool) bool {
	margin := m.drift + 1
	byEvent, byAnswer := margin, margin
	if m.plant == "an event proves its own time" {
		byEvent--
	}
	if m.plant == "an answer proves its own time" {
		byAnswer--
	}
	if o.proof != never && o.proof >= until+byEvent && (!fresh || s.now-o.proof <= modelFresh) {
		return true
	}

	asked := o.asked
	if asked == never {
		return false
	}
	if m.plant == "the clock is read after the hub has answered" {
		asked = s.now
	}
	read := o.read >= o.answer || m.plant == "what the hub answered need not be read"
	return read && asked >= until+byAnswer && (!fresh || s.now-asked <= modelFresh)
}

func (s *silenceState) deadline(o *watcher) sec { return max(s.at[o.heard-1], o.floor) + modelSilent }

// about returns what a silence of the device is about: what was heard last, or the floor.
func (m *silenceModel) about(o *watcher) int8 {
	if m.plant == "a floor has no position" {
		return o.heard
	}
	return max(o.heard, o.floorAt)
}

func (m *silenceModel) forgotten(s *silenceState, event int8) bool {
	return m.forget > 0 && s.now >= s.at[event-1]+m.forget
}

// overdue reports whether the device is silent without an alarm, as far as o has read.
func (m *silenceModel) overdue(s *silenceState, o *watcher) bool {
	if o.mode != running || o.heard == 0 || m.forgotten(s, o.heard) || o.alarms[o.read].open > 0 {
		return false
	}
	return s.now >= s.deadline(o)+1
}

func (m *silenceModel) watermark(o *watcher) int8 {
	if m.stop > 0 {
		return min(o.read, m.stop)
	}
	return o.read
}

// ---- what can happen

type silenceDoing = func(name string, who, arg int8, change func(*silenceState))

func (m *silenceModel) next(s *silenceState, emit func(step, *silenceState)) {
	do := func(name string, who, arg int8, change func(*silenceState)) {
		after := *s
		change(&after)
		m.normal(&after)
		emit(step{name, who, arg}, &after)
	}
	if s.now < m.end && s.count > 0 {
		do("a second passes", -1, s.now, func(s *silenceState) { s.now++ })
	}
	m.nextOfHub(s, do)
	if s.record.phase == 2 && s.record.held(s.now) && s.can(m, windowDeleted) {
		do("an operator ends the window", -1, 0, func(s *silenceState) {
			s.spend(windowDeleted)
			s.deleted = true
			n := s.record.note()
			quiet := millis(n.quietUntil(s.record.lease(s.now)))
			n = n.freed()
			n.Quiet = min(quiet, modelMillis(s.now))
			s.record.write(n, s.now, 0)
		})
	}
	if s.late.about != 0 {
		do("a late message arrives", -1, int8(s.late.about), func(s *silenceState) {
			late := s.late
			s.late = message{}
			m.receive(s, late)
		})
	}
	if s.lateRoster.exists {
		do("a late roster is written", -1, 0, func(s *silenceState) {
			s.roster = s.lateRoster
			s.lateRoster = modelRoster{}
		})
	}
	if s.roster.exists && s.can(m, rosterLost) {
		do("the roster is lost", -1, 0, func(s *silenceState) {
			s.spend(rosterLost)
			s.roster = modelRoster{}
			s.rosterGone = true
		})
	}
	for i := range s.watchers {
		m.nextOf(s, int8(i), do)
	}
}

func (m *silenceModel) nextOfHub(s *silenceState, do silenceDoing) {
	if s.count >= m.events || s.now > m.last {
		return
	}
	for _, k := range m.kinds {
		if s.count == 0 && k != own {
			continue // nothing follows from it
		}
		for back := int8(0); back <= m.drift && s.now-back >= 1; back++ {
			do("the hub takes an event", -1, int8(k)+10*back, func(s *silenceState) {
				s.kinds[s.count] = k
				s.at[s.count] = s.now - back
				s.count++
			})
		}
	}
}

func (m *silenceModel) nextOf(s *silenceState, who int8, do silenceDoing) {
	switch o := &s.watchers[who]; {
	case o.mode == unborn:
		m.nextOfUnborn(s, who, do)
		return
	case o.mode == taking && !o.roster:
		m.nextOfTaking(s, who, do)
		return
	case o.mode == taking:
		m.nextOfRoster(s, who, do)
		return
	case o.mode == dead:
		return
	case o.mode == running:
		m.nextOfRunning(s, who, do)
	}
	m.nextOfDelivery(s, who, do)
}

func (m *silenceModel) nextOfUnborn(s *silenceState, who int8, do silenceDoing) {
	gone := s.watchers[0].mode == lost || s.watchers[0].mode == dead
	if who != 1 || !gone && !s.can(m, zombie) {
		return
	}
	do("reads the ledger", who, s.position, func(s *silenceState) {
		if !gone {
			s.spend(zombie)
		}
		o := newWatcher(taking)
		o.position = s.position
		o.written = s.alarm
		s.watchers[who] = o
	})
}

func (m *silenceModel) nextOfTaking(s *silenceState, who int8, do silenceDoing) {
	do("writes the ledger back", who, 0, func(s *silenceState) {
		o := &s.watchers[who]
		if !o.current && m.plant != "the ledger is written over" {
			*o = newWatcher(unborn) // somebody has written since: again
			return
		}
		o.roster = true
		if m.plant != "the ledger is not written back" {
			s.keeper = who
			s.watchers[1-who].current = false
		}
	})
}

func (m *silenceModel) nextOfRoster(s *silenceState, who int8, do silenceDoing) {
	position := s.watchers[who].position
	for checkpoint := int8(0); checkpoint <= s.checkpoint; checkpoint++ {
		if checkpoint > 0 && checkpoint <= position {
			continue // the ledger's position counts, as for 0
		}
		do("takes the partition over", who, checkpoint, func(s *silenceState) {
			m.takeOver(s, &s.watchers[who], checkpoint, false)
		})
		if s.roster.exists && s.can(m, rosterOld) {
			do("takes the partition over with an old roster", who, checkpoint, func(s *silenceState) {
				s.spend(rosterOld)
				s.rosterAged = true
				m.takeOver(s, &s.watchers[who], checkpoint, true)
			})
		}
	}
}

func (m *silenceModel) takeOver(s *silenceState, o *watcher, checkpoint int8, old bool) {
	o.mode = running
	o.roster = false
	o.read = max(o.position, checkpoint)
	for i := range o.read + 1 {
		o.alarms[i] = o.written
	}
	if r := s.roster; r.exists {
		o.heard = r.heard
		o.floor = r.floor
		o.floorAt = r.floorAt
		o.rosterAt = r.at
	}
	switch {
	case !s.roster.exists, old && m.plant != "an old roster raises no floor":
		o.floor = s.now
		o.floorAt = o.read
	case !old && m.plant != "what lies between roster and start is not heard":
		for i := s.roster.at + 1; i <= o.read; i++ {
			m.hear(s, o, i)
		}
	}
	o.heard = max(o.heard, o.written.open)
	ended := o.written.open > 0 && o.heard > o.written.open // a zombie's checkpoint may have passed what ended it
	if ended && m.plant != "what was heard by the take-over ends no alarm" {
		o.setAlarms(silenceAlarm{recovery: eventPlace(o.heard)})
	}
}

// setAlarms changes the alarm wherever the watermark is.
func (o *watcher) setAlarms(a silenceAlarm) {
	for i := range o.alarms {
		o.alarms[i] = a
	}
}

func (m *silenceModel) nextOfRunning(s *silenceState, who int8, do silenceDoing) {
	o := &s.watchers[who]
	if s.keeper != who || !o.current {
		do("learns whose the ledger is", who, 0, func(s *silenceState) {
			o := &s.watchers[who]
			if s.keeper != who {
				o.mode = lost
				return
			}
			o.current = true // our own write, whose answer was lost
			o.position = s.position
			o.written = s.alarm
		})
	}
	if s.can(m, crash) {
		do("crashes", who, 0, func(s *silenceState) {
			s.spend(crash)
			if d := s.watchers[who].delivery; !d.recovery && d.phase >= claimed {
				s.unknown = true
			}
			s.watchers[who] = newWatcher(unborn)
			if who == 0 {
				s.watchers[who].mode = dead
			}
		})
	}
	if o.read < s.count {
		do("reads", who, o.read+1, func(s *silenceState) { m.read(s, &s.watchers[who]) })
	}
	m.nextOfSilence(s, who, do)
	m.nextOfLedger(s, who, do)
	m.nextOfRosterFile(s, who, do)
}

func (m *silenceModel) read(s *silenceState, o *watcher) {
	i := o.read + 1
	a := o.alarms[o.read]
	later := i > a.open || m.plant == "an event that is read again ends a silence about it"
	if s.kinds[i-1] == own && a.open > 0 && later {
		a = silenceAlarm{recovery: eventPlace(i)}
	}
	m.hear(s, o, i)
	o.read = i
	o.alarms[i] = a
	for j := i + 1; j <= maxEvents; j++ {
		o.alarms[j] = silenceAlarm{}
	}
}

func (m *silenceModel) nextOfSilence(s *silenceState, who int8, do silenceDoing) {
	o := &s.watchers[who]
	overdue := m.overdue(s, o)
	waits := o.delivery.phase == waiting && !o.delivery.recovery
	asks := overdue || waits && !s.record.held(s.now)
	if asks && (o.asked != s.now || o.answer != s.count) {
		do("asks the hub for the last event", who, s.count, func(s *silenceState) {
			o := &s.watchers[who]
			o.asked = s.now
			o.answer = s.count
		})
	}
	if overdue && m.proven(s, o, s.deadline(o), m.plant != "a proof never ages") {
		do("opens an alarm", who, o.heard, func(s *silenceState) {
			o := &s.watchers[who]
			a := silenceAlarm{open: m.about(o), deadline: s.deadline(o), due: true}
			if m.plant == "an alarm enters the ledger with the watermark" {
				o.alarms[o.read] = a
				return
			}
			o.setAlarms(a)
		})
	}
	if o.heard > 0 && m.forgotten(s, o.heard) && o.heard <= o.read {
		do("forgets the device", who, o.heard, func(s *silenceState) {
			o := &s.watchers[who]
			if open := o.alarms[o.read].open; open >= o.heard {
				o.setAlarms(silenceAlarm{recovery: m.endPlace(open)})
			}
			o.heard = 0
		})
	}
}

func (m *silenceModel) nextOfLedger(s *silenceState, who int8, do silenceDoing) {
	o := &s.watchers[who]
	if !o.current && m.plant != "the ledger is written over" {
		return
	}
	mark := m.watermark(o)
	for position := o.position; position <= mark; position++ {
		if !m.inherited(s) && position != mark {
			continue
		}
		content := o.alarms[position]
		claimedFor := o.delivery.phase >= claimed && !o.delivery.recovery && content.open == o.delivery.about
		if m.plant == "a silence is not due once it is claimed" && claimedFor {
			content.due = false
		}
		if content == o.written {
			continue // nothing changed: only the checkpoint moves
		}
		write := func(s *silenceState) {
			s.position = position
			s.alarm = content
			s.keeper = who
			s.watchers[1-who].current = false
		}
		do("writes the ledger", who, position, func(s *silenceState) {
			write(s)
			s.watchers[who].position = position
			s.watchers[who].written = content
		})
		if s.can(m, ledgerAnswerLost) {
			do("writes the ledger, the answer is lost", who, position, func(s *silenceState) {
				write(s)
				s.spend(ledgerAnswerLost)
				s.watchers[who].current = false
			})
		}
	}
}

func (m *silenceModel) nextOfRosterFile(s *silenceState, who int8, do silenceDoing) {
	o := &s.watchers[who]
	r := modelRoster{exists: true, at: max(o.read, o.rosterAt), heard: o.heard, floor: o.floor, floorAt: o.floorAt}
	if !m.inherited(s) || r == s.roster {
		return
	}
	do("writes the roster", who, r.at, func(s *silenceState) { s.roster = r })
	if s.can(m, rosterLate) && !s.lateRoster.exists {
		do("writes the roster, which is late", who, r.at, func(s *silenceState) {
			s.spend(rosterLate)
			s.lateRoster = r
		})
	}
}

// ---- deliveries

func (m *silenceModel) nextOfDelivery(s *silenceState, who int8, do silenceDoing) {
	d := s.watchers[who].delivery
	switch d.phase {
	case waiting:
		m.nextOfWaiting(s, who, do)
	case claimed:
		do("asks whose the ledger is", who, d.about, func(s *silenceState) {
			o := &s.watchers[who]
			o.delivery.phase = checked
			switch {
			case s.keeper != who || o.mode != running:
				o.delivery.phase = refused
				o.mode = lost
			case m.plant == "a silence stays due when the device is heard":
			case !d.recovery && o.alarms[o.read].open != d.about:
				o.delivery.phase = refused // the device was heard
			}
		})
	case checked:
		m.nextOfSend(s, who, do)
	case accepted:
		do("records", who, d.about, func(s *silenceState) { m.record(s, &s.watchers[who]) })
	case unclear, refused:
		do("gives back", who, d.about, func(s *silenceState) { m.giveBack(s, &s.watchers[who]) })
	}
}

// decide is the gate's, unless a bug is planted. The id of an end has the time at which it was found: each owner finds one of its
// own.
func (m *silenceModel) decide(s *silenceState, who int8, d silenceDelivery) decision {
	r := Request{
		ID:       alertIDs[d.place],
		Enqueued: modelTime(d.deadline),
		Log:      "log",
		Part:     Part(d.place % 4),
		Recovery: d.recovery,
	}
	r.Sequence, r.Element = numbers(d.place.event())
	if d.recovery {
		r.ID = recoveryIDs[d.place]
		if r.Part == End {
			r.ID = recoveryIDs[d.place+place(who)] // no place has this part
		}
	}
	if m.plant == "a silence asks with its event's time" && !d.recovery {
		r.Enqueued = modelTime(s.at[d.about-1])
	}
	n := s.record.note()
	held := s.record.held(s.now)
	switch {
	case m.plant == "a recovery does not wait for the window" && d.recovery && s.record.phase == 2:
		held = false
	case m.plant == "a recovery does not wait for an unknown silence" && d.recovery && !held:
		n.Proof = 0
	}
	return decide(n, s.record.lease(s.now), held, r, time.Time{})
}

func (m *silenceModel) nextOfWaiting(s *silenceState, who int8, do silenceDoing) {
	o := &s.watchers[who]
	d := o.delivery
	if !d.recovery && !m.mayClaim(s, o) {
		return
	}
	result := m.decide(s, who, d)
	switch result.Outcome {
	case Throttled, Unneeded:
		do("is covered", who, d.about, func(s *silenceState) { m.settle(&s.watchers[who]) })
		return
	case Busy:
		return
	}

	n := result.claim
	if m.plant == "a recovery leaves the window's end" && d.recovery {
		n.Quiet = millis(s.record.note().quietUntil(s.record.lease(s.now)))
	}
	grant := func(s *silenceState, lost bool) {
		m.checkClaim(s, &s.watchers[who])
		last := s.record.note()
		overwritten := last.Phase != phaseWindow && last.ID != ""
		if overwritten || !d.recovery && (lost || last.RecoveryID != "") {
			s.unknown = true // what was claimed may have been sent
		}
		s.record.grant(n, s.now)
	}
	do("claims", who, d.about, func(s *silenceState) {
		grant(s, false)
		d := &s.watchers[who].delivery
		d.phase = claimed
		if m.plant == "nobody asks whose the ledger is" {
			d.phase = checked
		}
		d.id = placeOfID(n.sends())
		d.token = s.record.token
		d.claimed = s.now
		d.again = n.Again
	})
	if s.can(m, claimAnswerLost) {
		do("claims, the answer is lost", who, d.about, func(s *silenceState) {
			s.spend(claimAnswerLost)
			grant(s, true)
		})
	}
}

// mayClaim reports whether o may claim the key for its silence.
func (m *silenceModel) mayClaim(s *silenceState, o *watcher) bool {
	inLedger := o.written.open == o.delivery.about && o.current
	switch m.plant {
	case "a silence is claimed before the ledger has it", "an alarm enters the ledger with the watermark":
		inLedger = true
	}
	if !inLedger {
		return false
	}
	return m.plant == "a proof never ages" || m.proven(s, o, o.delivery.deadline, true)
}

// checkClaim finds a silence that is claimed although the hub has had an event of the device for long enough.
func (m *silenceModel) checkClaim(s *silenceState, o *watcher) {
	if o.delivery.recovery {
		return
	}
	for i := o.delivery.about; i < s.count; i++ {
		if s.kinds[i] == own && s.at[i] < s.now-modelFresh-m.drift-1 {
			s.receiver.wrong("a silence is claimed, and the hub has a later event")
		}
	}
}

func (m *silenceModel) nextOfSend(s *silenceState, who int8, do silenceDoing) {
	d := s.watchers[who].delivery
	if s.now >= d.claimed+modelClaim {
		do("is too late to send", who, d.about, func(s *silenceState) { s.watchers[who].delivery.phase = refused })
		return
	}
	sent := message{
		recovery: d.recovery,
		about:    d.place,
		deadline: d.deadline,
		id:       d.id,
		token:    d.token,
		expires:  d.claimed + modelClaim,
	}
	do("sends", who, d.about, func(s *silenceState) {
		m.receive(s, sent)
		d := &s.watchers[who].delivery
		d.phase = accepted
		d.taken = s.now
	})
	if s.can(m, refusal) {
		do("sends, it is refused for good", who, d.about, func(s *silenceState) {
			s.spend(refusal)
			d := &s.watchers[who].delivery
			d.phase = refused
			d.final = true
		})
	}

	unknown := func(name string, fault int, change func(*silenceState)) {
		if !s.can(m, fault) {
			return
		}
		do(name, who, d.about, func(s *silenceState) {
			s.spend(fault)
			change(s)
			s.watchers[who].delivery.phase = unclear
			s.unknown = s.unknown || !d.recovery
		})
	}
	unknown("sends, the answer is lost", takenAnswerLost, func(s *silenceState) { m.receive(s, sent) })
	unknown("sends, the request is lost", requestLost, func(*silenceState) {})
	if s.late.about == 0 {
		unknown("sends, the request is late", lateDelivery, func(s *silenceState) { s.late = sent })
	}
}

func (m *silenceModel) record(s *silenceState, o *watcher) {
	d := o.delivery
	mine := s.record.mine(d.token)
	left := modelWindow - (s.now - d.taken)
	switch {
	case d.recovery && mine:
		s.record.write(afterRecovery(s.record.note(), d.place.position()), s.now, 0)
	case d.recovery:
	case mine && left > 0:
		s.record.write(s.record.note().afterAlert(Request{}, time.Time{}, time.Time{}), s.now, left)
		if s.late.about == 0 || s.late.recovery {
			s.unknown = false
		}
	default: // not recorded: for others its fate is unknown
		s.unknown = true
	}
	m.settle(o)
}

func (m *silenceModel) giveBack(s *silenceState, o *watcher) {
	d := o.delivery
	answer := Unknown
	if d.phase == refused {
		answer = NotTaken
	}
	if s.record.mine(d.token) {
		s.record.write(s.record.note().givenBack(answer), s.now, 0)
	}
	if !d.final {
		o.delivery = silenceDelivery{
			phase:    waiting,
			recovery: d.recovery,
			about:    d.about,
			deadline: d.deadline,
			place:    d.place,
		}
		return
	}

	if d.recovery {
		s.recoveryLetter = true
	} else {
		s.letter = max(s.letter, d.place)
		if !s.record.held(s.now) {
			n := s.record.note().givenUp(s.record.lease(s.now), d.place.position())
			s.record.token++
			s.record.claimed = s.now
			s.record.write(n, s.now, 0)
		}
	}
	m.settle(o)
}

// settle ends what o's delivery is for.
func (m *silenceModel) settle(o *watcher) {
	d := o.delivery
	for i := range o.alarms {
		a := &o.alarms[i]
		if !d.recovery && a.open == d.about && a.open > 0 {
			a.due = false
			if m.plant == "an alarm leaves the ledger when it is settled" {
				*a = silenceAlarm{}
			}
		}
		if d.recovery && a.recovery == d.place {
			a.recovery = 0
		}
	}
	o.delivery = silenceDelivery{}
}

func (m *silenceModel) receive(s *silenceState, msg message) {
	r := &s.receiver
	if !msg.recovery {
		r.taken = s.now
		r.alerted = max(r.alerted, msg.about)
		for i := range s.count {
			heard := s.kinds[i] != other && s.at[i] <= msg.deadline && s.at[i] > msg.deadline-modelSilent
			if heard && i+1 != msg.about.event() {
				r.wrong("a silence, and the hub took an event before its deadline")
			}
		}
	}
	if r.drops(msg, s.now, false) {
		return
	}

	within := r.heardAt != never && !s.deleted
	id := msg.idOf()
	switch known := !s.unknown; {
	case !msg.recovery && within:
		r.wrong("a second alert within the window")
	case !msg.recovery && r.heard == 1 && msg.about <= r.heardOf && known:
		r.wrong("a second silence about one event")
	case msg.recovery && within:
		r.wrong("a recovery within the window of the alert before it")
	case msg.recovery && r.heard == 2 && r.heardID != id && known:
		r.wrong("a second recovery with another id")
	case msg.recovery && r.heard == 0 && known:
		r.wrong("a recovery without an alert")
	}
	r.heardID = id
	if msg.recovery {
		r.heard = 2
		return
	}
	r.heard = 1
	r.heardAt = s.now
	r.heardOf = msg.about
}

// ---- states that mean the same

func (m *silenceModel) normal(s *silenceState) {
	s.receiver.forget(s.now)
	if s.late.about != 0 && s.now > s.late.expires {
		s.late = message{}
	}
	live := func(token int8) bool {
		for i := range s.watchers {
			if d := s.watchers[i].delivery; d.phase >= claimed && d.token == token {
				return true
			}
		}
		return false
	}
	s.record.normal(s.now, live)
	if !m.floors() {
		s.forgetQuiet()
	}
	s.rankTokens()
	for i := range s.watchers {
		m.normalWatcher(s, &s.watchers[i])
	}
	if !m.inherited(s) {
		s.checkpoint = 0
		s.position = 0
		s.alarm = silenceAlarm{}
		s.roster = modelRoster{}
		s.lateRoster = modelRoster{}
	}
}

func (m *silenceModel) normalWatcher(s *silenceState, o *watcher) {
	switch o.mode {
	case unborn, dead:
		*o = newWatcher(o.mode)
		o.current = false
		return
	case lost:
		d := o.delivery
		if d.phase == waiting {
			d = silenceDelivery{}
		}
		*o = newWatcher(lost)
		o.delivery = d
		return
	case taking:
		return
	}

	if m.plant != "a proof never ages" && o.proof != never && s.now-o.proof > modelFresh {
		o.proof = never
	}
	ages := m.plant != "the clock is read after the hub has answered" && m.plant != "a proof never ages"
	if ages && o.asked != never && s.now-o.asked > modelFresh {
		o.asked = never
		o.answer = 0
	}
	if o.rosterAt <= o.read {
		o.rosterAt = 0
	}
	m.normalDelivery(o)
	if !m.inherited(s) {
		o.position = 0
		mark := m.watermark(o)
		for i := range o.alarms {
			if int8(i) != o.read && int8(i) != mark {
				o.alarms[i] = silenceAlarm{}
			}
		}
		return
	}
	s.checkpoint = max(s.checkpoint, m.reach(o))
}

// normalDelivery drops a delivery that waits for nothing any more, and begins one for what is due.
func (m *silenceModel) normalDelivery(o *watcher) {
	a := o.alarms[o.read]
	d := &o.delivery
	if d.phase == waiting {
		gone := d.recovery && a.recovery != d.place
		heard := !d.recovery && (a.open != d.about || !a.due)
		if m.plant == "a silence stays due when the device is heard" {
			heard = false
		}
		if gone || heard {
			*d = silenceDelivery{}
		}
	}
	switch {
	case d.phase != none:
	case a.open > 0 && a.due:
		*d = silenceDelivery{phase: waiting, about: a.open, deadline: a.deadline, place: m.silencePlace(a.open)}
	case a.recovery > 0:
		*d = silenceDelivery{phase: waiting, recovery: true, about: a.recovery.event(), place: a.recovery}
	}
}

// reach returns how far o's checkpoint may go.
func (m *silenceModel) reach(o *watcher) int8 {
	to := m.watermark(o)
	if m.plant == "the checkpoint passes what the ledger does not hold" {
		return to
	}
	for i := o.position; i <= to; i++ {
		if o.alarms[i] != o.written {
			return i - 1
		}
	}
	return to
}

// inherited reports whether somebody may still take the partition over, and read what is stored about it.
func (m *silenceModel) inherited(s *silenceState) bool {
	first, second := &s.watchers[0], &s.watchers[1]
	switch second.mode {
	case unborn:
		return first.mode != running || s.keeper != 0 || !first.current || s.can(m, crash) || s.can(m, zombie)
	case taking:
		return true
	}
	return s.can(m, crash)
}

// forgetQuiet moves the end of a window that is over to the first time that covers the same events and deadlines.
func (s *silenceState) forgetQuiet() {
	r := &s.record
	if r.quiet == 0 || r.phase == 2 || s.now < r.quiet {
		return
	}
	covers := sec(0)
	for _, at := range s.at[:s.count] {
		for _, t := range [...]sec{at, at + modelSilent} {
			if t < r.quiet {
				covers = max(covers, t+1)
			}
		}
	}
	r.quiet = covers
	r.notified = true
}

func (s *silenceState) rankTokens() {
	tokens := []*int8{&s.record.token}
	if s.receiver.tokenAt != never {
		tokens = append(tokens, &s.receiver.token)
	}
	for i := range s.watchers {
		if d := &s.watchers[i].delivery; d.phase >= claimed {
			tokens = append(tokens, &d.token)
		}
	}
	if s.late.about != 0 {
		tokens = append(tokens, &s.late.token)
	}
	rank(tokens)
}

// ---- what must hold

func (m *silenceModel) check(s *silenceState) string {
	if w := s.receiver.violation; w != 0 {
		return violations[w]
	}
	if !m.quiescent(s) {
		return ""
	}
	return m.checkEnd(s)
}

func (m *silenceModel) quiescent(s *silenceState) bool {
	o := &s.watchers[s.keeper]
	if o.mode != running || o.read < s.count || !o.current || o.delivery.phase != none || s.late.about != 0 {
		return false
	}
	if m.overdue(s, o) || o.heard > 0 && m.forgotten(s, o.heard) {
		return false
	}
	z := &s.watchers[1-s.keeper]
	return z.mode != taking && z.mode != running && !(z.mode == lost && z.delivery.phase != none)
}

// checkEnd says what is wrong when nothing is left to do.
func (m *silenceModel) checkEnd(s *silenceState) string {
	o := &s.watchers[s.keeper]
	a := o.alarms[s.count]
	last := int8(0) // of the device that can be read
	for i := range s.count {
		if s.kinds[i] == own {
			last = i + 1
		}
	}
	risen := o.floor > 0 || o.floorAt > 0
	over := last > 0 && m.forgotten(s, last)
	rosterFailed := s.rosterGone || s.rosterAged

	if !m.knows(s, o, last, risen, over) {
		return "the owner does not know which event was the last"
	}
	if a.open > max(last, o.floorAt) {
		return "an alarm is about an event after the last"
	}
	heardSilence := s.receiver.heard == 1 && !s.recoveryLetter
	silent := last > 0 && (s.now >= max(s.at[last-1], o.floor)+modelSilent+1 || risen && a.open >= last)
	switch {
	case over && a.open > 0:
		return "the device is forgotten, and its alarm is open"
	case over && heardSilence:
		return "the device is forgotten, and the receiver does not know"
	case over:
		return ""
	case (silent || s.rosterAged) && rosterFailed && a.open == 0 && o.heard == 0: // late for ever
		if heardSilence && s.receiver.heardOf.event() < last {
			return "the device was heard, and the receiver does not know"
		}
		return ""
	case silent, s.rosterAged && a.open > 0:
		return m.checkSilent(s, a, last, s.rosterAged || risen)
	case a.open > 0 && a.open < last:
		return "the device was heard, and its alarm is open"
	case a.open == last && last > 0:
		return "an alarm is open before its deadline"
	case heardSilence && a.open == 0:
		return "the device was heard, and the receiver does not know"
	}
	return ""
}

// knows reports whether o takes the right event for the device's last one.
func (m *silenceModel) knows(s *silenceState, o *watcher, last int8, risen, over bool) bool {
	switch {
	case o.heard == last, risen && o.heard > last:
		return true
	case o.heard == 0:
		return over || s.rosterGone || s.rosterAged
	}
	return s.rosterAged && o.heard < last
}

func (m *silenceModel) checkSilent(s *silenceState, a silenceAlarm, last int8, late bool) string {
	if late && a.open > last {
		last = a.open
	}
	if late && s.rosterAged && a.open > 0 {
		last = a.open
	}
	if a.open != last {
		return "the device is silent, and no alarm says so"
	}
	deadline := max(s.at[last-1]+modelSilent, a.deadline)
	inWindow := s.receiver.taken != never && deadline < s.receiver.taken+modelWindow
	covered := s.receiver.alerted >= m.silencePlace(last) || inWindow
	if s.letter < m.silencePlace(last) && !(covered && s.receiver.heard == 1) {
		return "the device is silent, and the receiver does not know"
	}
	return ""
}

func (m *silenceModel) show(s *silenceState) string {
	return fmt.Sprintf("t=%d record %+v ledger %d %+v of %c", s.now, s.record, s.position, s.alarm, 'A'+s.keeper)
}

func (m silenceModel) search(limit int) found {
	initial := m.initial()
	m.normal(&initial)
	return system[silenceState]{initial: initial, next: m.next, check: m.check, show: m.show}.search(limit)
}

var rosterFaults = []int{rosterLost, rosterLate, rosterOld}

// silenceSearches are what make model looks at.
var silenceSearches = []silenceModel{
	{events: 2, kinds: []eventKind{own, other, dropped}, last: 5, end: 10, total: 1,
		faults: append(append([]int(nil), allFaults...), rosterFaults...)},
	{events: 3, kinds: []eventKind{own, other}, last: 4, end: 9, total: 1,
		faults: []int{crash, takenAnswerLost, requestLost, lateDelivery, claimAnswerLost, refusal, ledgerAnswerLost}},
	{events: 3, kinds: []eventKind{own}, last: 4, end: 9, faults: []int{zombie}, total: 1},
	{events: 2, kinds: []eventKind{own}, last: 4, end: 9, faults: allFaults, total: 2},
	{events: 2, kinds: []eventKind{own, other}, drift: 1, last: 4, end: 10, faults: []int{crash, zombie}, total: 1},
	{events: 2, kinds: []eventKind{own}, forget: 5, last: 4, end: 12, faults: allFaults, total: 1},
	{events: 2, kinds: []eventKind{own, other}, stop: 1, last: 4, end: 9, faults: allFaults, total: 1},
}

// silencePlants are rules of silence, each with a bug that takes it away, and with faults in which that shows.
var silencePlants = []silenceModel{
	{plant: "an event proves its own time", events: 3, kinds: []eventKind{own, other}, drift: 1, last: 4, end: 7},
	{plant: "an answer proves its own time", drift: 1},
	{plant: "what the hub answered need not be read"},
	{plant: "the clock is read after the hub has answered"},
	{plant: "a proof never ages"},
	{plant: "a silence is claimed before the ledger has it", faults: []int{crash}, total: 1},
	{plant: "an alarm enters the ledger with the watermark", stop: 1, faults: []int{crash}, total: 1},
	{plant: "an alarm leaves the ledger when it is settled", faults: []int{crash}, total: 1},
	{plant: "a silence is not due once it is claimed", faults: []int{crash, requestLost}, total: 2},
	{plant: "nobody asks whose the ledger is", faults: []int{zombie}, total: 1},
	{plant: "a silence has the place of its event"},
	{plant: "the end of a silence has the place of its event", forget: 5, end: 12},
	{plant: "a silence asks with its event's time", events: 3},
	{plant: "a recovery leaves the window's end", events: 3},
	{plant: "an event that is read again ends a silence about it", faults: []int{crash}, total: 1},
	{plant: "a silence stays due when the device is heard"},
	{plant: "no roster is written before the first event", faults: []int{crash}, total: 1},
	{plant: "what lies between roster and start is not heard", faults: []int{crash}, total: 1},
	{plant: "what was heard by the take-over ends no alarm", last: 5, end: 7, faults: []int{zombie, crash}, total: 2},
	{plant: "a gap raises no floor", kinds: []eventKind{own, dropped}},
	{plant: "an old roster raises no floor", faults: []int{rosterOld, crash}, total: 2},
	{plant: "a floor has no position", faults: []int{rosterOld, crash}, total: 2},
	{plant: "the ledger is written over", faults: []int{zombie}, total: 1},
	{plant: "the ledger is not written back", faults: []int{zombie}, total: 1},
	{plant: "the checkpoint passes what the ledger does not hold", faults: []int{crash, rosterLost}, total: 2},
	{plant: "a recovery does not wait for an unknown silence", faults: []int{takenAnswerLost, refusal}, total: 2},
	{plant: "a recovery does not wait for the window"},
}

func TestModelOfSilence(t *testing.T) {
	var searches []func(limit int) found
	for _, m := range silenceSearches {
		searches = append(searches, m.search)
	}
	searchAll(t, searches)
}

func TestModelOfSilenceFindsBugs(t *testing.T) {
	for _, m := range silencePlants {
		t.Run(m.plant, func(t *testing.T) {
			if m.kinds == nil {
				m.kinds = []eventKind{own}
			}
			m.events = cmp.Or(m.events, 2)
			m.last = cmp.Or(m.last, 5)
			m.end = cmp.Or(m.end, 10)
			mustFind(t, m.search)
		})
	}
}
