package throttle

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"alertworker/internal/incident"
	"alertworker/internal/lease"
	"alertworker/internal/rules"
)

// The model of incidents: one group, two partitions. Each partition has a log of what happens to its members, a ledger, an
// owner, and another one that may take over while the first lives on. They share the group's record, and one or two
// receivers with a gate's record each. What is written in the group's record, incident.Record decides, and what a message
// may do, the gate's own code. What an owner does between the two is written down here once more.

type memberEvent int8

const (
	opens    memberEvent = iota // a member
	ends                        // a member
	breaches                    // a member that is open, once more
)

// Faults beside those of the model of alerts.
const (
	recordAnswerLost = faultKinds + iota // of a write to the group's record
	recordLate
	windowNotRecorded
	partitionGone
	timedOut // and was given up
	incidentFaultKinds
)

const (
	maxMemberEvents = 4 // of a partition
	maxIncidents    = 6
	maxReceivers    = 2
	maxEndIDs       = 6
)

// incidentModel is what one search looks at. Times are in seconds.
type incidentModel struct {
	events    [2]int8 // of each partition, at most
	kinds     []memberEvent
	window    int8 // 0: 2
	claim     int8 // 0: 1
	repeat    int8 // 0: never again
	receivers int8 // 0: 1
	last      sec  // when the last event may come
	end       sec
	faults    []int // which may happen
	each      int8  // how often; 0: once
	total     int8  // how many in all; 0: one
	replays   bool  // dead letters may be sent again
	plant     string

	often [incidentFaultKinds]int8 // follows from faults
}

// A groupRecord is an incident.Record in little room.
type groupRecord struct {
	incident, state, overs int8
	entries                [2]groupEntry
}

type groupEntry struct{ members, at int8 }

// An endOf is an incident.End: which incident, and which of the times that it was over. 0 is none.
type endOf int8

func (e endOf) incident() int8 { return int8(e & 7) }
func (e endOf) end() incident.End {
	return incident.End{Incident: incidentIDs[e&7], Overs: int(e >> 3)}
}

func endFrom(e incident.End) endOf { return endOf(incidentFrom(e.Incident) + int8(e.Overs<<3)) }

var (
	incidentStates = [...]incident.State{incident.None, incident.Running, incident.Over, incident.Closed}
	incidentIDs    = [maxIncidents + 2]string{"", "i1", "i2", "i3", "i4", "i5", "i6", "i7"}
	partitionNames = [...]string{"0", "1"}
)

// An endID is that of the message about an end: of an incident, and the time of the alert that it ends. 0 is none.
type endID struct {
	incident int8
	alert    sec
}

func (e endID) id() string {
	if e == (endID{}) {
		return ""
	}
	return fmt.Sprintf("%s/%d/resolved", incidentIDs[e.incident], modelMillis(e.alert))
}

func endFromID(id string) endID {
	if id == "" {
		return endID{}
	}
	at, err := strconv.ParseInt(strings.TrimSuffix(id[3:], "/resolved"), 10, 64)
	if err != nil {
		panic(err)
	}
	return endID{incidentFrom(id), modelSec(at)}
}

func incidentFrom(id string) int8 {
	if id == "" {
		return 0
	}
	return int8(id[1] - '0')
}

func (g *groupRecord) record() incident.Record {
	r := incident.Record{
		ID:      incidentIDs[g.incident],
		State:   incidentStates[g.state],
		Overs:   int(g.overs),
		Entries: make(map[string]incident.Entry, 2),
	}
	for p, e := range g.entries {
		if e != (groupEntry{}) {
			r.Entries[partitionNames[p]] = incident.Entry{Members: int(e.members), Position: incident.Position{Log: "log", Sequence: int64(e.at)}}
		}
	}
	return r
}

func groupFrom(r incident.Record) (g groupRecord) {
	g.incident, g.overs = incidentFrom(r.ID), int8(r.Overs)
	for i, s := range incidentStates {
		if s == r.State {
			g.state = int8(i)
		}
	}
	for p, name := range partitionNames {
		e := r.Entries[name]
		g.entries[p] = groupEntry{int8(e.Members), int8(e.Position.Sequence)}
	}
	return g
}

func (g *groupRecord) is(s incident.State) bool { return incidentStates[g.state] == s }

// An incidentRecord is a lease.Record with the note about incidents in it, in little room.
type incidentRecord struct {
	phase, id, told, mayTold int8
	end, aside               endID
	again                    bool
	toldAt, mayToldAt        sec
	claimed, written         sec
	hold, token              int8
}

func (m *incidentModel) note(r *incidentRecord) note {
	return note{
		Phase:      modelPhases[r.phase],
		ID:         incidentIDs[r.id],
		RecoveryID: r.end.id(),
		Again:      r.again,
		Proof:      int64(m.claim+m.window) * 1000,
		OfIncident: true,
		Told:       incidentIDs[r.told],
		ToldAt:     modelMillis(r.toldAt),
		MayTold:    incidentIDs[r.mayTold],
		MayToldAt:  modelMillis(r.mayToldAt),
		Aside:      r.aside.id(),
	}
}

// write puts n into the record at a time, to be held from then on.
func (r *incidentRecord) write(n note, now sec, hold int8) {
	for i, name := range modelPhases {
		if n.Phase == name {
			r.phase = int8(i)
		}
	}
	r.id, r.end = incidentFrom(n.ID), endFromID(n.RecoveryID)
	r.told, r.toldAt, r.mayTold, r.aside = incidentFrom(n.Told), modelSec(n.ToldAt), incidentFrom(n.MayTold), endFromID(n.Aside)
	r.mayToldAt, r.again = modelSec(n.MayToldAt), n.Again
	r.written, r.hold = now, hold
}

func (r *incidentRecord) lease(now sec) lease.Record {
	l := modelRecord{token: r.token, claimed: r.claimed, written: r.written, hold: r.hold}
	return l.lease(now)
}

func (r *incidentRecord) held(now sec) bool { return r.phase != 0 && now < r.written+r.hold }

// An incidentMessage is on its way to a receiver.
type incidentMessage struct {
	about   int8 // the incident; 0: there is no message
	over    bool
	id      int8  // of the incident whose ID it has
	end     endID // its ID, if it is over
	token   int8
	expires sec
}

// An incidentReceiver does what docs/receivers.md asks of one.
type incidentReceiver struct {
	record          incidentRecord
	alerts          [maxIncidents + 1]sec // when each ID was taken last; never
	ends            [maxEndIDs]endID      // those that were taken: they are remembered for long
	token           int8                  // the greatest that was taken or dropped, while it is remembered
	tokenAt         sec
	heard           int8 // last: 0 nothing, 1 an alert, 2 an end
	heardOf         int8 // which incident
	heardAt         sec  // the last alert
	open            int8 // incidents, a bit each, where the ID is the key
	letters, undone int8 // incidents whose alert, or end, became a dead letter
	unclear         bool // what was sent is not certain
	late            incidentMessage
}

