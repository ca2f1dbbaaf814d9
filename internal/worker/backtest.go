package worker

import (
	"context"
	"math"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/silence"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// A Backtest takes recorded events through the worker's own decoding, rules, alarms and filters, and through
// windows in the recording's time, as if each receiver took every notice in the moment in which it is due.
// It sends and stores nothing. It also follows the alarms of rules without state. Silence is proven by the recording
// going on, in whatever partition. It is for one goroutine.
type Backtest struct {
	worker    *Worker
	observer  Observer
	streams   map[string]*stream
	order     []*stream                    // in which they came
	shortest  int64                        // after how long a device can be silent, in µs
	watchAt   int64                        // before then none is, in Unix µs
	now       int64                        // as far as the recording has gone, in Unix µs
	windows   []map[deliveryKey]backWindow // by receiver
	due       heapOf[*dueRecovery]
	scheduled int // recoveries so far: of several at the same time the first comes first
}

// An Observer receives what a Backtest finds, in the order of its time. Any of its functions may be nil.
type Observer struct {
	Mutes  []rules.Mute // what people had silenced
	Notice func(BacktestNotice)
	Alarm  func(BacktestAlarm)
}

// A BacktestNotice is an alert or a recovery that a receiver would have got.
type BacktestNotice struct {
	At        time.Time // when it would have been sent, by the hub's clock
	Receiver  int       // index
	Device    string
	About     string // what it is about to the receiver: the device, or what that shares its alerts by
	Shared    bool   // the latter
	Rule      string
	Level     string
	Recovery  bool
	Partition string // of the reading that it is about
	Log       string // likewise: what the throttle store calls the partition
	Sequence  int64
	Enqueued  time.Time
	Value     float64
	Limit     float64 // that the value reached, or has cleared
}

// A BacktestAlarm is an alarm that has opened or cleared.
type BacktestAlarm struct {
	At     time.Time // of the reading that opened or cleared it
	Device string
	Rule   string
	Level  string
	Open   bool
	Since  time.Time // of the first of the readings that reached the limit
}

// backWindow is what a receiver was sent last about one level of a device.
type backWindow struct {
	end      int64 // of the window, in Unix µs
	notified bool  // of an alert, and of no recovery since
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
	c := Config{
		Rules:   set,
		Decoder: decoder,
		Clock:   clock,
		Log:     zap.NewNop(),
		Mutes:   func() []rules.Mute { return o.Mutes },
		Roster:  func(string) *roster.File { return nil },
	}
	b := &Backtest{observer: o, streams: map[string]*stream{}, watchAt: math.MaxInt64, shortest: math.MaxInt64}
	for _, r := range receivers {
		r.Gate = func(*rules.Rule, *rules.Level) *throttle.Gate { return nil }
		c.Receivers = append(c.Receivers, r)
		b.windows = append(b.windows, map[deliveryKey]backWindow{})
	}
	b.worker = New(c)
	for _, r := range b.worker.rules {
		// which changes no notice: without a clear of its own, an alarm is open while readings reach the limit
		r.stateful = true
	}
	for _, r := range b.worker.silences {
		b.shortest = min(b.shortest, r.Silent.Microseconds())
	}
	return b, nil
}

// Take takes the next events of a partition. Over all partitions none may be enqueued before the one before it.
func (b *Backtest) Take(partition string, events []telemetry.Event) {
	s := b.streams[partition]
	if s == nil {
		s = newStream(context.Background(), b.worker, partition, nil)
		s.cut()
		s.backtest = b
		s.alarms = newAlarms(0)
		s.logName = logName(events[0].Generation, partition)
		s.unheard = newWatch(s)
		b.streams[partition], b.order = s, append(b.order, s)
	}
	for i := range events {
		events[i].Time = events[i].Enqueued
		b.advance(micros(events[i].Enqueued))
		s.take(events[i : i+1])
		if s.unheard != nil {
			b.watchAt = min(b.watchAt, b.now+b.shortest)
		}
	}
}

// Finish sends the recoveries that wait for the end of a window, each at its time. Nothing may be taken after it.
func (b *Backtest) Finish() {
	if b.watchAt < math.MaxInt64 {
		b.watchAt = b.now + silence.Settling.Microseconds() // the last event proves no more
		b.watch()
		b.watchAt = math.MaxInt64
	}
	for b.due.Len() > 0 {
		b.advance(b.due.first().at + 1)
	}
}

// Stats returns what was counted.
func (b *Backtest) Stats() *Stats { return b.worker.Stats() }

// advance goes on to a time, and sends the recoveries that were due before, and what is about devices that have
// fallen silent until then. A reading of the same time comes first.
func (b *Backtest) advance(to int64) {
	for {
		switch {
		case b.watchAt < to && (b.due.Len() == 0 || b.watchAt < b.due.first().at):
			b.watch()
		case b.due.Len() > 0 && b.due.first().at < to:
			b.recover(b.due.pop())
		default:
			b.now = max(b.now, to)
			return
		}
	}
}

// watch opens the alarms of devices that have fallen silent by the time watchAt, and sets it to when others may have.
// It is as if the hub had just said that nothing more has come.
func (b *Backtest) watch() {
	b.now, b.watchAt = b.watchAt, math.MaxInt64
	now := fromMicros(b.now)
	for _, s := range b.order {
		w := s.unheard
		w.ProveAll(now)
		if q := w.Look(now, false); len(q.Elsewhere) > 0 {
			w.Answer(b.elsewhere(s, q.Elsewhere), 0)
			w.Look(now, false)
		}
		s.mu.Lock()
		s.saved(s.opened)
		s.opened = nil
		s.mu.Unlock()
		b.watchAt = min(b.watchAt, w.Next(now.UnixMilli())*1000)
	}
}

// elsewhere returns when other partitions than s have heard devices: see roster.File.Elsewhere.
func (b *Backtest) elsewhere(s *stream, asked []roster.Asked) map[roster.Asked]int64 {
	heard := map[roster.Asked]int64{}
	for _, a := range asked {
		heard[a] = 0
		for _, other := range b.order {
			if other == s {
				continue
			}
			other.unheard.View(func(r *roster.Roster) { heard[a] = max(heard[a], r.LastOf(a.Device, a.Hears)) })
		}
	}
	return heard
}

// alert sends an alert about a reading of device to q's receiver, unless a window covers it.
func (b *Backtest) alert(q *queue, device string, key deliveryKey, r reading) {
	windows := b.windows[q.to.index]
	if r.enqueued < windows[key].end {
		q.stream.stats.Suppressed.Add(1)
		return
	}
	windows[key] = backWindow{end: b.now + key.level.rule.Window.Microseconds(), notified: true}
	key.level.stats.Sent.Add(1)
	b.notice(q, device, key, r, q.stream.logName, b.now, false)
}

// schedule has a recovery wait until the window of the last alert is over, and sends what is about silence. The
// caller holds stream.mu.
func (b *Backtest) schedule(q *queue, alarm alarmKey, due *dueNotice) {
	if due == nil || due.receivers&q.to.bit() == 0 || due.silence() && !due.kept {
		return // recover finds that the one that waits is not due any more
	}
	key := alarm.notices()
	if due.silence() {
		q.stream.settleDue(&delivery{deliveryKey: key, due: due}, q.to.bit())
		b.alert(q, alarm.device, key, due.reading)
		return
	}
	b.scheduled++
	b.due.add(
		&dueRecovery{at: max(b.now, b.windows[q.to.index][key].end), n: b.scheduled, queue: q, key: key, dueNotice: due},
	)
}

// recover sends a recovery whose time has come, if it is still due and its receiver was notified.
func (b *Backtest) recover(r *dueRecovery) {
	s := r.queue.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &delivery{deliveryKey: r.key, due: r.dueNotice}
	if !r.queue.stillPending(d) {
		return
	}
	s.settleDue(d, r.queue.to.bit())
	windows := b.windows[r.queue.to.index]
	if !windows[r.key].notified {
		return
	}
	delete(windows, r.key)
	r.key.level.stats.Recovered.Add(1)
	b.notice(r.queue, r.key.about, r.key, r.reading, r.log, r.at, true)
}

func (b *Backtest) notice(q *queue, device string, key deliveryKey, r reading, log string, at int64, recovery bool) {
	if b.observer.Notice == nil {
		return
	}
	b.observer.Notice(BacktestNotice{
		At: fromMicros(at), Receiver: q.to.index, Device: device, About: key.about, Shared: key.shared,
		Rule: key.level.rule.Name, Level: key.level.Name, Recovery: recovery,
		Partition: q.stream.id, Log: log, Sequence: r.sequence, Enqueued: fromMicros(r.enqueued), Value: r.value, Limit: r.limit,
	})
}

// changed says that an alarm has become another. Without a Backtest it does nothing.
func (b *Backtest) changed(key alarmKey, was, is rules.State) {
	open := is.Phase == rules.Open
	if b == nil || b.observer.Alarm == nil || open == (was.Phase == rules.Open) {
		return
	}
	since := was.Since
	if open {
		since = is.Since
	}
	b.observer.Alarm(
		BacktestAlarm{
			At:     fromMicros(b.now),
			Device: key.device,
			Rule:   key.level.rule.Name,
			Level:  key.level.Name,
			Open:   open,
			Since:  fromMicros(since.Time()),
		},
	)
}

// A dueRecovery waits for its time.
type dueRecovery struct {
	at    int64 // in Unix µs
	n     int
	index int32
	queue *queue
	key   deliveryKey
	*dueNotice
}

func (r *dueRecovery) slot() *int32 { return &r.index }

func (r *dueRecovery) less(than *dueRecovery) bool {
	return r.at < than.at || r.at == than.at && r.n < than.n
}
