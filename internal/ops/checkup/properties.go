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
			text, _ := p.Text()
			_, err := time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
			_, isBool := p.Bool()
			return err == nil || isBool || strings.EqualFold(string(text), "true") || strings.EqualFold(string(text), "false")
		}})
	}
	return all
}

// verdict says how many of events, all of them telemetry, have p. The error is a warning if
// none does, or if some have something else.
func (p property) verdict(events []telemetry.Event) (string, error) {
	used, literal, other, path := 0, 0, 0, ""
	for i := range events {
		v := events[i].Properties.Get(p.name)
		text, _ := v.Text()
		switch {
		case v.IsNull():
		case p.valid(v):
			used++
		case strings.HasPrefix(string(text), "$twin."):
			literal++
			path = string(text[:min(len(text), 80)])
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