type memberLedger struct {
	position int8
	due      endOf
	owner    int8
}

// A memberOwner has read events up to one, and the group's record has what they say up to another.
type memberOwner struct {
	mode         ownerMode // unborn, running, lost or dead
	read, synced int8
	mustSync     bool
	incident     int8 // under which the record has members
	alert        int8 // the event whose alert is due, and who has settled it
	alertSettled int8
	due          endOf // the end that is due, since which event, and who has settled it
	dueAt        int8
	dueSettled   int8
	remembers    int8 // planted: the incident that it has told of
	hasSeen      bool // planted: the record as it was when it was read
	seen         groupRecord
	flights      [maxReceivers]memberFlight
}

type memberFlight struct {
	phase          deliveryPhase
	over           bool
	about          int8 // the incident
	event          int8 // of an alert
	end            endOf
	id             int8  // of the alert that is sent
	endID          endID // of the end that is sent
	token          int8
	claimed, taken sec
	failed         bool
}

type incidentState struct {
	now       sec
	ids       int8 // how many incidents have begun
	count     [2]int8
	kinds     [2][maxMemberEvents]memberEvent
	at        [2][maxMemberEvents]sec
	group     groupRecord
	late      groupRecord
	isLate    bool
	written   [2]int8 // the latest position of a partition that was written
	closed    int8    // incidents, a bit each
	ledgers   [2]memberLedger
	gone      bool // partition 1
	receivers [maxReceivers]incidentReceiver
	owners    [2][2]memberOwner
	spent     [incidentFaultKinds]int8
	total     int8
	violation string
}

func (m *incidentModel) initial() (s incidentState) {
	s.now = 1
	for i := range s.receivers {
		r := &s.receivers[i]
		r.tokenAt, r.heardAt = never, never
		for id := range r.alerts {
			r.alerts[id] = never
		}
	}
	for p := range s.owners {
		s.owners[p][0].mode = running
	}
	m.normal(&s)
	return s
}

func (s *incidentState) can(m *incidentModel, fault int) bool {
	return s.spent[fault] < m.often[fault] && s.total < m.total
}

func (s *incidentState) spend(fault int) {
	s.spent[fault]++
	s.total++
}

func (s *incidentState) wrong(what string) {
	if s.violation == "" {
		s.violation = what
	}
}

// members returns how many a partition has after event i.
func (s *incidentState) members(p int, i int8) (n int8) {
	for _, k := range s.kinds[p][:i] {
		switch k {
		case opens:
			n++
		case ends:
			n--
		}
	}
	return n
}

func (s *incidentState) has(p int, i int8) bool { return s.members(p, i) > 0 }

// somebodyHas reports whether a partition has a member, by all that was ever written.
func (s *incidentState) somebodyHas() bool {
	other := s.has(1, s.written[1])
	if s.gone {
		other = s.group.entries[1].members > 0
	}
	return other || s.has(0, s.written[0])
}

// change returns the first event that the record does not have and at which the number of members left or reached 0; 0 if
// there is none.
func (s *incidentState) change(p int, o *memberOwner) int8 {
	for i := o.synced + 1; i <= o.read; i++ {
		if s.has(p, i) != s.has(p, i-1) {
			return i
		}
	}
	return 0
}

func (m *incidentModel) needsSync(s *incidentState, p int, o *memberOwner) bool {
	switch {
	case o.mustSync:
		return true
	case s.change(p, o) == 0:
		return false
	}
	return m.plant != "a change that is undone is not written" || s.has(p, o.read) != s.has(p, o.synced)
}

// isOwner reports whether a partition's ledger is x's.
func (s *incidentState) isOwner(p, x int) bool {
	return s.ledgers[p].owner == int8(x) && !(p == 1 && s.gone)
}

// hasHeir reports whether somebody may still take a partition over.
func (m *incidentModel) hasHeir(s *incidentState, p int) bool {
	if p == 1 && s.gone {
		return false
	}
	switch s.owners[p][1].mode {
	case running, lost:
		return s.can(m, crash)
	case unborn:
		return s.owners[p][0].mode != running || s.can(m, crash) || s.can(m, zombie)
	}
	return true
}

func (m *incidentModel) mayHappen(s *incidentState, p int, k memberEvent) bool {
	if s.now > m.last || s.count[p] == m.events[p] || p == 1 && s.gone {
		return false
	}
	n := s.members(p, s.count[p])
	return k == opens && n < 2 && s.ids < maxIncidents || k != opens && n > 0
}

type incidentDoing = func(name string, who, arg int8, change func(*incidentState))

// next is every step from s.
func (m *incidentModel) next(s *incidentState, emit func(step, *incidentState)) {
	do := func(name string, who, arg int8, change func(*incidentState)) {
		after := *s
		change(&after)
		m.normal(&after)
		emit(step{name, who, arg}, &after)
	}
	if s.now < m.end && s.count[0]+s.count[1] > 0 {
		do("a second passes", -1, s.now, func(s *incidentState) { s.now++ })
	}
	if m.repeat > 0 { // else an event comes when the first owner reads it: nothing depends on when it came
		for p := range s.owners {
			for _, k := range m.kinds {
				if m.mayHappen(s, p, k) {
					do([...]string{"a member opens", "a member ends", "a member breaches again"}[k], -1, int8(p), func(s *incidentState) {
						s.kinds[p][s.count[p]], s.at[p][s.count[p]] = k, s.now
						s.count[p]++
					})
				}
			}
		}
	}
	for i := range s.receivers {
		if s.receivers[i].late.about != 0 {
			do("a late message arrives", -1, int8(i), func(s *incidentState) {
				late := s.receivers[i].late
				s.receivers[i].late = incidentMessage{}
				m.receive(s, i, late)
			})
		}
	}
	for i := range int(m.receivers) {
		m.nextOfLetters(s, i, do)
	}
	m.nextOfRecord(s, do)
	for p := range s.owners {
		for x := range s.owners[p] {
			m.nextOf(s, p, x, do)
		}
	}
}

