package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/telemetry"
)

// lateLimit is how late readings may be read before an alert no longer counts as one that goes out.
const lateLimit = 5 * time.Minute

// A Statement is what a replica says about itself to the others.
type Statement struct {
	Replica string        `json:"replica"`
	Status  Report        `json:"status"`
	Late    time.Duration `json:"late"` // the most by which it may be behind in a partition
	// Rules are what it decides by, as rules.Set.Facts; nil if it does not say.
	Rules map[string]string `json:"rules,omitempty"`
}

// JSON returns m for the others, in at most limit bytes, which are some KiB. What does not fit is left out: its rules, and
// then the last problems, because without m nobody would know what is wrong here.
func (m Statement) JSON(limit int) []byte {
	for {
		b, _ := json.Marshal(m) // strings, numbers and times: cannot fail
		if len(b) <= limit || m.Rules == nil && len(m.Status.Problems) < 2 {
			return b
		}

		m.Rules, m.Status.Problems = nil, m.Status.Problems[:(len(m.Status.Problems)+1)/2]
	}
}

// WouldArrive returns why an alert of some device would not go out, in a sentence, and "" if all would: every
// partition has an owner that reads it without being late, the services answer, and no receiver is down. self is the
// replica that asks, others the other replicas that are alive, and partitions those of the hub, unless err says why
// they are not known.
func WouldArrive(
	now time.Time,
	self Statement,
	others []Statement,
	partitions []telemetry.PartitionStatus,
	err error,
) string {
	unread := Unowned(partitions)
	if err != nil {
		unread = "Cannot tell who reads the partitions: " + err.Error()
	}

	return cmp.Or(self.trouble(now), Trouble(now, others), unread)
}

// Statements returns what replicas say about themselves; those of another version may say nothing.
func Statements(reports [][]byte) (all []Statement) {
	for _, report := range reports {
		var m Statement
		if err := json.Unmarshal(report, &m); err == nil && m.Replica != "" {
			all = append(all, m)
		}
	}

	return all
}

// Trouble returns why alerts of partitions that these replicas read would not go out, and "" if all would.
func Trouble(now time.Time, of []Statement) string {
	for _, m := range of {
		if m.is(Starting, Draining) {
			continue // the partitions tell
		}

		if why := m.trouble(now); why != "" {
			return "replica " + m.Replica + ": " + why
		}
	}

	return ""
}

// Accepting returns the receivers that have just accepted an alert from any of these replicas.
func Accepting(of []Statement) (names []string) {
	for _, m := range of {
		names = append(names, m.Status.Accepting...)
	}

	slices.Sort(names)
	return slices.Compact(names)
}

// is reports whether m's replica is in one of these states.
func (m Statement) is(states ...State) bool { return slices.Contains(states, m.Status.State) }

// Warning returns what one of these replicas says that keeps no alert from going out: that a new secret does not work, or
// that others have other rules. It returns "" if there is nothing.
func Warning(now time.Time, of []Statement) string {
	warns := func(p Problem) bool { return words[p.By].warns }
	for _, m := range of {
		if i := slices.IndexFunc(m.Status.Problems, warns); i >= 0 {
			return "replica " + m.Replica + ": " + m.Status.Problems[i].Line(now)
		}
	}

	return ""
}

// trouble returns why alerts of m's partitions would not go out.
func (m Statement) trouble(now time.Time) string {
	notOnly := slices.ContainsFunc(m.Status.Problems, func(p Problem) bool { return !words[p.By].harmless })

	switch {
	case m.is(GoingOut, Idle, Standby):
	case m.is(Impaired) && !notOnly: // they go out
	case len(m.Status.Problems) > 0:
		return m.Status.Headline + " " + humanize.Capital(m.Status.Problems[0].Line(now))
	default:
		return m.Status.Headline
	}

	if m.Late > lateLimit {
		return fmt.Sprintf("Readings are read %s late.", humanize.Span(m.Late))
	}

	return ""
}

// Unowned says in a sentence which partitions have no owner; empty if all have one.
func Unowned(partitions []telemetry.PartitionStatus) string {
	names := map[string]bool{}
	for _, p := range partitions {
		if p.Owner == "" {
			names[p.Partition] = true
		}
	}

	if len(names) == 0 {
		return ""
	}

	return humanize.Capital(partitionNames(names)) + " " + isAre(len(names)) + " not being read by any replica."
}
