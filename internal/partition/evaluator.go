package partition

import (
	"net/url"
	"strings"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// A Rulebook is what an [Evaluator] evaluates. All fields but Clock, Mutes and FollowAll are required.
type Rulebook struct {
	Origin    string // "<namespace>/<hub>": where events come from, in alert ids
	Replica   string // a label for people
	Rules     rules.Set
	Decoder   *telemetry.Decoder  // for the fields of Rules
	Clock     *rules.Clock        // for the time of Rules; nil if they have none
	Receivers []Receiver          // in the order in which deliveries know them
	Mutes     func() []rules.Mute // what people have silenced. It takes no time; nil: nothing
	Counters  *Counters           // its Levels are set
	FollowAll bool                // alarms of rules about readings without state are followed, too
}

// A Receiver is what has to be known of one to decide what it gets.
type Receiver struct {
	Filters notify.Filters // which alerts it gets
	// Gate returns the receiver's gate for a level of a rule, which is of what devices share if that has Per. It is called
	// once for each level of Rulebook.Rules; once more without Per if there is one, for devices without that property; and
	// at each take-over for levels that are not configured any more but have alarms.
	Gate func(*rules.Rule, *rules.Level) *throttle.Gate
}

// An Evaluator takes events through rules. It does not change, and serves all partitions of a replica at once.
type Evaluator struct {
	Rulebook
	fields   int     // that Decoder finds
	rules    []*rule // about readings
	silences []*rule
	levels   []*level // in the order of Rules
	stateful bool
}

// NewEvaluator returns an Evaluator of b.
func NewEvaluator(b Rulebook) *Evaluator {
	ev := &Evaluator{Rulebook: b, stateful: b.Rules.Stateful()}
	fields, _ := b.Rules.Fields()
	ev.fields = len(fields)
	n := 0
	for _, r := range b.Rules.Rules {
		n += len(r.Levels)
	}

	b.Counters.Levels = make([]LevelCounters, n)
	ev.compile()

	return ev
}

// IDs returns how the ids of alerts begin about the readings of a partition, or of whatever else has this name.
func (ev *Evaluator) IDs(name string) string { return ev.Origin + "/" + name + "/" }

// A rule is one of Config.Rules as an Evaluator uses it.
type rule struct {
	*rules.Rule
	reads    rules.Reads // of what the decoder finds
	levels   []*level    // the highest first
	stateful bool
	override bool    // whether a level has one
	mildest  float64 // limit, if no level has an override
}

// A level is one of a rule's as an Evaluator uses it: what alarms, deliveries and gates are
// for.
type level struct {
	*rules.Level
	rule *rule
	// since then it is not configured any more, but had an alarm, by the clock of the ledger's store. Else zero
	removed time.Time
	own     *delivery.Topic // of notices about a device
	shared  *delivery.Topic // of alerts about a value of the rule's Per; nil if it has none
	index   uint8           // in Evaluator.levels; 0 unless it is configured
	rank    int             // how many levels of its rule are higher
	stats   *LevelCounters
}

// compile sets what ev's rules are to it.
func (ev *Evaluator) compile() {
	_, fields := ev.Rules.Fields()
	for i := range ev.Rules.Rules {
		r := &rule{Rule: &ev.Rules.Rules[i], reads: fields[i]}
		r.stateful = r.Stateful() || ev.FollowAll && !r.Silence()
		r.mildest = r.Levels[0].Limit
		for j := range r.Levels {
			l := &level{
				Level: &r.Levels[j],
				rule:  r,
				index: uint8(len(ev.levels)),
				rank:  len(r.Levels) - 1 - j,
				stats: &ev.Counters.Levels[len(ev.levels)],
			}
			l.target(&ev.Rulebook)
			r.override = r.override || l.Override != "" || l.ClearOverride != ""
			r.levels = append([]*level{l}, r.levels...)
			ev.levels = append(ev.levels, l)
		}

		if r.Silence() {
			ev.silences = append(ev.silences, r)
		} else {
			ev.rules = append(ev.rules, r)
		}
	}
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
		Suffix:    suffix(r, l.Name),
		Silence:   r.Silence(),
		Words:     r.Is,
		Sent:      &l.stats.Sent,
		Recovered: &l.stats.Recovered,
		Message: notify.Alert{
			Per:         r.Per,
			Rule:        r.Name,
			Level:       l.Name,
			WillResolve: r.Resolved,
			Removed:     !l.removed.IsZero(),
			Below:       r.Below,
			Title:       r.Title,
			Unit:        r.Unit,
			Runbook:     r.Runbook,
			Window:      r.Window,
			Replica:     c.Replica,
		},
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
