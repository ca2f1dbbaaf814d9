package admin

import (
	"fmt"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
)

// A ruleRow is a rule, and how many devices it concerns.
type ruleRow struct {
	Name, Facts        string
	Pending, Open, Due int64
}

// ruleRows returns a row for each rule.
func (a *Admin) ruleRows(counts []partition.AlarmCounts) (rows []ruleRow) {
	for i := range a.Rules.Rules {
		r := &a.Rules.Rules[i]
		row := ruleRow{Name: r.Name, Facts: r.Facts()}
		for _, n := range counts {
			if n.Rule == r.Name {
				row.Pending += int64(n.Pending)
				row.Open += int64(n.Open)
				row.Due += int64(n.Due)
			}
		}

		rows = append(rows, row)
	}

	return rows
}

// silentFor is where a line may break after the first word.
func silentFor(d time.Duration) string {
	return "silent " + strings.ReplaceAll(humanize.Span(d), " ", "\u00a0")
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
		return verb + "the limit of " + humanize.Number(limit)

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
		return humanize.Number(value)
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
