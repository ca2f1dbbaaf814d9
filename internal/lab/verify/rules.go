package verify

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Rule is a rule of a worker, as it is configured.
type Rule struct {
	Name     string
	Below    bool // readings at or below a limit are worth an alert; else those at or above it
	Levels   []Level
	Window   time.Duration // 0: that of Rules
	Resolved bool          // recoveries are sent
	Per      string        // the property by whose value devices share alerts; empty: each has its own
	Quiet    string        // the property that suppresses a device's alerts; empty: none
	// after how long a device is silent: the rule is about that, and has one level; 0: it is about limits
	Silent time.Duration
}

// A Level is a limit of a rule. The mildest comes first.
type Level struct {
	Name     string
	Limit    float64
	Clear    float64       // an alarm ends beyond it; if it is Limit, beyond the device's own limit
	Override string        // the property whose number replaces Limit; empty: none
	For      time.Duration // how long readings must have reached the limit
}

// An alarm is one level of one device.
type alarm struct{ device, rule, level string }

// A track is what became of one alarm. It goes through normal, pending and open.
type track struct {
	pending, open bool
	since         Reading     // if it is pending: the first that reached the limit
	newest        time.Time   // if it is pending or open: when its last reading was taken, by the device's clock
	heard         Reading     // of a rule about silence: the last that counts
	times         []time.Time // of those that count, but for those between two that are close
	allowed       bool        // the device was allowed to be silent at times
	events        []event
}

// An event is a reading that did something to an alarm.
type event struct {
	Reading
	opens      bool   // the alarm
	needsAlert bool   // it needs an alert, or a window in force
	clears     bool   // it ends the alarm
	shared     string // what the device shares its alerts by; empty: it has its own
}

// rule returns the rule of that name, nil if there is none.
func (l *Log) rule(name string) *Rule {
	if i := slices.IndexFunc(l.rules, func(r Rule) bool { return r.Name == name }); i >= 0 {
		return &l.rules[i]
	}
	return nil
}

// track returns what became of a, from now on.
func (l *Log) track(a alarm) *track {
	t := l.tracks[a]
	if t == nil {
		t = &track{}
		l.tracks[a] = t
	}

	return t
}

// follow has every alarm of the device follow the reading, and reports whether it reaches
// a limit of a rule by which the device is not quiet, and of one by which it is.
func (l *Log) follow(r Reading) (over, quieted bool) {
	for i := range l.rules {
		rule := &l.rules[i]
		switch {
		case rule.silence():
			l.hear(rule, r)
		case math.IsNaN(r.Temperature):
		case !l.followRule(rule, r):
		case quiet(r, rule.Quiet):
			quieted = true
		default:
			over = true
		}
	}

	return over, quieted
}

// followRule has the device's alarms of a rule follow the reading, and reports whether it reaches a limit.
func (l *Log) followRule(rule *Rule, r Reading) (reached bool) {
	// A level is not sent while a higher one is open, and is when that ends: the highest comes first.
	higher := false
	ended := false
	for _, level := range slices.Backward(rule.Levels) {
		breaching, cleared := rule.compare(&level, r)
		reached = reached || breaching
		a := alarm{r.Device, rule.Name, level.Name}
		t := l.tracks[a]
		if t == nil && !breaching {
			continue // as nearly always
		}

		t = l.track(a)
		wasOpen := t.open
		e := event{
			Reading: Reading{
				Device:      r.Device,
				Temperature: r.Temperature,
				Over:        breaching,
				At:          r.At,
				Partition:   r.Partition,
				Sequence:    r.Sequence,
			},
			shared: shared(r, rule.Per),
		}
		late := rule.stateful() && t.outdates(r)
		if !late {
			e.opens, e.clears = t.step(r, level.For, breaching, cleared)
		}

		e.needsAlert = t.open && (breaching && !late || ended) && !higher && !quiet(r, rule.Quiet)
		higher = higher || t.open
		ended = ended || wasOpen && !t.open

		if e.opens || e.needsAlert || e.clears {
			t.events = append(t.events, e)
		} else if !t.open && !t.pending && len(t.events) == 0 {
			delete(l.tracks, a)
		}
	}

	return reached
}

// compare reports whether the reading reaches the level's limit for the device, and whether it ends its alarm.
func (rule *Rule) compare(level *Level, r Reading) (breaching, cleared bool) {
	limit := number(r, level.Override, level.Limit)
	ends := level.Clear
	if limit != level.Limit {
		ends = limit - (level.Limit - level.Clear) // it moves with the device's limit
	}

	if rule.Below {
		return r.Temperature <= limit, r.Temperature > ends
	}

	return r.Temperature >= limit, r.Temperature < ends
}

// stateful reports whether alarms of the rule follow from more than one reading.
func (rule *Rule) stateful() bool {
	return rule.Resolved || slices.ContainsFunc(rule.Levels, func(l Level) bool { return l.For > 0 || l.Clear != l.Limit })
}

// outdates reports whether the alarm has seen a reading that was taken after r, by the device's clock.
func (t *track) outdates(r Reading) bool {
	return (t.open || t.pending) && r.credible() && r.Taken.Before(t.newest)
}

// step takes an alarm through a reading.
func (t *track) step(r Reading, sustained time.Duration, breaching, cleared bool) (opens, clears bool) {
	switch {
	case t.open && cleared:
		t.open = false
		return false, true
	case !t.open && !breaching:
		t.pending = false
		return false, false
	case !t.open && !t.pending:
		t.pending = true
		t.since = Reading{At: r.At, Taken: r.Taken}
		t.newest = time.Time{}
	}

	if r.credible() && r.Taken.After(t.newest) {
		t.newest = r.Taken
	}

	if t.open || r.after(t.since) < sustained {
		return false, false
	}

	t.pending = false
	t.open = true

	return true, false
}

// credible reports whether the time that the device of r gives it may be right.
func (r Reading) credible() bool {
	late := r.At.Sub(r.Taken)
	return !r.Taken.IsZero() && late >= -5*time.Minute && late <= 30*24*time.Hour
}

// after returns how long after first r was taken: by the device's clock if that may be right for both.
func (r Reading) after(first Reading) time.Duration {
	if r.credible() && first.credible() {
		return r.Taken.Sub(first.Taken)
	}

	return r.At.Sub(first.At)
}

// shared returns what the device of r shares its alerts by: the value of a property that its message has.
func shared(r Reading, per string) string {
	if value := r.Properties[per]; per != "" && !strings.HasPrefix(value, "$twin.") {
		return value
	}
	return ""
}

// number returns the number that a property of r has, otherwise if it has none. IoT Hub makes a text of a number, and
// leaves "$twin.…" where the twin has no such number.
func number(r Reading, property string, otherwise float64) float64 {
	if property == "" {
		return otherwise
	}

	own, err := strconv.ParseFloat(r.Properties[property], 64)
	if err != nil || math.IsNaN(own) || math.IsInf(own, 0) {
		return otherwise
	}

	return own
}

// quiet reports whether the property suppresses the alerts of r.
func quiet(r Reading, property string) bool {
	if property == "" {
		return false
	}

	text := r.Properties[property]
	until, err := time.Parse(time.RFC3339, text)
	return text == "true" || err == nil && r.At.Before(until)
}
