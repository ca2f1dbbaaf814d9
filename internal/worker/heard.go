package worker

import (
	"hash/maphash"
	"sync"
	"time"

	"alertworker/internal/telemetry"
)

// A stream remembers 4,096 devices in a table of fixed size, 256 KiB.
const (
	heardSets = 512
	heardWays = 8 // devices in a set
)

// A result is what decoding an event gave.
type result struct {
	value  float64
	reason telemetry.Reason
	field  uint8 // index of the value's among the decoder's
	quiet  bool  // the message's property keeps its alerts from being told
}

// resultOf returns the first of the values found.
func resultOf(reason telemetry.Reason, found []telemetry.Found) result {
	for i := range found {
		if found[i].Reason == telemetry.ReasonOK {
			return result{value: found[i].Value, reason: reason, field: uint8(i)}
		}
	}
	return result{reason: reason}
}

// heard remembers what the devices of one stream sent last, for people who ask about a
// device. A device is known by 64 bits of a hash under a random key, and has its place
// in the set that the hash chooses. In a full set, a new device takes the place of the
// one that has not been heard of for the longest time.
//
// A batch is added at once, after it has been decoded: one lock for a batch, nothing
// allocated, a few nanoseconds for an event.
type heard struct {
	seed maphash.Seed

	mu        sync.Mutex
	since     int64 // every device heard of since then is there; in Unix µs, by this machine's clock
	tags      [heardSets][heardWays]uint64
	sightings [heardSets][heardWays]sighting // of the device with the tag at the same place; none if that is 0
}

// A sighting is what one device sent last. Times are in Unix µs.
type sighting struct {
	at int64 // when the last event was read, by this machine's clock

	// The last reading, if read is true.
	value    float64
	enqueued int64
	sequence int64

	// The last event without a reading, unless reason is ReasonOK.
	failedEnqueued int64
	failedSequence int64
	reason         telemetry.Reason
	read           bool

	field uint8 // of the last reading
	quiet bool  // likewise
}

func newHeard(now time.Time) *heard {
	return &heard{seed: maphash.MakeSeed(), since: now.UnixMicro()}
}

// tag returns the tag of device, which is not 0, and its set.
func (h *heard) tag(device string) (tag uint64, set int) {
	tag = max(maphash.String(h.seed, device), 1)
	return tag, int(tag % heardSets)
}

// add records what decoding gave for each of events, which were read at now.
func (h *heard) add(events []telemetry.Event, results []result, now time.Time) {
	at := now.UnixMicro()
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range events {
		e, r := &events[i], &results[i]
		if e.Device == "" {
			continue
		}
		s := h.place(e.Device)
		s.at = at
		switch {
		case r.reason == telemetry.ReasonOK:
			s.value, s.enqueued, s.sequence, s.read = r.value, e.Enqueued.UnixMicro(), e.Sequence, true
			s.field, s.quiet = r.field, r.quiet
		case r.reason != telemetry.ReasonNotTelemetry || s.reason == telemetry.ReasonOK && !s.read: // else there is something that says more
			s.reason, s.failedEnqueued, s.failedSequence = r.reason, e.Enqueued.UnixMicro(), e.Sequence
		}
	}
}

// place returns the sighting of device, an empty one if it was not there.
func (h *heard) place(device string) *sighting {
	tag, set := h.tag(device)
	tags, sightings := &h.tags[set], &h.sightings[set]
	home := int(tag >> 32 % heardWays) // where the search begins, and nearly always ends
	for i := range heardWays {
		if i := (home + i) % heardWays; tags[i] == tag {
			return &sightings[i]
		}
	}
	oldest := home
	for i := range sightings {
		if sightings[i].at < sightings[oldest].at { // 0 if the place is empty
			oldest = i
		}
	}
	if tags[oldest] != 0 {
		h.since = max(h.since, sightings[oldest].at+1)
	}
	tags[oldest], sightings[oldest] = tag, sighting{}
	return &sightings[oldest]
}

// find returns what is known of device, nil if nothing is. Whatever was read of the
// device after since is known.
func (h *heard) find(device string) (s *sighting, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since = fromMicros(h.since)
	tag, set := h.tag(device)
	for i := range h.tags[set] {
		if h.tags[set][i] == tag {
			found := h.sightings[set][i]
			return &found, since
		}
	}
	return nil, since
}
