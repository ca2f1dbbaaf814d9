package throttle

import (
	"fmt"
	"testing"
	"time"

	"alertworker/internal/lease"
)

// The model of two logs: a device sends to two partitions, or to a hub that was recreated. Each has an owner with an
// alarm of its own, and both share one record. An owner reads as late as it likes. What a message may do, the gate's own
// code decides. Nobody crashes here: that is for the other models.

// logsModel is what one search looks at.
type logsModel struct {
	readings int8
	last     sec // when the last reading may come
	end      sec
	faults   int8 // answers that may be lost, and messages that may be refused
	plant    string
}

const maxReadings = 5

// A logReading is one, of a log. Its number there is its index.
type logReading struct {
	log int8
	hot bool
	at  sec
}

// A logOwner has read up to a reading. alert and due are readings, counted from 1, for which there is an alert or a
// recovery to send, and sending is that which is under way.
type logOwner struct {
	read, alert, due int8
	open             bool
	sending          int8
	recovery         bool
	note             note // of the claim
}

type logsState struct {
	now       sec
	count     int8
	readings  [maxReadings]logReading
	owners    [2]logOwner
	note      note
	claimed   sec
	written   sec
	hold      int8
	heard     [maxReadings]bool // alerts that the receiver got since the last recovery
	last      int8              // what it heard last: 0 nothing, 1 an alert, 2 a recovery
	faults    int8
	violation string
}

func (s *logsState) record() lease.Record {
	m := modelRecord{claimed: s.claimed, written: s.written, hold: s.hold}
	return m.lease(s.now)
}

func (s *logsState) held() bool { return s.now < s.written+s.hold }

// write has the record hold n from now on.
func (s *logsState) write(n note, hold int8) {
	s.note = n
	s.written = s.now
	s.hold = hold
}

var logNames = [...]string{"a", "b"}

func (s *logsState) request(reading int8, recovery bool) Request {
	r := s.readings[reading-1]
	return Request{
		ID: fmt.Sprint(reading, recovery), Enqueued: modelTime(r.at), Log: logNames[r.log], Sequence: int64(reading), Recovery: recovery,
	}
}

// decide is the gate's, unless a bug is planted.
func (m *logsModel) decide(s *logsState, r Request) decision {
	n := s.note
	if m.plant == "times of two logs are not compared" && n.About.Log != r.Log {
		n.About = position{}
	}
	d := decide(n, s.record(), s.held(), r, modelTime(s.now))
	switch {
	case r.Recovery || d.Outcome != Sent:
	case m.plant == "the last alert is the latest one":
		d.claim.About, d.claim.AboutAt = r.position(), millis(r.Enqueued)
	case m.plant == "an alert that has ended is still the latest one" && n.About.Log != r.Log && millis(r.Enqueued) < n.AboutAt:
		d.claim.About, d.claim.AboutAt = n.About, n.AboutAt
	}
	return d
}

// next is every step from s.
func (m *logsModel) next(s *logsState, emit func(step, *logsState)) {
	do := func(name string, who, arg int8, change func(*logsState)) {
		after := *s
		change(&after)
		emit(step{name, who, arg}, &after)
	}
	if s.now < m.end && s.count > 0 {
		do("a second passes", -1, s.now, func(s *logsState) { s.now++ })
	}
	if s.count < m.readings && s.now <= m.last {
		for log := range int8(2) {
			r := logReading{log: log, hot: s.isCool(log), at: s.now}
			if s.count == 0 && log > 0 {
				continue // the other way round it is the same
			}
			do("the hub takes a reading", -1, log, func(s *logsState) {
				s.readings[s.count] = r
				s.count++
			})
		}
	}
	for i := range s.owners {
		m.nextOf(s, int8(i), do)
	}
}

// isCool reports whether the last reading of a log was: hot and cool ones take turns.
func (s *logsState) isCool(log int8) bool {
	cool := true
	for _, r := range s.readings[:s.count] {
		if r.log == log {
			cool = !r.hot
		}
	}
	return cool
}

func (m *logsModel) nextOf(s *logsState, who int8, do func(string, int8, int8, func(*logsState))) {
	o := &s.owners[who]
	for next := o.read + 1; next <= s.count; next++ {
		if s.readings[next-1].log != who {
			continue
		}
		do("reads", who, next, func(s *logsState) { s.owners[who].take(next, s.readings[next-1].hot) })
		break
	}
	switch {
	case o.sending > 0:
		m.conclude(s, who, do)
	case o.alert > 0:
		m.attempt(s, who, o.alert, false, do)
	case o.due > 0:
		m.attempt(s, who, o.due, true, do)
	}
}

// take reads the next reading.
func (o *logOwner) take(reading int8, hot bool) {
	o.read = reading
	switch {
	case hot:
		o.alert = reading // what joins a delivery is settled with it, or goes on as its head
		o.open = true
		o.due = 0
	case o.open:
		o.open = false
		o.due = reading
	}
}