// nextOfLetters is that a dead letter of the last incident is sent again, and taken: the alert's while it runs, and the end's
// once it does not.
func (m *incidentModel) nextOfLetters(s *incidentState, i int, do incidentDoing) {
	about, over := s.group.incident, !s.group.is(incident.Running)
	letters := s.receivers[i].letters
	if over {
		letters = s.receivers[i].undone
	}
	if !m.replays || letters>>about&1 == 0 {
		return
	}
	d := m.decide(s, i, m.letter(about, over))
	if d.Outcome != Sent {
		return
	}
	do("a dead letter is sent again", -1, int8(i), func(s *incidentState) {
		c := &s.receivers[i]
		c.unclear = true // who sends it again wants it told again
		if over {
			c.undone &^= 1 << about
		} else {
			c.letters &^= 1 << about
		}
		f := memberFlight{about: about, over: over, taken: s.now}
		m.grant(s, i, d, &f)
		m.receive(s, i, incidentMessage{about, over, f.id, f.endID, f.token, s.now + m.claim})
		m.taken(s, i, &memberOwner{}, &f, true)
	})
}

// letter is the request of a dead letter.
func (m *incidentModel) letter(about int8, over bool) Request {
	return Request{
		Incident: incidentIDs[about],
		Recovery: over,
		Repeat:   time.Duration(m.window) * time.Second,
		Arrived:  modelTime(m.end),
	}
}

// nextOfRecord is what becomes of the group's record without an owner.
func (m *incidentModel) nextOfRecord(s *incidentState, do incidentDoing) {
	if s.isLate {
		do("a late record is written", -1, 0, func(s *incidentState) {
			for p := range s.written {
				if s.late.entries[p] != s.group.entries[p] {
					s.written[p] = max(s.written[p], s.late.entries[p].at)
				}
			}
			s.group, s.isLate = s.late, false
		})
	}
	if s.can(m, partitionGone) && !s.gone && s.count[1] > 0 {
		do("partition 1 is no more", -1, 1, func(s *incidentState) {
			s.spend(partitionGone)
			s.gone = true
		})
	}
	bounded := s.ids < maxIncidents-1 && s.group.overs < 3 || s.owners[1][0].mode != running && s.owners[1][1].mode != running
	if s.gone && s.group.entries[1].members > 0 && m.plant != "the entry of a partition that is no more stays" && bounded {
		do("the leader takes its entry out", -1, 1, func(s *incidentState) {
			s.isLate = false
			after, _ := s.group.record().Without(partitionNames[1])
			s.group = groupFrom(after)
		})
	}
}

func (m *incidentModel) nextOf(s *incidentState, p, x int, do incidentDoing) {
	o := &s.owners[p][x]
	who := int8(2*p + x)
	switch o.mode {
	case dead:
		return
	case unborn:
		if x == 1 && !(p == 1 && s.gone) && (s.owners[p][0].mode != running || s.can(m, zombie)) {
			do("takes the partition over", who, 0, func(s *incidentState) { m.takeOver(s, p, x) })
		}
		return
	case running:
		m.nextOfRunning(s, p, x, do)
	}
	for i := range int(m.receivers) {
		m.nextOfFlight(s, p, x, i, do)
	}
}

func (m *incidentModel) takeOver(s *incidentState, p, x int) {
	if s.owners[p][0].mode == running {
		s.spend(zombie)
	}
	l := &s.ledgers[p]
	l.owner = int8(x)
	o := memberOwner{mode: running, read: l.position, synced: l.position, due: l.due, dueAt: l.position}
	if s.has(p, l.position) {
		o.mustSync, o.due, o.dueAt = true, 0, 0
	}
	s.owners[p][x] = o
}

func (m *incidentModel) nextOfRunning(s *incidentState, p, x int, do incidentDoing) {
	o := &s.owners[p][x]
	who := int8(2*p + x)
	if !s.isOwner(p, x) {
		do("learns that the partition is lost", who, 0, func(s *incidentState) { s.owners[p][x].mode = lost })
	}
	if s.can(m, crash) {
		do("crashes", who, 0, func(s *incidentState) {
			s.spend(crash)
			for i := range s.receivers {
				if s.owners[p][x].flights[i].phase >= claimed {
					s.receivers[i].unclear = true
				}
			}
			s.owners[p][x] = memberOwner{mode: unborn}
			if x == 0 {
				s.owners[p][x].mode = dead
			}
		})
	}
	for _, k := range m.kinds {
		fresh := o.read == s.count[p]
		if p == 1 && s.gone || fresh && (m.repeat > 0 || !m.mayHappen(s, p, k)) || !fresh && s.kinds[p][o.read] != k {
			continue
		}
		do([...]string{"reads that a member opens", "reads that a member ends", "reads that a member breaches again"}[k], who, 0, func(s *incidentState) {
			if fresh {
				s.kinds[p][s.count[p]] = k
				s.count[p]++
			}
			m.read(s, p, &s.owners[p][x])
		})
	}
	m.nextOfSync(s, p, x, do)
	m.nextOfEnd(s, p, x, do)
	m.nextOfMemberLedger(s, p, x, do)
}

// read takes the next event.
func (m *incidentModel) read(s *incidentState, p int, o *memberOwner) {
	o.read++
	was, is := s.has(p, o.read-1), s.has(p, o.read)
	if k := s.kinds[p][o.read-1]; is && (!was || k == breaches || k == opens && m.repeat > 0) {
		if o.alert == 0 {
			o.alert, o.alertSettled = o.read, 0
		}
		if o.remembers != 0 {
			o.alert = 0
		}
		if m.plant == "an alert is claimed before its entry is written" && o.incident == 0 {
			if o.incident = s.group.incident; s.group.is(incident.Closed) || o.incident == 0 {
				s.ids++
				o.incident = s.ids
			}
		}
	}
	if is {
		o.due = 0
	}
}

// nextOfSync is how the group's record comes to have what an owner knows.
func (m *incidentModel) nextOfSync(s *incidentState, p, x int, do incidentDoing) {
	o := &s.owners[p][x]
	who := int8(2*p + x)
	blind := m.plant == "a record is written whatever became of it"
	switch {
	case !m.needsSync(s, p, o):
		return
	case blind && !o.hasSeen:
		do("reads the record", who, 0, func(s *incidentState) {
			o := &s.owners[p][x]
			o.hasSeen, o.seen = true, s.group
		})
		return
	}
	write := func(s *incidentState, o *memberOwner) {
		g := s.group
		if blind {
			g = o.seen
			o.hasSeen, o.seen = false, groupRecord{}
		}
		if m.sync(s, p, o, &g) {
			s.isLate = false
		}
		s.group = g
		s.written[p] = max(s.written[p], o.read)
	}
	do("writes the record", who, 0, func(s *incidentState) { write(s, &s.owners[p][x]) })
	if s.can(m, recordAnswerLost) {
		do("writes the record, and hears nothing", who, 0, func(s *incidentState) {
			s.spend(recordAnswerLost)
			o := s.owners[p][x]
			write(s, &o)
			s.owners[p][x].mustSync = true
		})
	}
	if s.can(m, recordLate) && !s.isLate {
		do("writes the record, which comes late", who, 0, func(s *incidentState) {
			s.spend(recordLate)
			o, g := s.owners[p][x], s.group
			if m.sync(s, p, &o, &g) {
				s.late, s.isLate = g, true
			}
		})
	}
}

