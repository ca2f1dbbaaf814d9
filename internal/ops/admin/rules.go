package admin

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
)

// A ruleRow is one level of a rule, and how many devices it concerns.
type ruleRow struct {
	Rule, Field        string
	Further            bool // it is not the first level of the rule
	Level              string
	Limit              string // a duration of a rule about silence
	For, Clear, Window string // For and Clear are empty if there is none
	ClearFor           string // how long readings must be clear; empty if one is enough
	Notified           bool   // a recovery is sent
	Pending, Open      string // empty if the rule keeps no alarms
	Due                string
	Alarmed            bool // Open is not 0
}

// ruleRows returns a row for each level of each rule, the mildest first.
func (a *Admin) ruleRows(counts []partition.AlarmCounts) (rows []ruleRow) {
	for i := range a.Rules.Rules {
		r := &a.Rules.Rules[i]
		for j := range r.Levels {
			l := &r.Levels[j]
			row := newRuleRow(r, l)
			row.Further = j > 0
			if r.Stateful() {
				row.setAlarms(countOf(counts, r.Name, l.Name))
			}

			rows = append(rows, row)
		}
	}

	return rows
}

// newRuleRow returns the row of a level, without its alarms.
func newRuleRow(r *rules.Rule, l *rules.Level) ruleRow {
	row := ruleRow{
		Rule:     r.Name,
		Field:    cmp.Or(strings.ReplaceAll(r.Field, ",", ", "), "any message"), // a line may break between paths
		Level:    l.Name,
		Limit:    limit(r, l),
		For:      spanOf(l.For),
		ClearFor: spanOf(r.ClearedFor),
		Window:   windowText(r),
		Notified: r.Resolved,
	}

	if hasClear := !r.Silence() && len(r.Is) == 0; hasClear && r.Stateful() {
		row.Clear = clearSign(r) + " " + withoutUnit(r).ClearText(l)
	}

	return row
}

// spanOf is humanize.Span, and "" for 0.
func spanOf(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return humanize.Span(d)
}

// countOf returns the alarms of a level of a rule.
func countOf(counts []partition.AlarmCounts, rule, level string) partition.AlarmCounts {
	for _, n := range counts {
		if n.Rule == rule && n.Level == level {
			return n
		}
	}
	return partition.AlarmCounts{}
}

// setAlarms sets how many devices have alarms.
func (row *ruleRow) setAlarms(n partition.AlarmCounts) {
	row.Pending = count(n.Pending)
	row.Open = count(n.Open)
	row.Due = count(n.Due)
	row.Alarmed = n.Open > 0
}

// windowText shows how often r alerts about a device.
func windowText(r *rules.Rule) string {
	text := humanize.Span(r.Window)
	switch r.Repeat {
	case 0:
		return text
	case rules.Never:
		return text + ", repeat never"
	}

	return text + ", repeat " + humanize.Span(r.Repeat)
}

// limit shows what a level of r alerts at.
func limit(r *rules.Rule, l *rules.Level) string {
	if r.Silence() {
		return silentFor(r.Silent)
	}
	if len(r.Is) > 0 {
		return "is " + humanize.Or(r.Is)
	}

	return sign(r) + "\u00a0" + withoutUnit(r).LimitText(l)
}

// withoutUnit returns r without its unit, for which a row has no room.
func withoutUnit(r *rules.Rule) *rules.Rule {
	bare := *r
	bare.Unit = ""
	return &bare
}

// silentFor is where a line may break after the first word.
func silentFor(d time.Duration) string {
	return "silent " + strings.ReplaceAll(humanize.Span(d), " ", "\u00a0")
}

// sign shows on which side of its limits r alerts.
func sign(r *rules.Rule) string {
	if r.Below {
		return "≤"
	}
	return "≥"
}

// clearSign shows on which side of clear a device is normal again.
func clearSign(r *rules.Rule) string {
	if r.Below {
		return ">"
	}
	return "<"
}

// about names a level of a rule in a table; empty if it is the one that every version has.
func about(rule, level string) string {
	switch {
	case level != "":
		return rule + " · " + level
	case rule == rules.DefaultName:
		return ""
	}

	return rule
}

// which names a level of a rule in brackets, for a sentence, with a space before; empty as about.
func which(rule, level string) string {
	switch {
	case level != "":
		return fmt.Sprintf(" (rule %s, level %s)", rule, level)
	case rule == rules.DefaultName:
		return ""
	}

	return fmt.Sprintf(" (rule %s)", rule)
}

// reaches says that a reading reaches a limit or, with not, that it does not, for a sentence. rule and level are nil
// if they are not configured any more; own says that limit is the device's.
func reaches(not bool, rule *rules.Rule, level *rules.Level, limit float64, own bool) string {
	is, verb := "is ", "reaches "
	if not {
		is, verb = "is not ", "does not reach "
	}

	switch {
	case rule == nil:
		return verb + "the limit of " + number(limit)

	case len(rule.Is) > 0:
		return is + humanize.Or(rule.Is)

	case own:
		return fmt.Sprintf(
			"%sits own limit of %s, by %s instead of %s",
			verb,
			rule.Text(limit),
			level.LimitAt.Name,
			rule.Text(level.Limit),
		)
	}

	return verb + "the limit of " + rule.Text(limit)
}

// textOf shows a value of a rule, which is nil if it is not configured any more.
func textOf(rule *rules.Rule, value float64) string {
	if rule == nil {
		return number(value)
	}
	return rule.Text(value)
}

// only says which messages a rule looks at.
func only(r *rules.Rule) string {
	var all []string
	for _, c := range r.Only {
		all = append(all, c.Name+" "+humanize.Or(c.Values))
	}
	return humanize.And(all)
}

// level returns a level of a rule by their names; nil if it is not configured.
func level(set *rules.Set, rule, level string) (*rules.Rule, *rules.Level) {
	for i := range set.Rules {
		r := &set.Rules[i]
		for j := range r.Levels {
			if r.Name == rule && r.Levels[j].Name == level {
				return r, &r.Levels[j]
			}
		}
	}

	return nil, nil
}
