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
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
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
	_, text := f.why()
	if _, err := fmt.Fprintf(out, "%s: %s\n\n", device, text); err != nil {
		return err
	}
	for _, s := range f.state.Alarms {
		fmt.Fprintf(out, "alarm%s: %s (partition %s)\n", which(s.Rule, s.Level), f.alarmText(s), s.Partition)
	}
	for i := range f.set.Rules {
		if r := &f.set.Rules[i]; r.Silence() {
			f.writeHeard(out, r)
		}
	}
	for _, g := range f.gates {
		f.writeWindow(out, g)
	}
	for _, s := range f.silences {
		fmt.Fprintf(out, "silence %s: %s\n", s.ID, f.silenceText(s))
	}
	for _, e := range f.ended {
		if e.Reason != "" {
			fmt.Fprintf(out, "dead letter: %s\n", f.deadLetter(&e))
		}
	}
	for _, missing := range []struct {
		what string
		err  error
	}{{"alarms", f.ledgerErr}, {"times when it was heard", f.rosterErr}, {"dead letters", f.letterErr}, {"silences", f.silenceErr}} {
		if missing.err != nil {
			fmt.Fprintf(out, "not all %s are known: %v\n", missing.what, missing.err)
		}
	}
	return nil
}

// writeHeard writes when the device was heard last, as a rule about silence counts it, and when it is silent.
func (f findings) writeHeard(out io.Writer, r *rules.Rule) {
	heard := false
	for _, h := range f.state.Heard {
		if h.Rule != r.Name {
			continue
		}
		heard = true
		var deadlines []string
		for _, d := range h.Deadlines {
			text := "none, as it may be silent for ever"
			switch {
			case d.At.IsZero():
			case d.At.After(f.now):
				text = f.until(d.At)
			default:
				text = f.at(d.At)
			}
			if d.Level != "" {
				text += " for level " + d.Level
			}
			deadlines = append(deadlines, text)
		}
		asOf := ""
		if !h.AsOf.IsZero() {
			asOf = ", as of " + f.clock(h.AsOf)
		}
		fmt.Fprintf(out, "rule %s: last heard %s in partition %s%s; deadline %s\n", r.Name, f.at(h.At), h.Partition, asOf, strings.Join(deadlines, ", "))
	}
	if !heard {
		fmt.Fprintf(out, "rule %s: no partition is known to have heard it\n", r.Name)
	}
}

// writeWindow writes what the store knows of a window.
func (f findings) writeWindow(out io.Writer, g gateState) {
	shared := ""
	if g.Shared != "" {
		shared = ", shared by devices with " + g.Shared
	}
	fmt.Fprintf(out, "receiver %s%s%s: %s\n", g.Receiver, which(g.Rule, g.Level), shared, f.windowText(g))
}

// alarmText says what state an alarm is in.
func (f findings) alarmText(s worker.AlarmState) string {
	text := "normal"
	switch {
	case s.Phase == rules.Normal:
	case s.Silence:
		text = fmt.Sprintf("%s: not heard since %s, for longer than %s", s.Phase, f.clock(s.Since), humanize.Span(time.Duration(s.Limit)*time.Second))
	default:
		text = fmt.Sprintf("%s since %s, when %s reached %s", s.Phase, f.clock(s.Since), number(s.Value), number(s.Limit))
		if _, level := f.level(s.Rule, s.Level); level != nil && level.Override != "" && s.Limit != level.Limit {
			text += fmt.Sprintf(", its own limit (property %s, instead of %s)", level.Override, number(level.Limit))
		}
	}
	if !s.Due.IsZero() {
		text += fmt.Sprintf("; a recovery has been due since %s", f.clock(s.Due))
	}
	return text
}

// windowText says what the store knows of a device's window.
func (f findings) windowText(g gateState) string {
	by := g.Replica
	if by == "" {
		by = "a replica"
	}
	delivered, message := g.delivered(), "a message"
	if g.Recovery {
		message = "a recovery"
	}
	switch {
	case g.err != nil:
		return fmt.Sprintf("not known: %v", g.err)
	case g.Phase == throttle.Sending:
		return fmt.Sprintf("%s has been sending since %s, or has died: it has a claim until %s", by, f.clock(g.Claimed), f.until(g.Until))
	case g.Phase == throttle.Closed:
		return fmt.Sprintf("%s delivered an alert %s; the window is in force until %s", by, f.at(delivered), f.until(g.Until))
	case g.Claimed.IsZero():
		return "no alert is recorded"
	case g.Unresolved:
		return fmt.Sprintf("%s sent %s %s, and it is not known whether it was accepted; no window is in force", by, message, f.at(g.Claimed))
	case delivered.IsZero():
		return fmt.Sprintf("%s last sent %s %s; no window is in force", by, message, f.at(g.Claimed))
	}
	return fmt.Sprintf("an alert was delivered %s; its window is over", f.at(delivered))
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
		says := "below "
		if rule.Below {
			says = "above "
		}
		for j := range rule.Levels { // of the highest that is reached, else of the mildest
			level := &rule.Levels[j]
			r := worker.Reading{Value: f.Value, Limit: level.Limit}
			if level.Override != "" {
				if own, kind := rules.Limit(e.Properties.Get(level.Override)); kind == rules.OverrideUsed {
					r.Limit, r.Own = own, true
				}
			}
			switch reaches := rule.Breaching(f.Value, r.Limit); {
			case reaches:
				says = "reaches " + limitOf(rule, level, r)
			case j == 0:
				says += limitOf(rule, level, r)
			}
		}
		text += number(f.Value) + ", " + says
	}
	if a.Rules.Quiet != "" && rules.Quiet(e.Properties.Get(a.Rules.Quiet), e.Enqueued) {
		text += ", and is muted"
	}
	return cmp.Or(text, "no rule compares a value of it")
}
