package partition

import (
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// A Rulebook is what an [Evaluator] evaluates. All fields but Clock, Mutes and FollowAll are required.
type Rulebook struct {
	Origin    string // "<namespace>/<hub>": where events come from, in alert ids
	Replica   string // a label for people
	Rules     rules.Set
	Decoder   *rules.Decoder     // for Rules; nil if there are none
	Clock     *rules.Clock       // for the time of Rules; nil if they have none
	Receivers []Receiver         // in the order in which deliveries know them
	Mutes     func() rules.Mutes // what people have silenced. It takes no time; nil: nothing
	// Alike reports whether all replicas that were alive at some moment after a time decide by the same rules as this one.
	// It takes no time.
	Alike     func(since time.Time) bool
	Counters  *Counters // its Levels are set
	FollowAll bool      // alarms of rules about readings without state are followed, too
}

// A Receiver gets at most one alert per device and window for each level of a rule, by gates of its own.
type Receiver struct {
	To      delivery.Receiver
	Filters notify.Filters // which alerts it gets
	// Gate returns the receiver's gate for a level of a rule, which is of what devices share if that has Per. It is called
	// once for each level of Rulebook.Rules; once more without Per if there is one, for devices without that property; and
	// at each take-over for levels that are not configured any more but have alarms.
	Gate func(*rules.Rule, *rules.Level) delivery.Gate
}

// An Evaluator takes events through rules. It does not change, and serves all partitions of a replica at once.
type Evaluator struct {
	book     Rulebook
	cuts     []*cut
	silences []*rule
	levels   []*level // in the order of Rules
	stateful bool
}

// A cut is one of Decoder's as an Evaluator uses it.
type cut struct {
	Cut      *rules.Cut
	rules    []*rule // about readings
	silences []int   // indexes in Evaluator.silences
}

// NewEvaluator returns an Evaluator of b.
func NewEvaluator(b Rulebook) *Evaluator {
	if b.Mutes == nil {
		b.Mutes = func() rules.Mutes { return nil }
	}

	ev := &Evaluator{book: b, stateful: b.Rules.Stateful()}
	n := 0
	for _, r := range b.Rules.Rules {
		n += len(r.Levels)
	}

	b.Counters.Levels = make([]LevelCounters, n)
	all := make([]*rule, len(b.Rules.Rules))
	for i := range b.Rules.Rules {
		r := &rule{Rule: &b.Rules.Rules[i]}
		all[i] = r
		r.stateful = r.Stateful() || b.FollowAll && !r.Silence()
		r.override = r.HasReferences()
		r.mildest = r.Levels[0].Limit
		for j := range r.Levels {
			l := &level{
				Level: &r.Levels[j],
				rule:  r,
				index: uint8(len(ev.levels)),
				place: j,
				stats: &b.Counters.Levels[len(ev.levels)],
			}
			l.target(&ev.book, r.Measured())
			r.levels = append([]*level{l}, r.levels...)
			ev.levels = append(ev.levels, l)
		}

		if r.Silence() {
			ev.silences = append(ev.silences, r)
		}
	}

	if b.Decoder == nil { // there is no rule
		return ev
	}

	for i := range b.Decoder.Cuts {
		c := &cut{Cut: &b.Decoder.Cuts[i]}
		for j, index := range c.Cut.Rules {
			r := all[index]
			r.reads = &c.Cut.Reads[j]
			if r.Silence() {
				c.silences = append(c.silences, slices.Index(ev.silences, r))
			} else {
				c.rules = append(c.rules, r)
			}
		}
		ev.cuts = append(ev.cuts, c)
	}

	return ev
}

// IDs returns how the ids of alerts begin about the readings of a partition, or of whatever else has this name.
func (ev *Evaluator) IDs(name string) string { return ev.book.Origin + "/" + name + "/" }

// Keys returns what notices about a device are about.
func (ev *Evaluator) Keys(device string) []delivery.Key {
	keys := make([]delivery.Key, len(ev.levels))
	for i, l := range ev.levels {
		keys[i] = delivery.Key{About: sensor.Of(device), Topic: l.own}
	}
	return keys
}

// NoAlarms returns the counts of each level, in the order of the rules, without an alarm.
func (ev *Evaluator) NoAlarms() []AlarmCounts {
	all := make([]AlarmCounts, len(ev.levels))
	for i, l := range ev.levels {
		all[i].Rule, all[i].Level = l.rule.Name, l.Name
	}

	return all
}

// everybody returns all receivers, a bit for each.
func (ev *Evaluator) everybody() uint32 { return everybody >> (32 - len(ev.book.Receivers)) }

// wanting returns the receivers that want alerts of l, a bit for each.
func (ev *Evaluator) wanting(l *level) (receivers uint32) {
	for i := range ev.book.Receivers {
		if ev.book.Receivers[i].Filters.Cover(l.rule.Name, l.Name) {
			receivers |= 1 << i
		}
	}

	return receivers
}

// muted reports whether people have silenced alerts about s, or the rules have a time for that. It allocates nothing.
func (ev *Evaluator) muted(s *rules.Subject) bool {
	//planted:mute-times-unseen if ev.book.Rules.Mutes.Match(s) { return ev.book.Mutes().Match(s) }
	return ev.book.Rules.Mutes.Match(s) || ev.book.Mutes().Match(s)
}

// A rule is one of Rulebook.Rules as an Evaluator uses it.
type rule struct {
	*rules.Rule
	reads    *rules.Reads // of what the decoder finds
	levels   []*level     // the highest first
	stateful bool
	override bool    // see rules.Rule.HasReferences
	mildest  float64 // limit, unless override
}

// A level is one of a rule's as an Evaluator uses it: what alarms, deliveries and gates are
// for.
type level struct {
	*rules.Level
	rule *rule
	id   levelID
	// since then it is not configured any more, but had an alarm, by the clock of the ledger's store. Else zero
	removed time.Time
	own     *delivery.Topic // of notices about a device
	shared  *delivery.Topic // of alerts about a value of the rule's Per; nil if it has none
	place   int             // in its rule's Levels, the mildest first
	index   uint8           // in Evaluator.levels; 0 unless it is configured
	stats   *LevelCounters
}

// A levelID tells a level from all others, also those that are not configured any more.
type levelID struct {
	rule, name string
	silence    bool
	measured   string // rules.Rule.Measured
	per        string // under which members of incidents share a value; empty if it has no incidents
}

// target sets the topics of l, and its id.
func (l *level) target(c *Rulebook, measured string) {
	l.id = levelID{rule: l.rule.Name, name: l.Name, silence: l.rule.Silence(), measured: measured}
	l.own = l.topic(c, l.rule.Alone())
	if l.rule.Per != "" {
		l.shared = l.topic(c, l.rule.Rule)
	}

	if l.rule.Grouped() {
		l.id.per = l.rule.Per
	}
}

// topic returns the topic of l, a level of r, whose Per counts.
func (l *level) topic(c *Rulebook, r *rules.Rule) *delivery.Topic {
	t := &delivery.Topic{
		Rank:      len(r.Levels) - 1 - l.place,
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

// Counters count what became of the events of a replica's partitions since it started. They may be read at any time.
type Counters struct {
	Events   [telemetry.ReasonCount]atomic.Int64 // by the result of decoding
	Over     atomic.Int64                        // readings that reached a limit
	Filtered atomic.Int64                        // of these, the ones that a receiver does not want, for each receiver

	Levels   []LevelCounters                        // in the order of the rules
	Override [rules.OverrideBeyond + 1]atomic.Int64 // readings whose rule has a limit that messages say, by what the message has
	// readings that reached a limit or were of a device with an alarm, by the time of their device
	Times [rules.TimeLate + 1]atomic.Int64
	// readings over a limit of a rule with per whose message has no such property
	Unshared atomic.Int64
	// readings that reached a limit or were of a device with an alarm, of a rule with sensor, without a name there
	Nameless atomic.Int64
	// readings over a limit that are muted
	Quieted   atomic.Int64
	Forgotten atomic.Int64 // devices that were silent for too long
	// messages of devices for which there was no room in their partition's roster
	Unwatched atomic.Int64
	// readings for which there was no room for one more alarm in their partition
	Untracked atomic.Int64
	// alerts of devices whose alert before came from another partition of the same hub
	Scattered atomic.Int64
}

// LevelCounters counts what became of one level.
type LevelCounters struct {
	Over      atomic.Int64 // readings that reached its limit
	Opened    atomic.Int64 // alarms
	Cleared   atomic.Int64 // alarms
	Sent      atomic.Int64 // alerts that a receiver took
	Recovered atomic.Int64 // recoveries that a receiver took
}
