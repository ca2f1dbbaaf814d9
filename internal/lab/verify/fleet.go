package verify

import (
	"slices"
	"time"
)

const (
	thinned     = 8 // two times at which a device was heard are close if they are less than this part of the silence apart
	darkDevices = 20
)

// A fleet is the devices of one partition, as a rule about silence knows them. If a deadline is over and fewer than
// a quarter of the others, at least darkDevices, were heard lately, no silence is about one of them, but about the
// partition. A nil one has no devices.
type fleet struct {
	silent  time.Duration
	devices []*track
	gaps    []gap
}

// A gap is a time in which nothing at all came to a partition, as long as a device may be silent at least.
type gap struct{ from, to time.Time }

// arrive notes that something came to a partition.
func (l *Log) arrive(rule *Rule, r Reading) {
	whole := alarm{r.Partition, rule.Name, ""}
	last := l.arrived[whole]
	isFirst := last.IsZero()
	if !isFirst && r.At.Sub(last) >= rule.Silent {
		l.gaps[whole] = append(l.gaps[whole], gap{last, r.At})
	}

	l.arrived[whole] = r.At
}

// fleets returns them by the name that alerts have for the partition.
func (l *Log) fleets() map[alarm]*fleet {
	all := make(map[alarm]*fleet)
	for a, t := range l.tracks {
		r := l.rule(a.rule)
		if !r.silence() {
			continue
		}

		partition := t.heard.Partition
		of := alarm{wholeNames + partition, a.rule, a.level}
		if all[of] == nil {
			all[of] = &fleet{
				silent: r.Silent,
				gaps:   l.gaps[alarm{partition, a.rule, a.level}],
			}
		}

		all[of].devices = append(all[of].devices, t)
	}

	return all
}

// heardIn reports whether the device was, from a time to another.
func (t *silenceTrack) heardIn(from, to time.Time) bool {
	next, _ := slices.BinarySearchFunc(t.times, from, time.Time.Compare)
	if next == len(t.times) {
		return false
	}

	return !t.times[next].After(to)
}

// heard returns how many devices were, from a time to another.
func (f *fleet) heard(from, to time.Time) (n int) {
	for _, t := range f.devices {
		if t.heardIn(from, to) {
			n++
		}
	}

	return n
}

// expected returns how many devices are at a time, whatever a worker knows: they were heard in a time before it, and
// were never allowed to be silent.
func (f *fleet) expected(at time.Time, within time.Duration) (n int) {
	from := at.Add(1 - within)
	for _, t := range f.devices {
		if !t.allowed && t.heardIn(from, at) {
			n++
		}
	}

	return n
}

// restarts reports whether the end of a gap can have all deadlines begin anew, at an event of any device.
func (f *fleet) restarts() bool { return f != nil && len(f.devices) > darkDevices }

// mayBeDark reports whether a worker may find the partition dark at some time.
func (f *fleet) mayBeDark(from, to time.Time) bool {
	if !f.restarts() {
		return false
	}

	step := f.silent / 4
	for at := from; !at.After(to); at = at.Add(step) {
		known, recent := f.least(at.Add(-step), at) // those are recent until the next step
		areMany := known > darkDevices
		if areMany && isFew(recent, known-1) {
			return true
		}
	}

	return false
}

// isFew reports whether those that were heard are fewer than a quarter of all.
func isFew(heard, all int) bool { return heard*4 < all }

// least returns how many devices a worker may know, and the least of these that were heard from a time to another. One
// that was allowed to be silent may not be known.
func (f *fleet) least(from, to time.Time) (known, heard int) {
	for _, t := range f.devices {
		if !t.heardIn(from, to) {
			known++
			continue
		}

		if !t.allowed {
			known++
			heard++
		}
	}

	return known, heard
}

// isDark reports whether a worker must find it dark, whenever it does what follows from a deadline, until a time.
func (f *fleet) isDark(deadline, until time.Time) bool {
	if f == nil {
		return false
	}

	known := f.expected(deadline, f.silent) // that are not overdue then
	if known < darkDevices {
		return false
	}

	since := deadline.Add(-f.unnoticed())

	return isFew(f.heard(since, until), known)
}

// unnoticed is for how long a worker knows nothing of it when nothing comes: half of the time that a device may be
// silent, and what two times that are close are apart.
func (f *fleet) unnoticed() time.Duration { return f.silent/2 + f.silent/thinned }

// missed reports whether a deadline was missed because of a gap: it is in the gap, when nobody had been heard for half
// of the time that a device may be silent, or less than that time after it.
func (f *fleet) missed(deadline time.Time) bool {
	if f == nil {
		return false
	}

	return slices.ContainsFunc(f.gaps, func(g gap) bool {
		from := g.from.Add(f.unnoticed())
		to := g.to.Add(f.silent - rounding)
		isBecause := deadline.After(from) && deadline.Before(to)

		return isBecause && f.expected(g.from, f.silent/2) > darkDevices+1
	})
}
