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

	maxUnreadable   = 16 // devices of a stream that are known by name
	unreadableLines = 10 // of the log in an hour, for each stream and reason
)

// An Unreadable is a device that sends, but has sent nothing that can be read for an hour or longer.
type Unreadable struct {
	Device    string
	Partition string
	Since     time.Time        // when the hub took the first of these messages
	Reason    telemetry.Reason // why there is no reading in the last of them
}

// Unreadables are the unreadable devices among those that are remembered.
type Unreadables struct {
	Devices [telemetry.ReasonCount]int // how many there are, by reason
	Named   []Unreadable               // some of them
}

// A failure is what is known of a device since nothing of it can be read: since its first message without a reading
// after the last one with one. Times are the hub's, in Unix µs.
type failure struct {
	since  int64
	until  int64            // the last of these messages
	reason telemetry.Reason // of the last one; ReasonOK: the last message could be read
	logged uint16           // reasons for which the log has named the device, a bit each
}

// Every reason has a bit in failure.logged.
const _ = uint16(1) << (telemetry.ReasonCount - 1)

// note adds a message without a reading. A message that only lacks the field says nothing beside others, of the same
// hour, that cannot be read: many devices send their status in between.
func (f *failure) note(reason telemetry.Reason, at int64) {
	lacks, did := reason == telemetry.ReasonMissing, f.reason == telemetry.ReasonMissing
	switch {
	case f.reason == telemetry.ReasonOK:
		f.since = at
	case lacks && !did && at-f.until < unreadableAfter.Microseconds():
		return
	case lacks != did:
		f.since = at
	}

	f.reason = reason
	f.until = at
}

// lasts reports whether nothing could be read for so long that the device is named.
func (f *failure) lasts() bool {
	return f.reason != telemetry.ReasonOK && f.until-f.since >= unreadableAfter.Microseconds()
}

// isNamed reports whether the device is unreadable at now, in Unix µs.
func (o *observation) isNamed(now int64) bool {
	return o.failure.lasts() && now-o.at < unreadableFor.Microseconds()
}

// A named device was unreadable when it was named.
type named struct {
	tag    uint64
	device string
}

// name keeps the name of an unreadable device, whose observation is o, if there is room, and names it
// in the log: once for each reason, but only a few in an hour. The caller holds s.mu.
func (s *Seen) name(device string, tag uint64, o *observation, now int64) {
	f := &o.failure
	if !f.lasts() {
		return
	}

	s.keep(device, tag, f.reason, now)
	if f.logged&(1<<f.reason) != 0 {
		return
	}

	if now-s.hour >= time.Hour.Microseconds() {
		s.hour, s.lines = now, [telemetry.ReasonCount]int{}
	}

	if s.lines[f.reason] == unreadableLines {
		return
	}

	s.lines[f.reason]++
	f.logged |= 1 << f.reason
	level := zap.WarnLevel
	if f.reason == telemetry.ReasonMissing { // which is normal where other devices send too
		level = zap.InfoLevel
	}

	detail := f.reason.Text()
	if f.reason == telemetry.ReasonMalformed {
		detail = cmp.Or(o.damage.Text(device), detail)
	}

	more := zap.Skip()
	if s.lines[f.reason] == unreadableLines {
		more = zap.String("more", "for an hour the log names no other device of this partition with this reason")
	}

	s.log.Log(
		level,
		"nothing can be read of a device",
		zap.String("device", device),
		zap.Stringer("reason", f.reason),
		zap.String("detail", detail),
		zap.Time("since", fromMicros(f.since)),
		more,
	)
}

// keep keeps the name of a device, if there is room: others make room once they can be read again or send nothing
// more, and those that only lack the field for one that cannot be read.
func (s *Seen) keep(device string, tag uint64, reason telemetry.Reason, now int64) {
	free := -1
	for i, n := range s.named {
		if n.tag == tag {
			return
		}

		o := s.look(n.tag)
		if o == nil || !o.isNamed(now) ||
			o.failure.reason == telemetry.ReasonMissing && reason != telemetry.ReasonMissing {
			free = i
		}
	}

	switch {
	case len(s.named) < maxUnreadable:
		s.named = append(s.named, named{tag, strings.Clone(device)})
	case free >= 0:
		s.named[free] = named{tag, strings.Clone(device)}
	}
}

// Unreadable adds the unreadable devices to all. partition is the one of s, or whatever else has this
// name. It is safe for concurrent use.
func (s *Seen) Unreadable(partition string, all *Unreadables) {
	now := time.Now().UnixMicro()
	s.mu.Lock()
	defer s.mu.Unlock()

	for set := range s.observations {
		for i := range s.observations[set] {
			if o := &s.observations[set][i]; o.isNamed(now) {
				all.Devices[o.failure.reason]++
			}
		}
	}

	for _, n := range s.named {
		if o := s.look(n.tag); o != nil && o.isNamed(now) {
			f := &o.failure
			all.Named = append(all.Named, Unreadable{n.device, partition, fromMicros(f.since), f.reason})
		}
	}
}

// Sort puts those that only lack the field last, and of the others the longest first.
func (u *Unreadables) Sort() {
	lacks := func(d Unreadable) int {
		if d.Reason == telemetry.ReasonMissing {
			return 1
		}
		return 0
	}
	slices.SortFunc(u.Named, func(a, b Unreadable) int {
		return cmp.Or(cmp.Compare(lacks(a), lacks(b)), a.Since.Compare(b.Since), cmp.Compare(a.Device, b.Device))
	})
}

// Unreadable adds the unreadable devices of s to all.
func (s *Stream) Unreadable(all *Unreadables) { s.reader.seen.Unreadable(s.reader.register.id, all) }
