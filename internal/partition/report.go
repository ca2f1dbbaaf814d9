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
	s.reader.unheard.View(func(r *roster.Roster) { known = r.Len() })

	p := State{
		Partition:  s.reader.register.id,
		Settled:    s.settled(),
		Delivering: s.box.Len(),
		Known:      known,
	}

	var oldest int64
	p.Unsettled, _, oldest = s.box.Unsettled()
	s.reader.register.mu.Lock()
	defer s.reader.register.mu.Unlock()

	if n := s.reader.register.mark.held.Len(); n > 0 {
		_, enqueued := s.reader.register.mark.held.First()
		if p.Unsettled == 0 || enqueued < oldest {
			oldest = enqueued
		}
		p.Unsettled += n
	}

	p.Oldest = fromMicros0(oldest)
	p.First = s.reader.register.first
	p.ReadUntil = s.reader.register.readUntil
	p.Committed = s.reader.register.committed
	if !s.reader.register.readUntil.IsZero() { // else mark.last is where reading begins
		p.Read = s.reader.register.mark.last
	}

	p.Ledger = s.ledgers

	p.Ledger.Position = s.reader.register.alarms.history.position.Sequence
	for _, n := range s.reader.register.alarms.total {
		p.Ledger.Alarms += n
	}

	return p
}

// Describe adds what s knows of a sensor, or of a device with all of its sensors, to d.
func (s *Stream) Describe(of sensor.ID, d *DeviceState) {
	d.Partitions = append(d.Partitions, s.reader.register.id)
	s.reader.mu.Lock()
	d.Unreadable = cmp.Or(s.reader.unreadable.of(of.Device), d.Unreadable)
	s.reader.mu.Unlock()
	alarms := s.reader.register.alarmsOf(of)
	d.Deliveries = append(d.Deliveries, s.deliveries(of, alarms)...)
	for _, a := range alarms {
		a.Waits = s.box.NextReminders(a.sending, a.repeat)
		d.Alarms = append(d.Alarms, a)
	}

	s.reader.unheard.View(func(r *roster.Roster) {
		d.Heard = append(d.Heard, HeardIn(r, s.reader.register.id, of, &s.config.Evaluator.book.Rules)...)
	})
	if d.Unreadable == nil && len(d.Alarms)+len(d.Heard)+len(d.Deliveries) == 0 {
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

	s.reader.register.mu.Lock()
	for key := range s.reader.register.alarms.byKey {
		note(key.about.Device)
	}
	s.reader.register.mu.Unlock()

	s.reader.unheard.View(func(r *roster.Roster) {
		for i := range r.Len() {
			note(r.Name(i).Device)
		}
	})

	return name
}

// deliveries returns the state of the deliveries that are about a sensor, or a device with all of its sensors, or about
// an incident that one of its alarms is part of.
func (s *Stream) deliveries(of sensor.ID, alarms []AlarmState) []delivery.State {
	s.reader.register.mu.Lock()
	levels := slices.Concat(s.config.Evaluator.levels, s.reader.register.removed)
	s.reader.register.mu.Unlock()

	var keys []delivery.Key
	sensors := s.box.About(of)
	for _, l := range levels {
		for _, about := range sensors {
			keys = append(keys, delivery.Key{About: about, Topic: l.own})
		}

		for _, a := range alarms {
			if key := l.groupKey(a.Group); a.Group != "" && a.Rule == l.rule.Name && a.Level == l.Name && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}

	return s.box.States(keys)
}

// MostWaiting returns how many deliveries wait for the receiver for which most do.
func (s *Stream) MostWaiting() int { return s.box.MostWaiting() }

// Forget ends the alarms of a sensor, or of a device with all of its sensors, and expects nothing more of it until it is
// heard again. It returns what is closed once the ledger in the store says so, or nil if it is not known.
func (s *Stream) Forget(of sensor.ID) <-chan struct{} {
	s.reader.mu.Lock() // between two batches of events
	defer s.reader.mu.Unlock()
	if of.Name == "" {
		s.reader.unreadable.read(roster.Hash(of.Device))
	}

	read, known := s.reader.unheard.Forget(of)
	saved := s.reader.register.forget(of, read, known)
	signal(s.hurry)

	return saved
}
