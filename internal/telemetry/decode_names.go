package telemetry

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// A given name is one that the hub gives, whatever a body says.
type given uint8

const (
	notGiven given = iota
	givenModule
	givenComponent
	givenDevice
	givenProperty // the application property that path.text names
	givenKey      // the name under which a measurement stands
)

// NameOfKey is the name under which a measurement stands, or its array.
const NameOfKey = "$key"

const propertyPrefix = "$property."

// givenNames are those that are the same for all messages.
var givenNames = map[string]given{
	"$module":    givenModule,
	"$component": givenComponent,
	"$device":    givenDevice,
	NameOfKey:    givenKey,
}

// parseGiven reads a name that begins with $.
func parseGiven(text string) (path, error) {
	if len(text) > len(propertyPrefix) && strings.EqualFold(text[:len(propertyPrefix)], propertyPrefix) {
		return path{text: []byte(text[len(propertyPrefix):]), given: givenProperty}, nil
	}

	if g := givenNames[strings.ToLower(text)]; g != notGiven {
		return path{text: []byte(text), given: g}, nil
	}

	return path{}, fmt.Errorf(
		"%q is not known: a name that begins with $ must be $module, $component, $device, $key or $property.NAME", text)
}

// elsewhere looks for the field with an index outside of the body, which has f of it: among the names that the hub
// gives, and among the properties. key is the name under which the measurement stands.
func (to *decoded) elsewhere(s *scanner, i int, e *Event, key []byte, f *Found) {
	if len(to.names) == 0 {
		f.Value, f.Reason = 0, ReasonMissing
	}

	for j := range to.given {
		p := &to.given[j]
		if f.Reason != ReasonOK || s.ranks[i] > p.rank {
			s.found1(p, s.given(p, e, key), p.given != givenKey, f)
		}
	}

	for j := range to.names {
		if to.inBody || !to.lacks(f.Reason) {
			return
		}

		p := &to.names[j]
		s.found1(p, s.property(p, e.Properties), true, f)
	}
}

// lacks reports whether a measurement in which a field has this reason may have it elsewhere.
func (to *decoded) lacks(r Reason) bool {
	switch {
	case r == ReasonMissing, r == ReasonEmpty:
		return true
	case !to.condition:
		return false
	}

	return r == ReasonNull || !r.Decoded() || to.words && r != ReasonOK
}

// found1 sets f to what v, the value of p as JSON, is for its field, unless there is none.
func (s *scanner) found1(p *path, v []byte, around bool, f *Found) {
	if v == nil {
		return
	}

	isRepaired := s.repaired
	s.repaired = false // what is not of the body is whole
	var number finding
	number.value, number.reason = s.number(v)
	one := p.reading(s, v, number)
	s.repaired = isRepaired
	f.Value, f.Reason, f.Around = one.value, one.reason, around
}

// given returns the value of a name that the hub gives, as JSON; nil if the message has none.
func (s *scanner) given(p *path, e *Event, key []byte) []byte {
	text := ""
	switch p.given {
	case givenProperty:
		return s.property(p, e.Properties)
	case givenKey:
		return key
	case givenModule:
		text = e.Module
	case givenComponent:
		text = e.Component
	case givenDevice:
		text = e.Device
	}

	if text == "" {
		return nil
	}

	s.scalar, _ = jsontext.AppendQuote(s.scalar[:0], text)

	return s.scalar
}

// property returns the application property with the name p as JSON; nil if there is none, or nothing but what an IoT
// Hub writes where a device's twin has no such path.
func (s *scanner) property(p *path, all Properties) []byte {
	v := all.Find(p.text)
	if text, isText := v.Text(); isText {
		text = bytes.TrimSpace(text)
		if bytes.HasPrefix(text, []byte("$twin.")) && len(p.words) == 0 && !p.time {
			return nil
		}

		s.scalar, _ = jsontext.AppendQuote(s.scalar[:0], text)
		return s.scalar
	}

	to := s.scalar[:0]
	n, isInt := v.Int()
	u, isUint := v.Uint()
	f, isNumber := v.Number()
	b, isBool := v.Bool()
	t, isTime := v.Time()

	switch {
	case v.IsNull():
		return nil
	case isInt:
		to = strconv.AppendInt(to, n, 10)
	case isUint:
		to = strconv.AppendUint(to, u, 10)
	case isNumber && !math.IsNaN(f) && !math.IsInf(f, 0):
		to = append(to, v.String()...)
	case isBool:
		to = strconv.AppendBool(to, b)
	case isTime:
		to = t.AppendFormat(append(to, '"'), time.RFC3339Nano)
		to = append(to, '"')
	case isNumber || p.isText: // people may see anything
		to, _ = jsontext.AppendQuote(to, v.String())
	default:
		to = append(to, `"?"`...) // no number, word or time
	}

	s.scalar = to

	return to
}

// keepText keeps v, a JSON value that is neither an object nor an array, and returns what stands for it.
func (s *scanner) keepText(v []byte) float64 {
	at := len(s.texts)
	s.texts = binary.AppendUvarint(s.texts, uint64(len(v)))
	s.texts = append(s.texts, v...)
	return float64(at)
}

// textOf returns the JSON value that keepText has returned a number for.
func textOf(texts []byte, number float64) []byte {
	texts = texts[int(number):]
	n, size := binary.Uvarint(texts)
	return texts[size:][:n]
}
