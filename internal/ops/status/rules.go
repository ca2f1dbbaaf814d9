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
	ours := values(self.Rules)
	for _, other := range others {
		theirs := values(other.Rules)
		keys := maps.Clone(theirs)
		maps.Copy(keys, ours)
		maps.DeleteFunc(keys, func(key, _ string) bool { return theirs[key] == ours[key] })
		if other.Rules == nil || len(keys) == 0 { // of another version, or the same
			continue
		}

		key := slices.Min(slices.Collect(maps.Keys(keys)))
		what := fmt.Sprintf("replica %s has %s %s, here %s", other.Replica, key, cmp.Or(theirs[key], "none"), cmp.Or(ours[key], "none"))
		if more := len(keys) - 1; more > 0 {
			what += fmt.Sprintf(" (and %d more)", more)
		}

		return what
	}

	return ""
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

// Compare compares what self, this replica, decides by with what n others do, as far as others say it, and reports whether
// all decide alike: one of another version may not say it. That some differ is a problem once it has lasted for longer than
// a rollout.
func (m *Monitor) Compare(self Statement, others []Statement, n int) (alike bool) {
	differ := Differing(self, others)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.differ = differ
	m.since(ByRules, differ != "")
	saysNothing := func(other Statement) bool { return other.Rules == nil }
	return differ == "" && len(others) == n && !slices.ContainsFunc(others, saysNothing)
}

// rulesProblem returns what there is to say about other rules; an empty one if they do not differ. The caller holds m.mu.
func (m *Monitor) rulesProblem(now time.Time) Problem {
	since := m.began[ByRules]
	if now.Sub(since) < rulesMayDiffer {
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