// sync has incident.Record take what an owner knows, and the owner learn what that says. It reports whether something is
// written.
func (m *incidentModel) sync(s *incidentState, p int, o *memberOwner, g *groupRecord) bool {
	was := *g
	switch {
	case m.plant == "an incident that is over never goes on" && g.is(incident.Over) && s.has(p, o.read):
		was.state = 3
	case m.plant == "an incident that is closed goes on" && g.is(incident.Closed):
		was.state = 2
	}
	o.mustSync, o.synced = false, o.read
	fresh := s.ids + 1
	if m.plant == "an alert is claimed before its entry is written" && o.incident != 0 {
		fresh = o.incident
	}
	e := incident.Entry{Position: incident.Position{Log: "log", Sequence: int64(o.read)}}
	if s.has(p, o.read) {
		e.Members = 1
	}
	next, result := was.record().Sync(partitionNames[p], e, incidentIDs[fresh], time.Time{})

	o.incident = incidentFrom(result.Incident)
	switch {
	case e.Members > 0 && !result.Behind:
		o.due = 0
	case result.Incident == "" && result.Behind:
		o.alert = 0
	}
	found := result.End != (incident.End{}) && (!g.is(incident.Over) || m.plant != "who finds the record over makes nothing due")
	*g = groupFrom(next)
	if found {
		o.makeDue(m.endOf(g))
	}
	if g.incident == fresh {
		s.ids = max(s.ids, fresh)
	}
	switch m.plant {
	case "the record keeps no positions":
		g.entries[p].at = 0
	case "an incident that is over has one end":
		g.overs = 0
	}
	return !result.Behind
}

// endOf is the end that is due by the record.
func (m *incidentModel) endOf(g *groupRecord) endOf {
	if m.plant == "an incident that is over has one end" {
		return endOf(g.incident)
	}
	return endFrom(g.record().End())
}

func (o *memberOwner) makeDue(e endOf) {
	if o.due != e {
		o.due, o.dueSettled = e, 0
	}
	o.dueAt = o.read
}

// nextOfEnd is what follows once all have settled the end, or if it is nobody's.
func (m *incidentModel) nextOfEnd(s *incidentState, p, x int, do incidentDoing) {
	o := &s.owners[p][x]
	who := int8(2*p + x)
	settled := o.dueSettled == 1<<m.receivers-1
	if m.plant == "an incident is closed once a receiver has settled its end" {
		settled = o.dueSettled != 0
	}
	if o.due != 0 && settled {
		do("closes the incident", who, int8(o.due), func(s *incidentState) {
			o := &s.owners[p][x]
			after, changed := s.group.record().Closed(o.due.end())
			if changed && m.plant != "nobody closes an incident" {
				s.isLate = false
				s.group = groupFrom(after)
				s.closed |= 1 << s.group.incident
			}
			o.due = 0
		})
	}
	if p == 0 && s.isOwner(p, x) && s.gone && s.group.is(incident.Over) && o.due == 0 && m.plant != "nobody looks for ends that are nobody's" {
		do("finds an end that is nobody's", who, 0, func(s *incidentState) { s.owners[p][x].makeDue(m.endOf(&s.group)) })
	}
}

func (m *incidentModel) nextOfMemberLedger(s *incidentState, p, x int, do incidentDoing) {
	o := &s.owners[p][x]
	if !s.isOwner(p, x) || !m.hasHeir(s, p) {
		return
	}
	position := o.read
	if o.alert > 0 {
		position = min(position, o.alert-1)
	}
	if m.plant != "the ledger passes what the record does not have" {
		if i := s.change(p, o); i > 0 {
			position = min(position, i-1)
		}
		if o.mustSync {
			position = s.ledgers[p].position
		}
	}
	due := endOf(0)
	if o.due != 0 && position >= o.dueAt && m.plant != "the ledger keeps no end" {
		due = o.due
	}
	if l := s.ledgers[p]; position > l.position || position == l.position && due != l.due {
		do("writes the ledger", int8(2*p+x), position, func(s *incidentState) {
			s.ledgers[p].position, s.ledgers[p].due = position, due
		})
	}
}

func (m *incidentModel) nextOfFlight(s *incidentState, p, x, i int, do incidentDoing) {
	f := &s.owners[p][x].flights[i]
	who := int8(2*p + x)
	change := func(name string, arg int8, f func(*incidentState, *memberOwner, *memberFlight)) {
		do(name, who, 10*int8(i)+arg, func(s *incidentState) { f(s, &s.owners[p][x], &s.owners[p][x].flights[i]) })
	}
	switch f.phase {
	case waiting:
		d := m.decide(s, i, m.request(s, p, f))
		switch d.Outcome {
		case Throttled, Unneeded:
			change(d.Outcome.String(), 0, func(_ *incidentState, o *memberOwner, _ *memberFlight) { m.settle(o, i) })
		case Sent:
			change("claims", 0, func(s *incidentState, _ *memberOwner, f *memberFlight) { m.grant(s, i, d, f) })
			if s.can(m, claimAnswerLost) {
				change("claims, and hears nothing", 0, func(s *incidentState, _ *memberOwner, f *memberFlight) {
					s.spend(claimAnswerLost)
					s.receivers[i].unclear = true
					was := *f
					m.grant(s, i, d, f)
					*f = was
				})
			}
		}
	case claimed:
		change("reads the record under its claim", 0, func(s *incidentState, o *memberOwner, f *memberFlight) { m.look(s, p, x, i, o, f) })
	case checked:
		m.nextOfSending(s, i, f, change)
	case accepted:
		change("records that it was taken", 0, func(s *incidentState, o *memberOwner, f *memberFlight) { m.taken(s, i, o, f, true) })
		if s.can(m, windowNotRecorded) {
			change("cannot record that it was taken", 0, func(s *incidentState, o *memberOwner, f *memberFlight) {
				s.spend(windowNotRecorded)
				m.taken(s, i, o, f, false)
			})
		}
	case unclear, refused:
		change("gives the claim back", 0, func(s *incidentState, o *memberOwner, f *memberFlight) { m.giveBack(s, i, o, f) })
	}
}

