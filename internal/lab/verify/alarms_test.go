package verify_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"alertworker/internal/lab/verify"
)

// warm is the rule of the tables: 30, normal again below 28, after 4 s, windows of 10 s.
var warm = verify.Rule{Name: "temperature", Levels: []verify.Level{{Limit: 30, Clear: 28, For: 4 * time.Second}}, Resolved: true}

// reading is one of device "a". Its sequence number is its time in ms.
func reading(seconds, temperature float64) verify.Reading {
	return verify.Reading{Device: "a", Temperature: temperature, At: at(seconds), Partition: "0", Sequence: int64(seconds * 1000)}
}

// with returns r with an application property.
func with(r verify.Reading, property, value string) verify.Reading {
	r.Properties = map[string]string{property: value}
	return r
}

// alerted is a delivery about the reading of that time.
func alerted(reading float64, token int64, seconds float64) verify.Delivery {
	return verify.Delivery{
		Device: "a", Rule: "temperature", ID: fmt.Sprint(int64(reading * 1000)), Token: token, At: at(seconds),
		Partition: "0", Sequence: int64(reading * 1000),
	}
}

// expired is d, whose claim was over before it came.
func expired(d verify.Delivery) verify.Delivery {
	d.Expires = d.At.Add(-time.Millisecond)
	return d
}

// well is a delivery that the reading of that time ended the alarm.
func recovered(reading float64, token int64, seconds float64) verify.Delivery {
	d := alerted(reading, token, seconds)
	d.ID += "/resolved"
	d.Recovery = true
	return d
}

// refused returns d as the receiver has refused it.
func refused(d verify.Delivery) verify.Delivery {
	d.Refused = true
	return d
}

// level returns d for a level.
func level(level string, d verify.Delivery) verify.Delivery {
	d.Level = level
	return d
}

// findings is a Report as far as alarms go.
type findings struct{ over, opened, alerts, recoveries, dropped, suppressed, open, lost, tooClose, stale, wrong, refused int }

func findingsOf(r verify.Report) findings {
	return findings{r.Over, r.Opened, r.Alerts, r.Recoveries, r.Dropped, r.Suppressed, r.Open, len(r.Lost), len(r.TooClose), len(r.Stale), len(r.Wrong), r.Refused}
}

