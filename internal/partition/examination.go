package partition

import (
	"alertworker/internal/delivery"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// An examination is an event and what every rule needs of it.
type examination struct {
	evaluator *Evaluator
	event     *telemetry.Event
	// what is measured: the event's device, or one of its sensors, by an element of the event
	sensor   string // empty: the device's own
	element  int
	at       rules.Moment
	dated    rules.DeviceTime // of at
	damaged  bool             // the event's body is: see telemetry.Found
	shown    notify.Shown     // what messages show of it, once hasShown is true
	hasShown bool
	of       *part // until the evaluation is over
}

// look has x be about the sensor that r sees in it.
func (x *examination) look(r *rule) {
	x.sensor = ""
	if len(r.Sensor) == 0 {
		return
	}

	x.sensor = string(r.AppendSensor(nil, x.of.measurements, x.of.found, r.reads))
	if x.sensor == "" {
		x.evaluator.book.Counters.Nameless.Add(1)
	}
}

// about returns what the reading is of.
func (x *examination) about() sensor.ID { return sensor.ID{Device: x.event.Device, Name: x.sensor} }

// count counts how far the device's time can be used.
func (x *examination) count() {
	if x.evaluator.book.Clock != nil {
		x.evaluator.book.Counters.Times[x.dated].Add(1)
	}
}

// isMuted reports whether alerts of l about the event are muted, and counts those.
func (x *examination) isMuted(l *level) bool {
	if !x.evaluator.mutes() {
		return false
	}

	about := rules.Subject{
		Device:   x.event.Device,
		Sensor:   x.sensor,
		Rule:     l.rule.Name,
		Enqueued: x.event.Enqueued,
		Text:     x.text,
	}
	//planted:message-mutes-nothing about.Text = func(string) string { return "" }
	if !x.evaluator.muted(&about) {
		return false
	}

	x.evaluator.book.Counters.Quieted.Add(1)

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
	for i := range x.evaluator.book.Receivers {
		if x.evaluator.book.Receivers[i].Filters.Want(l.rule.Name, l.Name, x.text) {
			receivers |= 1 << i
		} else {
			x.evaluator.book.Counters.Filtered.Add(1)
		}
	}

	return receivers
}

// key returns what an alert of l is about: the event's device, or what that shares its alerts by; and its topic.
func (x *examination) key(l *level) (sensor.ID, *delivery.Topic) {
	if l.rule.Per == "" {
		return x.about(), l.own
	}

	shared := rules.Shared(x.text(l.rule.Per))
	if shared == "" {
		x.evaluator.book.Counters.Unshared.Add(1)
		return x.about(), l.own
	}

	return sensor.Of(shared), l.shared
}

// show has x know what messages show of it, for when the measurement has gone.
func (x *examination) show() {
	if len(x.evaluator.book.Rules.Show) == 0 || x.hasShown {
		return
	}

	x.hasShown = true
	for _, name := range x.evaluator.book.Rules.Show {
		if text := x.text(name); text != "" {
			x.shown = x.shown.With(name, text)
		}
	}
}

// more returns what messages show of the measurement, and the device if devices share these; nil if that is
// nothing.
func (x *examination) more(t *delivery.Topic) *delivery.More {
	m := delivery.More{Damaged: x.damaged, Shown: x.shown}
	if t.Shared {
		m.Of = x.about()
	}

	if m == (delivery.More{}) {
		return nil
	}

	return &m
}

// text returns the text that the measurement has at a name, "" if it has none.
func (x *examination) text(name string) string {
	return x.evaluator.book.Decoder.Text(x.of.measurements, x.element, name)
}

// An Alert is about a reading, and has what messages show of it.
type Alert struct {
	Alert   delivery.Alert
	shown   notify.Shown
	damaged bool // see examination.damaged
}

// More implements delivery.Details.
func (a *Alert) More() *delivery.More {
	m := delivery.More{Damaged: a.damaged, Shown: a.shown, Alarm: a.Alert.Alarm}
	of := sensor.ID{Device: a.Alert.Device, Name: a.Alert.Sensor}
	if a.Alert.Key.About != of || a.Alert.Key.Topic.Shared { // see passage.crowded
		m.Of = of
	}

	if m == (delivery.More{}) {
		return nil
	}

	return &m
}
