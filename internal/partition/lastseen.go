package partition

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/roster"
	"alertworker/internal/telemetry"
)

// A stream remembers 4,096 devices in a table of fixed size, 512 KiB.
const (
	seenSets = 512
	seenWays = 8 // devices in a set
)

// Seen remembers what the devices of one stream sent last, for people who ask about a
// device. A device is known by 64 bits of a hash under a random key, and has its place
// in the set that the hash chooses. In a full set, a new device takes the place of the
// one that has not been seen for the longest time.
//
// A batch takes one lock and allocates nothing.
type Seen struct {
	mu           sync.Mutex
	since        int64 // every device seen since then is there; in Unix µs, by this machine's clock
	tags         [seenSets][seenWays]uint64
	observations [seenSets][seenWays]observation // of the device with the tag at the same place; none if that is 0

	log   *zap.Logger                // names the unreadable devices
	named []named                    // some of them, at most maxUnreadable
	hour  int64                      // lines are counted for this hour: when it began
	lines [telemetry.ReasonCount]int // that were logged in it
}

// An observation is what one device sent last. Times are in Unix µs.
type observation struct {
	at int64 // when the last event was read, by this machine's clock

	// The last reading, if read is true.
	value    float64
	enqueued int64
	sequence int64

	// The last event without a reading, unless reason is ReasonOK.
	failedEnqueued int64
	failedSequence int64

	reason telemetry.Reason
	read   bool
	field  uint16 // of the last reading

	// what is wrong with the body of the last event, by kind: of the last one with a reading if damagedRead is true, else
	// of the last one without
	damagedRead bool
	damage      telemetry.Damage

	outcome // of the last reading

	failure failure // since nothing can be read
}

// An outcome is what was decided about a reading, and at which level: that at which most was. It is zero if the reading
// reached no limit, and none is the device's own.
type outcome struct {
	limit    float64 // of the device at level
	sensor   string  // that it is of, if it reached a limit; empty: the device's own, or not known
	shared   string  // what the device shares the alerts of level's rule by, if that is known
	level    uint8   // its index in Evaluator.levels, plus 1
	decision Decision
	own      bool // limit is the device's own
}

// levelOf returns the level, one of all, at which most was decided; nil if there is none.
func (o outcome) levelOf(all []*level) *level {
	if o.level == 0 {
		return nil
	}
	return all[o.level-1]
}

// A Decision is what became of a reading at one level.
type Decision uint8

const (
	NoLimit      Decision = iota // it reaches no limit
	NoBase                       // its message has no number that limits are counted from: see rules.Rule.HasLimits
	Excluded                     // it reaches the limit of a rule that does not look at it, because of rules.Rule.Only
	StaysOpen                    // it reaches no limit, and does not end an open alarm
	StaysPending                 // it reaches the limit, but not for long enough yet
	Outdated                     // the alarm has seen a reading that was taken later
	Inhibited                    // a higher level of the rule is open
	Muted                        // people, the rules or its message say that nobody is to be notified: see rules.Mute
	Unwanted                     // no receiver gets alerts like this one
	Notified                     // to receivers, unless a window covers it
)

// take has o know the reading r of its last event, if there is one. It does nothing if o is nil.
func (o *observation) take(r *read) {
	if o != nil && r.has {
		o.read, o.value, o.field, o.outcome = true, r.value, r.field, r.outcome
	}
}

// NewSeen returns an empty one. log names devices that have been unreadable for an hour.
func NewSeen(now time.Time, log *zap.Logger) *Seen {
	return &Seen{since: now.UnixMicro(), log: log}
}

// Note records what m has read, which decoding gave this reason for. It is safe for concurrent use.
func (s *Seen) Note(m *Message, reason telemetry.Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(m.event, roster.Hash(m.event.Device), reason, &m.read, time.Now().UnixMicro())
}

// tag returns the tag of the device with this hash, which is not 0, and its set.
func (s *Seen) tag(hash uint64) (tag uint64, set int) {
	tag = max(hash, 1)
	return tag, int(tag % seenSets)
}

// add records what decoding gave for e, whose device has this hash and which was read at now, and returns where; nil
// if e has no device. The caller holds s.mu.
func (s *Seen) add(
	e *telemetry.Event,
	hash uint64,
	reason telemetry.Reason,
	r *read,
	now int64,
) *observation {
	if e.Device == "" {
		return nil
	}

	o := s.place(hash)
	o.at = now
	switch {
	case reason == telemetry.ReasonDamaged, reason == telemetry.ReasonMalformed:
		o.damage, o.damagedRead = telemetry.DamageOf(e.Body), reason == telemetry.ReasonDamaged
	case reason != telemetry.ReasonNotTelemetry && o.damagedRead == reason.HasReading():
		o.damage = telemetry.Damage{}
	}

	switch {
	case reason.HasReading():
		o.failure = failure{}
	case reason != telemetry.ReasonNotTelemetry:
		o.failure.note(reason, e.Enqueued.UnixMicro())
		s.name(e.Device, hash, o, now)
	}

	switch {
	case reason.HasReading() && !r.has: // no rule reads anything

	case reason.HasReading():
		o.enqueued = e.Enqueued.UnixMicro()
		o.sequence = e.Sequence
		o.take(r)

	// else there is something that says more
	case reason != telemetry.ReasonNotTelemetry || o.reason == telemetry.ReasonOK && !o.read:
		o.reason = reason
		o.failedEnqueued = e.Enqueued.UnixMicro()
		o.failedSequence = e.Sequence
	}

	return o
}

// place returns the observation of the device with this hash, an empty one if it was not there.
func (s *Seen) place(hash uint64) *observation {
	tag, set := s.tag(hash)
	tags, observations := &s.tags[set], &s.observations[set]
	home := int(tag >> 32 % seenWays) // where the search begins, and nearly always ends
	for i := range seenWays {
		if i := (home + i) % seenWays; tags[i] == tag {
			return &observations[i]
		}
	}

	oldest := home
	for i := range observations {
		if observations[i].at < observations[oldest].at { // 0 if the place is empty
			oldest = i
		}
	}

	if tags[oldest] != 0 {
		s.since = max(s.since, observations[oldest].at+1)
	}

	tags[oldest], observations[oldest] = tag, observation{}

	return &observations[oldest]
}

// look returns the observation of the device with this hash; nil if there is none.
func (s *Seen) look(hash uint64) *observation {
	tag, set := s.tag(hash)
	for i := range s.tags[set] {
		if s.tags[set][i] == tag {
			return &s.observations[set][i]
		}
	}

	return nil
}

// find returns what is known of device, nil if nothing is. Whatever was read of the
// device after since is known.
func (s *Seen) find(device string) (o *observation, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since = fromMicros(s.since)
	if o := s.look(roster.Hash(device)); o != nil {
		found := *o
		return &found, since
	}

	return nil, since
}