func (m *incidentModel) request(s *incidentState, p int, f *memberFlight) Request {
	r := Request{Incident: incidentIDs[f.about], Recovery: f.over, Repeat: rules.Never}
	if m.repeat > 0 {
		r.Repeat = time.Duration(m.repeat) * time.Second
	}
	if !f.over {
		r.Enqueued = modelTime(s.at[p][f.event-1])
	}
	return r
}

// decide is the gate's, unless a bug is planted.
func (m *incidentModel) decide(s *incidentState, i int, r Request) decision {
	rec, over := &s.receivers[i].record, r.Recovery
	held, was, at := rec.held(s.now), m.note(rec), rec.lease(s.now)
	unresolved := was.unresolved(at)
	n := was
	switch {
	case m.plant == "no incident covers" && !over:
		n.Told = ""
	case m.plant == "any incident that was told covers" && !over && n.Told != "":
		n.Told = r.Incident
	case m.plant == "told covers although an end's fate is unknown" && !over:
		n.RecoveryID = ""
	case m.plant == "another incident does not wait for the window" && !over && n.Phase == phaseWindow,
		m.plant == "an end does not wait for the window" && over && n.Phase == phaseWindow:
		held = false
	case m.plant == "another incident does not wait for an unknown fate" && !over && unresolved,
		m.plant == "an unknown id does not survive" && !over && unresolved && n.ID == r.Incident:
		n.ID = r.Incident
	case m.plant == "an end is sent whatever was told" && over && n.Told != r.Incident && n.ID != r.Incident:
		n.MayTold = r.Incident
	case m.plant == "an end does not wait for an unknown fate" && over:
		n.Proof = 0
	}

	d := decide(n, at, held, r, modelTime(s.now))
	if d.Outcome != Sent {
		return d
	}
	c := &d.claim
	c.Told = was.Told
	switch {
	case m.plant == "told covers although an end's fate is unknown" && !over:
		c.RecoveryID, c.Aside = was.RecoveryID, was.RecoveryID
	case m.plant == "another incident does not wait for an unknown fate" && !over && unresolved:
		c.ID = was.ID
	case m.plant == "an unknown id does not survive" && !over && unresolved:
		c.Again, c.MayTold = false, was.ID
	case m.plant == "an end is sent whatever was told" && over && was.ID != r.Incident:
		c.MayTold = was.MayTold
	case m.plant == "all ends of an incident have one id" && over:
		c.RecoveryID = endID{incidentFrom(r.Incident), 1}.id()
	case m.plant == "the id of an end says nothing of an alert of unknown fate" && over:
		c.RecoveryID = endID{incidentFrom(r.Incident), modelSec(was.ToldAt)}.id()
	case m.plant == "what may have been told was told" && over && was.ID == r.Incident && was.Phase != phaseWindow:
		c.Told, c.MayTold = r.Incident, was.MayTold
	}
	return d
}

// grant gives a receiver's key to a flight.
func (m *incidentModel) grant(s *incidentState, i int, d decision, f *memberFlight) {
	c := &s.receivers[i]
	if c.record.end != (endID{}) || c.record.id != 0 && c.record.phase != 2 {
		c.unclear = true
	}
	c.record.token++
	c.record.claimed = s.now
	c.record.write(d.claim, s.now, m.claim)
	f.phase, f.token, f.claimed, f.id = claimed, c.record.token, s.now, incidentFrom(d.claim.ID)
	if f.over {
		f.id, f.endID = 0, endFromID(d.claim.sends())
	}
}

// look is what an owner sees under its claim: whose the ledger is, and what the record says.
func (m *incidentModel) look(s *incidentState, p, x, i int, o *memberOwner, f *memberFlight) {
	group := s.group.record()
	end := f.end.end()
	switch {
	case s.ledgers[p].owner != int8(x) || o.mode != running: // of a partition that is no more the ledger stays as it was
		f.phase, o.mode = refused, lost
	case !f.over && m.plant != "an alert is sent without a look" && !group.MayAlert(partitionNames[p], incidentIDs[f.about]):
		f.phase = refused
		o.mustSync = o.mode == running
	case f.over && m.plant != "an end is sent without a look" && !group.MayEnd(end):
		f.phase = refused
		if o.due == f.end || m.plant == "an end that is refused takes the next one with it" {
			o.due = 0
		}
	default:
		f.phase = checked
		somebody := s.somebodyHas()
		if !f.over && !somebody {
			s.wrong("I5: an alert goes out, and all that was written is over")
		}
		if f.over && somebody {
			s.wrong("I3: an end goes out, and a partition has written that it has a member")
		}
	}
}

func (m *incidentModel) nextOfSending(s *incidentState, i int, f *memberFlight, change func(string, int8, func(*incidentState, *memberOwner, *memberFlight))) {
	if s.now >= f.claimed+m.claim {
		change("is too late to send", 0, func(_ *incidentState, _ *memberOwner, f *memberFlight) { f.phase = refused })
		return
	}
	msg := incidentMessage{f.about, f.over, f.id, f.endID, f.token, f.claimed + m.claim}
	lose := func(s *incidentState, f *memberFlight, fault int) {
		s.spend(fault)
		s.receivers[i].unclear = true
		f.phase = unclear
	}
	change("sends, and it is taken", 0, func(s *incidentState, _ *memberOwner, f *memberFlight) {
		m.receive(s, i, msg)
		f.phase, f.taken = accepted, s.now
	})
	if s.can(m, takenAnswerLost) {
		change("sends, and hears nothing", 0, func(s *incidentState, _ *memberOwner, f *memberFlight) {
			m.receive(s, i, msg)
			lose(s, f, takenAnswerLost)
		})
	}
	if s.can(m, requestLost) {
		change("sends, and it is lost", 0, func(s *incidentState, _ *memberOwner, f *memberFlight) { lose(s, f, requestLost) })
	}
	if s.can(m, lateDelivery) && s.receivers[i].late.about == 0 {
		change("sends, and it comes late", 0, func(s *incidentState, _ *memberOwner, f *memberFlight) {
			s.receivers[i].late = msg
			lose(s, f, lateDelivery)
		})
	}
	if s.can(m, timedOut) {
		for _, taken := range []int8{0, 1} {
			change("sends, and gives up without an answer", taken, func(s *incidentState, _ *memberOwner, f *memberFlight) {
				if taken == 1 {
					m.receive(s, i, msg)
				}
				lose(s, f, timedOut)
				f.failed = true
			})
		}
	}
	if s.can(m, refusal) {
		change("sends, and it is refused", 0, func(s *incidentState, _ *memberOwner, f *memberFlight) {
			s.spend(refusal)
			f.phase, f.failed = refused, true
		})
	}
}

