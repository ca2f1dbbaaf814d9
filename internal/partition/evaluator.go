package partition

import (
	"slices"
	"sync"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
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
	messages sync.Pool // of *Message
}

// A cut is one of Decoder's as an Evaluator uses it.
type cut struct {
	Cut      *rules.Cut
	rules    []*rule // about readings
	silences []int   // indexes in Evaluator.silences
}

// NewEvaluator returns an Evaluator of b.
func NewEvaluator(b Rulebook) *Evaluator {
	ev := &Evaluator{book: b, stateful: b.Rules.Stateful()}
	ev.messages.New = func() any { return ev.newMessage() }
	n := 0
	for _, r := range b.Rules.Rules {
		n += len(r.Levels)
	}

	b.Counters.Levels = make([]LevelCounters, n)
	ev.compile()

	return ev
}

// compile sets what ev's rules are to it.
func (ev *Evaluator) compile() {
	all := make([]*rule, len(ev.book.Rules.Rules))
	for i := range ev.book.Rules.Rules {
		r := &rule{Rule: &ev.book.Rules.Rules[i]}
		all[i] = r
		r.stateful = r.Stateful() || ev.book.FollowAll && !r.Silence()
		r.mildest = r.Levels[0].Limit
		for j := range r.Levels {
			l := &level{
				Level: &r.Levels[j],
				rule:  r,
				index: uint8(len(ev.levels)),
				rank:  len(r.Levels) - 1 - j,
				stats: &ev.book.Counters.Levels[len(ev.levels)],
			}
			l.target(&ev.book)
			r.override = r.HasReferences()
			r.levels = append([]*level{l}, r.levels...)
			ev.levels = append(ev.levels, l)
		}

		if r.Silence() {
			ev.silences = append(ev.silences, r)
		}
	}

	if ev.book.Decoder == nil { // there is no rule
		return
	}

	for i := range ev.book.Decoder.Cuts {
		c := &cut{Cut: &ev.book.Decoder.Cuts[i]}
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

// mutes reports whether there are any mutes. It is cheaper than muted.
func (ev *Evaluator) mutes() bool {
	return len(ev.book.Rules.Mutes) > 0 || ev.book.Mutes != nil && len(ev.book.Mutes()) > 0
}

// muted reports whether people have silenced alerts about s, or the rules have a time for that. It allocates nothing.
func (ev *Evaluator) muted(s *rules.Subject) bool {
	//planted:mute-times-unseen if ev.book.Rules.Mutes.Match(s) { return ev.book.Mutes != nil && ev.book.Mutes().Match(s) }
	return ev.book.Rules.Mutes.Match(s) || ev.book.Mutes != nil && ev.book.Mutes().Match(s)
}
