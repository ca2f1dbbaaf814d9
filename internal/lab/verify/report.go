package verify

import (
	"fmt"
	"math"
	"time"
)

// A Report is the result of a check. With several receivers all counts but Readings,
// Over, Quieted and Opened are sums over the receivers.
type Report struct {
	Rules    Rules
	Readings int // published
	Over     int // of these, over the threshold, or at a limit of any rule
	Quieted  int // of the others, those at a limit of a device that is quiet
	Opened   int // alarms that opened; 0 of the zero Log

	Alerts     int // deliveries that a receiver keeps
	Recoveries int // likewise
	Refused    int // deliveries that the receiver has refused
	Dropped    int // deliveries that it drops: their id, or a greater token for the device, came within what it remembers
	Suppressed int // readings that need an alert, are neither lost nor open and have no alert of their own
	Open       int // readings without an alert, and alarms that ended without a recovery, too close to the end to judge

	Lost     []Lost     // must be empty
	TooClose []TooClose // must be empty
	Stale    []Stale    // must be empty
	Wrong    []Wrong    // must be empty
}

// OK reports whether the promise held.
func (r Report) OK() bool { return r.Settled() && len(r.TooClose) == 0 && len(r.Wrong) == 0 }

// Settled reports whether receivers have got all that they must. If not, it may still come.
func (r Report) Settled() bool { return len(r.Lost) == 0 && len(r.Stale) == 0 }

// Lost is a reading that needs an alert and for which a receiver got none: none of its
// deliveries of the alarm is between Window+Slack before the reading and Bound after
// it, unless it was taken back by a recovery about an earlier reading. A repeated delivery counts, because
// the window starts again with it; one that came after a greater token does not, because it starts no window.
type Lost struct {
	Receiver string
	Rule     string
	Level    string
	Reading  Reading
	Before   Delivery // the last that counts before the reading; zero if there is none
	After    Delivery // the first that counts from the reading on; zero if there is none
}

func (l Lost) String() string {
	r := l.Reading
	s := fmt.Sprintf("%s was at %v at %s (partition %s, sequence %d)", alarm{r.Device, l.Rule, l.Level}, r.Temperature, clock(r.At), r.Partition, r.Sequence)
	if math.IsNaN(r.Temperature) {
		s = fmt.Sprintf("%s should have been heard by %s (after partition %s, sequence %d)", alarm{r.Device, l.Rule, l.Level}, clock(r.At), r.Partition, r.Sequence)
	}
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

// TooClose is two successive deliveries, both kept, less than Window-Tolerance apart: two
// alerts, or an alert and a recovery.
type TooClose struct{ First, Second Delivery }

func (c TooClose) String() string {
	a, b := c.First, c.Second
	s := fmt.Sprintf("%s had two alerts %v apart", b.alarm(), b.At.Sub(a.At))
	if b.Recovery {
		s = fmt.Sprintf("%s had a recovery %v after an alert", b.alarm(), b.At.Sub(a.At))
	}
	if a.Receiver != "" {
		s += fmt.Sprintf(" at %q", a.Receiver)
	}
	return s + fmt.Sprintf(": id %s token %d at %s, id %s token %d at %s", a.ID, a.Token, clock(a.At), b.ID, b.Token, clock(b.At))
}

// Stale is an alarm about which the last message that a receiver got was not true, as long as nothing changed: an alert, and
// it had ended; or a recovery, and it was open.
type Stale struct {
	Receiver string
	Rule     string
	Level    string
	Open     bool
	Since    Reading  // that ended the alarm; if it is open, the first of it that needed an alert
	Last     Delivery // last; zero if nothing
}

func (s Stale) String() string {
	is := "is over"
	if s.Open {
		is = "is open"
	}
	text := fmt.Sprintf("the alarm of %s %s since %s (partition %s, sequence %d)", alarm{s.Since.Device, s.Rule, s.Level}, is, clock(s.Since.At), s.Since.Partition, s.Since.Sequence)
	last := "an alert"
	switch {
	case s.Last.At.IsZero():
		return text + fmt.Sprintf(", and %q got nothing", s.Receiver)
	case s.Last.Recovery:
		last = "a recovery"
	}
	return text + fmt.Sprintf(", and the last that %q got is %s at %s (id %s)", s.Receiver, last, clock(s.Last.At), s.Last.ID)
}

// Wrong is a delivery that should never have been sent.
type Wrong struct {
	Delivery
	Why string
}

func (w Wrong) String() string {
	what := "an alert"
	if w.Recovery {
		what = "a recovery"
	}
	return fmt.Sprintf("%q got %s of %s that is wrong: %s (id %s, token %d, at %s, partition %s, sequence %d)",
		w.Receiver, what, w.alarm(), w.Why, w.ID, w.Token, clock(w.At), w.Partition, w.Sequence)
}

func (d Delivery) alarm() alarm { return alarm{d.Device, d.Rule, d.Level} }

func (a alarm) String() string {
	s := fmt.Sprintf("%q", a.device)
	if a.rule != "" {
		s += " " + a.rule
	}
	if a.level != "" {
		s += " " + a.level
	}
	return s
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }
