// Package verify checks the promise from the outside: by what was published and what
// receivers got, no reading over the threshold may be without an alert, and no two
// alerts of one device may be within the window. It knows nothing of workers and
// their counters.
package verify

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"
)

// A Reading is one message as it was published.
type Reading struct {
	Device      string    `json:"device"`
	Temperature float64   `json:"temperature"`
	Over        bool      `json:"over"` // at or above the threshold, so that it needs an alert
	At          time.Time `json:"at"`   // when the hub got it
	Partition   string    `json:"partition,omitempty"`
	Sequence    int64     `json:"sequence,omitempty"`
}

// A Delivery is one alert as a receiver took it, repetitions included.
type Delivery struct {
	Device   string    `json:"device"`
	ID       string    `json:"id"`
	Token    int64     `json:"token"`
	At       time.Time `json:"at"` // by the receiver's clock
	Receiver string    `json:"receiver,omitempty"`
}

// Rules say what is promised, and within which tolerances.
type Rules struct {
	Window    time.Duration // successive alerts of a device are at least so far apart
	Tolerance time.Duration // ... less this, for the time between taking an alert and recording when
	Bound     time.Duration // an alert comes at most this long after its reading
	Slack     time.Duration // a window may last this much longer than Window: a store that counts in seconds, a claim
	Until     time.Time     // when the records end: readings less than Bound before it may still get an alert. Zero: none may
	Receivers []string      // must get alerts, in addition to those that got any
}

// A Report is the result of a check. With several receivers all counts but Readings
// and Over are sums over the receivers.
type Report struct {
	Rules    Rules
	Readings int // published
	Over     int // of these, over the threshold

	Alerts     int // deliveries that a receiver keeps
	Dropped    int // deliveries that it drops: their id, or a greater token for the device, was kept within the last Window
	Suppressed int // readings over the threshold that are neither lost nor open and have no alert of their own
	Open       int // readings over the threshold without an alert, too close to the end to tell

	Lost     []Lost     // must be empty
	TooClose []TooClose // must be empty
}

// OK reports whether the promise held.
func (r Report) OK() bool { return len(r.Lost) == 0 && len(r.TooClose) == 0 }

// Lost is a reading over the threshold for which a receiver got no alert: none of its
// deliveries of the device is between Window+Slack before the reading and Bound after
// it. A repeated delivery counts, because the window starts again with it; one that
// came after a greater token does not, because it starts no window.
type Lost struct {
	Receiver string
	Reading  Reading
	Before   Delivery // the last that counts before the reading; zero if there is none
	After    Delivery // the first that counts from the reading on; zero if there is none
}

func (l Lost) String() string {
	r := l.Reading
	s := fmt.Sprintf("%q was at %v at %s (partition %s, sequence %d)", r.Device, r.Temperature, clock(r.At), r.Partition, r.Sequence)
	if l.Receiver != "" {
		s += fmt.Sprintf(", and %q did not hear of it", l.Receiver)
	}
	if l.Before.At.IsZero() {
		s += ": no alert before"
	} else {
		s += fmt.Sprintf(": last alert %v before (id %s)", r.At.Sub(l.Before.At), l.Before.ID)
	}
	if l.After.At.IsZero() {
		return s + ", none after"
	}
	return s + fmt.Sprintf(", next %v after (id %s)", l.After.At.Sub(r.At), l.After.ID)
}

// TooClose is two successive alerts, both kept, less than Window-Tolerance apart.
type TooClose struct{ First, Second Delivery }

