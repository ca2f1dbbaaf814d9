package config

import (
	"cmp"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"alertworker/internal/rules"
)

// silence reads a rule about silence. silent is one duration, or one for each of several levels.
func (r *rulesReader) silence(rule *rules.Rule, silent ast.Node, values map[string]ast.Node) {
	for _, other := range []string{"above", "below", "is", "clear", "hysteresis", "for", "override", "only", "unit"} {
		if at := values[other]; at != nil {
			r.wrong(at, "%s is set beside silent, which compares no readings: make another rule of it", other)
		}
	}
	if at := values["per"]; at != nil {
		r.wrong(at, "per is set beside silent: there are no reminders, so nobody would be notified of a device that falls silent within another one's window; remove it")
	}
	if at := values["valid"]; at != nil && values["field"] == nil {
		r.wrong(at, "valid is set without field: name the field whose readings count")
	}
	if rule.Name == rules.DefaultName {
		r.wrong(values["name"], "temperature is not a name for a rule about silence: receivers expect a temperature")
	}
	g, _ := r.byLevel(silent, "silent")
	if g.one != nil {
		rule.Levels = []rules.Level{{Silent: r.duration(g.one, "silent", rules.MinSilent, rules.MaxSilent)}}
	}
	for i, m := range g.levels {
		rule.Levels = append(rule.Levels, rules.Level{Name: g.names[i], Silent: r.duration(m.value, "silent of "+g.names[i], rules.MinSilent, rules.MaxSilent)})
	}
	r.countLevels(silent, "silent", len(rule.Levels))
	slices.SortStableFunc(rule.Levels, func(a, b rules.Level) int { return cmp.Compare(a.Silent, b.Silent) })
	longest := time.Duration(0)
	for i, l := range rule.Levels {
		if longest > 0 && l.Silent == longest {
			r.wrong(silent, "%s and %s have the same duration", rule.Levels[i-1].Name, l.Name)
		}
		longest = l.Silent
	}
	rule.Forget = max(rules.DefaultForget, 2*longest)
	if at := values["forget"]; at != nil {
		rule.Forget = r.duration(at, "forget", 2*longest, maxForget)
	}
}

// maxForget is the longest LEASE_RETENTION, than which it has to be shorter.
const maxForget = 87600 * time.Hour
