package partition

import (
	"slices"

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
	Decoder   *telemetry.Decoder // for the fields of Rules
	Clock     *rules.Clock       // for the time of Rules; nil if they have none
	Receivers []Receiver         // in the order in which deliveries know them
	Mutes     func() rules.Mutes // what people have silenced. It takes no time; nil: nothing
	Counters  *Counters          // its Levels are set
	FollowAll bool               // alarms of rules about readings without state are followed, too
}

// A Receiver is what has to be known of one to decide what it gets.
type Receiver struct {
	Filters notify.Filters // which alerts it gets
	// Gate returns the receiver's gate for a level of a rule, which is of what devices share if that has Per. It is called
	// once for each level of Rulebook.Rules; once more without Per if there is one, for devices without that property; and
	// at each take-over for levels that are not configured any more but have alarms.
	Gate func(*rules.Rule, *rules.Level) delivery.Gate
}

// An Evaluator takes events through rules. It does not change, and serves all partitions of a replica at once.
type Evaluator struct {
	Rulebook
	fields   int     // that Decoder finds
	readings int     // of them, those that are not conditions, which come first
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
	ev.readings = ev.fields
	if i := slices.IndexFunc(fields, func(f telemetry.Field) bool { return f.Condition }); i >= 0 {
		ev.readings = i
	}

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
			r.override = r.override || l.Override != "" || l.ClearOverride != "" || r.Base != ""
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

// IDs returns how the ids of alerts begin about the readings of a partition, or of whatever else has this name.
func (ev *Evaluator) IDs(name string) string { return ev.Origin + "/" + name + "/" }

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

// Decode returns what the decoder finds in e, which it counts.
func (ev *Evaluator) Decode(e *telemetry.Event) ([]telemetry.Found, telemetry.Reason) {
	found := make([]telemetry.Found, ev.fields)
	reason := ev.Decoder.DecodeAll(e, found)
	ev.Counters.Events[reason].Add(1)
	return found, reason
}

// Readings returns those of found that are no conditions.
func (ev *Evaluator) Readings(found []telemetry.Found) []telemetry.Found { return found[:ev.readings] }

// Reaches reports whether e, in which the decoder found found, reaches a limit of a rule without state, as nearly no
// event does.
func (ev *Evaluator) Reaches(e *telemetry.Event, found []telemetry.Found) bool {
	return ev.reaches(e, found, nil)
}

// reaches is mayMatter for a device without an alarm.
func (ev *Evaluator) reaches(e *telemetry.Event, found []telemetry.Found, o *observation) bool {
	reached := false
	for _, r := range ev.rules {
		f := &found[r.reads.Field]
		switch {
		case f.Reason != telemetry.ReasonOK:
		case len(r.reads.Only) > 0 && !r.applies(e, found):
			base, has := r.base(e, found)
			mildest := r.levels[len(r.levels)-1]
			limit := base + r.mildest
			if has == rules.OverrideUsed && r.Breaching(f.Value, limit) {
				o.decided(Excluded, mildest, f.Value, limit, false, "")
			}
		case r.override: // each of them, because it counts
			reached = ev.overridden(e, found, r, o) || reached
		case r.Breaching(f.Value, r.mildest):
			reached = true
		}
	}

	return reached
}

// overridden reports whether the reading in found reaches a limit of r, which has overrides or a base, for e's device.
// It counts what e has for them.
func (ev *Evaluator) overridden(e *telemetry.Event, found []telemetry.Found, r *rule, o *observation) (reached bool) {
	value := found[r.reads.Field].Value
	base, has := r.base(e, found)
	if r.Base != "" {
		ev.Counters.Override[has].Add(1)
	}

	if has != rules.OverrideUsed {
		o.decided(NoBase, r.levels[len(r.levels)-1], value, 0, false, "")
		return false
	}

	for _, l := range r.levels {
		limit, kind := l.LimitFor(base, e.Properties)
		if l.Override != "" {
			ev.Counters.Override[kind].Add(1)
		}

		if l.Override != "" && kind == rules.OverrideUsed {
			o.decided(NoLimit, l, value, limit, true, "")
		}

		if l.ClearOverride != "" {
			_, kind := l.clearFor(e, limit)
			ev.Counters.Override[kind].Add(1)
		}

		reached = reached || r.Breaching(value, limit)
	}

	return reached
}

// everybody returns all receivers, a bit for each.
func (ev *Evaluator) everybody() uint32 { return everybody >> (32 - len(ev.Receivers)) }

// wanting returns the receivers that want alerts of l, a bit for each.
func (ev *Evaluator) wanting(l *level) (receivers uint32) {
	for i := range ev.Receivers {
		if ev.Receivers[i].Filters.Cover(l.rule.Name, l.Name) {
			receivers |= 1 << i
		}
	}

	return receivers
}

// muted reports whether people have silenced alerts about s, or the rules have a time for that. It allocates nothing.
func (ev *Evaluator) muted(s *rules.Subject) bool {
	//planted:mute-times-unseen if ev.Rules.Mutes.Match(s) { return ev.Mutes != nil && ev.Mutes().Match(s) }
	return ev.Rules.Mutes.Match(s) || ev.Mutes != nil && ev.Mutes().Match(s)
}
