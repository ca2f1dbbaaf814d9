package telemetry

// Repair makes JSON of a body that is nearly JSON.
func Repair(body []byte) ([]byte, Damage) {
	text, m := repair(body, nil)
	return text, m.damage
}
