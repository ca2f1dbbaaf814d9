package verify

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"
)

// A judge checks one stream and adds it to a report.
type judge struct {
	*Report
	stream

	by     *Rule
	window time.Duration
	bound  time.Duration // what has to come comes so long after its event
	early  time.Duration // what is older when the records end must have come
	known  bool          // the events are all that happened to the alarm
	events []event       // in their order
	fleets map[alarm]*fleet

	// settledAt returns when an event was settled; zero: that is not known.
	settledAt func(partition string, sequence int64) time.Time
	// muted reports whether people have muted a silence, at all times at which it can have been found.
	muted func(rule string, d Delivery) bool

	kept     []Delivery // what the receiver keeps
	counting []Delivery // alerts that start a window: those kept, and repetitions
	refused  []Delivery // what became dead letters
	alerted  int        // readings with an alert of their own
	alert    Delivery   // the last that was kept
	alerts   map[string]bool
}

// check adds to the report what is wrong with the deliveries of the stream, and how many there are of each kind.
func (j *judge) check(deliveries []Delivery) {
	slices.SortFunc(deliveries, inOrder)
	j.receive(deliveries)
	j.readings()
	if !j.known {
		return
	}

	if j.by.silence() {
		j.aboutSilence(deliveries)
	} else {
		j.about(deliveries)
		j.covered()
	}

	j.onceEach()

	j.order()

	if j.by.Repeat > 0 {
		j.seldom()
	}

	if j.by.Per == "" {
		j.last()
	}
}

// inOrder compares deliveries by the order in which they came.
func inOrder(a, b Delivery) int {
	return cmp.Or(
		a.At.Compare(b.At),
		cmp.Compare(a.Token, b.Token),
		cmp.Compare(a.ID, b.ID),
		a.Until.Compare(b.Until),
	)
}

// readings looks for the alert of every reading that needs one. A reading is lost if no delivery of the alarm is
// between Window+Slack before it and Bound after it, unless it was taken back by a recovery about an earlier reading.
// A repeated delivery counts, because the window starts again with it; one that came after a greater token does not,
// because it starts no window.
func (j *judge) readings() {
	taken := j.takenBack()
	covered := 0
	for i, e := range j.events {
		if !e.needsAlert {
			continue
		}

		bound := j.due(i)
		isFinal := bound == j.bound // it does not follow from when something was settled
		saying := func(d Delivery) bool { return !taken(d, i) }

		switch {
		case j.told(e, bound, saying), j.toldOf(i, saying), j.letter(e.At, bound):
			covered++
		case isFinal && j.isEarly(e.At):
			j.Open++
		default:
			j.lost(e.Reading, before(j.counting, e.At), j.from(e.At))
		}
	}

	j.Suppressed += max(0, covered-j.alerted)
}

// told reports whether an alert that says something about e was in time for it: the last one before it, or any until a
// bound after it.
func (j *judge) told(e event, bound time.Duration, saying func(Delivery) bool) bool {
	next := j.firstFrom(e.At)
	since := next

	last := before(j.counting, e.At)
	inForce := e.At.Sub(last.At) <= j.window+j.Rules.Slack // its window
	if inForce {
		since = max(0, next-1)
	}

	until := j.firstFrom(e.At.Add(bound + 1))

	return slices.ContainsFunc(j.counting[since:until], saying)
}

// toldOf reports whether an alert before event i was about the alarm that is still open, so lately that nothing need be
// said again.
func (j *judge) toldOf(i int, saying func(Delivery) bool) bool {
	if j.by.Repeat == 0 {
		return false
	}

	at := j.events[i].At
	before := j.counting[:j.firstFrom(at)]

	return slices.ContainsFunc(before, func(d Delivery) bool {
		isDue := at.Sub(d.At)-j.Rules.Slack >= j.by.Repeat
		return !isDue && j.isSameAlarm(j.event(d), i) && saying(d)
	})
}

// seldom checks that an alarm that is still open was not sent again earlier than the rule says.
func (j *judge) seldom() {
	var last Delivery
	for _, d := range j.kept {
		i := j.event(d)
		isNew := i >= 0 && !d.Repeated
		if isNew && j.isEarlyAgain(last, i) {
			j.wrong(d, "the alarm is still open, and was sent %v before", d.At.Sub(last.At))
		}

		last = d
	}
}

// isEarlyAgain reports whether event i need not be told, because the last message was an alert about the same alarm.
func (j *judge) isEarlyAgain(last Delivery, i int) bool {
	if last.At.IsZero() || last.Recovery || j.events[i].clears {
		return false
	}

	if j.Rules.InDoubt != nil && j.Rules.InDoubt(last.At) {
		return false
	}

	since := j.events[i].At.Sub(last.At) + j.Rules.Slack

	about, _ := j.eventsOf(last)

	return since < j.by.Repeat && j.isSameAlarm(about, i)
}

// isSameAlarm reports whether the event that an alert is about is before event i, and of the alarm that is open then.
func (j *judge) isSameAlarm(about, i int) bool {
	opened := i
	for opened > 0 && !j.events[opened].opens {
		opened--
	}

	return opened <= about && about < i
}