// attempt asks the gate.
func (m *logsModel) attempt(s *logsState, who, reading int8, recovery bool, do func(string, int8, int8, func(*logsState))) {
	d := m.decide(s, s.request(reading, recovery))
	switch d.Outcome {
	case Throttled, Unneeded:
		do(d.Outcome.String(), who, reading, func(s *logsState) { s.owners[who].settle(reading, recovery) })
	case Sent:
		do("claims", who, reading, func(s *logsState) {
			n := d.claim
			n.Proof = (modelClaim + modelWindow) * 1000
			s.claimed = s.now
			s.write(n, modelClaim)
			o := &s.owners[who]
			o.sending, o.recovery, o.note = reading, recovery, n
		})
	}
}

// settle has o have nothing more to say about a reading.
func (o *logOwner) settle(reading int8, recovery bool) {
	switch {
	case recovery && o.due == reading:
		o.due = 0
	case !recovery && o.alert == reading:
		o.alert = 0
	}
}

// conclude ends what is under way.
func (m *logsModel) conclude(s *logsState, who int8, do func(string, int8, int8, func(*logsState))) {
	mine := s.note == s.owners[who].note && s.held()
	answers := []Answer{Taken}
	switch {
	case !mine: // the time to send is over
		answers = []Answer{NotTaken}
	case s.faults < m.faults:
		answers = append(answers, Unknown, NotTaken)
	}
	for _, answer := range answers {
		do([...]string{"is lost", "is taken", "is refused"}[answer], who, int8(answer), func(s *logsState) {
			o := &s.owners[who]
			reading, recovery, n := o.sending, o.recovery, o.note
			o.sending, o.note = 0, note{}
			if answer != NotTaken {
				s.receive(reading, recovery)
			}
			switch {
			case !mine:
			case answer != Taken:
				s.faults++
				s.write(n.givenBack(answer), 0)
			case recovery:
				s.write(n.afterRecovery(s.request(reading, true)), 0)
				o.settle(reading, true)
			default:
				s.write(n.afterAlert(Request{}, time.Time{}, time.Time{}), modelWindow)
				o.settle(reading, false)
			}
		})
	}
}

// receive has the receiver get a message.
func (s *logsState) receive(reading int8, recovery bool) {
	if !recovery {
		s.heard[reading-1] = true
		s.last = 1
		return
	}
	c := s.readings[reading-1]
	for i, r := range s.readings {
		later := r.log == c.log && int8(i) >= reading || r.log != c.log && r.at >= c.at
		if s.heard[i] && later {
			s.violation = "a recovery that may be before an alert"
		}
	}
	s.heard = [maxReadings]bool{}
	s.last = 2
}

func (m *logsModel) check(s *logsState) string {
	idle := s.now == m.end && s.count > 0
	for i, o := range s.owners {
		unread := false
		for next := o.read; next < s.count; next++ {
			unread = unread || s.readings[next].log == int8(i)
		}
		idle = idle && !unread && o.sending == 0 && o.alert == 0 && o.due == 0 && !o.open
	}
	if s.violation == "" && idle && s.last == 1 && s.isCertain() {
		return "both alarms have ended, and the receiver heard an alert last"
	}
	return s.violation
}

// isCertain reports whether one log says that the device is normal at a time when the other one cannot know more. Of two
// readings of one time nobody knows which came later, and nobody says that the device is normal.
func (s *logsState) isCertain() bool {
	var hot, cool [2]sec // the last ones of each log
	for _, r := range s.readings[:s.count] {
		if r.hot {
			hot[r.log] = r.at
		} else {
			cool[r.log] = r.at
		}
	}
	return cool[0] > hot[1] || cool[1] > hot[0]
}

func (m *logsModel) show(s *logsState) string {
	return fmt.Sprintf("t=%d readings %v record %v", s.now, s.readings[:s.count], s.note)
}

func (m *logsModel) search(limit int) found {
	return system[logsState]{initial: logsState{now: 1}, next: m.next, check: m.check, show: m.show}.search(limit)
}

func TestModelOfTwoLogs(t *testing.T) {
	var searches []func(limit int) found
	for _, m := range []logsModel{
		{readings: 4, last: 3, end: 9},
		{readings: 4, last: 3, end: 12, faults: 1},
		{readings: 5, last: 2, end: 9},
	} {
		searches = append(searches, m.search)
	}
	searchAll(t, searches)
}

func TestModelOfTwoLogsFindsBugs(t *testing.T) {
	for _, m := range []logsModel{
		{plant: "times of two logs are not compared", readings: 3, last: 2, end: 9},
		{plant: "the last alert is the latest one", readings: 3, last: 2, end: 8, faults: 1},
		{plant: "an alert that has ended is still the latest one", readings: 4, last: 2, end: 10},
	} {
		t.Run(m.plant, func(t *testing.T) { mustFind(t, m.search) })
	}
}
