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
	"alertworker/internal/telemetry"
)

// WriteJSON writes what GET /devices/{id} answers.
func (a *Admin) WriteJSON(ctx context.Context, out io.Writer, device string) error {
	to := json.NewEncoder(out)
	to.SetIndent("", "  ")
	return to.Encode(a.deviceView(device, a.findings(ctx, device, nil)))
}

// WriteText writes the same for people, with what r adds to it.
func (a *Admin) WriteText(ctx context.Context, out io.Writer, device string, r Readings) error {
	f := a.findings(ctx, device, r.shared)
	f.event = r.latest
	_, text := f.reason()
	lines := []string{device + ": " + text, ""}
	for _, s := range f.state.Alarms {
		lines = append(lines, fmt.Sprintf("%s (partition %s)", f.alarmText(s), s.Partition))
	}
	for i := range f.set.Rules {
		if r := &f.set.Rules[i]; r.Silence() {
			lines = append(lines, f.heardText(r))
		}
	}
	for _, g := range f.gates {
		lines = append(lines, f.windowText(g))
	}
	for _, s := range f.silences {
		lines = append(lines, fmt.Sprintf("silence %s: %s", s.ID, f.silenceText(s)))
	}
	for _, e := range f.ended {
		if e.Reason != "" {
			lines = append(lines, "dead letter: "+f.deadLetter(&e))
		}
	}
	_, err := fmt.Fprintln(out, strings.Join(append(lines, f.missing...), "\n"))
	return err
}

// heardText says when the device was heard last, as a rule about silence counts it, and from when on it is silent.
func (f findings) heardText(r *rules.Rule) string {
	text := "rule " + r.Name + ": "
	heard := false
	for _, h := range f.state.Heard {
		if h.Rule != r.Name {
			continue
		}
		heard = true
		text += fmt.Sprintf("last heard %s in partition %s", f.at(h.At), h.Partition)
		if !h.AsOf.IsZero() {
			text += ", as of " + f.clock(h.AsOf)
		}
		if !h.Deadline.IsZero() {
			text += fmt.Sprintf("; silent from %s on", f.clock(h.Deadline))
		}
	}
	if !heard {
		text += "no partition is known to have heard it"
	}
	return text
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
	last   time.Duration     // in which they were
	lines  []string          // of the last ones
	latest string            // of them, as part of a sentence
	shared map[string]string // what the device shares the alerts of rules by
}

// Readings reads those of a device in h, which is of the last so long.
func (a *Admin) Readings(ctx context.Context, device string, last time.Duration, h History) (Readings, error) {
	now := findings{now: time.Now()}
	r := Readings{last: last, shared: map[string]string{}}
	decoder, err := a.Rules.Decoder()
	if err != nil {
		return r, err
	}
	fields, of := a.Rules.Fields()
	found := make([]telemetry.Found, len(fields))
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
			e := &events[i]
			if e.Device != device {
				continue
			}
			r.events++
			what := ""
			if reason := decoder.DecodeAll(e, found); reason == telemetry.ReasonOK {
				what = a.reached(e, found, of, r.shared)
			} else {
				what = reason.Text()
			}
			r.latest = now.at(e.Enqueued) + ": " + what
			r.lines = append(r.lines, fmt.Sprintf("  %s  partition %s, sequence %d: %s", now.clock(e.Enqueued), partition, e.Sequence, what))
			r.lines = r.lines[max(0, len(r.lines)-shownReadings):]
		}
	}
}

// WriteText writes them for people, the latest first.
func (r Readings) WriteText(out io.Writer) {
	fmt.Fprintf(out, "\nthe hub has %s of it from the last %s", humanize.Count(r.events, "event"), humanize.Span(r.last))
	switch {
	case r.events == 0:
		fmt.Fprint(out, ": check the id (its case matters), or look further back")
	case r.events > len(r.lines):
		fmt.Fprintf(out, ", the latest %d:", len(r.lines))
	}
	fmt.Fprintln(out)
	for _, l := range slices.Backward(r.lines) {
		fmt.Fprintln(out, l)
	}
}

// reached says what an event's readings reach. It sets what the device shares the alerts of rules by.
func (a *Admin) reached(e *telemetry.Event, found []telemetry.Found, of []rules.Reads, shared map[string]string) (text string) {
	for i := range a.Rules.Rules {
		rule := &a.Rules.Rules[i]
		if rule.Silence() || found[of[i].Field].Reason != telemetry.ReasonOK || !rule.Applies(found, of[i].Only, e.Properties) {
			continue
		}
		f := found[of[i].Field]
		if rule.Per != "" {
			shared[rule.Name] = cmp.Or(rules.Shared(e.Properties.Get(rule.Per)), e.Device)
		}
		if text != "" {
			text += "; "
		}
		says := ""
		for j := range rule.Levels { // of the highest that is reached, else of the mildest
			level := &rule.Levels[j]
			limit, own := level.Limit, false
			if level.Override != "" {
				if value, kind := rules.Limit(e.Properties.Get(level.Override)); kind == rules.OverrideUsed {
					limit, own = value, true
				}
			}
			switch reaches := rule.Breaching(f.Value, limit); {
			case reaches:
				says = "reaches "
			case j == 0:
				says = "does not reach "
			default:
				continue
			}
			says += limitOf(level, limit, own) + which(rule.Name, level.Name)
		}
		text += number(f.Value) + ", " + says
	}
	if a.Rules.Quiet != "" && rules.Quiet(e.Properties.Get(a.Rules.Quiet), e.Enqueued) {
		text += ", and is muted"
	}
	return cmp.Or(text, "no rule compares a value of it")
}
