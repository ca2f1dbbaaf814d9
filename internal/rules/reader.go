package rules

import (
	"cmp"
	"fmt"
	"strings"

	"alertworker/internal/telemetry"
)

// A Reader takes single events through the rules of a Set, for people who ask what rules find in them. It decides by
// what workers decide by, and keeps no state. It is for one goroutine.
type Reader struct {
	set     *Set
	decoder *telemetry.Decoder
	reads   []Reads
	found   []telemetry.Found
}

// A View is what a rule finds in an event.
type View struct {
	Rule *Rule
	// Found is what the event has for the rule's field. For a rule that counts every message it has no value.
	telemetry.Found
	// Base is what the rule's limits are counted from, and HasBase whether the event has it: OverrideUsed if the rule has
	// no Base.
	Base    float64
	HasBase Override
	// Excluded is the condition for which the rule does not look at the event. It is nil if there is none, or if the
	// event has no body in which it could be met.
	Excluded *Condition
}

// Reader returns a Reader for s. Its error is that of Decoder.
func (s *Set) Reader() (*Reader, error) {
	decoder, err := s.Decoder()
	if err != nil {
		return nil, err
	}

	fields, reads := s.Fields()

	return &Reader{
		set:     s,
		decoder: decoder,
		reads:   reads,
		found:   make([]telemetry.Found, len(fields)),
	}, nil
}

// Read returns what each rule finds in e, and what decoding e gave for all of them: ReasonOK if a field of one has a
// reading.
func (r *Reader) Read(e *telemetry.Event) (views []View, reason telemetry.Reason) {
	reason = r.decoder.DecodeAll(e, r.found)
	for i := range r.set.Rules {
		rule := &r.set.Rules[i]
		reads := r.reads[i]
		view := View{Rule: rule}

		switch {
		case reads.Field >= 0:
			view.Found = r.found[reads.Field]
		case reason == telemetry.ReasonNotTelemetry, reason == telemetry.ReasonNoDevice:
			view.Reason = reason
		}

		if view.Reason.Decoded() {
			view.Excluded = rule.Excludes(r.found, reads.Only, e.Properties)
			view.Base, view.HasBase = rule.BaseFor(r.found, reads, e.Properties)
		}

		views = append(views, view)
	}

	return views, reason
}

// Counts reports whether the event has a reading that the rule looks at.
func (v *View) Counts() bool {
	return v.Reason == telemetry.ReasonOK && v.Excluded == nil && v.HasBase == OverrideUsed
}

// Excluded says for people why c, which does not hold for e, excludes it, such as `kind is "chilled", not frozen`: with
// quotes if it is text of the body.
func (c *Condition) Excluded(e *telemetry.Event) string {
	seen := []rune(cmp.Or(c.Seen(e), "missing"))
	shown := string(seen[:min(len(seen), maxSeen)])

	return fmt.Sprintf("%s is %s, not %s", c.Name, shown, strings.Join(c.Values, " or "))
}

// maxSeen is how much of what a device sends Excluded shows, in characters.
const maxSeen = 32

// Seen returns what e has where c looks, as it stands there; empty if it has nothing.
func (c *Condition) Seen(e *telemetry.Event) string {
	if text := telemetry.TextAt(e.Body, c.Name); text != "" {
		return text
	}

	if p := e.Properties.Get(c.Name); !p.IsNull() {
		return strings.TrimSpace(p.String())
	}

	return ""
}
