package admin

import (
	"alertworker/internal/humanize"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
	"slices"
)

// A ruleRow is a rule, and how many devices it concerns.
type ruleRow struct {
	Name, Facts        string
	Pending, Open, Due int64
}

// ruleRows returns a row for each rule.
func (a *Admin) ruleRows(counts []partition.AlarmCounts) (rows []ruleRow) {
	for i := range a.options.Rules.Rules {
		r := &a.options.Rules.Rules[i]
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

// limitText shows a limit of a rule.
func limitText(rule *rules.Rule, limit float64) string {
	if len(rule.Is) > 0 {
		return humanize.Or(rule.Is)
	}
	return rule.Text(limit)
}

// only says which messages a rule looks at.
func only(r *rules.Rule) string {
	var all []string
	for _, c := range r.Only {
		all = append(all, c.Name+" "+humanize.Or(c.Values))
	}
	return humanize.And(all)
}

// ruleOf returns the rule of this name; one without keys if it is not configured.
func ruleOf(set *rules.Set, name string) *rules.Rule {
	if i := slices.IndexFunc(set.Rules, func(r rules.Rule) bool { return r.Name == name }); i >= 0 {
		return &set.Rules[i]
	}
	return &rules.Rule{Name: name}
}
