package amqpfilter

import (
	"encoding/binary"
	"math"
	"time"

	"alertworker/internal/telemetry"
)

// Property returns one of the properties of an Event. It allocates nothing: a text aliases
// the event.
func Property(properties []byte, name string) telemetry.Property {
	var found []byte
	w := walker{b: properties}
	n, _ := w.mapCount()
	for i := 0; i < n; i += 2 {
		key := w.b
		if w.text() != nil {
			break // cannot be: the filter has checked it
		}
		value := w.b
		if _, err := w.value(1); err != nil {
			break // nor this
		}
		if text, _ := textOf(key[:len(key)-len(value)]); string(text) == name {
			found = value[:len(value)-len(w.b)] // of a name that comes twice the last value counts, as for the library
		}
	}
	return propertyOf(found)
}

// propertyOf returns an encoded value, nil if there is none.
func propertyOf(b []byte) telemetry.Property {
	if len(b) == 0 {
		return telemetry.Property{}
	}
	if text, ok := textOf(b); ok {
		return telemetry.Property{Kind: telemetry.PropertyText, Text: text}
	}
	if f, ok := numberOf(b); ok {
		return telemetry.Property{Kind: telemetry.PropertyNumber, Number: f}
	}
	if ms, ok := timeOf(b); ok {
		return telemetry.Property{Kind: telemetry.PropertyTime, Time: time.UnixMilli(ms)}
	}
	switch b[0] {
	case codeNull:
		return telemetry.Property{}
	case codeTrue:
		return telemetry.Property{Kind: telemetry.PropertyTrue}
	case codeFalse:
		return telemetry.Property{Kind: telemetry.PropertyFalse}
	case codeBool:
		if b[1] != 0 {
			return telemetry.Property{Kind: telemetry.PropertyTrue}
		}
		return telemetry.Property{Kind: telemetry.PropertyFalse}
	}
	return telemetry.Property{Kind: telemetry.PropertyOther}
}

// numberOf returns an encoded number of any type.
func numberOf(b []byte) (f float64, ok bool) {
	if n, ok := intOf(b); ok {
		return float64(n), true
	}
	if n, ok := ulongOf(b); ok {
		return float64(n), true
	}
	switch b[0] {
	case codeUint0:
		return 0, true
	case codeUbyte, codeSmallUint:
		return float64(b[1]), true
	case codeUshort:
		return float64(binary.BigEndian.Uint16(b[1:])), true
	case codeUint:
		return float64(binary.BigEndian.Uint32(b[1:])), true
	case codeFloat:
		return float64(math.Float32frombits(binary.BigEndian.Uint32(b[1:]))), true
	case codeDouble:
		return math.Float64frombits(binary.BigEndian.Uint64(b[1:])), true
	}
	return 0, false
}
