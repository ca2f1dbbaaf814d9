package throttle

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"alertworker/internal/rules"
)

// The model of alerts and recoveries: readings of one device, a rule with one level, one receiver; the partition's
// ledger and checkpoint; and two owners, of which the first may crash, or live on while the second takes over. What a
// reading means to the alarm, rules.Rule.Next decides, and what a message may do, the gate's own code: see
// model_gate_test.go. What the worker does between the two is written down here once more.

type kind int8

const (
	hot       kind = iota
	between        // the limit and clear
	cool           // ends the alarm
	inhibited      // hot, while a higher level is open
)

var modelValues = [...]float64{hot: 10, between: 7, cool: 0, inhibited: 10}

// Faults, and what else happens only so many times.
const (
	crash = iota
	zombie
	claimAnswerLost
	takenAnswerLost
	requestLost
	lateDelivery
	refusal
	deadLetter
	windowDeleted
	ledgerAnswerLost
	faultKinds
)

// alertModel is what one search looks at.
type alertModel struct {
	readings int8
	kinds    []kind
	hold     int8 // the rule's for, in seconds
	repeat   sec  // of the rule; 0: none
	last     sec  // when the last reading may come
	end      sec
	faults   []int // which may happen, once each
	total    int8  // how many in all
	plant    string
}

// An alarm as the ledger has it. due is the reading whose recovery is due; 0: none.
type alarm struct {
	phase  int8
	since  sec
	due    int8
	opened int8 // the reading that has opened it, if the rule has a repeat
	untold bool // a higher level has held an alert back
}

// An owner of the partition.
type owner struct {
	mode     ownerMode
	current  bool  // its version of the ledger is the stored one
	read     int8  // up to this reading
	from     int8  // where it took over, and
	base     alarm // with what alarm
	position int8  // of the ledger as it last wrote or read it, and
	written  alarm // the alarm in it
	settled  int8  // the latest reading whose recovery is settled
	window   sec   // until when it remembers a window
	told     int8  // the reading that has opened an alarm about which nothing is due
	until    sec   // then
	queued   int8  // a reading that waits until a recovery has been sent, 0: none
	oldest   int8  // the first that joined it
	delivery delivery
}

type ownerMode int8

const (
	unborn ownerMode = iota
	taking           // it has read the ledger
	running
	lost // the partition
	dead
)

type delivery struct {
	phase                deliveryPhase
	recovery             bool
	about, first, latest int8 // readings
	id                   place
	token                int8
	claimed, taken       sec
	again                bool
	failed               bool
}

type deliveryPhase int8

const (
	none deliveryPhase = iota
	waiting
	claimed
	checked // the ledger is this owner's
	accepted
	unclear // whether it was accepted
	refused
)

type alertState struct {
	now        sec
	count      int8 // readings that the hub has
	kinds      [maxEvents]kind
	at         [maxEvents]sec
	record     modelRecord
	keeper     int8 // of the ledger
	position   int8
	alarm      alarm
	checkpoint int8 // the furthest that one may have been written at
	receiver   modelReceiver
	late       message
	owners     [2]owner
	letters    int8 // readings in dead letters, a bit each
	unrecov    bool // a recovery became a dead letter
	deleted    bool // an operator ended a window
	unrecorded bool // an alert of a rule with a repeat was taken, and that was not recorded in time
	spent      [faultKinds]bool
	total      int8
}

func (m *alertModel) initial() alertState {
	s := alertState{now: 1, receiver: newModelReceiver()} // 0 would be no time
	s.owners[0] = owner{mode: running, current: true}
	return s
}

func (m *alertModel) rule() (*rules.Rule, *rules.Level) {
	level := rules.Level{Limit: 10, Clear: 5, For: time.Duration(m.hold) * time.Second}
	return &rules.Rule{Levels: []rules.Level{level}, Resolved: true}, &level
}

