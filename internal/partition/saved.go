package partition

import (
	"alertworker/internal/delivery"
	"alertworker/internal/humanize"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// content returns what the ledger has to hold at p.
func (h *history) content(p telemetry.Position) ledger.Content {
	c := ledger.Content{Position: p, Alarms: make([]ledger.Alarm, 0, len(h.alarms))}
	levels := map[*level]bool{}
	for key, k := range h.alarms {
		if !levels[key.level] {
			levels[key.level] = true
			c.Levels = append(c.Levels, key.level.content())
		}

		a := ledger.Alarm{
			Device: ledger.Text(key.about.Device),
			Sensor: ledger.Text(key.about.Name),
			Rule:   key.level.rule.Name,
			Level:  key.level.Name,

			Measured: key.level.id.measured,
			Per:      key.level.id.per,
			Group:    ledger.Text(k.group),
		}

		if k.Phase != rules.Normal {
			a.Open = k.Phase == rules.Open
			a.Since = fromMicros(k.Since.Hub)
			a.DeviceSince = fromMicros0(k.Since.Device)
			a.DeviceNewest = fromMicros0(k.Newest)
			a.Cleared = fromMicros0(k.Cleared.Hub)
			a.DeviceCleared = fromMicros0(k.Cleared.Device)
			a.Value = ledger.Number(k.value)
			a.Limit = ledger.Number(k.limit)
		}

		//planted:ledger-without-sensor a.Sensor = ""
		a.Exposed = k.alertNext
		a.Silence = key.level.rule.Silence()
		a.Log = k.log
		a.Sequence = k.sequence
		a.Element = k.element

		if k.due != nil {
			due := savedReading(&k.due.Notice)
			a.Due = &due
		}

		c.Alarms = append(c.Alarms, a)
	}

	return c
}

// content returns what the ledger has to hold of l.
func (l *level) content() ledger.Level {
	r := l.rule
	return ledger.Level{
		Rule:     r.Name,
		Name:     l.Name,
		Resolved: r.Resolved,
		Below:    r.Below,
		Field:    r.Field,
		Window:   r.Window,
		Silent:   r.Silent,
		Is:       r.Is,
		Measured: l.id.measured,
		Per:      l.id.per,
		Title:    r.Title,
		Unit:     r.Unit,
		Runbook:  r.Runbook,
		Removed:  l.removed,
	}
}

// savedReading returns what the ledger has to hold of a notice that is due.
func savedReading(n *delivery.Notice) ledger.Reading {
	r := ledger.Reading{
		Log:        n.Log,
		Part:       uint8(n.Part),
		Sequence:   n.Reading.Sequence,
		Element:    n.Reading.Element,
		Enqueued:   fromMicros(n.Reading.Enqueued),
		Value:      ledger.Number(n.Reading.Value),
		Limit:      ledger.Number(n.Reading.Limit),
		DeviceTime: fromMicros0(n.Reading.Taken),
		Since:      fromMicros0(n.Reading.Since),
		RaisedAt:   fromMicros0(n.RaisedAt),
		Heard:      fromMicros0(n.Heard),
		Forgotten:  n.Forgotten,
		Excluded:   ledger.Text(humanize.Cut(n.Excluded, ledger.MaxExcluded)),
	}
	if n.Outage != nil {
		r.Outage = &ledger.Outage{Devices: n.Outage.Devices}
	}

	return r
}

// idOf returns the id of a level as the ledger has it.
func idOf(l *ledger.Level) levelID {
	return levelID{l.Rule, l.Name, l.Silent > 0, l.Measured, l.Per}
}

// remembered returns an alarm as the ledger has it, without the notice that is due.
func remembered(from ledger.Alarm) alarm {
	phase := rules.Pending
	switch {
	case from.Since.IsZero():
		phase = rules.Normal
	case from.Open:
		phase = rules.Open
	}

	return alarm{
		alerted: everybody,
		State: rules.State{
			Since:   rules.Moment{Hub: micros0(from.Since), Device: micros0(from.DeviceSince)},
			Newest:  micros0(from.DeviceNewest),
			Cleared: rules.Moment{Hub: micros0(from.Cleared), Device: micros0(from.DeviceCleared)},
			Phase:   phase,
		},
		value:     float64(from.Value),
		limit:     float64(from.Limit),
		alertNext: from.Exposed,
		group:     string(from.Group),
		log:       from.Log,
		sequence:  from.Sequence,
		element:   from.Element,
	}
}

// rememberedNotice returns a notice that is due as the ledger has it.
func rememberedNotice(r *ledger.Reading) *dueNotice {
	n := &dueNotice{
		saved: true,
		Notice: delivery.Notice{
			Log:       r.Log,
			Part:      throttle.Part(r.Part),
			RaisedAt:  micros0(r.RaisedAt),
			Heard:     micros0(r.Heard),
			Forgotten: r.Forgotten,
			Excluded:  string(r.Excluded),
			Reading: delivery.Reading{
				Value:    float64(r.Value),
				Limit:    float64(r.Limit),
				Enqueued: micros(r.Enqueued),
				Sequence: r.Sequence,
				Element:  r.Element,
				Taken:    micros0(r.DeviceTime),
				Since:    micros0(r.Since),
			},
		},
	}
	if r.Outage != nil {
		n.Outage = &notify.Outage{Devices: r.Outage.Devices}
	}

	return n
}
