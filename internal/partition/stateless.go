package partition

import (
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/roster"
	"alertworker/internal/telemetry"
)

// An Alert is about a reading, and knows its event.
type Alert struct {
	delivery.Alert
	about examination
}

// More implements delivery.Details.
func (a *Alert) More() *delivery.More { return a.about.more(a.Topic) }

// Decode returns what the decoder finds in e, which it counts.
func (ev *Evaluator) Decode(e *telemetry.Event) ([]telemetry.Found, telemetry.Reason) {
	found := make([]telemetry.Found, ev.fields)
	reason := ev.Decoder.DecodeAll(e, found)
	ev.Counters.Events[reason].Add(1)
	return found, reason
}

// Reaches reports whether e, in which the decoder found found, reaches a limit of a rule without state, as nearly no
// event does.
func (ev *Evaluator) Reaches(e *telemetry.Event, found []telemetry.Found) bool {
	return ev.reaches(e, found, nil)
}

// Alerts takes e, which has no place in a log, through every rule as if none had state. It returns the alerts that
// somebody wants, and whether e reaches a limit. The highest level of a rule that it reaches alerts.
func (ev *Evaluator) Alerts(e *telemetry.Event, found []telemetry.Found) (alerts []Alert, over bool) {
	x := ev.examine(e)
	for _, r := range ev.rules {
		f := &found[r.reads.Field]
		if f.Reason != telemetry.ReasonOK || !r.applies(e, found) {
			continue
		}

		inhibited := false
		for _, l := range r.levels {
			limit, _ := l.LimitFor(e.Properties)
			if !r.Breaching(f.Value, limit) {
				continue
			}

			over = true
			l.stats.Over.Add(1)
			if !inhibited && !x.silenced(l) {
				alerts = append(alerts, x.alert(l, x.reading(f.Value, limit)))
			}

			inhibited = true
		}
	}

	x.count()
	if over {
		ev.Counters.Over.Add(1)
	}

	return alerts, over
}

// alert returns the alert of l about a reading of the event, which has no place in a log.
func (x *examination) alert(l *level, r delivery.Reading) Alert {
	return Alert{
		about: *x,
		Alert: delivery.Alert{
			Key:       x.key(l),
			Reading:   r,
			Sender:    x.event.Device,
			Before:    placeOf(telemetry.Position{}),
			Receivers: x.receivers(l),
		},
	}
}

// Keys returns what notices about a device are about.
func (ev *Evaluator) Keys(device string) []delivery.Key {
	keys := make([]delivery.Key, len(ev.levels))
	for i, l := range ev.levels {
		keys[i] = delivery.Key{About: device, Topic: l.own}
	}
	return keys
}

// Note records what decoding gave for e. It is safe for concurrent use.
func (s *Seen) Note(e *telemetry.Event, reason telemetry.Reason, found []telemetry.Found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(e, roster.Hash(e.Device), reason, found, time.Now().UnixMicro())
}
