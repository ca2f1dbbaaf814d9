package telemetry

import "sync"

// Repair makes JSON of a body that is nearly JSON.
func Repair(body []byte) ([]byte, Damage) {
	text, m := repair(body, nil)
	return text, m.damage
}

// DecodeAll is Read for e as one measurement.
func (d *Decoder) DecodeAll(e *Event, found []Found) Reason {
	m := wholes.Get().(*Measurements)
	defer wholes.Put(m)
	m.Split(e)
	reason := m.Read(d, 0, found)
	for i := range found {
		found[i].rank = 0 // which nobody sees
	}
	return reason
}

// What is kept of a message is no more for the next one.
var wholes = sync.Pool{New: func() any { return NewMeasurements(nil) }}

// Decode returns the reading in e of a Decoder with one field. Unless reason is ReasonOK there is none, and the value is 0.
func (d *Decoder) Decode(e *Event) (value float64, reason Reason) {
	var found [1]Found
	reason = d.DecodeAll(e, found[:])
	return found[0].Value, reason
}
