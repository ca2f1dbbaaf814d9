package telemetry

// Properties are an event's application properties. The zero value has none.
type Properties struct {
	encoded []byte
	decode  func([]byte) map[string]any
	decoded map[string]any
}

// EncodedProperties returns properties that are decoded when somebody asks for them,
// by a decode that keeps nothing of what it is given.
func EncodedProperties(encoded []byte, decode func([]byte) map[string]any) Properties {
	return Properties{encoded: encoded, decode: decode}
}

// PropertiesOf returns all as properties.
func PropertiesOf(all map[string]any) Properties { return Properties{decoded: all} }

// All returns the properties, nil if there are none.
func (p Properties) All() map[string]any {
	if len(p.encoded) > 0 {
		return p.decode(p.encoded)
	}
	return p.decoded
}