// firstFrom returns the index of the first alert at a time or later.
func (j *judge) firstFrom(at time.Time) int {
	return sort.Search(len(j.counting), func(n int) bool { return !j.counting[n].At.Before(at) })
}

// from returns the first alert at a time or later, zero if there is none.
func (j *judge) from(at time.Time) (d Delivery) {
	n := j.firstFrom(at)
	if n == len(j.counting) {
		return d
	}

	return j.counting[n]
}

// due returns how long after event i its alert comes at most: until the event is settled, if that is known. A later
// event of the alarm may settle it, if its alert is still due then: that alert is about both.
func (j *judge) due(i int) time.Duration {
	e := j.events[i]
	at := j.settledAt(e.Partition, e.Sequence)
	if j.by.silence() || at.IsZero() {
		return j.bound
	}

	for _, later := range j.events[i+1:] {
		if later.At.After(at) {
			break
		}

		if !later.needsAlert {
			continue
		}

		settled := j.settledAt(later.Partition, later.Sequence)
		if settled.IsZero() {
			return j.bound
		}

		if settled.After(at) {
			at = settled
		}
	}

	return min(j.bound, max(0, at.Sub(e.At)))
}

// letter reports whether a message that came within d of at became a dead letter, which stands for what happened until
// then, and for a window after it: one in a window is enough.
func (j *judge) letter(at time.Time, d time.Duration) bool {
	from := at.Add(-j.window - j.Rules.Keeping)
	n := sort.Search(len(j.refused), func(n int) bool { return !j.refused[n].At.Before(from) })
	return n < len(j.refused) && j.refused[n].At.Sub(at) <= d
}

// isEarly reports whether the records end before what at asks for must have come.
func (j *judge) isEarly(at time.Time) bool {
	return !j.Rules.Until.IsZero() && j.Rules.Until.Sub(at) < j.early
}

// takenBack returns a function that reports whether the receiver, after an alert, kept a recovery about
// a reading before event i: then the alert says nothing about that event.
func (j *judge) takenBack() func(alert Delivery, i int) bool {
	var recoveries []Delivery
	var about []int // of each, the least event that it or a later one is about
	for _, d := range j.kept {
		if !d.Recovery {
			continue
		}

		if i := j.event(d); i >= 0 {
			recoveries = append(recoveries, d)
			about = append(about, i)
		}
	}

	least := math.MaxInt
	for n, i := range slices.Backward(about) {
		least = min(least, i)
		about[n] = least
	}

	return func(alert Delivery, i int) bool {
		n := sort.Search(len(recoveries), func(n int) bool { return inOrder(recoveries[n], alert) > 0 })
		return n < len(recoveries) && about[n] < i
	}
}

// event returns the index of the event that d is about, -1 if there is none. Of several in one message it is the last that
// does what d says.
func (j *judge) event(d Delivery) int {
	if j.by.silence() {
		return j.silentEvent(d)
	}

	_, last := j.eventsOf(d)

	return last
}

// eventsOf returns the indexes of the first and the last event that d may be about, -1 if there is none: a message may
// have several measurements of a sensor.
func (j *judge) eventsOf(d Delivery) (first, last int) {
	first, last = -1, -1
	for i, e := range j.events {
		if e.Sequence != d.Sequence || e.Partition != d.Partition || e.Sensor != d.Sensor {
			continue
		}

		does := e.mayAlert
		if d.Recovery {
			does = e.clears
		}

		if does || last < 0 {
			last = i
		}

		if first < 0 {
			first = i
		}
	}

	return first, last
}

// about checks that every delivery is about a reading that needed it: whatever crashes, alarms open and close
// at the readings that the rule says.
func (j *judge) about(deliveries []Delivery) {
	for _, d := range deliveries {
		if d.Partition == "" || d.Partition == HTTP {
			continue // its reading is not known
		}

		switch i := j.event(d); {
		case d.Recovery:
			j.aboutEnd(d, i)
		case i < 0, !j.events[i].mayAlert:
			j.wrong(d, "its reading needs no alert")
		case d.Sequence < d.Settled:
			j.wrong(d, "its reading had been settled long before, like all before %d", d.Settled)
		}
	}
}

// covered checks that no alert is kept about a reading that came within a window that was recorded. One that says that
// it may be a repetition was claimed when that was not known.
func (j *judge) covered() {
	for _, d := range j.kept {
		i := j.event(d)
		if i < 0 || d.Recovery || d.Repeated {
			continue
		}

		if j.events[i].At.Before(d.Covered) {
			j.wrong(d, "its reading came at %s, which a window covers until %s", clock(j.events[i].At), clock(d.Covered))
		}
	}
}

// A message is what a receiver knows by an id.
type message struct{ receiver, id string }

// distinct checks that no other alarm has a message of the same id: the receiver would drop one of them. ids has those
// of other streams, and gets those of this one.
func (j *judge) distinct(deliveries []Delivery, ids map[message]alarm) {
	for _, d := range deliveries {
		m := message{j.receiver, d.ID}
		other, isKnown := ids[m]
		if isKnown && other != j.alarm {
			j.wrong(d, "one of %s has the same id", other)
		}

		ids[m] = j.alarm
	}
}

