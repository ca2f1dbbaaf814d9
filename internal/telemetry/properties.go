package telemetry

import "time"

// Properties are an event's application properties. The zero value has none.
type Properties struct {
	encoded  []byte
	encoding Encoding
	decoded  map[string]any
}

// An Encoding reads encoded properties. It is safe for concurrent use.
type Encoding interface {
	// All decodes all properties, and keeps nothing of encoded.
	All(encoded []byte) map[string]any
	// Get decodes one property: see Properties.Get.
	Get(encoded []byte, name string) Property
}

// EncodedProperties returns properties that are decoded when somebody asks for them.
func EncodedProperties(encoded []byte, encoding Encoding) Properties {
	return Properties{encoded: encoded, encoding: encoding}
}

// PropertiesOf returns all as properties.
func PropertiesOf(all map[string]any) Properties { return Properties{decoded: all} }

// All returns the properties, nil if there are none.
func (p Properties) All() map[string]any {
	if len(p.encoded) > 0 {
		return p.encoding.All(p.encoded)
	}
	return p.decoded
}

// A Property is one application property.
type Property struct {
	Kind   PropertyKind
	Text   []byte    // of PropertyText; read-only, valid as long as the event is
	Number float64   // of PropertyNumber; may be NaN or infinite
	Time   time.Time // of PropertyTime
}

// A PropertyKind says what a property is.
type PropertyKind uint8

const (
	PropertyAbsent PropertyKind = iota // there is no such property, or it is null
	PropertyText                       // also of a symbol
	PropertyNumber                     // of any type of numbers, as a float64
	PropertyTrue
	PropertyFalse
	PropertyTime  // a timestamp
	PropertyOther // of a type that is not read
)

// Get returns the property of that name, which is compared exactly: an IoT Hub takes two names
// that differ only by case for one, but delivers the one that it has as it was written.
//
// Get allocates nothing for an event as an IoT Hub delivers it.
func (p Properties) Get(name string) Property {
	if len(p.encoded) > 0 {
		return p.encoding.Get(p.encoded, name)
	}
	number := func(f float64) Property { return Property{Kind: PropertyNumber, Number: f} }
	switch v := p.decoded[name].(type) {
	case nil:
		return Property{}
	case string:
		return Property{Kind: PropertyText, Text: []byte(v)}
	case bool:
		if v {
			return Property{Kind: PropertyTrue}
		}
		return Property{Kind: PropertyFalse}
	case time.Time:
		return Property{Kind: PropertyTime, Time: v}
	case float64:
		return number(v)
	case float32:
		return number(float64(v))
	case int8:
		return number(float64(v))
	case int16:
		return number(float64(v))
	case int32:
		return number(float64(v))
	case int64:
		return number(float64(v))
	case int:
		return number(float64(v))
	case uint8:
		return number(float64(v))
	case uint16:
		return number(float64(v))
	case uint32:
		return number(float64(v))
	case uint64:
		return number(float64(v))
	}
	return Property{Kind: PropertyOther}
}
