package partition

import (
	"alertworker/internal/delivery"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// An examination is an event and what every rule needs of it.
type examination struct {
	evaluator *Evaluator
	event     *telemetry.Event
	// what is measured: the event's device, or one of its sensors, by an element of the event
	sensor  string // empty: the device's own
	element int
	at      rules.Moment
	dated   rules.DeviceTime // of at
	damaged bool             // the event's body is: see telemetry.Found
}

func (ev *Evaluator) examine(e *telemetry.Event) examination {
	x := examination{evaluator: ev, event: e, at: rules.Moment{Hub: micros(e.Enqueued)}}
	if ev.Clock != nil {
		x.at.Device, x.dated = ev.Clock.Read(e)
	}
	return x
}

// about returns what the reading is of.
func (x *examination) about() sensor.ID { return sensor.ID{Device: x.event.Device, Name: x.sensor} }

// count counts how far the device's time can be used.
func (x *examination) count() {
	if x.evaluator.Clock != nil {
		x.evaluator.Counters.Times[x.dated].Add(1)
	}
}

// isMuted reports whether alerts of l about the event are muted, and counts those.
func (x *examination) isMuted(l *level) bool {
	about := rules.Subject{
		Device:     x.event.Device,
		Sensor:     x.sensor,
		Rule:       l.rule.Name,
		Enqueued:   x.event.Enqueued,
		Properties: x.event.Properties,
	}
	//planted:message-mutes-nothing about.Properties = nil
	if !x.evaluator.muted(&about) {
		return false
	}

	x.evaluator.Counters.Quieted.Add(1)

	return true
}

// reading returns the event's reading at a level with a limit.
func (x *examination) reading(value, limit float64) delivery.Reading {
	return delivery.Reading{
		Value:    value,
		Limit:    limit,
		Enqueued: x.at.Hub,
		Sequence: x.event.Sequence,
		Element:  x.element,
		Taken:    x.at.Device,
	}
}

// receivers returns the receivers that want an alert of l about the event, a bit for each. It counts the others.
func (x *examination) receivers(l *level) (receivers uint32) {
	for i := range x.evaluator.Receivers {
		if x.evaluator.Receivers[i].Filters.Want(l.rule.Name, l.Name, x.property) {
			receivers |= 1 << i
		} else {
			x.evaluator.Counters.Filtered.Add(1)
		}
	}

	return receivers
}

// key returns what an alert of l is about: the event's device, or what that shares its alerts by.
func (x *examination) key(l *level) delivery.Key {
	if l.rule.Per == "" {
		return delivery.Key{About: x.about(), Topic: l.own}
	}

	shared := rules.Shared(x.event.Properties.Get(l.rule.Per))
	if shared == "" {
		x.evaluator.Counters.Unshared.Add(1)
		return delivery.Key{About: x.about(), Topic: l.own}
	}

	return delivery.Key{About: sensor.Of(shared), Topic: l.shared}
}

// more returns the event's properties that messages show, and the device if devices share these; nil if that is
// nothing.
func (x *examination) more(t *delivery.Topic) *delivery.More {
	m := delivery.More{Damaged: x.damaged}
	for _, name := range x.evaluator.Rules.Show {
		if text := x.property(name); text != "" {
			m.Shown = m.Shown.With(name, text)
		}
	}

	if t.Shared {
		m.Of = x.about()
	}

	if m == (delivery.More{}) {
		return nil
	}

	return &m
}

// property returns the text of one of the event's properties, "" if it has none.
func (x *examination) property(name string) string {
	p := x.event.Properties.Get(name)
	if p.IsNull() {
		return ""
	}
	return p.String()
}

// An Alert is about a reading, and knows its event.
type Alert struct {
	delivery.Alert
	about examination
}

// More implements delivery.Details.
func (a *Alert) More() *delivery.More {
	m := a.about.more(a.Topic)
	if of := a.about.about(); a.Key.About != of && !a.Shared { // see passage.crowded
		if m == nil {
			m = &delivery.More{}
		}
		m.Of = of
	}

	if a.Alarm == nil {
		return m
	}

	if m == nil {
		m = &delivery.More{}
	}
	m.Alarm = a.Alarm

	return m
}

// alert returns the alert of l about a reading of the event, which has no place in a log.
func (x *examination) alert(l *level, r delivery.Reading) Alert {
	return Alert{
		about: *x,
		Alert: delivery.Alert{
			Key:       x.key(l),
			Reading:   r,
			Device:    x.event.Device,
			Sensor:    x.sensor,
			Before:    placeOf(telemetry.Position{}),
			Receivers: x.receivers(l),
		},
	}
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

		base, has := r.base(e, found)
		if has != rules.OverrideUsed {
			continue
		}

		inhibited := false
		for _, l := range r.levels {
			limit, _ := l.LimitFor(base, e.Properties)
			if !r.Breaching(f.Value, limit) {
				continue
			}

			over = true
			x.damaged = f.Damaged
			l.stats.Over.Add(1)
			if !inhibited && !x.isMuted(l) {
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
