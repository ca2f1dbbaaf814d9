package telemetry

import (
	"bytes"
	"encoding/json"
	"io"
)

// maxText is how much of a value people see, in bytes.
const maxText = 64

// TextAt returns the first value that body has at a path, as it stands there: a text with its quotes, a number or a
// boolean. It is empty if there is none, and cut if it is long.
func TextAt(body []byte, path string) string {
	d, err := NewFieldsDecoder(Field{Paths: path, Text: true, Lowest: true}) // which is the first
	if err != nil {
		return ""
	}

	var found [1]Found
	m := NewMeasurements(nil)
	m.Split(&Event{Device: "any", Body: body})
	if m.Read(d, 0, found[:]); found[0].Reason != ReasonOK {
		return ""
	}

	v := textOf(m.one.texts, found[0].Value)

	return string(v[:min(len(v), maxText)])
}

// Document returns body as encoding/json decodes it, unpacked if it is packed; several values as an array. It is false if
// the body is not JSON.
func Document(body []byte) (v any, ok bool) {
	new(scanner).unpack(body, func(text []byte) (broken bool) {
		var all []any
		values := json.NewDecoder(bytes.NewReader(text))
		for {
			var one any
			if err := values.Decode(&one); err != nil {
				v, ok = all, err == io.EOF && len(all) > 0
				if len(all) == 1 {
					v = all[0]
				}
				return !ok
			}
			all = append(all, one)
		}
	})

	return v, ok
}
