package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// WriteJSON writes what GET /devices/{id} answers.
func (a *Admin) WriteJSON(ctx context.Context, out io.Writer, device string) error {
	to := json.NewEncoder(out)
	to.SetIndent("", "  ")
	return to.Encode(a.deviceView(device, a.findings(ctx, device)))
}

// WriteText writes the same for people.
func (a *Admin) WriteText(ctx context.Context, out io.Writer, device string) error {
	f := a.findings(ctx, device)
	_, text := f.why()
	if _, err := fmt.Fprintf(out, "%s: %s\n\n", device, text); err != nil {
		return err
	}
	for _, s := range f.state.Alarms {
		fmt.Fprintf(out, "alarm%s: %s (partition %s)\n", which(s.Rule, s.Level), f.alarmText(s), s.Partition)
	}
	for _, g := range f.gates {
		fmt.Fprintf(out, "receiver %s%s: %s\n", g.receiver, which(g.rule, g.level), f.windowText(g))
	}
	for _, e := range f.ended {
		if e.reason != "" {
			fmt.Fprintf(out, "dead letter: %s\n", f.deadLetter(&e))
		}
	}
	for what, err := range map[string]error{"alarms": f.ledgerErr, "dead letters": f.letterErr} {
		if err != nil {
			fmt.Fprintf(out, "not all %s are known: %v\n", what, err)
		}
	}
	return nil
}

// alarmText says what state an alarm is in.
func (f findings) alarmText(s worker.AlarmState) string {
	text := "normal"
	if s.Phase != rules.Normal {
		text = fmt.Sprintf("%s since %s, when %s reached %s", s.Phase, f.clock(s.Since), number(s.Value), number(s.Limit))
		if _, level := f.level(s.Rule, s.Level); level != nil && level.Override != "" && s.Limit != level.Limit {
			text += fmt.Sprintf(", its own limit (property %s, instead of %s)", level.Override, number(level.Limit))
		}
	}
	if !s.Due.IsZero() {
		text += fmt.Sprintf("; a recovery is due since %s", f.clock(s.Due))
	}
	return text
}

// windowText says what the store knows of a device's window.
func (f findings) windowText(g gateState) string {
	by := g.Replica
	if by == "" {
		by = "a replica"
	}
	delivered := g.delivered()
	switch {
	case g.err != nil:
		return fmt.Sprintf("not known: %v", g.err)
	case g.Phase == throttle.Sending:
		return fmt.Sprintf("%s is sending since %s, or has died: it has a claim until %s", by, f.clock(g.Claimed), f.until(g.Until))
	case g.Phase == throttle.Closed:
		return fmt.Sprintf("%s delivered an alert %s; the window is in force until %s", by, f.at(delivered), f.until(g.Until))
	case g.Claimed.IsZero():
		return "no alert is recorded"
	case g.Unresolved:
		return fmt.Sprintf("%s sent a message %s, and it is not known whether it was taken; no window is in force", by, f.at(g.Claimed))
	case delivered.IsZero():
		return fmt.Sprintf("%s sent the last message %s; no window is in force", by, f.at(g.Claimed))
	}
	return fmt.Sprintf("an alert was delivered %s; its window is over", f.at(delivered))
}

// shownReadings is how many of a device's readings are shown.
const shownReadings = 10

// A History returns the next events of a partition, valid until the next call, and io.EOF after the last.
type History interface {
	Next(ctx context.Context) (partition string, events []telemetry.Event, err error)
}

// WriteReadings writes the device's last readings in h, which is of the last so long, and what they reach.
func (a *Admin) WriteReadings(ctx context.Context, out io.Writer, device, last string, h History) error {
	decoder, err := a.Rules.Decoder()
	if err != nil {
		return err
	}
	fields, of := a.Rules.Fields()
	found := make([]telemetry.Found, len(fields))
	var lines []string
	n := 0
	for {
		partition, events, err := h.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the device's readings: %w", err)
		}
		for i := range events {
			e := &events[i]
			if e.Device != device {
				continue
			}
			n++
			what := ""
			if reason := decoder.DecodeAll(e, found); reason == telemetry.ReasonOK {
				what = a.reached(e, found, of)
			} else {
				what = reason.Text()
			}
			lines = append(lines, fmt.Sprintf("  %s  partition %s, sequence %d: %s", e.Enqueued.UTC().Format("15:04:05 UTC"), partition, e.Sequence, what))
			lines = lines[max(0, len(lines)-shownReadings):]
		}
	}
	fmt.Fprintf(out, "\nthe hub has %s readings of it from the last %s", count(int64(n)), last)
	if n > len(lines) {
		fmt.Fprintf(out, ", the last %d", len(lines))
	}
	fmt.Fprintln(out)
	for _, l := range slices.Backward(lines) {
		fmt.Fprintln(out, l)
	}
	return nil
}

// reached says what an event's readings reach.
func (a *Admin) reached(e *telemetry.Event, found []telemetry.Found, of []rules.Reads) (text string) {
	for i := range a.Rules.Rules {
		rule, f := &a.Rules.Rules[i], found[of[i].Field]
		if f.Reason != telemetry.ReasonOK || !rule.Applies(found, of[i].Only, e.Properties) {
			continue
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
	return text
}
