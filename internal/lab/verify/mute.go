package verify

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// A Mute is that people want no alerts about some devices for a time. It begins and ends for readings, by when the hub
// got them. From From to Known, and from Ending to Until, it is not known whether a worker knows it.
type Mute struct {
	Device          string // * stands for any characters; empty: all
	Rule            string // empty: all
	Property, Value string // of messages; empty: all. What has no message has no property
	UntilNormal     bool   // only alarms that began before From; those until Known may be among them
	From, Known     time.Time
	Ending, Until   time.Time
}

// Muted records m, before what is published meanwhile.
func (l *Log) Muted(m Mute) {
	l.mu.Lock()
	defer l.mu.Unlock()

	pattern := strings.ReplaceAll(regexp.QuoteMeta(m.Device), `\*`, ".*")
	if m.Device == "" {
		pattern = ".*"
	}

	l.mutes = append(l.mutes, mute{m, regexp.MustCompile("(?s)^" + pattern + "$")})
}

// A mute is a Mute that was recorded.
type mute struct {
	Mute
	device *regexp.Regexp
}

// about reports whether m is about a message, as far as a rule goes.
func (m *mute) about(rule string, r Reading) bool {
	if m.Rule != "" && m.Rule != rule {
		return false
	}

	if m.Property != "" && m.Value != r.Properties[m.Property] {
		return false
	}

	return m.device.MatchString(r.Device)
}

// A hush is whether people hear of a reading.
type hush int

const (
	heardOf hush = iota
	unsure
	muted
)

// hush says whether people have muted alerts of a rule about a reading, of an alarm that began at a time; zero: the
// rule keeps none.
func (l *Log) hush(rule string, r Reading, began time.Time) (is hush) {
	for i := range l.mutes {
		m := &l.mutes[i]
		if !m.about(rule, r) {
			continue
		}

		by := min(m.at(r.At), m.of(began))
		is = max(is, by)
	}

	return is
}

// at says how far m is in force at a time.
func (m *Mute) at(at time.Time) hush {
	switch {
	case at.Before(m.From), !at.Before(m.Until):
		return heardOf
	case at.Before(m.Known), !at.Before(m.Ending):
		return unsure
	}

	return muted
}

// of says how far m is about an alarm that began at a time.
func (m *Mute) of(began time.Time) hush {
	if !m.UntilNormal {
		return muted
	}

	switch {
	case began.IsZero():
		return heardOf
	case began.Before(m.From):
		return muted
	case began.Before(m.Known):
		return unsure
	}

	return heardOf
}

// hushed reports whether people may have muted alerts about a silence, at any time of some.
func (l *Log) hushed(rule string, e event, bound time.Duration) bool {
	until := e.At.Add(bound)

	return slices.ContainsFunc(l.mutes, func(m mute) bool {
		meanwhile := e.At.Before(m.Until) && until.After(m.From)

		return meanwhile && m.about(rule, e.Reading)
	})
}

// mutedSilence reports whether people have muted an alert about a silence from its deadline until it came.
func (l *Log) mutedSilence(rule string, d Delivery) bool {
	about := Reading{Device: d.Device}

	return slices.ContainsFunc(l.mutes, func(m mute) bool {
		if m.UntilNormal || !m.about(rule, about) {
			return false
		}

		return m.at(d.Deadline) == muted && d.At.Before(m.Ending)
	})
}
