package rules

import (
	"strings"
	"time"
)

// A Mute says that nobody is alerted for a time: people have silenced some devices or a rule. Its conditions all
// hold; one that is empty holds for everything.
type Mute struct {
	Device          string    // of the device; * stands for any characters
	Rule            string    // name
	Property, Value string    // of the message
	From, Until     time.Time // by the hub's clock: the readings that it takes from From on, before Until
}

// Matches reports whether m is about a reading. property returns the text of one of the message's properties.
func (m *Mute) Matches(device, rule string, enqueued time.Time, property func(name string) string) bool {
	return !enqueued.Before(m.From) && enqueued.Before(m.Until) &&
		(m.Rule == "" || m.Rule == rule) && (m.Device == "" || like(m.Device, device)) &&
		(m.Property == "" || property(m.Property) == m.Value)
}

// like reports whether s is what pattern says.
func like(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}

	s, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}

	last := parts[len(parts)-1]

	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}

	return strings.HasSuffix(s, last)
}
