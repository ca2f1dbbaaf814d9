package telemetry_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"alertworker/internal/telemetry"
)

func FuzzDecode(f *testing.F) {
	for _, b := range bodies {
		if len(b.body) < 4096 {
			f.Add([]byte(b.body), b.fields)
		}
	}
	f.Add([]byte(flatBody), "")
	f.Add([]byte(`{"a":[{"b.c":[1,{"d":"2"}]},{"B":{"c":3}}],"A":{"b":{"C":{"d":null}}}}`), "a.b.c,a.b.c.d,b")

	f.Fuzz(func(t *testing.T, body []byte, fields string) {
		d, err := telemetry.NewDecoder(fields)
		if err != nil {
			return
		}
		before := bytes.Clone(body)
		got, reason := d.Decode(&telemetry.Event{Device: "d", Body: body})
		if !bytes.Equal(body, before) {
			t.Error("Decode wrote to the body")
		}
		if math.IsNaN(got) || math.IsInf(got, 0) || reason != telemetry.ReasonOK && got != 0 {
			t.Errorf("got %v, %v", got, reason)
		}
		if reason >= telemetry.ReasonCount || reason == telemetry.ReasonNotTelemetry || reason == telemetry.ReasonNoDevice {
			t.Errorf("reason %v", reason)
		}

		if root, ok := parse(body); ok {
			if strings.TrimSpace(fields) == "" {
				fields = telemetry.DefaultFields
			}
			want := reference(root, "", strings.Split(fields, ","))
			if depthOf(root) > 64 {
				want = reading{reason: telemetry.ReasonTooDeep}
			}
			if got != want.value || reason != want.reason {
				t.Errorf("got %v, %v; the reference has %v, %v", got, reason, want.value, want.reason)
			}
		}

		for _, path := range telemetry.Fields(body) {
			got, reason := newDecoder(t, path).Decode(&telemetry.Event{Device: "d", Body: body})
			if reason != telemetry.ReasonOK {
				t.Errorf("Fields names %q, where Decode finds %v, %v", path, got, reason)
			}
		}
	})
}

// Bodies whose names are likely to meet the fields'.
func TestDecodeAgainstReference(t *testing.T) {
	name := rapid.SampledFrom([]string{"a", "b", "A", "a.b", "b.A", "a.b.a"})
	scalar := rapid.SampledFrom([]string{"1", "2.5", "-3", "1e400", "null", "true", `"4"`, `" 5"`, `"x"`, `"NaN"`, "{}", "[]"})
	body := func(value *rapid.Generator[string]) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				return scalar.Draw(t, "scalar")
			case 1:
				return "[" + strings.Join(rapid.SliceOfN(value, 0, 4).Draw(t, "elements"), ",") + "]"
			}
			var members []string
			for _, v := range rapid.SliceOfN(value, 0, 4).Draw(t, "members") {
				members = append(members, strconv.Quote(name.Draw(t, "name"))+":"+v)
			}
			return "{" + strings.Join(members, ",") + "}"
		})
	}
	bodies := body(body(body(body(scalar))))
	path := rapid.SampledFrom([]string{"a", "b", "a.b", "b.a", "a.b.a", "A.a", "b.b.a.b"})

	rapid.Check(t, func(t *rapid.T) {
		text := bodies.Draw(t, "body")
		fields := rapid.SliceOfNDistinct(path, 1, 4, rapid.ID).Draw(t, "fields")
		d, err := telemetry.NewDecoder(strings.Join(fields, ","))
		if err != nil {
			t.Fatal(err)
		}
		root, ok := parse([]byte(text))
		if !ok { // a string
			return
		}
		got, reason := d.Decode(&telemetry.Event{Device: "d", Body: []byte(text)})
		if want := reference(root, "", fields); got != want.value || reason != want.reason {
			t.Errorf("got %v, %v; the reference has %v, %v", got, reason, want.value, want.reason)
		}
	})
}

