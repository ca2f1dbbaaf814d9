package checkup

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/humanize"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// Explain says in a sentence what a rule does.
func Explain(r *rules.Rule) string {
	if r.Silence() {
		return explainSilence(r)
	}

	text := "alerts when " + fields(r.Field) + in(r) + " " + breach(r)
	if d, one := lasts(r); one && d > 0 {
		text += " for " + config.Plain(d)
	}

	for i, c := range r.Only {
		word := "only when"
		if i > 0 {
			word = "and"
		}
		text += fmt.Sprintf(", %s %s is %s", word, c.Name, humanize.Or(c.Values))
	}

	if v := r.Valid; v != nil {
		text += "; ignores readings " + outside(v)
	}

	for _, c := range r.Flags {
		text += fmt.Sprintf("; ignores readings whose %s is not %s", c.Name, humanize.Or(c.Values))
	}

	if r.Stateful() {
		text += "; normal again " + ending(r)
	}

	return text + "; " + atMost(r)
}

// explainSilence is Explain for a rule about silence.
func explainSilence(r *rules.Rule) string {
	text := fmt.Sprintf("alerts when a device%s has not sent %s for %s", ofClass(r), expected(r), config.Plain(r.Silent))
	if r.Resolved {
		text += ", with a recovery when it does"
	}

	return text + fmt.Sprintf("; forgets it after %s; %s", config.Plain(r.Forget), atMost(r))
}

// expected says what a rule about silence expects to hear.
func expected(r *rules.Rule) string {
	switch {
	case r.Field == "":
		return "anything" + in(r)
	case r.Valid == nil:
		return "a reading at " + fields(r.Field) + in(r)
	}

	return "a reading at " + fields(r.Field) + in(r) + " that is not " + outside(r.Valid)
}

// in says in what r looks for a field, if that is not the message.
func in(r *rules.Rule) string {
	switch r.Each {
	case "":
		return ""
	case ".":
		return " in each element"
	}

	return " in each of " + r.Each
}

// breach says what a reading is that is worth an alert.
func breach(r *rules.Rule) string {
	is, beyond := "is", "at or above"
	if slices.ContainsFunc(r.Levels, func(l rules.Level) bool { return l.For > 0 }) {
		is = "has been"
	}

	if r.Below {
		beyond = "at or below"
	}

	if len(r.Is) > 0 {
		return is + " " + humanize.Or(r.Is)
	}

	return is + " " + beyond + " " + limits(r)
}

// ending says when a device is normal again, and who hears of that.
func ending(r *rules.Rule) string {
	side, sent := "below", "without a recovery"
	if r.Below {
		side = "above"
	}

	if r.Resolved {
		sent = "with a recovery"
	}

	ends := side + " " + clears(r)

	if len(r.Is) > 0 {
		ends = "with any other value"
	}

	if r.ClearedFor > 0 {
		ends += " for " + config.Plain(r.ClearedFor)
	}

	return ends + ", " + sent
}

// ofClass says which devices r expects to hear from, if these are not all.
func ofClass(r *rules.Rule) string {
	var says []string
	for _, c := range r.Only {
		says = append(says, c.Name+" is "+humanize.Or(c.Values))
	}
	if len(says) == 0 {
		return ""
	}

	return ", of which the last message says that " + humanize.And(says) + ","
}

// ExplainMute says in a sentence when m mutes what.
func ExplainMute(m *rules.Mute) string {
	return fmt.Sprintf(
		"mutes %s; the time of arrival at the hub counts, and what is still open when it ends alerts then",
		m.When(),
	)
}

// atMost says how often r alerts.
func atMost(r *rules.Rule) string {
	each := cmp.Or(r.Per, "device")
	if len(r.Sensor) > 0 && r.Per == "" {
		each = "sensor (" + strings.Join(r.Sensor, "/") + ")"
	}
	if len(r.Levels) > 1 {
		each += " and level"
	}
	text := fmt.Sprintf("at most one alert per %s in %s", each, config.Plain(r.Window))
	open := "an alarm"
	if r.Grouped() {
		text = fmt.Sprintf("one incident per %s, with at most one alert in %s", each, config.Plain(r.Window))
		open = "an incident"
	}

	switch r.Repeat {
	case 0:
		return text
	case rules.Never:
		return text + ", and none again about " + open + " that stays open"
	}

	return text + fmt.Sprintf(", and about %s that stays open again after %s", open, config.Plain(r.Repeat))
}

// outside shows the readings that are not valid.
func outside(v *telemetry.Range) string {
	switch {
	case math.IsInf(v.From, 0):
		return fmt.Sprintf("above %v", v.To)
	case math.IsInf(v.To, 0):
		return fmt.Sprintf("below %v", v.From)
	}

	return fmt.Sprintf("below %v and above %v", v.From, v.To)
}

// fields shows where a reading is: a (or b, or c).
func fields(list string) string {
	first, others, several := strings.Cut(list, ",")
	if !several {
		return first
	}
	return fmt.Sprintf("%s (or %s)", first, strings.ReplaceAll(others, ",", ", or "))
}

// lasts returns how long readings must have reached a limit of r, and whether that is the same for all.
func lasts(r *rules.Rule) (d time.Duration, one bool) {
	d = r.Levels[0].For
	return d, !slices.ContainsFunc(r.Levels, func(l rules.Level) bool { return l.For != d })
}

// limits shows those of r: 70 (warning, for 10m) or 80 (critical, or its maxTemp).
func limits(r *rules.Rule) string {
	_, one := lasts(r)
	return levels(r, func(l rules.Level) (any, []string) {
		var notes []string
		if !one {
			notes = append(notes, "for "+config.Plain(l.For))
		}

		if name := l.LimitAt.Name; name != "" && !l.LimitAt.Plus {
			notes = append(notes, "or its "+name)
			return r.Text(l.Limit), notes
		}

		return r.LimitText(&l), notes
	})
}

// clears shows those of r: 65 (warning) or 75 (critical), or 65 if it is one for all.
func clears(r *rules.Rule) string {
	text := func(l rules.Level) string {
		if l.ClearAt.Name == "" {
			return r.ClearText(&l)
		}
		return fmt.Sprintf("%s (or its %s)", r.Text(l.Clear), l.ClearAt.Name)
	}

	one := text(r.Levels[0])
	if !slices.ContainsFunc(r.Levels, func(l rules.Level) bool { return text(l) != one }) {
		return one
	}

	return levels(r, func(l rules.Level) (any, []string) { return text(l), nil })
}

// levels shows a value of each level of r, with the level's name and other notes.
func levels(r *rules.Rule, show func(rules.Level) (value any, notes []string)) string {
	var parts []string
	for _, l := range r.Levels {
		value, notes := show(l)
		if l.Name != "" {
			notes = slices.Insert(notes, 0, l.Name)
		}

		part := fmt.Sprint(value)
		if len(notes) > 0 {
			part += fmt.Sprintf(" (%s)", strings.Join(notes, ", "))
		}

		parts = append(parts, part)
	}

	return humanize.Or(parts)
}