// mine reports whether a flight's claim is the last one of its receiver's key.
func (r *incidentRecord) mine(f *memberFlight) bool {
	return r.token == f.token && r.phase == 1 && r.claimed == f.claimed
}

// taken settles the claim of what was taken, if its outcome can be recorded.
func (m *incidentModel) taken(s *incidentState, i int, o *memberOwner, f *memberFlight, recorded bool) {
	c := &s.receivers[i]
	about := Request{Incident: incidentIDs[f.about], Recovery: f.over}
	switch n := m.note(&c.record); {
	case !recorded || !c.record.mine(f):
		c.unclear = true
	case f.over:
		c.record.write(n.afterRecovery(about), s.now, 0)
	default:
		n = n.afterAlert(about, modelTime(f.claimed), modelTime(f.taken))
		if left := m.window - (s.now - f.taken); left > 0 {
			c.record.write(n, s.now, left)
		} else {
			c.record.write(n.freed(), s.now, 0)
		}
	}
	if m.plant == "an owner asks its memory of what it told" && !f.over {
		o.remembers = f.about
	}
	m.settle(o, i)
}

// giveBack settles a claim whose message was not taken, or may have been.
func (m *incidentModel) giveBack(s *incidentState, i int, o *memberOwner, f *memberFlight) {
	c := &s.receivers[i]
	if c.record.mine(f) {
		answer := NotTaken
		if f.phase == unclear {
			answer = Unknown
		}
		n := m.note(&c.record).givenBack(answer)
		if m.plant == "an end that was not sent ends its incident" && f.over && answer == NotTaken {
			n.Told, n.MayTold = "", ""
		}
		c.record.write(n, s.now, 0)
	}
	switch {
	case !f.failed:
		*f = memberFlight{}
		return
	case f.over:
		c.undone |= 1 << f.about
	default:
		c.letters |= 1 << f.about
	}
	m.settle(o, i)
}

// settle notes that a receiver has what was due at the claim, and nothing later.
func (m *incidentModel) settle(o *memberOwner, i int) {
	f := o.flights[i]
	same := o.alert == f.event || m.plant == "an answer settles an alert that became due since"
	switch {
	case !f.over && o.incident == f.about && o.alert > 0 && same:
		o.alertSettled |= 1 << i
	case f.over && o.due == f.end:
		o.dueSettled |= 1 << i
	}
	o.flights[i] = memberFlight{}
}

// receive has a receiver get a message.
func (m *incidentModel) receive(s *incidentState, i int, msg incidentMessage) {
	c := &s.receivers[i]
	remembers := c.tokenAt != never && s.now-c.tokenAt < max(m.window, m.claim+1)
	known := !msg.over && m.within(s, c.alerts[msg.id]) || msg.over && slices.Contains(c.ends[:], msg.end)
	if known || remembers && c.token > msg.token {
		if remembers && msg.token > c.token {
			c.token, c.tokenAt = msg.token, s.now
		}
		return
	}
	if msg.over {
		c.ends[slices.Index(c.ends[:], endID{})] = msg.end
	} else {
		c.alerts[msg.id] = s.now
	}
	c.token, c.tokenAt = msg.token, s.now
	if msg.over {
		m.hearEnd(s, c, msg)
	} else {
		m.hearAlert(s, c, msg)
	}
}

// within reports whether a time is less than a window ago.
func (m *incidentModel) within(s *incidentState, at sec) bool {
	return at != never && s.now-at < m.window
}

func (m *incidentModel) hearAlert(s *incidentState, c *incidentReceiver, msg incidentMessage) {
	if m.within(s, c.heardAt) {
		s.wrong("I3: two alerts within a window")
	}
	again := c.heard == 1 && c.heardOf == msg.about
	if again && !c.unclear && (m.repeat == 0 || c.heardAt != never && s.now-c.heardAt < m.repeat) {
		s.wrong("I3: an incident is told again within repeat")
	}
	if s.closed>>msg.about&1 == 1 && !c.unclear {
		s.wrong("I3: an incident is told, and its end was known to all")
	}
	c.heard, c.heardOf, c.heardAt = 1, msg.about, s.now
	c.open |= 1 << msg.about
	c.undone &^= 1 << msg.about
}

func (m *incidentModel) hearEnd(s *incidentState, c *incidentReceiver, msg incidentMessage) {
	if m.within(s, c.heardAt) {
		s.wrong("I3: an end within the window of an alert")
	}
	switch {
	case c.unclear:
	case c.heard == 2:
		s.wrong("I3: a second end")
	case c.heard == 0:
		s.wrong("I3: an end, and no alert before")
	case c.heardOf != msg.about:
		s.wrong("I3: the end of one incident after the alert of another")
	}
	c.heard, c.heardOf = 2, msg.about
	c.open &^= 1 << msg.about
}

// normal gives states that mean the same the same form.
func (m *incidentModel) normal(s *incidentState) {
	if !s.isLate {
		s.late = groupRecord{}
	}
	for p := range s.owners {
		for x := range s.owners[p] {
			m.normalOwner(s, p, &s.owners[p][x])
		}
		if !m.hasHeir(s, p) {
			s.ledgers[p].position, s.ledgers[p].due = 0, 0
		}
	}
	for i := range int(m.receivers) {
		m.normalReceiver(s, i)
	}
}

func (m *incidentModel) normalOwner(s *incidentState, p int, o *memberOwner) {
	switch o.mode {
	case unborn, dead:
		*o = memberOwner{mode: o.mode}
		return
	case lost:
		*o = memberOwner{mode: lost, flights: o.flights}
		for i := range o.flights {
			if o.flights[i].phase == waiting {
				o.flights[i] = memberFlight{}
			}
		}
		return
	}
	needs := m.needsSync(s, p, o)
	if !needs {
		o.synced = o.read
	}
	everybody := int8(1)<<m.receivers - 1
	if o.alertSettled == everybody || !s.has(p, o.read) && m.plant != "an alert stays due when the last member ends" {
		o.alert = 0
	}
	if o.alert == 0 {
		o.alertSettled = 0
	}
	if o.due == 0 {
		o.dueAt, o.dueSettled = 0, 0
	}
	for i := range int(m.receivers) {
		f := &o.flights[i]
		if f.phase > waiting {
			continue
		}
		*f = memberFlight{}
		ready := o.incident > 0 && (!needs || m.plant == "an alert is claimed before its entry is written")
		switch {
		case o.alert > 0 && o.alertSettled>>i&1 == 0 && ready:
			*f = memberFlight{phase: waiting, about: o.incident, event: o.alert}
		case o.due > 0 && o.dueSettled>>i&1 == 0:
			*f = memberFlight{phase: waiting, over: true, about: o.due.incident(), end: o.due}
		}
	}
}

