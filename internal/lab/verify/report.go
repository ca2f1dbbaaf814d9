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
	Readings int // published: messages without one do not count
	Over     int // of these, over the threshold, or at a limit of any rule
	Quieted  int // of the others, those at a limit of a device that is quiet
	Opened   int // alarms that opened; 0 without rules

	Alerts     int // deliveries that a receiver keeps
	Recoveries int // likewise
	Refused    int // deliveries that the receiver has refused
	Dropped    int // deliveries that it drops: their id, or a greater token for the device, came within what it remembers
	Suppressed int // readings that need an alert, are neither lost nor open and have no alert of their own
	Open       int // readings without an alert, and alarms that ended without a recovery, too close to the end to judge

	// What must be empty.
	Lost []Violation // a reading that needs an alert and got none: see judge.readings
	// two successive deliveries, both kept, less than a window apart: two alerts, or an alert and a recovery
	TooClose []Violation
	// the last message about an alarm was not true, as long as nothing changed: an alert, and it had ended; or a
	// recovery, and it was open
	Stale []Violation
	Wrong []Violation // a delivery that should never have been sent
}

// OK reports whether the promise held.
func (r Report) OK() bool {
	never := len(r.TooClose) + len(r.Wrong)

	return never == 0 && r.Settled()
}

// Settled reports whether receivers have got all that they must. If not, it may still come.
func (r Report) Settled() bool {
	missing := len(r.Lost) + len(r.Stale)

	return missing == 0
}

// A Violation is one breach of the promise.
type Violation struct {
	At       time.Time // of the reading, or of the later delivery
	Evidence string
}

// String returns the evidence.
func (v Violation) String() string { return v.Evidence }

// lost records that the receiver got no alert for a reading. before and after are the alerts around it, zero if there
// is none.
func (j *judge) lost(r Reading, before, after Delivery) {
	s := fmt.Sprintf(
		"%s was at %v at %s (partition %s, sequence %d)",
		alarm{r.Device, r.Sensor, j.rule, j.level},
		r.Temperature,
		clock(r.At),
		r.Partition,
		r.Sequence,
	)

	if math.IsNaN(r.Temperature) {
		s = fmt.Sprintf(
			"%s should have been heard by %s (after partition %s, sequence %d)",
			alarm{r.Device, r.Sensor, j.rule, j.level},
			clock(r.At),
			r.Partition,
			r.Sequence,
		)
	}

	s += fmt.Sprintf(", and %q was not notified", j.receiver)
	if before.At.IsZero() {
		s += ": no alert before"
	} else {
		s += fmt.Sprintf(": last alert %v before (id %s)", r.At.Sub(before.At), before.ID)
	}

	if after.At.IsZero() {
		s += ", none after"
	} else {
		s += fmt.Sprintf(", next %v after (id %s)", after.At.Sub(r.At), after.ID)
	}

	j.Lost = append(j.Lost, Violation{r.At, s})
}

// tooClose records that the receiver keeps two deliveries that are less than a window apart.
func (j *judge) tooClose(a, b Delivery) {
	what := "two alerts %v apart"
	if b.Recovery {
		what = "a recovery %v after an alert"
	}

	j.TooClose = append(
		j.TooClose,
		Violation{b.At, fmt.Sprintf("%s had "+what+" at %q: id %s token %d at %s, id %s token %d at %s",
			j.alarm, b.At.Sub(a.At), j.receiver, a.ID, a.Token, clock(a.At), b.ID, b.Token, clock(b.At))},
	)
}

// stale records that the alarm is, or is not, open since a reading, and that the last delivery, zero if there is
// none, says otherwise.
func (j *judge) stale(is string, since Reading, last Delivery) {
	got := "nothing"
	if !last.At.IsZero() {
		got = fmt.Sprintf("%s at %s (id %s)", last.kind(), clock(last.At), last.ID)
	}

	j.Stale = append(
		j.Stale,
		Violation{
			since.At,
			fmt.Sprintf("the alarm of %s is %s since %s (partition %s, sequence %d), and the last that %q got is %s",
				alarm{since.Device, since.Sensor, j.rule, j.level}, is, clock(since.At), since.Partition, since.Sequence, j.receiver, got),
		},
	)
}

// wrong records that d should never have been sent, and why.
func (j *judge) wrong(d Delivery, format string, a ...any) {
	j.Wrong = append(
		j.Wrong,
		Violation{d.At, fmt.Sprintf("%q got %s of %s that is wrong: %s (id %s, token %d, at %s, partition %s, sequence %d)",
			j.receiver, d.kind(), j.alarm, fmt.Sprintf(format, a...), d.ID, d.Token, clock(d.At), d.Partition, d.Sequence)},
	)
}

// kind says whether d is an alert or a recovery.
func (d Delivery) kind() string {
	if d.Recovery {
		return "a recovery"
	}
	return "an alert"
}

// String returns the name of the device, and those of the sensor, the rule and the level that have one.
func (a alarm) String() string {
	s := fmt.Sprintf("%q", a.device)
	if a.sensor != "" {
		s += " / " + a.sensor
	}

	if a.rule != "" {
		s += " " + a.rule
	}

	if a.level != "" {
		s += " " + a.level
	}

	return s
}

// clock returns the time of day, to the millisecond.
func clock(t time.Time) string { return t.Format("15:04:05.000") }