// step takes an alarm through reading i, and says whether the receiver is notified.
func (m *alertModel) step(s *alertState, a alarm, i int8) (after alarm, notifies bool) {
	r, l := m.rule()
	was := rules.State{Phase: rules.Phase(a.phase)}
	if was.Phase != rules.Normal {
		was.Since.Hub = modelTime(a.since).UnixMicro()
	}
	k := s.kinds[i-1]
	is := r.Next(l, was, modelValues[k], l.Limit, l.Clear, rules.Moment{Hub: modelTime(s.at[i-1]).UnixMicro()})

	after = alarm{phase: int8(is.Phase), due: a.due}
	if is.Phase != rules.Normal {
		after.since = sec(is.Since.Hub/1e6 - epoch)
	}
	if is.Phase == rules.Open && m.repeat > 0 {
		after.opened = a.opened
		if was.Phase != rules.Open {
			after.opened = i
		}
	}
	switch open, opened := is.Phase == rules.Open, was.Phase == rules.Open; {
	case open && !opened && m.plant != "a recovery stays due when the alarm opens":
		after.due = 0
	case opened && !open:
		after.due = i
	}
	if is.Phase != rules.Open {
		return after, false
	}
	if k == inhibited {
		after.untold = true
		return after, false
	}
	return after, k == hot || was.Phase == rules.Open && (a.untold || m.repeat > 0)
}

// from returns the alarm after reading upTo, beginning with one after another reading.
func (m *alertModel) from(s *alertState, a alarm, reading, upTo int8) alarm {
	for i := reading + 1; i <= upTo; i++ {
		a, _ = m.step(s, a, i)
	}
	return a
}

// alarmAt returns the alarm after reading i as o knows it.
func (m *alertModel) alarmAt(s *alertState, o *owner, i int8) alarm {
	a := m.from(s, o.base, o.from, i)
	if a.due <= o.settled {
		a.due = 0
	}
	return a
}

// content returns what o's ledger holds about reading i.
func (m *alertModel) content(s *alertState, o *owner, i int8) alarm {
	if m.plant == "the ledger holds what was read" {
		i = o.read
	}
	a := m.alarmAt(s, o, i)
	if d := o.delivery; m.plant == "a recovery leaves the ledger when it is claimed" && d.recovery && d.phase > waiting {
		a.due = 0
	}
	return a
}

// watermark returns the last reading before which all are settled.
func (o *owner) watermark() int8 {
	w := o.read
	if d := o.delivery; d.phase != none && !d.recovery {
		w = min(w, d.first-1)
	}
	if o.queued != 0 {
		w = min(w, o.oldest-1)
	}
	return w
}

// request is what o's delivery asks the gate.
func (m *alertModel) request(s *alertState, recovery bool, about int8) Request {
	r := Request{Enqueued: modelTime(s.at[about-1]), Log: "log", Recovery: recovery}
	r.Sequence, r.Element = numbers(about)
	if m.plant == "the elements of a message have one place" {
		r.Element = 0
	}
	if recovery {
		r.ID = recoveryIDs[eventPlace(about)]
	} else {
		r.ID = alertIDs[eventPlace(about)]
		r.Repeat = time.Duration(m.repeat) * time.Second
		r.OpenedBy, r.OpenedByElement = numbers(m.opened(s, about))
	}
	return r
}

// opened returns which reading has opened the alarm that is open at reading i.
func (m *alertModel) opened(s *alertState, i int8) int8 { return m.from(s, alarm{}, 0, i).opened }

// decide is the gate's, unless a bug is planted.
func (m *alertModel) decide(s *alertState, d delivery) decision {
	record := s.record
	held := record.held(s.now)
	n := record.note()
	switch {
	case m.plant == "a recovery does not wait for the window" && d.recovery && record.phase == 2:
		held = false
	case m.plant == "a recovery does not wait for an unknown alert" && d.recovery && !held:
		n.Proof = 0
	}
	return decide(n, record.lease(s.now), held, m.request(s, d.recovery, d.about), modelTime(s.now))
}

// claimNote is what the gate's claim leaves in the record, unless a bug is planted.
func (m *alertModel) claimNote(s *alertState, r decision, d delivery) note {
	n, last := r.claim, s.record.note()
	switch {
	case m.plant == "an unknown id does not survive" && n.Again && !d.recovery:
		n.ID = alertIDs[eventPlace(d.about)]
	case m.plant == "a recovery's unknown id does not survive" && n.Again && d.recovery:
		n.RecoveryID = recoveryIDs[eventPlace(d.about)]
	case m.plant == "a recovery leaves the window's end" && d.recovery:
		n.Quiet = millis(last.quietUntil(s.record.lease(s.now)))
	case m.plant == "a recovery covers no readings" && d.recovery:
		n.Through = last.Through
	case m.plant == "the record forgets what it was claimed for":
		n.About = position{}
	}
	return n
}