func (c TooClose) String() string {
	a, b := c.First, c.Second
	s := fmt.Sprintf("%q had two alerts %v apart", a.Device, b.At.Sub(a.At))
	if a.Receiver != "" {
		s += fmt.Sprintf(" at %q", a.Receiver)
	}
	return s + fmt.Sprintf(": id %s token %d at %s, id %s token %d at %s", a.ID, a.Token, clock(a.At), b.ID, b.Token, clock(b.At))
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// A Log records what was published and delivered, in any order. The zero Log is empty
// and ready to use. It is safe for concurrent use. It keeps deliveries and readings
// over the threshold, and only counts other readings.
type Log struct {
	mu         sync.Mutex
	readings   int
	over       map[string][]Reading  // by device
	deliveries map[stream][]Delivery // by receiver and device
}

// A stream is the alerts of one device to one receiver. Each is checked on its own.
type stream struct{ receiver, device string }

// Published records that r was published.
func (l *Log) Published(r Reading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readings++
	if !r.Over {
		return
	}
	r.At = r.At.Round(0) // drop the monotonic clock: records of several processes are compared
	if l.over == nil {
		l.over = make(map[string][]Reading)
	}
	l.over[r.Device] = append(l.over[r.Device], r)
}

// Delivered records that a receiver took d.
func (l *Log) Delivered(d Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.At = d.At.Round(0)
	if l.deliveries == nil {
		l.deliveries = make(map[stream][]Delivery)
	}
	s := stream{d.Receiver, d.Device}
	l.deliveries[s] = append(l.deliveries[s], d)
}

// Check checks what has been recorded so far. The order of the records does not
// matter. Check keeps the records and can be called again.
func (l *Log) Check(rules Rules) Report {
	l.mu.Lock()
	defer l.mu.Unlock()

	report := Report{Rules: rules, Readings: l.readings}
	for _, over := range l.over {
		report.Over += len(over)
		slices.SortFunc(over, func(a, b Reading) int {
			return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Sequence, b.Sequence))
		})
	}
	for s := range l.streams(rules) {
		report.add(s.receiver, l.over[s.device], l.deliveries[s])
	}
	return report
}

// streams yields, in order, the streams that each receiver got or should have got.
func (l *Log) streams(rules Rules) iter.Seq[stream] {
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
		for device := range l.over {
			all[stream{receiver, device}] = true
		}
	}
	return slices.Values(slices.SortedFunc(maps.Keys(all), func(a, b stream) int {
		return cmp.Or(cmp.Compare(a.receiver, b.receiver), cmp.Compare(a.device, b.device))
	}))
}

// add checks one stream and adds it to the report. over is sorted.
func (r *Report) add(receiver string, over []Reading, deliveries []Delivery) {
	slices.SortFunc(deliveries, func(a, b Delivery) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Token, b.Token), cmp.Compare(a.ID, b.ID))
	})

	// What the receiver keeps. A kept alert's token is never below that of one
	// kept less than a window before it, so the last one stands for all.
	counting := make([]Delivery, 0, len(deliveries))
	kept := make(map[string]time.Time) // when each id was last kept
	var last *Delivery
	alerted := 0 // readings with an alert of their own
	for i := range deliveries {
		d := &deliveries[i]
		within := func(t time.Time) bool { return d.At.Sub(t) < r.Rules.Window }
		if last != nil && last.Token > d.Token && within(last.At) {
			r.Dropped++
			continue
		}
		counting = append(counting, *d)
		at, again := kept[d.ID]
		again = again && d.ID != ""
		if again && within(at) {
			r.Dropped++
			continue
		}
		r.Alerts++
		if !again {
			alerted++
		}
		if last != nil && d.At.Sub(last.At) < r.Rules.Window-r.Rules.Tolerance {
			r.TooClose = append(r.TooClose, TooClose{*last, *d})
		}
		kept[d.ID] = d.At
		last = d
	}

	covered := 0
	next := 0 // the first of counting that is not before the reading
	for _, reading := range over {
		for next < len(counting) && counting[next].At.Before(reading.At) {
			next++
		}
		lost := Lost{Receiver: receiver, Reading: reading}
		if next > 0 {
			lost.Before = counting[next-1]
		}
		if next < len(counting) {
			lost.After = counting[next]
		}
		switch {
		case next > 0 && reading.At.Sub(lost.Before.At) <= r.Rules.Window+r.Rules.Slack,
			next < len(counting) && lost.After.At.Sub(reading.At) <= r.Rules.Bound:
			covered++
		case !r.Rules.Until.IsZero() && r.Rules.Until.Sub(reading.At) < r.Rules.Bound:
			r.Open++
		default:
			r.Lost = append(r.Lost, lost)
		}
	}
	r.Suppressed += max(0, covered-alerted)
}