func (m *incidentModel) normalReceiver(s *incidentState, i int) {
	c := &s.receivers[i]
	r := &c.record
	if free := !r.held(s.now); free && (r.phase == 2 || r.phase == 1 && !s.isLive(i, r.token)) {
		n := m.note(r).freed()
		if r.phase == 2 {
			n.Quiet = 0 // windows say nothing of incidents once they are over
		}
		r.write(n, 0, 0)
	}
	if r.phase == 0 {
		r.written = 0
		if r.id == 0 {
			r.claimed = 0
		}
	}
	if r.told == 0 {
		r.toldAt = 0
	}
	for id := range c.alerts {
		if !m.within(s, c.alerts[id]) {
			c.alerts[id] = never
		}
	}
	if c.tokenAt != never && s.now-c.tokenAt >= max(m.window, m.claim+1) {
		c.tokenAt, c.token = never, 0
	}
	if c.heardAt != never && s.now-c.heardAt >= max(m.window, m.repeat) {
		c.heardAt = never
	}
	if s.now > c.late.expires {
		c.late = incidentMessage{}
	}
	m.forgetEnds(s, i)
	m.rankTokens(s, i)
}

// forgetEnds has a receiver forget the IDs that no end can have any more.
func (m *incidentModel) forgetEnds(s *incidentState, i int) {
	if m.plant == "all ends of an incident have one id" || m.plant == "the id of an end says nothing of an alert of unknown fate" {
		return
	}
	c := &s.receivers[i]
	told, mayTold := endID{c.record.told, c.record.toldAt}, endID{c.record.mayTold, c.record.mayToldAt}
	last := endID{c.record.id, c.record.claimed}
	var room [12]*endID
	used := append(room[:0], &told, &mayTold, &c.record.end, &c.record.aside, &c.late.end)
	for p := range s.owners {
		for x := range s.owners[p] {
			used = append(used, &s.owners[p][x].flights[i].endID)
		}
	}
	for n := range c.ends {
		e := &c.ends[n]
		if *e != last && !slices.ContainsFunc(used, func(u *endID) bool { return *u == *e }) {
			*e = endID{}
		}
	}
	slices.SortFunc(c.ends[:], func(a, b endID) int {
		return -cmp.Or(cmp.Compare(a.incident, b.incident), cmp.Compare(a.alert, b.alert))
	})
}

// isLive reports whether somebody may still settle the claim with a token.
func (s *incidentState) isLive(i int, token int8) bool {
	for p := range s.owners {
		for x := range s.owners[p] {
			if f := &s.owners[p][x].flights[i]; f.phase >= claimed && f.token == token {
				return true
			}
		}
	}
	return false
}

func (m *incidentModel) rankTokens(s *incidentState, i int) {
	c := &s.receivers[i]
	var room [7]*int8
	tokens := append(room[:0], &c.record.token)
	if c.tokenAt != never {
		tokens = append(tokens, &c.token)
	}
	for p := range s.owners {
		for x := range s.owners[p] {
			if f := &s.owners[p][x].flights[i]; f.phase >= claimed {
				tokens = append(tokens, &f.token)
			}
		}
	}
	if c.late.about != 0 {
		tokens = append(tokens, &c.late.token)
	}
	rank(tokens)
}

// isQuiet reports whether all is said and done.
func (m *incidentModel) isQuiet(s *incidentState) bool {
	left := s.group.entries[1].members > 0 && m.plant != "the entry of a partition that is no more stays" ||
		s.group.is(incident.Over) && m.plant != "nobody looks for ends that are nobody's"
	if s.isLate || s.gone && left {
		return false
	}
	for i := range s.receivers {
		if s.receivers[i].late.about != 0 {
			return false
		}
	}
	for p := range s.owners {
		for x := range s.owners[p] {
			o := &s.owners[p][x]
			for i := range o.flights {
				if o.flights[i].phase != none {
					return false
				}
			}
			isOwner := s.isOwner(p, x)
			if !isOwner && o.mode == running {
				return false
			}
			if isOwner && (o.mode != running || o.read < s.count[p] || o.alert > 0 || o.due > 0 || m.needsSync(s, p, o)) {
				return false
			}
		}
	}
	return true
}

func (m *incidentModel) check(s *incidentState) string {
	if s.violation != "" || !m.isQuiet(s) {
		return s.violation
	}
	somebody := false
	for p := range s.owners {
		has := s.has(p, s.count[p]) && !(p == 1 && s.gone)
		somebody = somebody || has
		if has != (s.group.entries[p].members > 0) {
			return "I5: the record does not have what a partition has"
		}
	}
	if somebody != s.group.is(incident.Running) {
		return "I5: the record does not say whether the incident runs"
	}
	for i := range int(m.receivers) {
		c := &s.receivers[i]
		what := m.checkOver(s, i)
		if somebody {
			what = m.checkRunning(s, c)
		}
		if what != "" {
			return what
		}
	}
	return ""
}

func (m *incidentModel) checkRunning(s *incidentState, c *incidentReceiver) string {
	is := int8(1) << s.group.incident
	switch {
	case c.letters&is != 0:
		return ""
	case c.heard != 1:
		return "I1: an incident lasts, and a receiver did not hear of it last"
	case c.open&^(c.undone&^is) != is:
		return "I4: by the ids, another incident is open than the one that lasts"
	}
	return ""
}

func (m *incidentModel) checkOver(s *incidentState, i int) string {
	c := &s.receivers[i]
	switch {
	case c.heard == 1 && c.undone>>c.heardOf&1 == 0:
		return "I2: all is over, and a receiver heard an alert last"
	case c.heard == 1 && m.decide(s, i, m.letter(c.heardOf, true)).Outcome == Unneeded:
		return "I2: all is over, and the dead letter of the end is not sent again"
	case c.open&^c.undone != 0:
		return "I2: all is over, and by the ids an incident is open"
	case s.group.is(incident.Over):
		return "I2: all is over, and the end is nobody's"
	}
	return ""
}

// stuck is what is wrong if nothing can happen.
func (m *incidentModel) stuck(s *incidentState) string {
	if m.isQuiet(s) {
		return ""
	}
	for i := range int(m.receivers) {
		r := &s.receivers[i].record
		if r.held(s.now) || s.now < r.claimed+m.claim+m.window {
			return "" // time ends
		}
	}
	return "I2: nothing can happen, and not all is settled"
}