// A place is that of a sensor's measurements in a message.
type place struct {
	partition string
	sequence  int64
	sensor    string
}

// onceEach checks that no two recoveries are about one event. A message may have several.
func (j *judge) onceEach() {
	ends := map[place]int{}
	for _, e := range j.events {
		if e.clears {
			ends[place{e.Partition, e.Sequence, e.Sensor}]++
		}
	}

	ids := map[place][]string{}
	for _, d := range j.kept {
		about := place{d.Partition, d.Sequence, d.Sensor}
		if !d.Recovery || slices.Contains(ids[about], d.ID) {
			continue
		}

		if known := ids[about]; len(known) >= max(1, ends[about]) {
			j.wrong(d, "there was one about the same event, %s", known[0])
		}

		ids[about] = append(ids[about], d.ID)
	}
}

// aboutEnd checks one recovery, of event i.
func (j *judge) aboutEnd(d Delivery, i int) {
	if i < 0 || !j.events[i].clears {
		j.wrong(d, "its reading ended no alarm")
		return
	}

	excluded := j.events[i].excluded
	reopened := func(known func(event) bool) bool {
		return slices.ContainsFunc(j.events[i+1:], func(e event) bool { return e.needsAlert && known(e) })
	}
	inCalm := func(e event) bool { // so long before d came, in calm, that the sender must have known it
		return j.Rules.Calm != nil && d.At.Sub(e.At) > atOnce && j.Rules.Calm(e.At, d.At)
	}

	switch {
	case !j.by.Resolved:
		j.wrong(d, "the rule sends none")
	case d.Excluded != excluded:
		j.wrong(d, "a condition excludes its reading: %v, and it says: %v", excluded, d.Excluded)
	case reopened(inCalm):
		j.wrong(d, "the alarm had opened again, and nothing kept anybody from noticing")
	case reopened(func(e event) bool { return e.Sequence < d.Settled }):
		j.wrong(d, "the alarm had opened again, and all before %d had been settled long before", d.Settled)
	}
}

// atOnce is the most that what is due, or not any more, takes while nothing is wrong.
const atOnce = time.Second

// order checks that no recovery is kept without an alert since the last one, unless it is a repetition, or the fate
// of an alert is not known.
func (j *judge) order() {
	if slices.Contains(j.Rules.Unknown, j.device) {
		return
	}

	var last Delivery
	for _, d := range j.kept {
		follows := !last.At.IsZero() && (!last.Recovery || last.ID == d.ID) // an alert, or itself
		if d.Recovery && !follows {
			j.wrong(d, "there was no alert before it")
		}

		last = d
	}
}

// last checks that the last message that the receiver got is true: whenever an alarm has ended, until it opens again,
// and at the end.
func (j *judge) last() {
	open := -1 // the first event of the open alarm that needed an alert
	for i, e := range j.events {
		switch {
		case e.clears:
			open = -1
			j.ended(i)

		case e.needsAlert && open < 0:
			open = i
		}
	}

	if open < 0 {
		return
	}

	since := j.events[open]
	last := before(j.kept, time.Time{})
	saysOpen := !last.At.IsZero() && !last.Recovery
	if saysOpen || j.isEarly(later(since.At, last.At)) {
		return
	}

	if !j.letter(since.At, j.bound) {
		j.stale("open", since.Reading, last)
	}
}

// ended checks that the receiver got a recovery in time after event i ended the alarm, if the rule sends any and it did
// not open again before.
func (j *judge) ended(i int) {
	if !j.by.Resolved {
		return
	}

	c := j.events[i]
	until := j.Rules.Until
	bound := j.early

	var end time.Time                        // when it opens again; zero: never
	if next := i + 1; next < len(j.events) { // nothing but opening happens to an alarm that has ended
		end = j.events[next].At
		until = end
		bound = j.bound
	}

	last := before(j.kept, end)
	if last.At.IsZero() || last.Recovery {
		return
	}

	longest := j.window + j.Rules.Slack
	if last.Partition == HTTP || j.letter(c.At, longest+j.bound) {
		return
	}

	if refused := before(j.refused, end); refused.Recovery && refused.At.After(last.At) { // and no alert came after it
		return
	}

	// The window began with the last alert, also if that was dropped.
	window := before(j.counting, end).At
	due := later(c.At, window.Add(longest)).Add(bound)

	switch {
	case until.IsZero() || !due.After(until):
		j.stale("over", c.Reading, last)
	case end.IsZero():
		j.Open++
	}
}

// before returns the last of deliveries before at, or the last of all if at is zero; zero if there is none.
func before(deliveries []Delivery, at time.Time) (last Delivery) {
	n := len(deliveries)
	if !at.IsZero() {
		isFrom := func(n int) bool { return !deliveries[n].At.Before(at) }
		n = sort.Search(n, isFrom)
	}

	if n == 0 {
		return last
	}

	return deliveries[n-1]
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
