package partition

import (
	"cmp"
	"slices"
	"strings"

	"alertworker/internal/delivery"
	"alertworker/internal/roster"
	"alertworker/internal/sensor"
)

// State returns the progress of s.
func (s *Stream) State() State {
	known := 0
	s.unheard.View(func(r *roster.Roster) { known = r.Len() })

	p := State{
		Partition:  s.id,
		Settled:    s.settled(),
		Delivering: s.box.Len(),
		Known:      known,
	}

	var oldest int64
	p.Unsettled, _, oldest = s.box.Unsettled()
	s.mu.Lock()
	defer s.mu.Unlock()

	if n := s.mark.held.Len(); n > 0 {
		_, enqueued := s.mark.held.First()
		if p.Unsettled == 0 || enqueued < oldest {
			oldest = enqueued
		}
		p.Unsettled += n
	}

	p.Oldest = fromMicros0(oldest)
	p.First = s.first
	p.ReadUntil = s.readUntil
	p.Committed = s.committed
	if !s.readUntil.IsZero() { // else mark.last is where reading begins
		p.Read = s.mark.last
	}

	p.Ledger = s.ledgers

	p.Ledger.Position = s.alarms.history.position.Sequence
	for _, n := range s.alarms.total {
		p.Ledger.Alarms += n
	}

	return p
}

// Describe adds what s knows of a sensor, or of a device with all of its sensors, to d.
func (s *Stream) Describe(of sensor.ID, d *DeviceState) {
	d.Partitions = append(d.Partitions, s.id)
	found := d.see(s.seen, of.Device, s.id, s.levels)
	d.Deliveries = append(d.Deliveries, s.deliveries(of, found)...)
	for _, a := range s.alarmsOf(of) {
		a.Waits = s.box.NextReminders(a.sending, a.repeat)
		d.Alarms = append(d.Alarms, a)
	}

	s.unheard.View(func(r *roster.Roster) { d.Heard = append(d.Heard, HeardIn(r, s.id, of, &s.Rules)...) })
	if d.Last == nil && len(d.Alarms)+len(d.Heard)+len(d.Deliveries) == 0 {
		d.Similar = cmp.Or(s.similar(of.Device), d.Similar)
	}
}

// similar returns a device whose name differs from that of another one in nothing but case; empty if none is known.
func (s *Stream) similar(device string) (name string) {
	note := func(other string) {
		if other != device && strings.EqualFold(other, device) {
			name = other
		}
	}

	s.mu.Lock()
	for key := range s.alarms.byKey {
		note(key.about.Device)
	}
	s.mu.Unlock()

	s.unheard.View(func(r *roster.Roster) {
		for i := range r.Len() {
			note(r.Name(i).Device)
		}
	})

	return name
}

// deliveries returns the state of the deliveries that are about a sensor, or a device with all of its sensors: also of
// what it shares alerts by, as far as seen, what the device sent last, says.
func (s *Stream) deliveries(of sensor.ID, seen *observation) []delivery.State {
	s.mu.Lock()
	levels := slices.Concat(s.levels, s.removed)
	s.mu.Unlock()

	var decided outcome
	if seen != nil {
		decided = seen.outcome
	}

	var keys []delivery.Key
	sensors := s.box.About(of)
	for _, l := range levels {
		for _, about := range sensors {
			keys = append(keys, delivery.Key{About: about, Topic: l.own})
		}

		if at := decided.levelOf(s.levels); at != nil && at.rule == l.rule && decided.shared != "" {
			keys = append(keys, delivery.Key{About: sensor.Of(decided.shared), Topic: l.shared})
		}
	}

	return s.box.States(keys)
}

// MostWaiting returns how many deliveries wait for the receiver for which most do.
func (s *Stream) MostWaiting() int { return s.box.MostWaiting() }

// Forget ends the alarms of a sensor, or of a device with all of its sensors, and expects nothing more of it until it is
// heard again. It returns what is closed once the ledger in the store says so, or nil if it is not known.
func (s *Stream) Forget(of sensor.ID) <-chan struct{} {
	s.seen.mu.Lock() // between two batches of events
	defer s.seen.mu.Unlock()
	if o := s.seen.look(roster.Hash(of.Device)); o != nil && of.Name == "" {
		o.failure = failure{}
	}

	read, known := s.unheard.Forget(of)
	saved := s.forget(of, read, known)
	signal(s.hurry)

	return saved
}
