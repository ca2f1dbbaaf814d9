package verify

import (
	"slices"
	"time"
)

// thinned says which times at which a device was heard are close: two that are less than this part of the silence apart.
const thinned = 8

// A fleet is the devices of a hub or of one of its partitions, as a rule about silence knows them, and when nothing at
// all came from them. A nil one has no devices.
type fleet struct {
	silent  time.Duration
	devices []*track
	gaps    []gap // that are as long as half of what a device may be silent at least
}

// A gap is a time in which nothing at all came. One that lasts has no end.
type gap struct{ from, to time.Time }

// arrive notes that something came to a partition.
func (l *Log) arrive(rule *Rule, r Reading) {
	for _, name := range []string{hubName, wholeNames + r.Partition} {
		of := alarm{device: name, rule: rule.Name}
		last := l.arrived[of]
		if r.At.Before(last) {
			continue
		}

		if !last.IsZero() && r.At.Sub(last) >= rule.Silent/2 {
			l.gaps[of] = append(l.gaps[of], gap{last, r.At})
		}

		l.arrived[of] = r.At
	}
}

// whole returns the alarm about a hub or a partition by the rule of a.
func whole(name string, a alarm) alarm { return alarm{device: name, rule: a.rule, level: a.level} }

// fleets returns those of the hub and of each partition, by the name that messages have for them.
func (l *Log) fleets() map[alarm]*fleet {
	all := make(map[alarm]*fleet)
	for a, t := range l.tracks {
		r := l.rule(a.rule)
		if !r.silence() {
			continue
		}

		for _, name := range []string{hubName, wholeNames + t.heard.Partition} {
			of := whole(name, a)
			if all[of] == nil {
				all[of] = &fleet{silent: r.Silent, gaps: append(slices.Clone(l.gaps[of]), gap{from: l.arrived[of]})}
			}

			all[of].devices = append(all[of].devices, t)
		}
	}

	return all
}

// expected returns how many devices are at a time, whatever a worker knows: they were heard in a time before it, and
// were never allowed to be silent.
func (f *fleet) expected(at time.Time, within time.Duration) (n int) {
	from := at.Add(1 - within)
	for _, t := range f.devices {
		next, _ := slices.BinarySearchFunc(t.times, from, time.Time.Compare)
		wasHeard := next < len(t.times) && !t.times[next].After(at)
		if wasHeard && !t.allowed {
			n++
		}
	}

	return n
}

// isMany reports whether a worker may know several devices.
func (f *fleet) isMany() bool { return f != nil && len(f.devices) > 1 }

// unnoticed is for how long a worker may say that a device is silent when nothing comes to the hub: half of the time that
// a device may be silent, and what two times that are close are apart.
func (f *fleet) unnoticed() time.Duration { return f.silent/2 + f.silent/thinned }

// isQuiet reports whether nothing came to the hub f for so long before a deadline, and until a message, that nothing may
// be said of a single device.
func (f *fleet) isQuiet(deadline, until time.Time) bool {
	return slices.ContainsFunc(f.gaps, func(g gap) bool {
		quiet := deadline.Sub(g.from) > f.unnoticed() && (g.to.IsZero() || g.to.After(until))

		return quiet && f.expected(g.from, f.silent) > 1
	})
}

// missed reports whether a deadline was missed because of a gap of the partition f after which every device has its time
// again, because nothing came to the hub either: it is in the gap, or in that time. In a gap of the partition alone a
// worker may have asked the hub, and told of its devices.
func (f *fleet) missed(hub *fleet, deadline time.Time) bool {
	return slices.ContainsFunc(f.gaps, func(g gap) bool {
		if g.to.IsZero() || g.to.Sub(g.from) < f.silent || !slices.Contains(hub.gaps, g) {
			return false
		}

		from := g.from.Add(f.unnoticed())
		isBecause := deadline.After(from) && deadline.Before(g.to.Add(f.silent-rounding))

		return isBecause && f.expected(g.from, f.silent/2) > 1
	})
}

// latest returns when a silence that has a deadline in the partition f of a hub has to be known at the latest, but for a
// bound after that; false if it never has to be.
func (f *fleet) latest(hub *fleet, deadline time.Time, bound time.Duration) (at time.Time, ok bool) {
	for at = deadline; ; {
		next, ends := at, true
		for _, g := range slices.Concat(hub.gaps, f.gaps) {
			// by then nothing has come to the hub for so long that nothing may be said of a single device
			isQuiet := slices.Contains(hub.gaps, g) && at.Add(bound).After(g.from.Add(f.silent/2))
			isLong := g.to.Sub(g.from) >= f.silent // all devices have that time once more
			switch {
			case g.to.IsZero():
				ends = ends && !isQuiet
			case isLong && at.Before(g.to.Add(f.silent)) && (isQuiet || !at.Add(bound).Before(g.to)):
				next = later(next, g.to.Add(f.silent))
			case isQuiet && at.Before(g.to):
				next = later(next, g.to)
			}
		}

		if !ends || next.Equal(at) {
			return at, ends
		}

		at = next
	}
}

// outages returns what a hub f is to be told of: when nothing came for as long as a device may be silent. Until is when
// the records end, and what lasts for bound after that needs an alert.
func (f *fleet) outages(until time.Time, bound time.Duration) (events []event) {
	for _, g := range f.gaps {
		end := g.to
		if end.IsZero() {
			end = until
		}

		begun := g.from.Add(f.silent)
		if !end.IsZero() && end.Before(begun) {
			continue
		}

		isLong := end.IsZero() || end.Sub(begun) > bound
		at := Reading{Device: hubName, Temperature: nan, At: begun, Partition: telling, Sequence: g.from.UnixMilli()}
		events = append(events, event{Reading: at, opens: true, needsAlert: isLong && f.expected(g.from, f.silent) > 1})
		if !g.to.IsZero() {
			at.At = g.to
			events = append(events, event{Reading: at, clears: true})
		}
	}

	return events
}
