package telemetry_test

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
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
			want := reference(root, fields)
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
		if want := reference(root, strings.Join(fields, ",")); got != want.value || reason != want.reason {
			t.Errorf("got %v, %v; the reference has %v, %v", got, reason, want.value, want.reason)
		}
		for cut := range text {
			checkTruncated(t, d, text[:cut], text, strings.Join(fields, ","))
		}
	})
}

// A body that is cut off yields what was complete before, and never a number that is cut.
func FuzzDecodeTruncated(f *testing.F) {
	for _, b := range bodies {
		if len(b.body) < 4096 {
			f.Add([]byte(b.body), b.fields, uint(len(b.body)-2))
		}
	}
	f.Add([]byte(`[{"temperature":-91.5e+1 },{"temp" : "91.5" , "temperature": [1,[2.5]]}]`), "", uint(60))

	f.Fuzz(func(t *testing.T, body []byte, fields string, cut uint) {
		d, err := telemetry.NewDecoder(fields)
		if err != nil || cut > uint(len(body)) {
			return
		}
		if _, ok := parse(body); ok {
			checkTruncated(t, d, string(body[:cut]), string(body), fields)
		}
	})
}

// checkTruncated decodes text, which is whole cut off.
func checkTruncated(t interface{ Errorf(string, ...any) }, d *telemetry.Decoder, text, whole, fields string) {
	root, complete := parser{json.NewDecoder(strings.NewReader(whole)), whole, int64(len(text))}.value()
	if complete || root == nil {
		return // not cut off, or nothing but part of a scalar
	}
	got, reason := d.Decode(&telemetry.Event{Device: "d", Body: []byte(text)})
	want := reference(root, fields)
	if want.reason != telemetry.ReasonOK && want.reason != telemetry.ReasonTooDeep {
		want.reason = telemetry.ReasonMalformed
	}
	if got != want.value || reason != want.reason {
		t.Errorf("%q, %d bytes of %q: got %v, %v; the reference has %v, %v", text, len(text), whole, got, reason, want.value, want.reason)
	}
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
	root, _ := parser{json.NewDecoder(bytes.NewReader(body)), string(body), math.MaxInt64}.value()
	_, isString := root.(string)
	return root, !isString
}

// A parser reads text, which is valid JSON, as if it ended at end.
type parser struct {
	*json.Decoder
	text string
	end  int64
}

// value returns as much of the next value as there is, and whether that is all of it; nil
// if it is a scalar and not all there.
func (p parser) value() (v any, complete bool) {
	p.UseNumber()
	token, err := p.Token()
	if err != nil {
		panic(err) // cannot be: the text is valid
	}
	end := p.InputOffset()
	if _, ok := token.(json.Number); ok && p.end < int64(len(p.text)) {
		rest := p.text[end:]
		end += int64(len(rest) - len(strings.TrimLeft(rest, " \t\r\n")) + 1) // with what follows
	}
	if end > p.end {
		return nil, false
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for p.More() {
			e, complete := p.value()
			if complete || e != nil {
				list = append(list, e)
			}
			if !complete {
				return list, false
			}
		}
		_, _ = p.Token()
		return list, p.InputOffset() <= p.end
	case json.Delim('{'):
		o := object{}
		for p.More() {
			name, complete := p.value()
			if !complete {
				return o, false
			}
			v, complete := p.value()
			if complete || v != nil {
				o = append(o, member{name.(string), v})
			}
			if !complete {
				return o, false
			}
		}
		_, _ = p.Token()
		return o, p.InputOffset() <= p.end
	}
	return token, true
}

type reading struct {
	rank   int
	value  float64
	reason telemetry.Reason
}

// reference returns what the tree holds for the fields.
func reference(root any, fields string) reading {
	if strings.TrimSpace(fields) == "" {
		fields = telemetry.DefaultFields
	}
	r := referrer{}
	for f := range strings.SplitSeq(fields, ",") {
		r.fields = append(r.fields, strings.TrimSpace(f))
	}
	found := r.refer(root, "", 0)
	if found.reason != telemetry.ReasonOK && r.tooDeep {
		return reading{reason: telemetry.ReasonTooDeep}
	}
	return found
}

type referrer struct {
	fields  []string
	tooDeep bool
}

// leads reports whether one of the fields is at path or below.
func (r *referrer) leads(path string) bool {
	return path == "" || slices.ContainsFunc(r.fields, func(f string) bool {
		names := strings.SplitAfterN(f, ".", strings.Count(path, ".")+2)
		start := strings.Join(names[:min(len(names), strings.Count(path, ".")+1)], "")
		return strings.EqualFold(strings.TrimSuffix(start, "."), path)
	})
}

// refer returns what v holds, which is at path in so many objects and arrays.
func (r *referrer) refer(v any, path string, depth int) reading {
	var parts []reading
	rank := slices.IndexFunc(r.fields, func(f string) bool { return strings.EqualFold(f, path) })
	switch v.(type) {
	case []any, object:
		if depth == 64 {
			r.tooDeep = r.tooDeep || r.leads(path)
			return reading{reason: telemetry.ReasonMissing}
		}
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			parts = append(parts, r.refer(e, path, depth+1))
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
				parts = append(parts, r.refer(m.value, below, depth+1))
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
