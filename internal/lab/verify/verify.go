// Package verify checks the promise from the outside, by what was published and what
// receivers got: no reading that is worth an alert may be without one, no two alerts of one
// device may be within the window, and the last message that a receiver got must be true. It knows
// nothing of workers and their counters, and decides by itself what a rule makes of a reading.
//
// It knows limits with levels, durations by the hub's time or the device's, clear values, limits per device, quiet
// devices, devices that share alerts, and silence: that none is reported of a device that was heard until the
// deadline, or long ago; that each is once it must have been proven, or that its partition may be dark; and
// recoveries. It does not know devices that are forgotten or muted, or rules that change.
package verify

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"sort"
	"sync"
	"time"
)

// A Reading is one message as it was published.
type Reading struct {
	Device      string
	Temperature float64   // NaN: the message holds no reading
	Over        bool      // at or above the threshold, so that it needs an alert; of no meaning to a Log with rules
	At          time.Time // when the hub got it
	Taken       time.Time // the time that the device gives it, if rules go by that; zero: none
	Partition   string
	Sequence    int64

	ByHub      bool              // it comes from the hub itself, about the device: nothing was heard of the device
	Properties map[string]string // application properties
}

// A Delivery is one alert as a receiver took it, repetitions included, or that the device is
// normal again.
type Delivery struct {
	Device   string // what it is about: the device, or what that shares its alerts by
	ID       string
	Token    int64
	At       time.Time // by the receiver's clock
	Receiver string
	Until    time.Time // the receiver remembers its token, if that is later than after a window

	Rule     string // this and Level are those of a Rule, empty without rules
	Level    string
	Recovery bool
	Deadline time.Time // of an alert about silence: nothing came until then
	Refused  bool      // the receiver has refused it for good, as it was asked to: a dead letter is what becomes of it

	// The reading that it is about. HTTP as the partition means that the reading came that
	// way: no recovery is due for it. An empty one says that it is not known.
	Partition string
	Sequence  int64

	// All of the partition before this one were settled long before the message came; 0: it is not known.
	Settled int64
}

// HTTP is the partition of readings that did not come from the hub.
const HTTP = "http"

// Rules say what is promised, and within which tolerances.
type Rules struct {
	Window time.Duration // successive alerts of a device are at least so far apart, unless a Rule says otherwise
	Bound  time.Duration // an alert comes at most this long after its reading
	Proof  time.Duration // ... one about silence this much later: it has to be proven
	Slack  time.Duration // a window may last this much longer than Window: a store that counts in seconds, a claim
	// when the records end: readings less than Bound before it may still get an alert. Zero: none may
	Until     time.Time
	Early     time.Duration // instead of Bound, if it is not zero: what is older must have an alert, however late
	Receivers []string      // must get alerts, in addition to those that got any
	// devices of which an alert may have been sent that never arrived: a recovery may come without it
	Unknown []string
}

// A Log records what was published and delivered. It is safe for concurrent use. It keeps
// deliveries, readings that need an alert and those that end an alarm, and only counts other
// readings.
type Log struct {
	rules []Rule // nil: Reading.Over decides

	mu         sync.Mutex
	settled    map[string][]settlement // of each partition
	readings   int
	over       int
	quieted    int
	tracks     map[alarm]*track
	deliveries map[stream][]Delivery
}

// NewLog returns a Log that decides by rules. It needs a device's readings in
// the order in which the hub took them.
//
// Without rules it takes records in any order: Reading.Over says which readings need an alert, and
// no device is ever said to be normal again.
func NewLog(rules ...Rule) *Log {
	return &Log{
		rules: rules, tracks: map[alarm]*track{}, deliveries: map[stream][]Delivery{}, settled: map[string][]settlement{},
	}
}

// A stream is what one receiver gets about one alarm. Each is checked on its own.
type stream struct {
	receiver string
	alarm
}

// Published records that r was published, and reports whether Report.Over counts it.
func (l *Log) Published(r Reading) (over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.At = r.At.Round(0) // drop the monotonic clock: records of several processes are compared
	l.readings++
	over, quieted := r.Over, false

	if l.rules != nil {
		over, quieted = l.follow(r)
	} else if over {
		t := l.track(alarm{device: r.Device})
		t.events = append(t.events, event{Reading: r, needsAlert: true})
	}

	switch {
	case over:
		l.over++
	case quieted:
		l.quieted++
	}

	return over
}

