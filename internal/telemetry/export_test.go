package telemetry

// Repair makes JSON of a body that is nearly JSON.
func Repair(body []byte) ([]byte, Damage) {
	text, m := repair(body, nil)
	return text, m.damage
}

// Decode returns the reading in e of a Decoder with one field. Unless reason is ReasonOK there is none, and the value is 0.
func (d *Decoder) Decode(e *Event) (value float64, reason Reason) {
	var found [1]Found
	reason = d.DecodeAll(e, found[:])
	return found[0].Value, reason
}
