package checkup

import (
	"fmt"
	"strings"
	"time"

	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// A property is an application property that a rule, or all of them, look at.
type property struct {
	name, use, must string
	valid           func(telemetry.Property) bool
}

// properties returns those that set looks at.
func properties(set rules.Set) (all []property) {
	for _, r := range set.Rules {
		for _, l := range r.Levels {
			if l.Override == "" {
				continue
			}
			of := r.Name
			if l.Name != "" {
				of += ", " + l.Name
			}
			all = append(all, property{l.Override, "the limit of " + of, "a number", func(p telemetry.Property) bool {
				_, kind := rules.Limit(p)
				return kind == rules.OverrideUsed
			}})
		}
	}
	if set.Quiet != "" {
		all = append(all, property{set.Quiet, "quiet", "true, false or an RFC 3339 time", func(p telemetry.Property) bool {
			_, err := time.Parse(time.RFC3339, strings.TrimSpace(string(p.Text)))
			return err == nil || p.Kind == telemetry.PropertyTrue || p.Kind == telemetry.PropertyFalse ||
				strings.EqualFold(string(p.Text), "true") || strings.EqualFold(string(p.Text), "false")
		}})
	}
	return all
}

// verdict says how many of events, all of them telemetry, have p. The error is a warning if
// none does, or if some have something else.
func (p property) verdict(events []telemetry.Event) (string, error) {
	used, literal, other, path := 0, 0, 0, ""
	for i := range events {
		switch v := events[i].Properties.Get(p.name); {
		case v.Kind == telemetry.PropertyAbsent:
		case p.valid(v):
			used++
		case v.Kind == telemetry.PropertyText && strings.HasPrefix(string(v.Text), "$twin."):
			literal++
			path = string(v.Text[:min(len(v.Text), 80)])
		default:
			other++
		}
	}
	text := fmt.Sprintf("%s (%s): in %d of %s", p.name, p.use, used, count(len(events), "event"))
	if literal > 0 {
		text += fmt.Sprintf("; in %d it is the text %s: the twin has no such path", literal, path)
	}
	if other > 0 {
		text += fmt.Sprintf("; in %d it is something else and not used: must be %s", other, p.must)
	}
	if used+literal+other == 0 {
		text += ": does the IoT Hub have a message enrichment of this name?"
	}
	if used == 0 || other > 0 {
		return "", warning(text)
	}
	return text, nil
}