// The reference reads JSON by encoding/json into a tree, and the tree by the
// text of Decode's comment. An object is a slice of members, as it may hold a name twice.
type (
	object []member
	member struct {
		name  string
		value any
	}
)

// parse returns the tree of a body that is one valid JSON value, and no string.
func parse(body []byte) (any, bool) {
	if !json.Valid(body) {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	root := parseValue(dec)
	if _, err := dec.Token(); err != io.EOF {
		panic(err) // cannot be: the body is valid
	}
	_, isString := root.(string)
	return root, !isString
}

func parseValue(dec *json.Decoder) any {
	token, err := dec.Token()
	if err != nil {
		panic(err) // cannot be: the body is valid
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			list = append(list, parseValue(dec))
		}
		_, _ = dec.Token()
		return list
	case json.Delim('{'):
		o := object{}
		for dec.More() {
			name := parseValue(dec).(string)
			o = append(o, member{name, parseValue(dec)})
		}
		_, _ = dec.Token()
		return o
	}
	return token
}

func depthOf(v any) int {
	depth := 0
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			depth = max(depth, depthOf(e))
		}
	case object:
		for _, m := range v {
			depth = max(depth, depthOf(m.value))
		}
	default:
		return 0
	}
	return depth + 1
}

type reading struct {
	rank   int
	value  float64
	reason telemetry.Reason
}

// reference returns what v, which is at path, holds for the fields.
func reference(v any, path string, fields []string) reading {
	var parts []reading
	rank := -1
	for i, f := range fields {
		if strings.EqualFold(strings.TrimSpace(f), path) {
			rank = i
		}
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			parts = append(parts, reference(e, path, fields))
		}
		return best(parts, true)
	case object:
		if rank >= 0 {
			parts = append(parts, reading{rank, 0, telemetry.ReasonNotANumber})
		}
		for _, m := range v {
			below := m.name
			if path != "" {
				below = path + "." + m.name
			}
			if below != "" {
				parts = append(parts, reference(m.value, below, fields))
			}
		}
		return best(parts, false)
	}
	if rank < 0 {
		return reading{reason: telemetry.ReasonMissing}
	}
	f, reason := referenceNumber(v)
	return reading{rank, f, reason}
}

func best(parts []reading, array bool) reading {
	chosen := reading{rank: math.MaxInt, value: math.Inf(-1), reason: telemetry.ReasonMissing}
	for _, p := range parts { // the readable
		if p.reason == telemetry.ReasonOK && (array || p.rank <= chosen.rank) {
			if array || p.rank == chosen.rank {
				p.value = max(p.value, chosen.value)
			}
			p.rank = min(p.rank, chosen.rank)
			chosen = p
		}
	}
	if chosen.reason == telemetry.ReasonOK {
		return chosen
	}
	for _, p := range parts { // why there are none
		if p.reason != telemetry.ReasonMissing && p.rank < chosen.rank {
			chosen = p
		}
	}
	if chosen.reason == telemetry.ReasonMissing {
		return reading{reason: telemetry.ReasonMissing}
	}
	return chosen
}

func referenceNumber(v any) (float64, telemetry.Reason) {
	var text string
	switch v := v.(type) {
	case nil:
		return 0, telemetry.ReasonNull
	case json.Number:
		text = v.String()
	case string:
		text = strings.TrimSpace(v)
	default:
		return 0, telemetry.ReasonNotANumber
	}
	switch strings.ToLower(strings.TrimLeft(text, "+-")) {
	case "nan", "inf", "infinity":
		if strings.IndexAny(strings.ToLower(text), "ni") <= 1 {
			return 0, telemetry.ReasonNotFinite
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case strings.ContainsAny(text, "xX_"):
		return 0, telemetry.ReasonNotANumber
	case math.IsInf(f, 0):
		return 0, telemetry.ReasonNotFinite
	case err != nil:
		return 0, telemetry.ReasonNotANumber
	}
	return f, telemetry.ReasonOK
}