func (m *incidentModel) show(s *incidentState) string {
	told := ""
	for i := range int(m.receivers) {
		c := &s.receivers[i]
		told += fmt.Sprintf(" heard %d of %d, note %v", c.heard, c.heardOf, m.note(&c.record))
	}
	return fmt.Sprintf("t=%d %v, ledgers %v,%s", s.now, s.group.record(), s.ledgers, told)
}

func (m incidentModel) search(limit int) found {
	m.window, m.claim, m.receivers = max(m.window, 2), max(m.claim, 1), max(m.receivers, 1)
	m.total = max(m.total, 1)
	if m.kinds == nil {
		m.kinds = []memberEvent{opens, ends}
	}
	for _, f := range m.faults {
		m.often[f] = max(m.each, 1)
	}
	return system[incidentState]{initial: m.initial(), next: m.next, check: m.check, stuck: m.stuck, show: m.show}.search(limit)
}

var (
	answersLost     = []int{claimAnswerLost, takenAnswerLost, requestLost, lateDelivery, refusal}
	incidentFaults  = append([]int{crash, recordAnswerLost, recordLate, windowNotRecorded}, answersLost...)
	everythingFails = append([]int{zombie, partitionGone}, incidentFaults...)
)

// incidentSearches are the searches for violations.
var incidentSearches = []incidentModel{
	{events: [2]int8{4, 0}, last: 6, end: 11},
	{events: [2]int8{2, 1}, last: 4, end: 9},
	{events: [2]int8{3, 0}, last: 5, end: 10, faults: everythingFails},
	{events: [2]int8{2, 0}, last: 4, end: 9, faults: everythingFails, each: 2, total: 2},
	{events: [2]int8{2, 1}, last: 4, end: 9, faults: []int{crash}},
	{events: [2]int8{2, 1}, last: 3, end: 8, faults: []int{zombie}},
	{events: [2]int8{2, 1}, last: 4, end: 9, faults: incidentFaults},
	{events: [2]int8{2, 1}, last: 4, end: 9, faults: []int{partitionGone}},
	{events: [2]int8{2, 1}, last: 3, end: 8, kinds: []memberEvent{opens, ends, breaches}, repeat: 3},
	{events: [2]int8{2, 1}, last: 4, end: 9, window: 3, claim: 2, faults: []int{crash}},
	{events: [2]int8{2, 0}, last: 4, end: 9, receivers: 2, faults: incidentFaults},
	{events: [2]int8{2, 1}, last: 4, end: 8, receivers: 2},
	{events: [2]int8{2, 2}, last: 4, end: 9, faults: []int{crash}},
	{events: [2]int8{3, 0}, last: 6, end: 11, faults: []int{refusal, timedOut}, each: 3, total: 3, replays: true},
	{events: [2]int8{3, 0}, last: 5, end: 10, faults: []int{zombie, timedOut, takenAnswerLost}, each: 2, total: 2, replays: true},
}

// incidentPlants are rules of incidents, each with a bug that takes it away, and with events and faults in which that
// shows.
var incidentPlants = []incidentModel{
	{plant: "a change that is undone is not written", faults: []int{crash}},
	{plant: "a record is written whatever became of it", faults: []int{zombie}},
	{plant: "the record keeps no positions", faults: []int{crash}},
	{plant: "an incident that is over never goes on", events: [2]int8{3, 0}},
	{plant: "an incident that is closed goes on", events: [2]int8{3, 0}},
	{plant: "an incident that is over has one end", events: [2]int8{2, 1}, last: 1, end: 2, faults: []int{partitionGone}},
	{plant: "who finds the record over makes nothing due", faults: []int{crash}},
	{plant: "the entry of a partition that is no more stays", events: [2]int8{1, 1}, faults: []int{partitionGone}},
	{plant: "nobody looks for ends that are nobody's", events: [2]int8{1, 1}, faults: []int{partitionGone}},
	{plant: "the ledger passes what the record does not have", faults: []int{crash}},
	{plant: "the ledger keeps no end", faults: []int{crash}},
	{plant: "nobody closes an incident"},
	{plant: "an incident is closed once a receiver has settled its end", receivers: 2},
	{plant: "an alert is claimed before its entry is written", events: [2]int8{2, 1}},
	{plant: "an alert is sent without a look", events: [2]int8{1, 1}, faults: []int{partitionGone}},
	{plant: "an end is sent without a look", events: [2]int8{3, 0}},
	{plant: "an end that is refused takes the next one with it", events: [2]int8{4, 0}, last: 6, end: 11},
	{plant: "an alert stays due when the last member ends"},
	{plant: "an answer settles an alert that became due since", events: [2]int8{3, 0}, faults: []int{zombie, refusal}, total: 2},
	{plant: "an owner asks its memory of what it told", events: [2]int8{3, 0}, faults: []int{refusal}},
	{plant: "no incident covers", events: [2]int8{1, 1}},
	{plant: "any incident that was told covers", events: [2]int8{3, 0}, faults: []int{refusal}},
	{plant: "told covers although an end's fate is unknown", events: [2]int8{3, 0}, faults: []int{windowNotRecorded}},
	{plant: "what may have been told was told", events: [2]int8{3, 0}, faults: []int{claimAnswerLost}},
	{plant: "an end that was not sent ends its incident"},
	{plant: "an unknown id does not survive", faults: []int{takenAnswerLost}},
	{plant: "another incident does not wait for the window", events: [2]int8{2, 1}, last: 1, end: 2, faults: []int{partitionGone}},
	{plant: "another incident does not wait for an unknown fate", events: [2]int8{1, 1}, last: 1, end: 2, faults: []int{claimAnswerLost, partitionGone}, total: 2},
	{plant: "an end does not wait for the window"},
	{plant: "an end does not wait for an unknown fate", faults: []int{takenAnswerLost}},
	{plant: "all ends of an incident have one id", events: [2]int8{4, 0}, last: 9, end: 14},
	{plant: "the id of an end says nothing of an alert of unknown fate", events: [2]int8{4, 0}, last: 9, end: 14, faults: []int{takenAnswerLost}, each: 2, total: 2},
	{plant: "an end is sent whatever was told", events: [2]int8{1, 1}, faults: []int{partitionGone}},
}

func TestModelOfIncidents(t *testing.T) {
	var searches []func(limit int) found
	for _, m := range incidentSearches {
		searches = append(searches, m.search)
	}
	searchAll(t, searches)
}

func TestModelOfIncidentsFindsBugs(t *testing.T) {
	for _, m := range incidentPlants {
		t.Run(m.plant, func(t *testing.T) {
			if m.events == [2]int8{} {
				m.events = [2]int8{2, 0}
			}
			m.last = cmp.Or(m.last, 4)
			m.end = cmp.Or(m.end, 9)
			mustFind(t, m.search)
		})
	}
}