func (s *alertState) can(m *alertModel, fault int) bool {
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

func (s *alertState) spend(fault int) {
	s.spent[fault] = true
	s.total++
}

// next is every step from s.
func (m *alertModel) next(s *alertState, emit func(step, *alertState)) {
	do := func(name string, who, arg int8, change func(*alertState)) {
		after := *s
		change(&after)
		m.normal(&after)
		emit(step{name, who, arg}, &after)
	}

	if s.now < m.end && s.count > 0 {
		do("a second passes", -1, s.now, func(s *alertState) { s.now++ })
	}
	if s.count < m.readings && s.now <= m.last {
		for _, k := range m.kinds {
			if s.count == 0 && k != hot && k != inhibited {
				continue // nothing follows from it
			}
			do("the hub takes a reading", -1, int8(k), func(s *alertState) {
				s.kinds[s.count] = k
				s.at[s.count] = s.now
				s.count++
			})
		}
	}
	if s.record.phase == 2 && s.record.held(s.now) && s.can(m, windowDeleted) {
		do("an operator ends the window", -1, 0, func(s *alertState) {
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
		do("a late message arrives", -1, int8(s.late.about), func(s *alertState) {
			late := s.late
			s.late = message{}
			s.receive(m, late, true)
		})
	}
	for i := range s.owners {
		m.nextOf(s, int8(i), do)
	}
}

type doing = func(name string, who, arg int8, change func(*alertState))

func (m *alertModel) nextOf(s *alertState, who int8, do doing) {
	o := &s.owners[who]
	switch o.mode {
	case unborn:
		m.nextOfUnborn(s, who, do)
		return
	case taking:
		m.nextOfTaking(s, who, do)
		return
	case dead:
		return
	case running:
		m.nextOfRunning(s, who, do)
	}
	m.nextOfDelivery(s, who, do)
}

func (m *alertModel) nextOfUnborn(s *alertState, who int8, do doing) {
	gone := s.owners[0].mode == lost || s.owners[0].mode == dead
	if who != 1 || !gone && !s.can(m, zombie) {
		return
	}
	do("reads the ledger", who, s.position, func(s *alertState) {
		if !gone {
			s.spend(zombie)
		}
		s.owners[who] = owner{mode: taking, current: true, position: s.position, written: s.alarm}
	})
}

func (m *alertModel) nextOfTaking(s *alertState, who int8, do doing) {
	o := &s.owners[who]
	if !o.current && m.plant != "the ledger is written over" {
		do("finds the ledger changed", who, 0, func(s *alertState) { s.owners[who] = owner{} })
		return
	}
	for checkpoint := int8(0); checkpoint <= s.checkpoint; checkpoint++ {
		if checkpoint > 0 && checkpoint <= o.position {
			continue // the ledger's position counts, as for 0
		}
		do("takes the partition over", who, checkpoint, func(s *alertState) {
			o := &s.owners[who]
			o.mode = running
			o.from = max(o.position, checkpoint)
			if m.plant == "reading begins at the checkpoint" {
				o.from = checkpoint
			}
			o.read = o.from
			o.base = o.written
			if m.plant != "the ledger is not written back" {
				s.keeper = who
				s.owners[1-who].current = false
			}
		})
	}
}

func (m *alertModel) nextOfRunning(s *alertState, who int8, do doing) {
	o := &s.owners[who]
	if s.keeper != who || !o.current {
		do("learns that the partition is lost", who, 0, func(s *alertState) { s.owners[who].mode = lost })
	}
	if s.can(m, crash) {
		do("crashes", who, 0, func(s *alertState) {
			s.spend(crash)
			s.owners[who] = owner{mode: unborn}
			if who == 0 {
				s.owners[who].mode = dead
			}
		})
	}
	if o.read < s.count {
		do("reads", who, o.read+1, func(s *alertState) { m.read(s, &s.owners[who]) })
	}
	m.nextOfLedger(s, who, do)
}

func (m *alertModel) nextOfLedger(s *alertState, who int8, do doing) {
	o := &s.owners[who]
	overwrites := m.plant == "the ledger is written over"
	if !m.inherited(s) || !o.current && !overwrites {
		return // the next write finds that, as if it were told
	}
	for _, position := range []int8{o.position, o.watermark()} {
		content := m.content(s, o, position)
		if content == o.written {
			continue
		}
		write := func(s *alertState) {
			s.position = position
			s.alarm = content
			s.keeper = who
			s.owners[1-who].current = false
		}
		do("writes the ledger", who, position, func(s *alertState) {
			write(s)
			o := &s.owners[who]
			o.current = true
			o.position = position
			o.written = content
		})
		if s.can(m, ledgerAnswerLost) {
			do("writes the ledger, the answer is lost", who, position, func(s *alertState) {
				write(s)
				s.spend(ledgerAnswerLost)
				s.owners[who].mode = lost
			})
		}
	}
}

// read takes o's next reading to its alarm and its delivery.
func (m *alertModel) read(s *alertState, o *owner) {
	i := o.read + 1
	_, notifies := m.step(s, m.alarmAt(s, o, o.read), i)
	o.read = i
	d := &o.delivery
	idle := d.phase == none
	switch {
	case !notifies || idle && o.window > s.now:
	case idle && o.told != 0 && o.told == m.alarmAt(s, o, i).opened: // nothing is due about its alarm
	case idle || d.recovery && d.phase == waiting:
		*d = delivery{phase: waiting, about: i, first: i, latest: i}
	case !d.recovery:
		d.latest = i
	default:
		if o.queued == 0 {
			o.oldest = i
		}
		o.queued = i
	}
}

func (m *alertModel) nextOfDelivery(s *alertState, who int8, do doing) {
	d := s.owners[who].delivery
	switch d.phase {
	case waiting:
		m.nextOfWaiting(s, who, do)
	case claimed:
		do("asks whose the ledger is", who, d.about, func(s *alertState) {
			o := &s.owners[who]
			o.delivery.phase = checked
			if s.keeper != who || o.mode != running {
				o.delivery.phase = refused
				o.mode = lost
			}
		})
	case checked:
		m.nextOfSend(s, who, do)
	case accepted:
		do("records", who, d.about, func(s *alertState) { m.record(s, &s.owners[who]) })
	case unclear, refused:
		do("gives back", who, d.about, func(s *alertState) { m.giveBack(s, &s.owners[who].delivery) })
	}
}

func (m *alertModel) nextOfWaiting(s *alertState, who int8, do doing) {
	o := &s.owners[who]
	d := o.delivery
	if d.recovery && o.window > s.now {
		return // the gate does not even ask
	}
	result := m.decide(s, d)
	switch result.Outcome {
	case Throttled:
		do("is covered", who, d.about, func(s *alertState) {
			o := &s.owners[who]
			if quiet := sec(result.Quiet.Unix() - epoch); s.record.phase == 2 && quiet > s.now {
				o.window = quiet
			}
			o.remember(m.request(s, false, o.delivery.about), result.Result)
			o.settleAlert(result.Covers(m.request(s, false, o.delivery.latest)))
		})
		return
	case Unneeded:
		do("need not be sent", who, d.about, func(s *alertState) { s.owners[who].settleRecovery() })
		return
	case Busy:
		return
	}

	grant := func(s *alertState) note {
		n := m.claimNote(s, result, d)
		s.record.grant(n, s.now)
		return n
	}
	do("claims", who, d.about, func(s *alertState) {
		n := grant(s)
		d := &s.owners[who].delivery
		d.phase = claimed
		if !d.recovery || m.plant == "nobody asks whose the ledger is" {
			d.phase = checked
		}
		d.id = placeOfID(n.sends())
		d.token = s.record.token
		d.claimed = s.now
		d.again = n.Again
	})
	if s.can(m, claimAnswerLost) {
		do("claims, the answer is lost", who, d.about, func(s *alertState) {
			s.spend(claimAnswerLost)
			grant(s)
		})
	}
	if d.failed && s.can(m, deadLetter) {
		do("keeps a dead letter", who, d.about, func(s *alertState) { m.giveUp(s, &s.owners[who]) })
	}
}

func (m *alertModel) nextOfSend(s *alertState, who int8, do doing) {
	d := s.owners[who].delivery
	if s.now >= d.claimed+modelClaim {
		do("is too late to send", who, d.about, func(s *alertState) { s.owners[who].delivery.phase = refused })
		return
	}
	sent := message{
		recovery: d.recovery,
		about:    eventPlace(d.about),
		id:       d.id,
		token:    d.token,
		expires:  d.claimed + modelClaim,
	}
	do("sends", who, d.about, func(s *alertState) {
		s.receive(m, sent, false)
		d := &s.owners[who].delivery
		d.phase = accepted
		d.taken = s.now
	})
	if s.can(m, refusal) {
		do("sends, it is refused", who, d.about, func(s *alertState) {
			s.spend(refusal)
			d := &s.owners[who].delivery
			d.phase = refused
			d.failed = true
		})
	}

	unknown := func(name string, fault int, change func(*alertState)) {
		if !s.can(m, fault) {
			return
		}
		do(name, who, d.about, func(s *alertState) {
			s.spend(fault)
			change(s)
			d := &s.owners[who].delivery
			d.phase = unclear
			d.failed = true
		})
	}
	unknown("sends, the answer is lost", takenAnswerLost, func(s *alertState) { s.receive(m, sent, false) })
	unknown("sends, the request is lost", requestLost, func(*alertState) {})
	if s.late.about == 0 {
		unknown("sends, the request is late", lateDelivery, func(s *alertState) { s.late = sent })
	}
}

// record settles a message that was taken.
func (m *alertModel) record(s *alertState, o *owner) {
	d := o.delivery
	mine := s.record.mine(d.token)
	if d.recovery {
		if mine {
			s.record.write(afterRecovery(s.record.note(), eventPlace(d.about).position()), s.now, 0)
		}
		o.settleRecovery()
		return
	}

	left := modelWindow - (s.now - d.taken)
	inTime := false
	about := m.request(s, false, d.about)
	n := s.record.note().afterAlert(about, modelTime(d.claimed), modelTime(d.taken))
	if m.plant == "nobody knows what was sent" {
		n.Sent = position{}
	}
	if mine && left > 0 {
		s.record.write(n, s.now, left)
		inTime = s.now < d.claimed+modelClaim
	}
	if inTime {
		o.window = d.taken + modelWindow
		o.remember(about, Result{Now: modelTime(d.claimed), asked: modelTime(d.claimed), sent: n.Sent, sentAt: time.UnixMilli(n.SentAt)})
	}
	s.unrecorded = s.unrecorded || !inTime && m.repeat > 0
	o.settleAlert(inTime || m.plant == "a late record covers what joined")
}

// remember notes until when nothing is due about the alarm of r.
func (o *owner) remember(r Request, result Result) {
	if due := result.NextReminder(r); !due.IsZero() {
		o.told = placeOf(position{Sequence: r.OpenedBy, Element: r.OpenedByElement}).event()
		o.until = sec(due.Unix() - epoch)
	}
}

func (m *alertModel) giveBack(s *alertState, d *delivery) {
	answer := Unknown
	if d.phase == refused {
		answer = NotTaken
	}
	if s.record.mine(d.token) {
		n := s.record.note()
		if m.plant == "a refusal forgets an unknown id" {
			n.Again = false
		}
		s.record.write(n.givenBack(answer), s.now, 0)
	}
	*d = delivery{phase: waiting, recovery: d.recovery, about: d.about, first: d.first, latest: d.latest, failed: d.failed}
}

func (m *alertModel) giveUp(s *alertState, o *owner) {
	s.spend(deadLetter)
	d := o.delivery
	if d.recovery {
		s.unrecov = true
		o.settleRecovery()
		return
	}
	s.letters |= 1 << d.about
	if !s.record.held(s.now) && m.plant != "a dead letter is not noted" {
		n := s.record.note().givenUp(s.record.lease(s.now), eventPlace(d.about).position())
		s.record.token++
		s.record.claimed = s.now
		s.record.write(n, s.now, 0)
	}
	o.settleAlert(false)
}

// settleAlert settles the reading that the delivery is about; covered: and those that joined it.
func (o *owner) settleAlert(covered bool) {
	d := o.delivery
	o.delivery = delivery{}
	if d.latest > d.about && !covered {
		o.delivery = delivery{phase: waiting, about: d.latest, first: d.latest, latest: d.latest}
	}
}

func (o *owner) settleRecovery() {
	o.settled = max(o.settled, o.delivery.about)
	o.delivery = delivery{}
}

func (s *alertState) receive(m *alertModel, msg message, late bool) {
	r := &s.receiver
	if msg.recovery {
		r.recovered = max(r.recovered, msg.about)
	} else {
		r.taken = s.now
		r.alerted = max(r.alerted, msg.about)
	}
	if r.drops(msg, s.now, m.plant == "the receiver forgets the tokens of what it drops") {
		if !msg.recovery && msg.about == r.told { // the same once more
			r.toldAt = max(r.toldAt, msg.expires-modelClaim)
		}
		return
	}
	m.tell(s, msg)
	r.heardOf = msg.about
	before := r.heard
	beforeID := r.heardID
	r.heardID = msg.idOf()
	within := r.heardAt != never && !s.deleted
	switch {
	case !msg.recovery && within:
		r.wrong("a second alert within the window")
	case msg.recovery && within:
		r.wrong("a recovery within the window of the alert before it")
	case !msg.recovery && !late && msg.about <= r.recovered:
		r.wrong("an alert about a reading before a recovery")
	case msg.recovery && !late && msg.about < r.alerted:
		r.wrong("a recovery about a reading before that of an alert")
	case msg.recovery && before == 2 && beforeID != r.heardID:
		r.wrong("a second recovery with another id")
	}
	if msg.recovery {
		r.heard = 2
		return
	}
	r.heard = 1
	r.heardAt = s.now
	r.heardLate = late
}

// tell notes that the receiver knows of an alarm. Where nothing fails, or is late, it has not for as long as the rule's
// repeat.
func (m *alertModel) tell(s *alertState, msg message) {
	r := &s.receiver
	if msg.recovery || m.repeat == 0 {
		return
	}
	reading := msg.about.event()
	if r.told >= eventPlace(m.opened(s, reading)) && s.at[reading-1] < r.toldAt+m.repeat && s.total == 0 && !s.unrecorded {
		r.wrong("an alarm is sent again before its repeat is over")
	}
	if msg.about >= r.told {
		r.told = msg.about
		r.toldAt = max(r.toldAt, msg.expires-modelClaim)
	}
}

// normal gives states that mean the same the same form, starts deliveries, and moves the checkpoint as far as one may.
func (m *alertModel) normal(s *alertState) {
	s.receiver.forget(s.now)
	if s.late.about != 0 && s.now > s.late.expires {
		s.late = message{}
	}
	live := func(token int8) bool {
		for i := range s.owners {
			if d := s.owners[i].delivery; d.phase >= claimed && d.token == token {
				return true
			}
		}
		return false
	}
	s.record.normal(s.now, live)
	s.forgetQuiet()
	s.rankTokens()
	for i := range s.owners {
		m.normalOwner(s, &s.owners[i])
	}
	if !m.inherited(s) {
		s.position = 0
		s.alarm = alarm{}
		s.checkpoint = 0
	}
}

// inherited reports whether somebody may still take the partition over, and read what is stored about it.
func (m *alertModel) inherited(s *alertState) bool {
	first, second := &s.owners[0], &s.owners[1]
	switch second.mode {
	case unborn:
		return first.mode != running || !first.current || s.can(m, crash) || s.can(m, zombie)
	case taking:
		return true
	}
	return s.can(m, crash)
}

func (m *alertModel) normalOwner(s *alertState, o *owner) {
	switch o.mode {
	case unborn, dead:
		*o = owner{mode: o.mode}
		return
	case lost:
		d := o.delivery
		if d.phase == waiting {
			d = delivery{}
		}
		*o = owner{mode: lost, delivery: d}
		return
	case taking:
		return
	}
	if o.window <= s.now {
		o.window = 0
	}
	if o.until <= s.now {
		o.told = 0
		o.until = 0
	}
	if !m.inherited(s) { // all that counts is what it has read
		o.base = m.alarmAt(s, o, o.read)
		o.from = o.read
		o.settled = 0
		o.position = 0
		o.written = alarm{}
	}
	due := m.alarmAt(s, o, o.read).due
	d := &o.delivery
	if d.recovery && d.phase == waiting && d.about != due {
		*d = delivery{}
	}
	switch {
	case d.phase != none:
	case o.queued != 0:
		*d = delivery{phase: waiting, about: o.queued, first: o.oldest, latest: o.queued}
		o.queued = 0
		o.oldest = 0
	case due != 0:
		*d = delivery{phase: waiting, recovery: true, about: due}
	}
	if m.inherited(s) {
		s.checkpoint = max(s.checkpoint, m.reach(s, o))
	}
}

// reach returns how far o's checkpoint may go: up to the first change that its ledger does not hold.
func (m *alertModel) reach(s *alertState, o *owner) int8 {
	to := o.watermark()
	if m.plant == "the checkpoint passes what the ledger does not hold" {
		return to
	}
	for i := o.position; i <= to; i++ {
		if m.content(s, o, i) != o.written {
			return i - 1
		}
	}
	return to
}

// forgetQuiet moves the end of a window that is over to the first time that covers the same readings.
func (s *alertState) forgetQuiet() {
	r := &s.record
	if r.quiet == 0 || r.phase == 2 || s.now < r.quiet {
		return
	}
	covers := sec(0)
	for i := range s.count {
		if s.at[i] < r.quiet {
			covers = max(covers, s.at[i]+1)
		}
	}
	r.quiet = covers
	r.notified = true
}

// rankTokens keeps the order of tokens, and not their values.
func (s *alertState) rankTokens() {
	tokens := []*int8{&s.record.token}
	if s.receiver.tokenAt != never {
		tokens = append(tokens, &s.receiver.token)
	}
	for i := range s.owners {
		if d := &s.owners[i].delivery; d.phase >= claimed {
			tokens = append(tokens, &d.token)
		}
	}
	if s.late.about != 0 {
		tokens = append(tokens, &s.late.token)
	}
	rank(tokens)
}

// check returns what is wrong in s.
func (m *alertModel) check(s *alertState) string {
	if w := s.receiver.violation; w != 0 {
		return violations[w]
	}
	for i := range s.owners {
		o := &s.owners[i]
		if o.mode != running {
			continue
		}
		log, known := m.from(s, alarm{}, 0, o.read), m.alarmAt(s, o, o.read)
		if log.phase != known.phase || log.opened != known.opened {
			return "an owner's alarm is not that of the log"
		}
	}
	if !s.quiescent() {
		return ""
	}
	return m.checkEnd(s)
}

// quiescent reports whether nothing is left to do.
func (s *alertState) quiescent() bool {
	keeper := &s.owners[s.keeper]
	if keeper.mode != running || keeper.read < s.count || keeper.queued != 0 || s.late.about != 0 {
		return false
	}
	for i := range s.owners {
		o := &s.owners[i]
		if o.delivery.phase != none || o.mode == taking || o.mode == running && o.read < s.count {
			return false
		}
	}
	return true
}

// checkEnd says what is wrong when nothing is left to do.
func (m *alertModel) checkEnd(s *alertState) string {
	a := alarm{}
	due := false // an alert of this alarm, unless that is a dead letter
	for i := int8(1); i <= s.count; i++ {
		var notifies bool
		a, notifies = m.step(s, a, i)
		letter := s.letters&(1<<i) != 0
		switch {
		case a.phase != int8(rules.Open):
			due = false
		case notifies && !letter:
			due = true
		}
		covered := s.receiver.taken != never && s.at[i-1] < s.receiver.taken+modelWindow
		if m.repeat > 0 && s.receiver.told >= eventPlace(a.opened) && s.at[i-1] < s.receiver.toldAt+m.repeat {
			covered = covered || notifies
		}
		if notifies && !letter && !covered && s.receiver.recovered < eventPlace(i) {
			return fmt.Sprintf("reading %d is settled by nothing", i)
		}
	}
	open := a.phase == int8(rules.Open)
	switch heard := s.receiver.heard; {
	case open && due && heard != 1:
		return "the alarm is open, and the receiver does not know"
	case !open && heard == 1 && !s.unrecov:
		return "the alarm is over, and the receiver does not know"
	}
	return ""
}

func (m *alertModel) show(s *alertState) string {
	return fmt.Sprintf("t=%d record %+v ledger %d %+v of %c", s.now, s.record, s.position, s.alarm, 'A'+s.keeper)
}

func (m *alertModel) search(limit int) found {
	initial := m.initial()
	m.normal(&initial)
	return system[alertState]{initial: initial, next: m.next, check: m.check, show: m.show}.search(limit)
}

var allFaults = []int{crash, zombie, claimAnswerLost, takenAnswerLost, requestLost, lateDelivery, refusal, deadLetter,
	windowDeleted, ledgerAnswerLost}

// alertSearches are what make model looks at; together more states than fit into its budget.
var alertSearches = []alertModel{
	{readings: 2, kinds: []kind{hot, cool}, last: 4, end: 10, faults: allFaults, total: 1},
	{readings: 2, kinds: []kind{hot, cool}, last: 3, end: 8, faults: allFaults, total: 2},
	{readings: 3, kinds: []kind{hot, cool}, last: 3, end: 8, faults: allFaults, total: 1},
	{readings: 3, kinds: []kind{hot, between, cool}, hold: 1, last: 3, end: 7, faults: []int{crash, zombie}, total: 1},
	{readings: 3, kinds: []kind{hot, between, cool, inhibited}, last: 3, end: 7, faults: []int{crash, takenAnswerLost}, total: 1},
	{readings: 4, kinds: []kind{hot, cool}, last: 3, end: 8, faults: []int{crash}, total: 1},
	{readings: 3, kinds: []kind{hot, between, cool}, repeat: 5, last: 7, end: 12, faults: allFaults, total: 1},
	{readings: 3, kinds: []kind{hot, cool}, repeat: 100, last: 5, end: 10, faults: allFaults, total: 2},
}

// alertPlants are rules of the protocol, each with a bug that takes it away, and with faults in which that shows.
var alertPlants = []alertModel{
	{plant: "a recovery stays due when the alarm opens", readings: 3},
	{plant: "the ledger holds what was read", readings: 2, faults: []int{crash}, total: 1},
	{plant: "a recovery leaves the ledger when it is claimed", readings: 2, faults: []int{crash, requestLost}, total: 2},
	{plant: "a recovery does not wait for the window", readings: 2},
	{plant: "a recovery does not wait for an unknown alert", readings: 2,
		faults: []int{takenAnswerLost, deadLetter}, total: 2},
	{plant: "an unknown id does not survive", readings: 2, faults: []int{takenAnswerLost, deadLetter}, total: 2},
	{plant: "a recovery's unknown id does not survive", readings: 4, kinds: []kind{hot, cool, inhibited},
		last: 1, end: 5, faults: []int{takenAnswerLost}, total: 1},
	{plant: "a recovery leaves the window's end", readings: 3},
	{plant: "the elements of a message have one place", readings: 4, last: 2, end: 8},
	{plant: "a recovery covers no readings", readings: 2, last: 2, end: 8, faults: []int{crash}, total: 1},
	{plant: "the record forgets what it was claimed for", readings: 3, last: 4, end: 7, faults: []int{crash}, total: 1},
	{plant: "the ledger is written over", readings: 2, faults: []int{zombie}, total: 1},
	{plant: "reading begins at the checkpoint", readings: 3, faults: []int{crash}, total: 1},
	{plant: "nobody asks whose the ledger is", readings: 3, last: 1, end: 5, faults: []int{zombie}, total: 1},
	{plant: "a late record covers what joined", readings: 3},
	{plant: "a refusal forgets an unknown id", readings: 2, faults: []int{takenAnswerLost, refusal}, total: 2},
	{plant: "a dead letter is not noted", readings: 2, last: 2, end: 8,
		faults: []int{refusal, deadLetter, zombie}, total: 3},
	{plant: "the receiver forgets the tokens of what it drops", readings: 2, last: 1, end: 7,
		faults: []int{takenAnswerLost, lateDelivery, requestLost}, total: 3},
	{plant: "nobody knows what was sent", readings: 2, repeat: 100, last: 5},
	{plant: "the checkpoint passes what the ledger does not hold", readings: 2, faults: []int{crash}, total: 1},
}

func TestModelOfAlerts(t *testing.T) {
	var searches []func(limit int) found
	for _, m := range alertSearches {
		searches = append(searches, m.search)
	}
	searchAll(t, searches)
}

func TestModelOfAlertsFindsBugs(t *testing.T) {
	for _, m := range alertPlants {
		t.Run(m.plant, func(t *testing.T) {
			if m.kinds == nil {
				m.kinds = []kind{hot, cool}
			}
			m.last = cmp.Or(m.last, 4)
			m.end = cmp.Or(m.end, 10)
			mustFind(t, m.search)
		})
	}
}
