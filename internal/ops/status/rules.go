package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// rulesMayDiffer is for how long replicas may have different rules, as in a rollout, until that is a problem.
const rulesMayDiffer = 10 * time.Minute

// Differing returns in a clause how the rules of one of the others differ from self's, "" if all replicas decide alike.
func Differing(self Statement, others []Statement) string {
	slices.SortFunc(others, func(a, b Statement) int { return cmp.Compare(a.Replica, b.Replica) })
	for _, other := range others {
		if other.Rules == nil { // of another version
			continue
		}

		if parts := differences(other.Rules, self.Rules); len(parts) > 0 {
			what := "replica " + other.Replica + " " + parts[0]
			if more := len(parts) - 1; more > 0 {
				what += fmt.Sprintf(" (and %d more)", more)
			}
			return what
		}
	}

	return ""
}

// SayRules reports whether each of n replicas says what it decides by, which those of another version may not.
func SayRules(of []Statement, n int) bool {
	silent := func(m Statement) bool { return m.Rules == nil }
	return len(of) == n && !slices.ContainsFunc(of, silent)
}

// differences says what a replica has instead of what is here, each as rules.Set.Facts.
func differences(there, here map[string]string) (parts []string) {
	theirs, ours := values(there), values(here)
	keys := maps.Clone(theirs)
	maps.Copy(keys, ours)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if theirs[key] != ours[key] {
			parts = append(parts, fmt.Sprintf("has %s %s, here %s", key, cmp.Or(theirs[key], "none"), cmp.Or(ours[key], "none")))
		}
	}

	return parts
}

// values returns the values of facts by rule and key, such as "hot above".
func values(facts map[string]string) map[string]string {
	all := map[string]string{}
	for name, text := range facts {
		lines := strings.Split(text, "\n")
		slices.Sort(lines)
		for _, line := range lines {
			key, value, _ := strings.Cut(line, ": ")
			key = strings.TrimSpace(name + " " + key)
			all[key] = strings.TrimPrefix(all[key]+", "+value, ", ")
		}
	}

	return all
}

// Differ says how the rules of other replicas differ from this one's, "" if they do not. It is a problem once that has
// lasted for longer than a rollout.
func (m *Monitor) Differ(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.differ = what
	m.since(ByRules, what != "")
}

// rulesProblem returns what there is to say about other rules. The caller holds m.mu.
func (m *Monitor) rulesProblem(now time.Time) Problem {
	since := m.began[ByRules]
	if since.IsZero() || now.Sub(since) < rulesMayDiffer {
		return Problem{}
	}

	return Problem{
		By:    ByRules,
		What:  m.differ,
		Since: since,
		Effect: "Each replica decides by its own rules about the partitions that it reads: give all of them the same, and " +
			"restart those that have others.",
	}
}
