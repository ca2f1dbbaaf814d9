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
	isRule := m.Rule == "" || m.Rule == rule
	hasValue := m.Property == "" || m.Value == r.Properties[m.Property]

	return isRule && hasValue && m.device.MatchString(r.Device)
}

// A hush is whether people hear of a reading.
type hush int

const (
	heardOf hush = iota
	unsure
	muted
)

// hush says whether people have muted alerts of a rule about a reading.
func (l *Log) hush(rule string, r Reading) (is hush) {
	for i := range l.mutes {
		m := &l.mutes[i]
		if m.about(rule, r) {
			is = max(is, m.at(r.At))
		}
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
		return m.about(rule, about) && m.at(d.Deadline) == muted && d.At.Before(m.Ending)
	})
}
