package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// WriteJSON writes what GET /devices/{id} answers.
func (a *Admin) WriteJSON(ctx context.Context, out io.Writer, of sensor.ID) error {
	to := json.NewEncoder(out)
	to.SetIndent("", "  ")
	return to.Encode(a.deviceView(a.findings(ctx, of, nil)))
}

// WriteText writes the answer for people: what it is, a line for each fact, and what is to be done. hub is what that has
// of the device; the zero value if it was not asked. What a device has sent is made fit for a terminal.
func (a *Admin) WriteText(ctx context.Context, out io.Writer, of sensor.ID, hub Readings) error {
	f := a.findings(ctx, of, hub.shared)
	f.hub = hub
	f.similar = cmp.Or(f.similar, hub.similar)
	_, lines := f.why()
	for _, l := range lines {
		if _, err := fmt.Fprintln(out, humanize.Clean(l)); err != nil {
			return err
		}
	}

	return nil
}

// shownReadings is how many of a device's readings are shown.
const shownReadings = 10

// A History returns the next events of a partition, valid until the next call, and io.EOF after the last.
type History interface {
	Next(ctx context.Context) (partition string, events []telemetry.Event, err error)
}

// Readings are the last ones of a device that a hub holds, with what they reach. The zero value is of no hub.
type Readings struct {
	events int
	last   time.Duration // in which they were
	lines  []string      // of the last ones, the latest last
	muted  string        // by what it mutes the device; empty if it does not
	// a device of which there are some, and whose name differs in nothing but case; empty if there is none
	similar string
	shared  map[string]string // what the device shares the alerts of rules by
}

// Readings reads those of a device in h, which is of the last so long.
func (a *Admin) Readings(ctx context.Context, device string, last time.Duration, h History) (Readings, error) {
	r := Readings{last: last, shared: map[string]string{}}
	reader, err := a.Rules.Reader()
	if err != nil {
		return r, err
	}

	for {
		partition, events, err := h.Next(ctx)
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if ctx.Err() != nil {
			return r, errors.New("stopped before all readings were read")
		}
		if err != nil {
			return r, fmt.Errorf("read the device's readings: %w", err)
		}

		for i := range events {
			switch e := &events[i]; {
			case e.Device == device:
				r.add(a, reader, partition, e)
			case strings.EqualFold(e.Device, device):
				r.similar = e.Device
			}
		}
	}
}

// add takes an event of the device.
func (r *Readings) add(a *Admin, reader *rules.Reader, partition string, e *telemetry.Event) {
	now, set := findings{now: a.now()}, &a.Rules
	views, reason := reader.Read(e)
	what := found(e, views, reason)

	for _, v := range views {
		if v.Counts() && v.Rule.Per != "" {
			r.shared[v.Rule.Name] = v.Shared
		}
	}

	at, taken := now.at(e.Enqueued), int64(0)
	for _, v := range views {
		taken = max(taken, v.Taken)
	}

	if taken != 0 {
		at += fmt.Sprintf(", taken at %s by its own clock", now.clock(time.UnixMicro(taken)))
	}

	muted, byMessage := mutedBy(set, views)
	if muted != "" {
		what += ", and is muted: " + muted
	}

	r.events++
	r.muted = byMessage
	r.lines = append(r.lines, fmt.Sprintf("%s, partition %s, sequence %d: %s", at, partition, e.Sequence, what))
	r.lines = r.lines[max(0, len(r.lines)-shownReadings):]
}

// mutedBy says which mute of the rules was about a reading in an event, and which one only for what the event says of
// itself: empty if none was.
func mutedBy(set *rules.Set, views []rules.View) (muted, byMessage string) {
	for i := range set.Mutes {
		m := &set.Mutes[i]
		for _, v := range views {
			if !slices.Contains(v.Mutes, i) {
				continue
			}

			if m.IsByMessage() {
				byMessage = cmp.Or(byMessage, m.String())
			}

			if v.Counts() {
				muted = cmp.Or(muted, m.When())
			}
		}
	}

	return muted, byMessage
}

// found says what rules find in an event, and what they do not.
func found(e *telemetry.Event, views []rules.View, reason telemetry.Reason) string {
	text := foundByAll(e, views, reason)
	damage := telemetry.DamageOf(e.Body).Text(e.Device)
	switch {
	case damage == "" || reason == telemetry.ReasonOK:
		return text
	case reason == telemetry.ReasonMalformed:
		return damage
	}

	return text + "; its message is damaged, which ends no alarm (" + damage + ")"
}

// foundByAll is found for a message that is not damaged.
func foundByAll(e *telemetry.Event, views []rules.View, reason telemetry.Reason) string {
	var parts []string
	for i := range views {
		v := &views[i]
		text := foundBy(v, e)
		if text == "" {
			continue
		}

		if v.Sensor != "" {
			text = v.Sensor + ": " + text
		}
		parts = append(parts, text)
	}

	switch {
	case len(parts) > 0:
		return strings.Join(parts, "; ")
	case reason.HasReading():
		return "no rule compares a value of it"
	}

	return reason.Text()
}

// foundBy says what the rule of v finds in an event; empty if that is not worth a word.
func foundBy(v *rules.View, e *telemetry.Event) string {
	name := which(v.Rule.Name, "")
	hasReading := v.Reason == telemetry.ReasonOK

	switch {
	case v.Rule.Silence() || v.Reason == telemetry.ReasonMissing || v.Leaves:
		return ""

	case v.Excluded != nil && hasReading:
		has := cmp.Or(v.Has, "missing")
		return fmt.Sprintf("%s, but the rule %s does not look at it: %s is %s, not %s",
			v.Rule.Text(v.Value), v.Rule.Name, v.Excluded.Name, has, humanize.Or(v.Excluded.Values))

	case v.Excluded != nil:
		return ""

	case v.Counts():
		return compared(v)

	case hasReading:
		return fmt.Sprintf("%s, but the rule %s says nothing about it: no number at %s",
			v.Rule.Text(v.Value), v.Rule.Name, v.Rule.Base())

	case v.Reason == telemetry.ReasonNotANumber:
		return notANumber(v) + name

	case v.Reason.Decoded():
		return v.Reason.Text() + name
	}

	return ""
}

// notANumber says what an event has instead of one where a rule looks.
func notANumber(v *rules.View) string {
	for path := range strings.SplitSeq(v.Rule.Field, ",") {
		if text := telemetry.TextAt(v.Body, path); text != "" {
			text = fmt.Sprintf("%s at %s is not a number: %s", text, path, telemetry.NotANumber(text, v.Rule.Unit))
			return strings.TrimSuffix(text, ": ")
		}
	}

	return telemetry.ReasonNotANumber.Text()
}

// compared says which limit of a rule the reading in v reaches: of the highest level that it does, else not even that
// of the mildest.
func compared(v *rules.View) (text string) {
	for i := range v.Rule.Levels {
		level := &v.Rule.Levels[i]
		c := v.Levels[i]
		if c.Reached || i == 0 {
			text = reaches(!c.Reached, v.Rule, level, c.Limit, c.Own) + which(v.Rule.Name, level.Name)
		}
	}

	return v.Rule.Text(v.Value) + ", " + text
}
