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
		if other.Rules == nil || self.Rules == nil { // of another version
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
	names := maps.Clone(there)
	maps.Copy(names, here)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		theirs, has := there[name]
		ours, have := here[name]
		switch {
		case name != "" && !has:
			parts = append(parts, "has no rule "+name)
		case name != "" && !have:
			parts = append(parts, "has a rule "+name+", which this one has not")
		default:
			parts = append(parts, differentLines(name, theirs, ours)...)
		}
	}

	return parts
}

// differentLines says in which lines a replica differs about a rule.
func differentLines(name, there, here string) (parts []string) {
	theirs, ours := lines(there), lines(here)
	onlyOurs := slices.DeleteFunc(slices.Clone(ours), func(l string) bool { return slices.Contains(theirs, l) })
	of := strings.TrimPrefix(name+" ", " ")
	for _, line := range theirs {
		if slices.Contains(ours, line) {
			continue
		}

		key, value, _ := strings.Cut(line, ": ")
		instead := "none"
		if i := slices.IndexFunc(onlyOurs, func(l string) bool { return strings.HasPrefix(l, key+": ") }); i >= 0 {
			_, instead, _ = strings.Cut(onlyOurs[i], ": ")
			onlyOurs = slices.Delete(onlyOurs, i, i+1)
		}

		parts = append(parts, fmt.Sprintf("has %s%s %s, here %s", of, key, value, instead))
	}

	for _, line := range onlyOurs {
		key, value, _ := strings.Cut(line, ": ")
		parts = append(parts, fmt.Sprintf("has no %s%s, here %s", of, key, value))
	}

	return parts
}

func lines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return l == "" })
}

// Differ says how the rules of other replicas differ from this one's, "" if they do not. It is a problem once that has
// lasted for longer than a rollout.
func (m *Monitor) Differ(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.differ = differ{what, m.since(ByRules, what != "")}
}

// differ is how the rules of other replicas differ, and since when some do.
type differ struct {
	what  string
	since time.Time
}

// problem returns what there is to say about other rules.
func (d differ) problem(now time.Time) Problem {
	if d.what == "" || now.Sub(d.since) < rulesMayDiffer {
		return Problem{}
	}

	return Problem{
		By:    ByRules,
		What:  d.what,
		Since: d.since,
		Effect: "Each replica decides by its own rules about the partitions that it reads: give all of them the same, and " +
			"restart those that have others.",
	}
}
