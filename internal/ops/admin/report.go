package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// WriteText writes the answer for people: what it is, a line for each fact, and what is to be done. hub is what that has
// of the device; the zero value if it was not asked. What a device has sent is made fit for a terminal.
func (a *Admin) WriteText(ctx context.Context, out io.Writer, of sensor.ID, hub Readings) error {
	_, lines := a.findings(ctx, of, hub).why()
	var text strings.Builder
	for _, l := range lines {
		text.WriteString(humanize.Clean(l) + "\n")
	}

	_, err := io.WriteString(out, text.String())
	return err
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
	// a device of which there are some, and whose name differs in nothing but case; empty if there is none
	similar string
	shared  map[string]string // what the device shares the alerts of rules by
}

// Readings reads those of a device in h, which is of the last so long.
func (a *Admin) Readings(ctx context.Context, device string, last time.Duration, h History) (Readings, error) {
	r := Readings{last: last, shared: map[string]string{}}
	reader, err := a.options.Rules.Reader()
	if err != nil {
		return r, err
	}

	for {
		partition, events, err := h.Next(ctx)
		if errors.Is(err, io.EOF) {
			return r, nil
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
	now := findings{now: a.now()}
	views, reason := reader.Read(e)
	at, what, taken, muted := now.at(e.Enqueued), now.found(e, views, reason), int64(0), ""
	for _, v := range views {
		taken = max(taken, v.Taken)
		if !v.Counts() {
			continue
		}

		if v.Rule.Per != "" {
			r.shared[v.Rule.Name] = v.Shared
		}

		for _, i := range v.Mutes {
			muted = cmp.Or(muted, a.options.Rules.Mutes[i].When())
		}
	}

	if taken != 0 {
		at += fmt.Sprintf(", taken at %s by its own clock", now.clock(time.UnixMicro(taken)))
	}

	if muted != "" {
		what += ", and is muted: " + muted
	}

	r.events++
	r.lines = append(r.lines, fmt.Sprintf("%s, partition %s, sequence %d: %s", at, partition, e.Sequence, what))
	r.lines = r.lines[max(0, len(r.lines)-shownReadings):]
}

// found says what rules find in an event, and what they do not.
func (f findings) found(e *telemetry.Event, views []rules.View, reason telemetry.Reason) string {
	damage := telemetry.DamageOf(e.Body).Text(e.Device)
	if reason == telemetry.ReasonMalformed {
		return cmp.Or(damage, reason.Text())
	}

	var parts []string
	for i := range views {
		v := &views[i]
		if level, text := foundBy(v); text != "" {
			parts = append(parts, strings.TrimPrefix(f.subject("", v.Rule.Name, level, v.Sensor)+": "+text, ": "))
		}
	}

	switch {
	case len(parts) > 0:
	case reason.HasReading():
		parts = []string{"no rule compares a value of it"}
	default:
		parts = []string{reason.Text()}
	}

	if damage != "" && reason != telemetry.ReasonOK {
		parts = append(parts, "its message is damaged, which ends no alarm ("+damage+")")
	}

	return strings.Join(parts, "; ")
}

// foundBy says what the rule of v finds: its value, and the limit of the highest level that it reaches, else of the
// mildest. text is empty if that is not worth a word.
func foundBy(v *rules.View) (level, text string) {
	value := v.Rule.Text(v.Value)
	switch {
	case v.Rule.Silence(), v.Leaves, v.Reason == telemetry.ReasonMissing, !v.Reason.Decoded(), v.Excluded != nil && v.Reason != telemetry.ReasonOK:
		return "", ""

	case v.Excluded != nil:
		return "", fmt.Sprintf("%s, not looked at: %s is %s, not %s",
			value, v.Excluded.Name, cmp.Or(v.Has, "missing"), humanize.Or(v.Excluded.Values))

	case v.Reason == telemetry.ReasonOK && !v.Counts():
		return "", value + ", not compared: no number at " + v.Rule.Base()

	case v.Reason == telemetry.ReasonNotANumber:
		return "", notANumber(v)

	case !v.Counts():
		return "", v.Reason.Text()
	}

	for i := range v.Rule.Levels {
		c := v.Levels[i]
		if !c.Reached && i > 0 {
			continue
		}

		l := &v.Rule.Levels[i]
		limit := limitText(v.Rule, c.Limit)
		if c.Own {
			limit += " (" + l.LimitAt.Name + ")"
		}

		level, text = l.Name, fmt.Sprintf("%s, limit %s: %s", value, limit, map[bool]string{true: "reached", false: "not reached"}[c.Reached])
	}

	return level, text
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
