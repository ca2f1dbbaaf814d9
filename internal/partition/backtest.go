package partition

import (
	"cmp"
	"container/heap"
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/absence"
	"alertworker/internal/delivery"
	"alertworker/internal/incident"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// A Backtest takes recorded events through the worker's own decoding, rules, alarms and filters, and through
// windows in the recording's time, as if each receiver took every notice in the moment in which it is due.
// It sends and stores nothing. It also follows the alarms of rules without state. Silence is proven by the recording
// going on, in whatever partition. It is for one goroutine.
type Backtest struct {
	evaluator *Evaluator
	counters  Counters
	observer  Observer
	registers map[string]*register                  // of partitions
	order     []*register                           // in which they came
	shortest  int64                                 // after how long a device can be silent, in µs
	watchAt   int64                                 // before then none is, in Unix µs
	now       int64                                 // as far as the recording has gone, in Unix µs
	incidents map[incident.Group]incident.Record    // of groups, as replicas share them
	windows   []map[delivery.Key]*throttle.Playback // by receiver
	due       noticeHeap
	scheduled int // notices so far: of several at the same time the first comes first
}

// An Observer receives what a Backtest finds, in the order of its time. Any of its functions may be nil.
type Observer struct {
	Mutes  rules.Mutes // what people had silenced
	Notice func(BacktestNotice)
	Alarm  func(BacktestAlarm)
}

// A BacktestNotice is an alert or a recovery that a receiver would have got.
type BacktestNotice struct {
	At        time.Time // when it would have been sent, by the hub's clock
	Receiver  int       // index
	Device    string
	Sensor    string    // of the device; empty: the device's own
	About     sensor.ID // what it is about to the receiver: the device or sensor, or what that shares its alerts by
	Shared    bool      // the latter
	Incident  string    // names it, if it is about one; the worker's has another name
	Rule      string
	Level     string
	Recovery  bool
	Partition string // of the reading that it is about
	Sequence  int64  // likewise
	Enqueued  time.Time
	Value     float64
	Limit     float64          // that the value reached, or has cleared
	Request   throttle.Request // to the gate
}

// A BacktestAlarm is an alarm that has opened or cleared.
type BacktestAlarm struct {
	At     time.Time // of the reading that opened or cleared it
	Device string
	Sensor string
	Rule   string
	Level  string
	Open   bool
	Since  time.Time // of the first of the readings that reached the limit
}

// NewBacktest returns a Backtest of set. Of the receivers only the filters count.
func NewBacktest(set rules.Set, receivers []Receiver, o Observer) (*Backtest, error) {
	decoder, err := set.Decoder()
	if err != nil {
		return nil, err
	}

	clock, err := set.Clock()
	if err != nil {
		return nil, err
	}

	b := &Backtest{
		observer:  o,
		registers: map[string]*register{},
		watchAt:   math.MaxInt64,
		shortest:  math.MaxInt64,
		incidents: map[incident.Group]incident.Record{},
	}

	var wants []Receiver
	for _, r := range receivers {
		noGate := func(*rules.Rule, *rules.Level) delivery.Gate { return nil }
		wants = append(wants, Receiver{Filters: r.Filters, Gate: noGate})
		b.windows = append(b.windows, map[delivery.Key]*throttle.Playback{})
	}

	b.evaluator = NewEvaluator(Rulebook{
		Rules:     set,
		Decoder:   decoder,
		Clock:     clock,
		Receivers: wants,
		Mutes:     func() rules.Mutes { return o.Mutes },
		Counters:  &b.counters,
		// which changes no notice: without a clear of its own, an alarm is open while readings reach the limit
		FollowAll: true,
	})

	for _, r := range b.evaluator.silences {
		b.shortest = min(b.shortest, r.Silent.Microseconds())
	}

	return b, nil
}

// Take takes the next events of a partition. Over all partitions none may be enqueued before the one before it.
func (b *Backtest) Take(id string, events []telemetry.Event) {
	reg := b.registers[id]
	if reg == nil {
		reg = newRegister(b.evaluator, id, logName(events[0].Generation, id), 0)
		reg.changed = b.changed
		reg.out = moment{b, reg}
		reg.watch(nil, zap.NewNop())
		b.registers[id], b.order = reg, append(b.order, reg)
	}

	for i := range events {
		events[i].Time = events[i].Enqueued
		b.advance(micros(events[i].Enqueued))
		reg.take(events[i : i+1])
		b.writeIncidents(reg)
		if b.shortest < math.MaxInt64 {
			b.watchAt = min(b.watchAt, b.now+b.shortest)
		}
		if reg.unheard.Owed(events[i].Device) {
			b.watchAt = min(b.watchAt, b.now+absence.Settling.Microseconds())
		}
	}
}

// Finish sends what waits for the end of a window, each at its time, but an incident of silences, which nothing proves by then.
// Nothing may be taken after it.
func (b *Backtest) Finish() {
	if b.watchAt < math.MaxInt64 {
		b.watchAt = b.now + absence.Settling.Microseconds() // the last event proves no more
		b.watch()
		b.watchAt = math.MaxInt64
		b.advance(b.now + 1) // what is due by then
	}

	b.due = slices.DeleteFunc(b.due, func(n *playedNotice) bool {
		return n.key.Topic.Silence && n.notice.Incident != nil && !n.notice.Incident.Over
	})
	heap.Init(&b.due)
	for len(b.due) > 0 {
		b.advance(b.due[0].at + 1)
	}
}

// Counters returns what was counted.
func (b *Backtest) Counters() *Counters { return &b.counters }

// advance goes on to a time, and sends what was due before, and what is about devices that have
// fallen silent until then. A reading of the same time comes first.
func (b *Backtest) advance(to int64) {
	for {
		switch {
		case b.watchAt < to && (len(b.due) == 0 || b.watchAt < b.due[0].at):
			b.watch()
		case len(b.due) > 0 && b.due[0].at < to:
			n := heap.Pop(&b.due).(*playedNotice)
			b.sendDue(n)
			b.writeIncidents(n.from.of)
		default:
			b.now = max(b.now, to)
			return
		}
	}
}

// watch opens the alarms of devices that have fallen silent by the time watchAt, and sets it to when others may have.
// It is as if the hub had just said that nothing more has come.
func (b *Backtest) watch() {
	b.now = b.watchAt
	now := fromMicros(b.now)
	newest := int64(0)
	expected := make([]roster.Expected, len(b.order))
	for i, reg := range b.order {
		var last int64
		last, expected[i] = reg.unheard.Known()
		newest = max(newest, last)
	}

	next := int64(math.MaxInt64)
	for i, reg := range b.order {
		var others roster.Expected
		for j, e := range expected {
			if j != i {
				others = others.And(e)
			}
		}

		reg.unheard.ProveAll(now, newest, others)
		reg.unheard.Look(now, false)
		reg.mu.Lock()
		reg.saved(reg.unsaved)
		reg.unsaved = nil
		reg.mu.Unlock()
		next = min(next, reg.unheard.Next(now.UnixMilli()))
	}

	b.watchAt = next * 1000
	for _, reg := range b.order {
		b.writeIncidents(reg)
	}
}

// writeIncidents writes the records of groups whose members have changed, and gives what waits for that.
func (b *Backtest) writeIncidents(reg *register) {
	for g := reg.nextGroup(); g != nil; g = reg.nextGroup() {
		for any := true; any; {
			any, _ = reg.writeGroup(context.Background(), b, g) // in memory
		}
	}
}

// Sync implements Incidents.
func (b *Backtest) Sync(_ context.Context, g incident.Group, partition string, e incident.Entry) (result incident.Result, err error) {
	id := strconv.Itoa(len(b.incidents)) + "/" + strconv.FormatInt(b.now, 10)
	b.incidents[g], result = b.incidents[g].Sync(partition, e, id, fromMicros(b.now))
	return result, nil
}

// Close implements Incidents.
func (b *Backtest) Close(_ context.Context, g incident.Group, e incident.End) error {
	b.incidents[g], _ = b.incidents[g].Closed(e)
	return nil
}

// A moment takes what a partition says to receivers that take everything at once.
type moment struct {
	test *Backtest
	of   *register
}

// Alert implements Outgoing: an alert goes unless the gate says that it is covered.
func (m moment) Alert(a *delivery.Alert) {
	a.Reading.More = a.More()
	for i := range m.test.windows {
		if a.Receivers&(1<<i) != 0 {
			m.send(i, sensor.ID{Device: a.Device, Name: a.Sensor}, a.Key, nil, &a.Reading)
		}
	}
}

// Give implements Outgoing: a notice goes once everything of this moment was taken, and a recovery or an end when the window of
// the last alert is over: the gate says so.
func (m moment) Give(key delivery.Key, n *delivery.Notice) {
	for i := range m.test.windows {
		if n.DueTo(i) {
			m.later(&playedNotice{from: m, receiver: i, key: key, notice: n}, m.test.now)
		}
	}
}

// later has n sent at a time.
func (m moment) later(n *playedNotice, at int64) {
	m.test.scheduled++
	n.at, n.n = at, m.test.scheduled
	heap.Push(&m.test.due, n)
}

// windowEnds returns when the window of what a receiver was sent about key is over, or now if it is.
func (m moment) windowEnds(receiver int, key delivery.Key) int64 {
	return max(m.test.now, m.window(receiver, key).Ends().UnixMicro())
}

// window returns what a receiver was sent about key.
func (m moment) window(receiver int, key delivery.Key) *throttle.Playback {
	windows := m.test.windows[receiver]
	if windows[key] == nil {
		windows[key] = &throttle.Playback{}
	}
	return windows[key]
}

// send asks the gate about a notice, for n or an alert, about the reading of a device or sensor, and has it sent if it
// may. It reports whether n has to wait for a window.
func (m moment) send(receiver int, of sensor.ID, key delivery.Key, n *delivery.Notice, r *delivery.Reading) (waits bool) {
	request := delivery.Account{Log: m.of.logName}.Request(key, n, r)
	result := m.window(receiver, key).Send(request, fromMicros(m.test.now), key.Topic.Message.Window)
	switch {
	case result.Outcome == throttle.Busy:
		return true
	case result.Outcome != throttle.Sent, m.test.observer.Notice == nil:
		return false
	}

	m.test.observer.Notice(BacktestNotice{
		At:        fromMicros(m.test.now),
		Receiver:  receiver,
		Device:    of.Device,
		Sensor:    of.Name,
		About:     key.About,
		Shared:    key.Topic.Shared,
		Incident:  request.Incident,
		Rule:      key.Topic.Message.Rule,
		Level:     key.Topic.Message.Level,
		Recovery:  request.Recovery,
		Partition: m.of.id,
		Sequence:  r.Sequence,
		Enqueued:  request.Enqueued,
		Value:     r.Value,
		Limit:     r.Limit,
		Request:   request,
	})

	return false
}

// Withdraw implements Outgoing: sendDue finds that the one that waits is not due any more.
func (m moment) Withdraw(delivery.Key, *delivery.Notice) {}

// sendDue sends what has waited for its time, if it is still due and its receiver is to get it.
func (b *Backtest) sendDue(n *playedNotice) {
	m := n.from
	if !m.of.isDue(n.key, n.notice) {
		return
	}

	b.now = max(b.now, n.at)
	of := n.key.About
	if n.notice.Incident != nil {
		of = n.notice.Reading.More.Of
	}

	if m.send(n.receiver, of, n.key, n.notice, &n.notice.Reading) {
		m.later(n, m.windowEnds(n.receiver, n.key))
		return
	}

	if n.notice.Settle(n.receiver) {
		m.of.settle(n.key, n.notice)
	}
}

// changed says that an alarm has become another.
func (b *Backtest) changed(key alarmKey, was, is rules.State) {
	open := is.Phase == rules.Open
	if b.observer.Alarm == nil || open == (was.Phase == rules.Open) {
		return
	}

	b.observer.Alarm(BacktestAlarm{
		At:     fromMicros(b.now),
		Device: key.about.Device,
		Sensor: key.about.Name,
		Rule:   key.level.rule.Name,
		Level:  key.level.Name,
		Open:   open,
		Since:  fromMicros(cmp.Or(is.Since, was.Since).Time()),
	})
}

// A playedNotice waits for its time.
type playedNotice struct {
	at       int64 // in Unix µs
	n        int
	from     moment
	receiver int
	key      delivery.Key
	notice   *delivery.Notice
}

// A noticeHeap has the notice first that comes first.
type noticeHeap []*playedNotice

func (d noticeHeap) Len() int      { return len(d) }
func (d noticeHeap) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *noticeHeap) Push(r any)   { *d = append(*d, r.(*playedNotice)) }

func (d noticeHeap) Less(i, j int) bool {
	return d[i].at < d[j].at || d[i].at == d[j].at && d[i].n < d[j].n
}

func (d *noticeHeap) Pop() any {
	last := len(*d) - 1
	r := (*d)[last]
	*d = (*d)[:last]
	return r
}
