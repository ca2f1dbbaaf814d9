package checkup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"alertworker/internal/config"
	"alertworker/internal/humanize"
	"alertworker/internal/notify"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/rules"
)

// routes says who gets the alerts of each rule and level; nothing if everybody gets all.
func routes(set rules.Set, rs []receivers.Receiver) []string {
	if !slices.ContainsFunc(rs, func(r receivers.Receiver) bool { return len(r.Filters) > 0 }) {
		return nil
	}

	var lines []string
	for i := range set.Rules {
		rule := &set.Rules[i]
		for _, level := range rule.Levels {
			to := cmp.Or(strings.Join(wanting(rule, level.Name, rs), ", "), "nobody")
			lines = append(lines, fmt.Sprintf("%s: goes to %s", config.RuleAndLevel(rule.Name, level.Name), to))
		}
	}

	return lines
}

// wanting returns the receivers that get alerts of a rule and level, with the condition that they have for messages.
func wanting(rule *rules.Rule, level string, rs []receivers.Receiver) (names []string) {
	for _, r := range rs {
		if !r.Filters.Cover(rule.Name, level) {
			continue
		}

		name := r.Name
		if where := condition(r.Filters, rule.Name, level); where != "" && !rule.Silence() { // it sends no message
			name += " (" + where + ")"
		}

		names = append(names, name)
	}

	return names
}

// condition says which messages alerts of a rule and level must be about; "" if any.
func condition(filters notify.Filters, rule, level string) string {
	var parts []string
	for _, f := range filters {
		if !f.Covers(rule, level) {
			continue
		}
		if f.Property == "" {
			return ""
		}

		parts = append(parts, fmt.Sprintf("where %s is %s", f.Property, humanize.Or(f.Values)))
	}

	return strings.Join(parts, ", or ")
}
