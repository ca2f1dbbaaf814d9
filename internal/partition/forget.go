package partition

import (
	"maps"
	"slices"
	"time"

	"alertworker/internal/ledger"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// A forgetting is a device that an operator has removed.
type forgetting struct {
	device string
	saved  chan struct{} // closed once the ledger in the store says so
}

// Forget ends the alarms of a device, and expects nothing more of it until it is heard again. It returns what is closed
// once the ledger in the store says so, or nil if the device is not known.
func (s *Stream) Forget(name string) <-chan struct{} {
	defer s.handOver()
	s.seen.mu.Lock() // between two batches of events
	defer s.seen.mu.Unlock()
	read, known := int64(0), false
	if s.unheard != nil {
		read, known = s.unheard.Forget(name)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarms == nil {
		return nil
	}
	if !s.endAlarms(name) && !known {
		return s.beingForgotten(name)
	}

	for _, r := range s.silences { // the ledger may hold one that has ended since
		key := alarmKey{name, r.levels[0]}
		s.alarms.history.replace(key, s.alarms.byKey[key])
	}

	read = max(read, s.mark.last.Sequence)
	s.forgotten = slices.DeleteFunc(s.forgotten, func(f ledger.Forgotten) bool { return string(f.Device) == name })
	s.forgotten = append(s.forgotten, ledger.Forgotten{Device: ledger.Text(name), Log: s.logName, Sequence: read})
	s.forgotten = s.forgotten[max(0, len(s.forgotten)-ledger.MaxForgotten):]
	s.alarms.history.edited = true

	saved := make(chan struct{})
	s.forgetting = append(s.forgetting, forgetting{name, saved})
	signal(s.hurry)

	return saved
}

// beingForgotten returns what is closed once the ledger says that a device is forgotten, for which somebody has asked
// before, or nil if it does already, or nobody has. The caller holds s.mu.
func (s *Stream) beingForgotten(name string) (saved <-chan struct{}) {
	for _, f := range s.forgetting {
		if f.device == name {
			saved = f.saved
		}
	}

	return saved
}

// endAlarms ends the alarms of a device, but for silences that s.unheard knows, and reports whether there were any. The
// caller holds s.mu.
func (s *Stream) endAlarms(device string) (any bool) {
	now := micros(s.ledger.Opened().Add(time.Since(s.since)))
	for _, l := range slices.Concat(s.levels, s.removed) {
		key := alarmKey{device, l}
		k := s.alarms.byKey[key]
		switch {
		case k.Phase == rules.Normal, l.rule.Silence() && l.removed.IsZero():
			continue
		case l.rule.Silence():
			s.end(key, now, true)
		default:
			s.endRead(key, now)
		}

		any = true
	}

	return any
}

// endRead ends the alarm about readings of a device that was removed, behind the last event read: while an alert about
// an earlier one is not settled, the ledger keeps the alarm as it was, and so does an owner that reads them again. The
// caller holds s.mu.
func (s *Stream) endRead(key alarmKey, now int64) {
	was := s.alarms.byKey[key]
	next := alarm{due: was.due}
	if was.Phase == rules.Open {
		next = s.ended(key, now, true)
	}

	last := s.mark.last
	if last.NotAfter(s.alarms.history.position) {
		s.change(key, next)
		return
	}

	before := s.committed
	if before == (telemetry.Position{}) {
		before = s.begun
	}

	s.alarms.history.change(key, next, before, last)
	s.become(key, next)
}

// forgetAgain ends the alarms of a device that was removed when a former owner had read more events than this one, once
// all of these are read again: the next event has this number, and follows a position. The caller holds s.mu.
func (s *Stream) forgetAgain(device string, before telemetry.Position, next int64) {
	if read, removed := s.rereading[device]; removed && next > read {
		delete(s.rereading, device)
		s.mark.read(before) // where an alarm ends
		s.endAlarms(device)
	}
}

// endReread is forgetAgain for the devices of which nothing more has come.
func (s *Stream) endReread() {
	defer s.handOver()
	s.mu.Lock()
	defer s.mu.Unlock()
	for device := range s.rereading {
		s.forgetAgain(device, s.mark.last, s.mark.last.Sequence+1)
	}
}

// beyond returns the devices that were removed when a former owner had read more of the log than both positions, each
// with the number of the last event. The caller holds s.mu.
func (s *Stream) beyond(start, ledger telemetry.Position) map[string]int64 {
	resumed, _ := s.partition.Resumed()
	removed := s.removedDevices()
	maps.DeleteFunc(removed, func(_ string, read int64) bool {
		at := telemetry.Position{Generation: resumed.Generation, Sequence: read}
		return at.NotAfter(start) || at.NotAfter(ledger)
	})
	return removed
}

// removedDevices returns the devices that operators have removed, each with the number of the last event that was read
// then. The caller holds s.mu.
func (s *Stream) removedDevices() map[string]int64 {
	removed := make(map[string]int64, len(s.forgotten))
	for _, f := range s.forgotten {
		if f.Log == s.logName {
			removed[string(f.Device)] = f.Sequence
		}
	}

	return removed
}
