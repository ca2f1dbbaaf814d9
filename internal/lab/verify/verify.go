// Package verify checks the promise from the outside, by what was published and what
// receivers got: no reading that is worth an alert may be without one, no two alerts of one
// device may be within the window, and the last message that a receiver got must be true. It knows
// nothing of workers and their counters, and decides by itself what a rule makes of a reading.
//
// It judges each sensor of a device for itself, where a rule has sensors.
//
// It knows limits with levels, from a message or a device's own, durations of an alarm's beginning and end, by the
// hub's time or the device's, clear values, conditions, quiet devices, devices that share alerts, recoveries, and
// silence: that none is reported of a device that was heard until the deadline, or long ago, or because nothing came
// from anybody; that each is once it must have been proven, unless nothing comes to the hub, which is one. It knows what
// people mute, and does not know devices that are forgotten, or rules that change.
package verify

import (
	"math"
	"slices"
	"sort"
	"sync"
	"time"
)

// A Delivery is one alert as a receiver took it, repetitions included, or that the device is
// normal again.
type Delivery struct {
	Device   string // what it is about: the device, or what that shares its alerts by
	Sensor   string // of the device, that its reading is of; empty: the device's own
	Shared   bool   // Device is what devices share their alerts by
	ID       string
	Token    int64
	At       time.Time // by the receiver's clock
	Receiver string
	Until    time.Time // the receiver remembers its token, if that is later than after a window
	Expires  time.Time // nobody can know of it if it comes later; zero: that is not known

	Rule     string // this and Level are those of a Rule, empty without rules
	Level    string
	Recovery bool
	Repeated bool      // of an alert: it says that the receiver may have got one that this one does not know of
	Excluded bool      // of a recovery: it says that a condition of the rule excludes the device
	Deadline time.Time // of an alert about silence: nothing came until then
	Refused  bool      // the receiver has refused it for good, as it was asked to: a dead letter is what becomes of it

	// The reading that it is about. HTTP as the partition means that the reading came that
	// way: no recovery is due for it. An empty one says that it is not known.
	Partition string
	Sequence  int64

	// All of the partition before this one were settled long before the message came; 0: it is not known.
	Settled int64

	// of an alert: a window was recorded before it was claimed, which covers what the hub took before; zero: none
	Covered time.Time
}

// HTTP is the partition of readings that did not come from the hub.
const HTTP = "http"

// Rules say what is promised, and within which tolerances.
type Rules struct {
	Window  time.Duration // successive alerts of a device are at least so far apart, unless a Rule says otherwise
	Bound   time.Duration // an alert comes at most this long after its reading
	Proof   time.Duration // ... one about silence this much later: it has to be proven
	Slack   time.Duration // a window may last this much longer than Window: a store that counts in seconds, a claim
	Keeping time.Duration // a dead letter is kept at most this long after its message was refused; the window begins then
	// when the records end: readings less than Bound before it may still get an alert. Zero: none may
	Until     time.Time
	Early     time.Duration // instead of Bound, if it is not zero: what is older must have an alert, however late
	Receivers []string      // must get alerts, in addition to those that got any
	// devices of which an alert may have been sent that never arrived: a recovery may come without it
	Unknown []string
	// reports whether replicas may not know of an alert that came at a time, because of a fault: they may send it again
	// within the time of a rule for that. nil: they know of each
	InDoubt func(time.Time) bool
	// a message comes at most so long after its sender has last asked whether it is due; zero: within Bound
	UnderWay time.Duration
	// reports whether from one time to another nothing kept a replica from reading events and from sending what is due;
	// nil: that is not known
	Calm     func(from, to time.Time) bool
	Distinct bool // messages about different alarms have different ids
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
	arrived    map[alarm]time.Time // when something last came to the hub or a partition, by a rule about silence
	gaps       map[alarm][]gap
	mutes      []mute
}

// NewLog returns a Log that decides by rules. It needs a device's readings in
// the order in which the hub took them.
//
// Without rules it takes records in any order: Reading.Over says which readings need an alert, and
// no device is ever said to be normal again.
func NewLog(rules ...Rule) *Log {
	return &Log{
		rules:      rules,
		settled:    map[string][]settlement{},
		tracks:     map[alarm]*track{},
		deliveries: map[stream][]Delivery{},
		arrived:    map[alarm]time.Time{},
		gaps:       map[alarm][]gap{},
	}
}

// PublishedTogether records the measurements of one message, as they stand in it. They count by their times if all have
// one that may be right.
func (l *Log) PublishedTogether(all ...Reading) {
	all = slices.Clone(all)
	if !slices.ContainsFunc(all, func(r Reading) bool { return r.moment().device.IsZero() }) {
		slices.SortStableFunc(all, func(a, b Reading) int { return a.Taken.Compare(b.Taken) })
	}

	for _, r := range all {
		l.Published(r)
	}
}

// Published records that r was published, and reports whether Report.Over counts it.
func (l *Log) Published(r Reading) (over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	r.At = r.At.Round(0) // drop the monotonic clock: records of several processes are compared
	if !math.IsNaN(r.Temperature) {
		l.readings++
	}

	quieted := false
	switch {
	case l.rules != nil:
		over, quieted = l.follow(r)

	case r.Over:
		over = true
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
	n := len(all)
	if n > 0 && before <= all[n-1].before {
		return
	}

	l.settled[partition] = append(all, settlement{before, at.Round(0)})
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
	s := stream{d.Receiver, alarm{d.Device, d.Sensor, d.Rule, d.Level}}
	if d.Shared {
		s.sensor = ""
	}

	l.deliveries[s] = append(l.deliveries[s], d)
}
