package partition

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/telemetry"
)

const (
	// unreadableAfter is how long nothing of a device must have been readable for the device to be named.
	unreadableAfter = time.Hour
	// unreadableFor is for how long a device that sends nothing more is still named.
	unreadableFor = 24 * time.Hour

	maxUnreadable = 1024 // devices of a partition
)

// An Unreadable is a device that sends, but whose last messages cannot be read.
type Unreadable struct {
	Device    string           `json:"-"`
	Partition string           `json:"partition"`
	Since     time.Time        `json:"since"`            // when the hub took the first of these messages
	Last      time.Time        `json:"enqueuedTime"`     // and the last of them
	Reason    telemetry.Reason `json:"reason"`           // why there is no reading in the last of them
	Damage    string           `json:"damage,omitempty"` // where that is not JSON, for people; empty if nobody can say

	damage telemetry.Damage // of which Damage is made when somebody asks
}

// Lasts reports whether nothing could be read for so long that the device is named.
func (u *Unreadable) Lasts() bool { return u.Last.Sub(u.Since) >= unreadableAfter }

// lacks reports whether the messages can be read, but lack the field: that is normal where other devices send, too.
func (u *Unreadable) lacks() bool { return u.Reason == telemetry.ReasonMissing }

// Unreadables are the devices of which nothing could be read for an hour or longer.
type Unreadables struct {
	Devices [telemetry.ReasonCount]int // how many there are, by reason
	Named   []Unreadable               // those that only lack the field last, and of the others the longest first
}

// unreadables are the devices of one partition whose last messages have no reading, by roster.Hash.
type unreadables map[uint64]*Unreadable

// add notes that e, an event of a partition whose device has this hash, has no reading. A message that only lacks the field
// says nothing beside others that cannot be read: many devices send their status in between.
func (all unreadables) add(partition string, e *telemetry.Event, hash uint64, reason telemetry.Reason) {
	u, known := all[hash]
	lacks := reason == telemetry.ReasonMissing
	switch {
	case e.Device == "", known && lacks && !u.lacks():
		return
	case !known && len(all) >= maxUnreadable && !all.makeRoom(lacks):
		return
	case !known || u.lacks() && !lacks:
		u = &Unreadable{Device: strings.Clone(e.Device), Partition: partition, Since: e.Enqueued.UTC()}
		all[hash] = u
	}

	u.Reason = reason
	u.Last = e.Enqueued.UTC()
	u.damage = telemetry.Damage{}
	if reason == telemetry.ReasonMalformed {
		u.damage = telemetry.DamageOf(e.Body)
	}
}

// makeRoom looks at a few devices, because it is asked in the hot path, and drops one that sends nothing more, or that only
// lacks the field if the other one, which lacks says, does more. It reports whether there was one.
func (all unreadables) makeRoom(lacks bool) bool {
	looked := 0
	for hash, u := range all { // in random order
		if time.Since(u.Last) >= unreadableFor || u.lacks() && !lacks {
			delete(all, hash)
			return true
		}

		if looked++; looked == 8 {
			break
		}
	}

	return false
}

// Unreadable adds the devices of s of which nothing could be read for an hour, and that were heard in the last day.
func (s *Stream) Unreadable(all *Unreadables) {
	s.register.batch.Lock()
	defer s.register.batch.Unlock()
	for _, u := range s.register.unreadable {
		if u.Lasts() && time.Since(u.Last) < unreadableFor {
			all.Devices[u.Reason]++
			all.Named = append(all.Named, *u)
		}
	}
}

// Sort sorts the names, and leaves as many of them as limit.
func (all *Unreadables) Sort(limit int) {
	lacks := func(u Unreadable) int {
		if u.lacks() {
			return 1
		}
		return 0
	}
	slices.SortFunc(all.Named, func(a, b Unreadable) int {
		return cmp.Or(cmp.Compare(lacks(a), lacks(b)), a.Since.Compare(b.Since), cmp.Compare(a.Device, b.Device))
	})
	all.Named = all.Named[:min(len(all.Named), limit)]
}

// logUnread logs an event without a reading.
func (s *Stream) logUnread(_ telemetry.Position, e *telemetry.Event, reason telemetry.Reason) {
	line := s.log.Check(zap.DebugLevel, "event without a reading")
	if line == nil {
		return
	}

	detail := zap.Skip()
	if e.Undecodable != "" {
		detail = zap.String("detail", e.Undecodable)
	}

	line.Write(zap.Int64("sequence", e.Sequence), zap.String("device", e.Device), zap.Stringer("reason", reason), detail)
}