func TestAlarms(t *testing.T) {
	instant, silent, below := warm, warm, warm
	instant.Levels = []verify.Level{{Limit: 30, Clear: 28}}
	silent.Resolved = false
	below.Below, below.Levels = true, []verify.Level{{Limit: 2, Clear: 5, For: 4 * time.Second}}
	own := instant
	own.Levels = []verify.Level{{Limit: 30, Clear: 28, Override: "limit"}}
	own.Quiet = "maintenance"
	unset := own
	unset.Levels = []verify.Level{{Limit: 30, Clear: 30, Override: "limit"}}
	levels := instant
	levels.Levels = []verify.Level{{Name: "warning", Limit: 30, Clear: 28}, {Name: "critical", Limit: 40, Clear: 38}}
	mixed := levels
	mixed.Levels = []verify.Level{{Name: "warning", Limit: 30, Clear: 28, For: 10 * time.Second}, {Name: "critical", Limit: 40, Clear: 38}}
	late := func(seconds, temperature, late float64) verify.Reading {
		r := reading(seconds, temperature)
		r.Taken = r.At.Add(-time.Duration(late * float64(time.Second)))
		return r
	}
	other := instant
	other.Window = 20 * time.Second
	slow := instant
	slow.ClearFor = 4 * time.Second
	counted := instant
	counted.Base = "setpoint"
	counted.Levels = []verify.Level{{Limit: 5, Clear: 3}}
	frozen := warm
	frozen.Only = []verify.Condition{{Name: "kind", Values: []string{"frozen", "2"}}}
	once, seldom := instant, instant
	once.Repeat = verify.Never
	seldom.Repeat = time.Minute
	perhaps := func(d verify.Delivery) verify.Delivery {
		d.Repeated = true
		return d
	}
	field := func(r verify.Reading, name, value string) verify.Reading {
		r.Fields = map[string]string{name: value}
		return r
	}
	excluded := func(d verify.Delivery) verify.Delivery {
		d.Excluded = true
		return d
	}
	setpoint := func(seconds, temperature float64, value string) verify.Reading {
		return field(reading(seconds, temperature), "setpoint", value)
	}
	kind := func(seconds, temperature float64, value string) verify.Reading {
		return field(reading(seconds, temperature), "kind", value)
	}
	damaged := func(r verify.Reading) verify.Reading {
		r.Damaged = true
		return r
	}
	opened := []any{reading(0, 31), reading(4, 31), alerted(4, 1, 4.2)} // sent by 4.2
	after := func(before []any, log ...any) []any { return append(slices.Clone(before), log...) }

	tests := []struct {
		name  string
		rule  verify.Rule
		until float64 // of the records; 0: all of them
		log   []any
		want  findings
	}{
		{name: "too short", rule: warm, log: []any{reading(0, 31), reading(3.9, 31), reading(4, 29), reading(5, 31)}, want: findings{over: 3}},
		{name: "damaged, and neither too short nor cleared", rule: warm, log: append([]any{reading(0, 31), damaged(reading(2, 20)), damaged(reading(4, 31)),
			alerted(4, 1, 4.2)}, damaged(reading(6, 20))), want: findings{over: 2, opened: 1, alerts: 1}},
		{name: "long enough", rule: warm, log: opened, want: findings{over: 2, opened: 1, alerts: 1}},
		{name: "long enough with few readings", rule: warm, log: []any{reading(0, 31), reading(100, 31), alerted(100, 1, 101)}, want: findings{over: 2, opened: 1, alerts: 1}},
		{name: "long enough by the device's clock", rule: warm, log: []any{late(100, 31, 60), late(100, 31, 56), alerted(100, 1, 101)}, want: findings{over: 2, opened: 1, alerts: 1}},
		{name: "too short by the device's clock", rule: warm, log: []any{late(100, 31, 0), late(110, 31, 7)}, want: findings{over: 2}},
		{name: "long enough by the device's clock, and too early", rule: warm, log: []any{late(100, 31, 60), late(100.1, 31, 57), alerted(100.1, 1, 101)}, want: findings{over: 2, alerts: 1, wrong: 1}},
		{name: "one of them has no time", rule: warm, log: []any{late(100, 31, 60), reading(101, 31), late(102, 31, 0), alerted(102, 1, 102)}, want: findings{over: 3, opened: 1, alerts: 1}},
		{name: "the clock is ahead", rule: warm, log: []any{late(100, 31, 0), late(101, 31, -301)}, want: findings{over: 2}},
		{name: "the clock is far behind", rule: warm, log: []any{late(100, 31, 2592001), late(101, 31, 0)}, want: findings{over: 2}},
		{name: "the clock was set back", rule: warm, log: []any{late(100, 31, 0), late(103, 31, 60), late(104, 31, 60)}, want: findings{over: 3}},
		{name: "a late one does not interrupt", rule: warm, log: []any{late(100, 31, 0), late(102, 20, 60), late(104, 31, 0), alerted(104, 1, 104)}, want: findings{over: 2, opened: 1, alerts: 1}},
		{name: "a late one does not clear", rule: instant, log: []any{late(100, 31, 0), alerted(100, 1, 100), late(130, 20, 60), recovered(130, 2, 130)}, want: findings{over: 1, opened: 1, alerts: 1, recoveries: 1, stale: 1, wrong: 1}},
		{name: "nobody was notified of it", rule: warm, log: []any{reading(0, 31), reading(4, 31)}, want: findings{over: 2, opened: 1, lost: 1, stale: 1}},
		{name: "an alert before it is sustained", rule: warm, log: []any{reading(0, 31), alerted(0, 1, 0.1), reading(2, 20)}, want: findings{over: 1, alerts: 1, wrong: 1}},
		{name: "no reading changes nothing", rule: warm, log: []any{reading(0, 31), reading(2, math.NaN()), reading(4, 31), alerted(4, 1, 4)}, want: findings{over: 2, opened: 1, alerts: 1}},
		{
			name: "between clear and limit it stays open, and silent", rule: warm,
			log:  after(opened, reading(30, 28), reading(40, 29)),
			want: findings{over: 2, opened: 1, alerts: 1},
		},
		{
			name: "it reminds while it lasts", rule: warm,
			log:  after(opened, reading(14, 31), reading(15, 31), alerted(15, 2, 15)),
			want: findings{over: 4, opened: 1, alerts: 2, suppressed: 1},
		},
		{name: "no reminder", rule: warm, log: after(opened, reading(16, 31)), want: findings{over: 3, opened: 1, alerts: 1, lost: 1}},
		{
			name: "recovered after the window", rule: warm,
			log:  after(opened, reading(6, 27), recovered(6, 2, 14.2)),
			want: findings{over: 2, opened: 1, alerts: 1, recoveries: 1},
		},
		{
			name: "recovered within the window", rule: warm,
			log:  after(opened, reading(6, 27), recovered(6, 2, 14)),
			want: findings{over: 2, opened: 1, alerts: 1, recoveries: 1, tooClose: 1},
		},
		{
			name: "recovered within the window of an alert that came after its claim", rule: warm,
			log:  []any{reading(0, 31), reading(4, 31), expired(alerted(4, 1, 4.2)), reading(6, 27), recovered(6, 2, 14)},
			want: findings{over: 2, opened: 1, alerts: 1, recoveries: 1},
		},
		{name: "never a recovery", rule: warm, log: after(opened, reading(6, 27)), want: findings{over: 2, opened: 1, alerts: 1, stale: 1}},
		{name: "recovered is off", rule: silent, log: after(opened, reading(6, 27)), want: findings{over: 2, opened: 1, alerts: 1}},
		{
			name: "recovered is off, and sent", rule: silent,
			log:  after(opened, reading(6, 27), recovered(6, 2, 15)),
			want: findings{over: 2, opened: 1, alerts: 1, recoveries: 1, wrong: 1},
		},
		{
			name: "refused, so that there is a dead letter", rule: warm,
			log:  []any{reading(0, 31), reading(4, 31), refused(alerted(4, 1, 4.2)), reading(6, 27)},
			want: findings{over: 2, opened: 1, refused: 1},
		},
		{
			name: "lost long before it is refused", rule: warm,
			log:  []any{reading(0, 31), reading(4, 31), reading(60, 31), refused(alerted(60, 1, 60))},
			want: findings{over: 3, opened: 1, refused: 1, lost: 1, stale: 1},
		},
		{
			name: "refused, and another reading within a window", rule: warm,
			log:  []any{reading(0, 31), reading(4, 31), refused(alerted(4, 1, 4.2)), reading(14, 31), reading(15, 27)},
			want: findings{over: 3, opened: 1, refused: 1, suppressed: 1},
		},
		{
			name: "refused, and another reading after a window", rule: warm,
			log:  []any{reading(0, 31), reading(4, 31), refused(alerted(4, 1, 4.2)), reading(14.3, 31), reading(15, 27)},
			want: findings{over: 3, opened: 1, refused: 1, lost: 1},
		},
		{
			name: "the recovery is refused", rule: warm,
			log:  after(opened, reading(6, 27), refused(recovered(6, 2, 14.2))),
			want: findings{over: 2, opened: 1, alerts: 1, refused: 1},
		},
		{name: "too near the end to be resolved", rule: warm, until: 20, log: after(opened, reading(6, 27)), want: findings{over: 2, opened: 1, alerts: 1, open: 1}},
		{name: "near the end, and late", rule: warm, until: 21, log: after(opened, reading(6, 27)), want: findings{over: 2, opened: 1, alerts: 1, stale: 1}},
		{
			name: "a repetition begins the window anew", rule: warm, until: 28.9,
			log:  after(opened, alerted(4, 2, 13), reading(14, 27)),
			want: findings{over: 2, opened: 1, alerts: 1, dropped: 1, open: 1},
		},
		{
			name: "recovered in time, long before the end", rule: instant,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 20), recovered(1, 2, 16), reading(60, 31), alerted(60, 3, 60)},
			want: findings{over: 2, opened: 2, alerts: 2, recoveries: 1},
		},
		{
			name: "no recovery before it opened again, long after", rule: instant,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 20), reading(60, 31), alerted(60, 3, 60)},
			want: findings{over: 2, opened: 2, alerts: 2, stale: 1},
		},
		{
			name: "flapping within the window is one alert", rule: instant,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 20), reading(2, 31), reading(3, 20), reading(4, 31), reading(5, 20), recovered(5, 2, 10)},
			want: findings{over: 3, opened: 3, alerts: 1, recoveries: 1, suppressed: 2},
		},
		{
			name: "open again just after the recovery", rule: instant,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 20), recovered(1, 2, 10), reading(10.5, 31), alerted(10.5, 3, 10.7)},
			want: findings{over: 2, opened: 2, alerts: 2, recoveries: 1},
		},
		{
			name: "open again just after the recovery, and taken for a replay", rule: instant,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 20), recovered(1, 2, 10), reading(10.5, 31)},
			want: findings{over: 2, opened: 2, alerts: 1, recoveries: 1, lost: 1, stale: 1},
		},
		{
			name: "a recovery after it opened again takes the alert back", rule: instant,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 20), reading(2, 31), recovered(1, 2, 10), reading(9, 31), reading(16, 31), alerted(16, 3, 16)},
			want: findings{over: 4, opened: 2, alerts: 2, recoveries: 1, lost: 2},
		},
		{
			name: "recovered again under another id", rule: instant,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 20), recovered(1, 2, 10), reading(11, 31), reading(12, 20), recovered(12, 3, 12), alerted(11, 4, 12.5)},
			want: findings{over: 2, opened: 2, alerts: 2, recoveries: 2, wrong: 1, stale: 1},
		},
		{
			name: "recovered again under the same id, much later", rule: instant,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 20), recovered(1, 2, 10), recovered(1, 3, 50)},
			want: findings{over: 1, opened: 1, alerts: 1, recoveries: 2},
		},
		{
			name: "a repetition of a recovery is dropped", rule: instant,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 20), recovered(1, 2, 10), recovered(1, 3, 15)},
			want: findings{over: 1, opened: 1, alerts: 1, recoveries: 1, dropped: 1},
		},
		{
			name: "an alert that was late comes after the recovery and is dropped", rule: instant,
			log:  []any{reading(0, 31), alerted(0, 2, 0), reading(1, 20), recovered(1, 3, 10), alerted(0, 1, 10.1)},
			want: findings{over: 1, opened: 1, alerts: 1, recoveries: 1, dropped: 1},
		},
		{
			name: "recovered by a reading that ends nothing", rule: instant,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 29), recovered(1, 2, 10)},
			want: findings{over: 1, opened: 1, alerts: 1, recoveries: 1, wrong: 1, stale: 1},
		},
		{
			name: "recovered out of the blue", rule: own,
			log:  []any{with(reading(0, 31), "maintenance", "true"), reading(1, 20), recovered(1, 2, 10)},
			want: findings{opened: 1, recoveries: 1, wrong: 1},
		},
		{
			name: "a device that is quiet", rule: own,
			log:  []any{with(reading(0, 31), "maintenance", "true"), with(reading(2, 31), "maintenance", "no"), alerted(2, 1, 2)},
			want: findings{over: 1, opened: 1, alerts: 1},
		},
		{
			name: "a quiet device recovers", rule: own,
			log:  []any{reading(0, 31), alerted(0, 1, 0), with(reading(1, 20), "maintenance", "true"), recovered(1, 2, 10)},
			want: findings{over: 1, opened: 1, alerts: 1, recoveries: 1},
		},
		{name: "an alert of a quiet device is sent", rule: own, log: []any{with(reading(0, 31), "maintenance", "true"), alerted(0, 1, 0)}, want: findings{opened: 1, alerts: 1, wrong: 1}},
		{
			name: "a limit of its own", rule: own,
			log:  []any{with(reading(0, 31), "limit", "35"), with(reading(1, 35), "limit", "35"), alerted(1, 1, 1), with(reading(2, 33), "limit", "35")},
			want: findings{over: 1, opened: 1, alerts: 1},
		},
		{
			name: "clear moves with a limit of its own", rule: own,
			log:  []any{with(reading(0, 20), "limit", "20"), alerted(0, 1, 0), with(reading(1, 18), "limit", "20"), with(reading(1.5, 17.9), "limit", "20"), recovered(1.5, 2, 10)},
			want: findings{over: 1, opened: 1, alerts: 1, recoveries: 1},
		},
		{
			name: "a limit of its own is its clear if none is set", rule: unset,
			log:  []any{with(reading(0, 36), "limit", "35"), alerted(0, 1, 0), with(reading(1, 34), "limit", "35"), recovered(1, 2, 10)},
			want: findings{over: 1, opened: 1, alerts: 1, recoveries: 1},
		},
		{name: "no limit of its own", rule: own, log: []any{with(reading(0, 31), "limit", "$twin.tags.limit"), alerted(0, 1, 0)}, want: findings{over: 1, opened: 1, alerts: 1}},
		{
			name: "below", rule: below,
			log:  []any{reading(0, 2), reading(4, 1), alerted(4, 1, 4), reading(5, 5), reading(6, 5.1), recovered(6, 2, 14)},
			want: findings{over: 2, opened: 1, alerts: 1, recoveries: 1},
		},
		{
			name: "another window", rule: other,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, math.NaN()), reading(19, 31), alerted(19, 2, 19), reading(39, 31), reading(40, 31), alerted(40, 3, 40)},
			want: findings{over: 4, opened: 1, alerts: 3, suppressed: 1, tooClose: 1},
		},
		{
			name: "the higher level only, then the lower one", rule: levels,
			log: []any{
				reading(0, 41), level("critical", alerted(0, 1, 0)), reading(1, 35), level("warning", alerted(1, 1, 1)), level("critical", recovered(1, 2, 10)),
				reading(2, 20), level("warning", recovered(2, 2, 11)),
			},
			want: findings{over: 2, opened: 2, alerts: 2, recoveries: 2},
		},
		{
			name: "the lower level beside the higher one", rule: levels,
			log:  []any{reading(0, 41), level("critical", alerted(0, 1, 0)), level("warning", alerted(0, 1, 0))},
			want: findings{over: 1, opened: 2, alerts: 2, wrong: 1},
		},
		{
			name: "the lower level is forgotten when the higher one ends", rule: levels,
			log:  []any{reading(0, 41), level("critical", alerted(0, 1, 0)), reading(1, 35), level("critical", recovered(1, 2, 10))},
			want: findings{over: 2, opened: 2, alerts: 1, recoveries: 1, lost: 1, stale: 1},
		},
		{
			name: "each level has a window of its own", rule: levels,
			log:  []any{reading(0, 35), level("warning", alerted(0, 1, 0)), reading(1, 41), level("critical", alerted(1, 1, 1))},
			want: findings{over: 2, opened: 2, alerts: 2},
		},
		{
			name: "each level has a duration of its own", rule: mixed,
			log: []any{
				reading(0, 35), reading(5, 41), level("critical", alerted(5, 1, 5)), reading(6, 35), level("critical", recovered(6, 2, 15)),
				reading(10, 35), level("warning", alerted(10, 1, 10)),
			},
			want: findings{over: 4, opened: 2, alerts: 2, recoveries: 1},
		},
		{
			name: "a level is alerted before its own duration is over", rule: mixed,
			log:  []any{reading(0, 41), level("critical", alerted(0, 1, 0)), reading(1, 35), level("critical", recovered(1, 2, 10)), level("warning", alerted(1, 1, 1))},
			want: findings{over: 2, opened: 1, alerts: 2, recoveries: 1, wrong: 1},
		},
		{
			name: "normal for long enough", rule: slow,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 27), reading(5, 27), recovered(5, 2, 10)},
			want: findings{over: 1, opened: 1, alerts: 1, recoveries: 1},
		},
		{
			name: "normal, and not for long enough", rule: slow,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 27), reading(4.9, 27), recovered(4.9, 2, 10)},
			want: findings{over: 1, opened: 1, alerts: 1, recoveries: 1, wrong: 1, stale: 1},
		},
		{
			name: "normal, but for one reading", rule: slow,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 27), reading(4, 28), reading(5, 27), reading(8, 27)},
			want: findings{over: 1, opened: 1, alerts: 1},
		},
		{
			name: "normal for long enough by the device's clock", rule: slow,
			log:  []any{late(0, 31, 60), alerted(0, 1, 0), late(1, 27, 57), late(1.5, 27, 53), recovered(1.5, 2, 10)},
			want: findings{over: 1, opened: 1, alerts: 1, recoveries: 1},
		},
		{
			name: "a late reading does not start the clock again", rule: slow,
			log:  []any{late(0, 31, 0), alerted(0, 1, 0), late(1, 27, 0), late(3, 31, 60), late(5, 27, 0), recovered(5, 2, 10)},
			want: findings{over: 2, opened: 1, alerts: 1, recoveries: 1},
		},
		{
			name: "counted from the message", rule: counted,
			log: []any{
				setpoint(0, 24, "20"), setpoint(1, 25, "20"), alerted(1, 1, 1), setpoint(2, 25, "19"), setpoint(3, 25, "22.1"),
				recovered(3, 2, 11),
			},
			want: findings{over: 2, opened: 1, alerts: 1, recoveries: 1, suppressed: 1},
		},
		{
			name: "counted from a property", rule: counted,
			log:  []any{with(reading(1, 25), "setpoint", "20"), alerted(1, 1, 1)},
			want: findings{over: 1, opened: 1, alerts: 1},
		},
		{
			name: "nothing to count from", rule: counted,
			log:  []any{setpoint(0, 25, "20"), alerted(0, 1, 0), reading(1, 1), setpoint(2, 1, "high"), reading(20, 90)},
			want: findings{over: 1, opened: 1, alerts: 1},
		},
		{
			name: "decimals are counted as people do", rule: counted,
			log:  []any{setpoint(0, 5.3, "0.3"), alerted(0, 1, 0), setpoint(1, 3.3, "0.3"), setpoint(2, 3.299, "0.3"), recovered(2, 2, 10)},
			want: findings{over: 1, opened: 1, alerts: 1, recoveries: 1},
		},
		{
			name: "not of the kind that the rule looks at", rule: frozen,
			log:  []any{kind(0, 31, "chilled"), reading(4, 31), kind(5, 31, "frozen"), kind(9, 31, "FROZEN"), alerted(9, 1, 9)},
			want: findings{over: 2, opened: 1, alerts: 1},
		},
		{
			name: "no longer of that kind", rule: frozen,
			log:  []any{kind(0, 31, "2.0"), kind(4, 31, "frozen"), alerted(4, 1, 4), kind(5, 31, "chilled"), excluded(recovered(5, 2, 14))},
			want: findings{over: 2, opened: 1, alerts: 1, recoveries: 1},
		},
		{
			name: "no longer of that kind, and nobody is told why", rule: frozen,
			log:  []any{kind(0, 31, "frozen"), kind(4, 31, "frozen"), alerted(4, 1, 4), kind(5, 31, "chilled"), recovered(5, 2, 14)},
			want: findings{over: 2, opened: 1, alerts: 1, recoveries: 1, wrong: 1},
		},
		{
			name: "no longer of that kind, and nobody is told", rule: frozen,
			log:  []any{kind(0, 31, "frozen"), kind(4, 31, "frozen"), alerted(4, 1, 4), reading(5, 31)},
			want: findings{over: 2, opened: 1, alerts: 1, stale: 1},
		},
		{
			name: "of another kind in between", rule: frozen,
			log:  []any{kind(0, 31, "frozen"), kind(2, 31, "chilled"), kind(5, 31, "frozen")},
			want: findings{over: 2},
		},
		{
			name: "a late reading of another kind", rule: frozen,
			log: []any{
				field(late(0, 31, 0), "kind", "frozen"), field(late(4, 31, 0), "kind", "frozen"), alerted(4, 1, 4),
				field(late(5, 31, 60), "kind", "chilled"),
			},
			want: findings{over: 2, opened: 1, alerts: 1},
		},
		{
			name: "not sent again", rule: once,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(20, 31), reading(300, 31)},
			want: findings{over: 3, opened: 1, alerts: 1, suppressed: 2},
		},
		{
			name: "sent again, and should not be", rule: once,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(20, 31), alerted(20, 2, 20)},
			want: findings{over: 2, opened: 1, alerts: 2, wrong: 1},
		},
		{
			name: "sent again, because one may not have arrived", rule: once,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(20, 31), perhaps(alerted(20, 2, 20))},
			want: findings{over: 2, opened: 1, alerts: 2},
		},
		{
			name: "sent again in time", rule: seldom,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(58, 31), reading(60.5, 31), reading(61.5, 31), alerted(61.5, 2, 61.5)},
			want: findings{over: 4, opened: 1, alerts: 2, suppressed: 2},
		},
		{
			name: "not sent again in time", rule: seldom,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(61.5, 31)},
			want: findings{over: 2, opened: 1, alerts: 1, lost: 1},
		},
		{
			name: "another alarm is sent after the window", rule: once,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 20), reading(20, 31), alerted(20, 2, 20)},
			want: findings{over: 2, opened: 2, alerts: 2, stale: 1},
		},
		{
			name: "another alarm is not sent", rule: once,
			log:  []any{reading(0, 31), alerted(0, 1, 0), reading(1, 20), recovered(1, 2, 10), reading(20, 31)},
			want: findings{over: 2, opened: 2, alerts: 1, recoveries: 1, lost: 1, stale: 1},
		},
		{
			name: "over HTTP an alert has no end", rule: instant,
			log: func() []any {
				posted := alerted(0, 1, 0)
				posted.Partition = verify.HTTP
				return []any{reading(0, 20), posted, reading(1, 31), reading(2, 20), reading(30, 20)}
			}(),
			want: findings{over: 1, opened: 1, alerts: 1},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := rules
			if tt.until > 0 {
				r.Until = at(tt.until)
			}
			report := recordTo(verify.NewLog(tt.rule), tt.log).Check(r)
			if got := findingsOf(report); got != tt.want {
				t.Errorf("\n got %+v\nwant %+v\n%v %v %v %v", got, tt.want, report.Lost, report.TooClose, report.Stale, report.Wrong)
			}
			if got, want := report.OK(), tt.want.lost+tt.want.tooClose+tt.want.stale+tt.want.wrong == 0; got != want {
				t.Errorf("OK() = %v, want %v", got, want)
			}
		})
	}
}

// Memory grows with what happened to alarms, not with readings.
func TestReadingsOfNoConsequenceAreNotKept(t *testing.T) {
	log := verify.NewLog(warm)
	next := 0.0
	allocated := testing.AllocsPerRun(1000, func() {
		next++
		log.Published(reading(next, 20))
	})
	if allocated > 0 {
		t.Errorf("a reading that is well costs %v allocations", allocated)
	}
}
