package partition

import (
	"math"
	"net/url"
	"strings"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// A rule is one of Rulebook.Rules as an Evaluator uses it.
type rule struct {
	*rules.Rule
	reads    *rules.Reads // of what the decoder finds
	levels   []*level     // the highest first
	stateful bool
	override bool    // see rules.Rule.HasReferences
	mildest  float64 // limit, unless override
}

// look is rules.Rule.Look.
func (r *rule) look(found []telemetry.Found) rules.Look { return r.Look(found, r.reads) }

// A level is one of a rule's as an Evaluator uses it: what alarms, deliveries and gates are
// for.
type level struct {
	*rules.Level
	rule *rule
	// since then it is not configured any more, but had an alarm, by the clock of the ledger's store. Else zero
	removed time.Time
	was     string          // its rule's Measured then
	own     *delivery.Topic // of notices about a device
	shared  *delivery.Topic // of alerts about a value of the rule's Per; nil if it has none
	index   uint8           // in Evaluator.levels; 0 unless it is configured
	rank    int             // how many levels of its rule are higher
	stats   *LevelCounters
}

// target sets the topics of l.
func (l *level) target(c *Rulebook) {
	l.own = l.topic(c, l.rule.Alone())
	if l.rule.Per != "" {
		l.shared = l.topic(c, l.rule.Rule)
	}
}

// topic returns the topic of l, a level of r, whose Per counts.
func (l *level) topic(c *Rulebook, r *rules.Rule) *delivery.Topic {
	t := &delivery.Topic{
		Rank:      l.rank,
		Shared:    r.Per != "",
		Incidents: r.Grouped(),
		Suffix:    suffix(r, l.Name),
		Silence:   r.Silence(),
		Words:     r.Is,
		Repeat:    r.Repeat,
		Sent:      &l.stats.Sent,
		Recovered: &l.stats.Recovered,
		Message: notify.Alert{
			Per:         r.Per,
			Rule:        r.Name,
			Level:       l.Name,
			WillResolve: r.Resolved,
			Removed:     !l.removed.IsZero(),
			Below:       r.Below,
			OwnLimit:    r.HasReferences(),
			Title:       r.Title,
			Unit:        r.Unit,
			Runbook:     r.Runbook,
			Window:      r.Window,
			Replica:     c.Replica,
		},
	}

	if r.Repeat != rules.Never {
		t.Message.Repeat = r.Repeat
	}

	if r.Silence() {
		t.Suffix += "/silent"
	}

	t.Message.Source = "/" + c.Origin + t.Suffix
	if r.Name != rules.DefaultName {
		t.Message.Field = r.Field
	}

	for _, to := range c.Receivers {
		t.Gates = append(t.Gates, to.Gate(r, l.Level))
	}

	return t
}

// suffix tells the ids and sources of a level's alerts from those of all others. The rule
// temperature with its one limit has none.
func suffix(r *rules.Rule, level string) string {
	if r.Name == rules.DefaultName && level == "" && r.Per == "" {
		return ""
	}

	s := strings.TrimSuffix("/"+r.Name+"/"+level, "/")
	if r.Per != "" {
		s += "/by-" + url.PathEscape(r.Per)
	}

	return s
}

// compare is rules.Look.Compare.
func (l *level) compare(look *rules.Look, found []telemetry.Found) rules.Comparison {
	place := len(l.rule.Levels) - 1 - l.rank
	return look.Compare(place, found, l.rule.reads)
}

// measured returns the rules.Rule.Measured of l's rule.
func (l *level) measured() string {
	if l.removed.IsZero() {
		return l.rule.Measured()
	}
	return l.was
}

// per returns the name under which members of incidents of l share a value; empty if it has none.
func (l *level) per() string {
	if !l.grouped() {
		return ""
	}
	return l.rule.Per
}

// grouped reports whether alarms of l are members of incidents.
func (l *level) grouped() bool { return l.shared != nil && l.shared.Incidents }

// lastElement is behind all elements of a message: 0 if a message has one for l.
func (l *level) lastElement() int {
	if l.measured() == "" {
		return 0
	}
	return math.MaxInt32
}

// content returns what the ledger has to hold of l.
func (l *level) content() ledger.Level {
	r := l.rule
	return ledger.Level{
		Rule:     r.Name,
		Name:     l.Name,
		Resolved: r.Resolved,
		Below:    r.Below,
		Field:    r.Field,
		Window:   r.Window,
		Silent:   r.Silent,
		Is:       r.Is,
		Measured: l.measured(),
		Per:      l.per(),
		Title:    r.Title,
		Unit:     r.Unit,
		Runbook:  r.Runbook,
		Removed:  l.removed,
	}
}