// A settlement is that all of a partition before a sequence number was settled at a time.
type settlement struct {
	before int64
	at     time.Time
}

// Settled records that all of a partition before a sequence number is settled: an alert is due then at the latest. It
// is called in the order of time.
func (l *Log) Settled(partition string, before int64, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.settled[partition]
	if n := len(all); n == 0 || before > all[n-1].before {
		l.settled[partition] = append(all, settlement{before, at.Round(0)})
	}
}

// settledAt returns when an event was settled first, zero if that is not known.
func (l *Log) settledAt(partition string, sequence int64) time.Time {
	all := l.settled[partition]
	n := sort.Search(len(all), func(n int) bool { return all[n].before > sequence })
	if n == len(all) {
		return time.Time{}
	}
	return all[n].at
}

// Delivered records that a receiver took d.
func (l *Log) Delivered(d Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.At = d.At.Round(0)
	s := stream{d.Receiver, alarm{d.Device, d.Rule, d.Level}}
	l.deliveries[s] = append(l.deliveries[s], d)
}

// Check checks what has been recorded so far. It keeps the records and can be called again.
func (l *Log) Check(rules Rules) Report {
	l.mu.Lock()
	defer l.mu.Unlock()

	report := Report{Rules: rules, Readings: l.readings, Over: l.over, Quieted: l.quieted}

	if l.rules == nil {
		for _, t := range l.tracks {
			slices.SortFunc(t.events, func(a, b event) int {
				return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Sequence, b.Sequence))
			})
		}
	}

	fleets := l.fleets()
	events := l.events(rules, fleets)
	for _, of := range events {
		for _, e := range of {
			if e.opens && (e.needsAlert || !math.IsNaN(e.Temperature)) {
				report.Opened++
			}
		}
	}

	for s := range l.streams(rules, events) {
		j := judge{
			Report: &report, stream: s, window: rules.Window, bound: rules.Bound, early: cmp.Or(rules.Early, rules.Bound),
			fleets: fleets, settledAt: l.settledAt,
		}

		if r := l.rule(s.rule); r != nil {
			j.window = cmp.Or(r.Window, rules.Window)
			j.recoveries = r.Resolved
			j.shared = r.Per != ""
			if r.silence() {
				j.silent = r.Silent
				j.bound += rules.Proof
				j.early += rules.Proof
			}
		}

		j.events = events[s.alarm]
		j.known = l.rules != nil
		j.check(l.deliveries[s])
	}

	return report
}

// events returns the events of each alarm as receivers know it: those of all devices that share their alerts are one,
// in the order of their time.
func (l *Log) events(rules Rules, fleets map[alarm]*fleet) map[alarm][]event {
	all := make(map[alarm][]event)
	for a, t := range l.tracks {
		if r := l.rule(a.rule); r != nil && r.silence() {
			all[a] = t.silences(r, rules, fleets[alarm{wholeNames + t.heard.Partition, a.rule, a.level}])
			continue
		}

		all[a] = all[a][:len(all[a]):len(all[a])]
		for _, e := range t.events {
			of := alarm{cmp.Or(e.shared, a.device), a.rule, a.level}
			all[of] = append(all[of], e)
		}
	}

	for a, events := range all {
		if r := l.rule(a.rule); r != nil && r.Per != "" {
			slices.SortStableFunc(events, func(x, y event) int { return x.At.Compare(y.At) })
		}
	}

	return all
}

// streams yields, in order, the streams that each receiver got or should have got.
func (l *Log) streams(rules Rules, events map[alarm][]event) iter.Seq[stream] {
	receivers := map[string]bool{}
	for _, name := range rules.Receivers {
		receivers[name] = true
	}

	all := map[stream]bool{}
	for s := range l.deliveries {
		receivers[s.receiver] = true
		all[s] = true
	}

	if len(receivers) == 0 {
		receivers[""] = true // there should have been one
	}

	for receiver := range receivers {
		for a := range events {
			all[stream{receiver, a}] = true
		}
	}

	return slices.Values(slices.SortedFunc(maps.Keys(all), func(a, b stream) int {
		return cmp.Or(
			cmp.Compare(a.receiver, b.receiver),
			cmp.Compare(a.device, b.device),
			cmp.Compare(a.rule, b.rule),
			cmp.Compare(a.level, b.level),
		)
	}))
}
