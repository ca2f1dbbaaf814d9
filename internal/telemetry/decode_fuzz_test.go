package telemetry_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
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
		if math.IsNaN(got) || math.IsInf(got, 0) || !reason.HasReading() && got != 0 {
			t.Errorf("got %v, %v", got, reason)
		}
		if reason >= telemetry.ReasonCount || reason == telemetry.ReasonNotTelemetry || reason == telemetry.ReasonNoDevice {
			t.Errorf("reason %v", reason)
		}

		if root, ok := parse(body); ok {
			want := reference(root, telemetry.Field{Paths: fields})
			if got != want.value || reason != want.reason {
				t.Errorf("got %v, %v; the reference has %v, %v", got, reason, want.value, want.reason)
			}
		}
	})
}

// Several fields in one pass are what each of them is alone.
func FuzzDecodeAll(f *testing.F) {
	for _, b := range bodies {
		if len(b.body) < 4096 {
			f.Add([]byte(b.body), b.fields, uint64(1))
		}
	}
	f.Add([]byte(nestedBody), "machine.temperature;temperature;ambient.humidity,machine.pressure;machine.temperature", uint64(0o21041))
	f.Add([]byte(`[{"a":[{"b.c":[1,{"d":"2"}]},{"B":{"c":3}}]},{"a":{"b":{"C":{"d":null}}}},{"b":4}]`), "b;a.b.c.d;a.b.c,b;b;a.b", uint64(0o20134))

	f.Fuzz(func(t *testing.T, body []byte, list string, lowest uint64) {
		var fields []telemetry.Field
		for paths := range strings.SplitSeq(list, ";") {
			f := telemetry.Field{Paths: paths, Lowest: lowest&1 != 0}
			switch lowest >> 1 & 3 {
			case 1:
				f.Valid = &telemetry.Range{From: -2, To: 30}
			case 2:
				f.Words = []string{"x", "2.50", "true", "4"}
			}
			fields = append(fields, f)
			lowest >>= 3
		}
		d, err := telemetry.NewFieldsDecoder(fields...)
		if err != nil {
			return
		}
		before := bytes.Clone(body)
		checkAll(t, d, fields, body)
		if !bytes.Equal(body, before) {
			t.Error("DecodeAll wrote to the body")
		}
	})
}

// checkAll decodes body for all fields at once and for each alone.
func checkAll(t interface{ Errorf(string, ...any) }, d *telemetry.Decoder, fields []telemetry.Field, body []byte) {
	e := &telemetry.Event{Device: "d", Body: body}
	found := make([]telemetry.Found, len(fields))
	for i := range found {
		found[i] = telemetry.Found{Value: 999, Reason: telemetry.ReasonCount} // of the event before
	}
	got := d.DecodeAll(e, found)
	root, ok := parse(body)
	want := telemetry.ReasonMissing
	for i, f := range fields {
		one, err := telemetry.NewFieldsDecoder(f)
		if err != nil {
			t.Errorf("%+v: %v", f, err)
			return
		}
		value, reason := one.Decode(e)
		alone := telemetry.Found{Value: value, Reason: reason, Damaged: found[i].Damaged}
		if reason == telemetry.ReasonDamaged {
			alone.Reason, alone.Damaged = telemetry.ReasonOK, true
		}
		if found[i] != alone {
			t.Errorf("%q, %d of %+v: got %v; alone it is %v, %v", body, i, fields, found[i], value, reason)
		}
		if ok {
			if want := reference(root, f); value != want.value || reason != want.reason {
				t.Errorf("%q, %+v: got %v, %v; the reference has %v, %v", body, f, value, reason, want.value, want.reason)
			}
		}
		if reason.HasReading() || want == telemetry.ReasonMissing {
			want = reason
		}
	}
	if got != want {
		t.Errorf("%q, %+v: got %v, want %v", body, fields, got, want)
	}
}

// bodyGenerator draws bodies whose names are likely to meet the fields'.
func bodyGenerator() *rapid.Generator[string] {
	name := rapid.SampledFrom([]string{"a", "b", "A", "a.b", "b.A", "a.b.a", "1"})
	scalar := rapid.SampledFrom([]string{"1", "2.5", "-3", "1e400", "null", "true", `"4"`, `" 5"`, `"6,5"`, `"1,234"`, `"x"`, `"NaN"`, "{}", "[]",
		`"{\"b\":[7,{\"a\":8}]}"`, `"[9,{\"1\":10}]"`, `"{\"b\":7"`, `"{} {\"a\":11}"`})
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
	return body(body(body(body(scalar))))
}

// fieldGenerator draws fields, of which the highest reading counts.
func fieldGenerator() *rapid.Generator[string] {
	path := rapid.SampledFrom([]string{"a", "b", "a.b", "b.a", "a.b.a", "A.a", "b.b.a.b", ".", "0", "a.1", "1.b", "a.0.b", "1.0"})
	return rapid.Map(rapid.SliceOfNDistinct(path, 1, 4, rapid.ID), func(paths []string) string { return strings.Join(paths, ",") })
}

func TestDecodeAgainstReference(t *testing.T) {
	bodies, fields := bodyGenerator(), fieldGenerator()
	rapid.Check(t, func(t *rapid.T) {
		text := bodies.Draw(t, "body")
		fields := fields.Draw(t, "fields")
		d, err := telemetry.NewDecoder(fields)
		if err != nil {
			t.Fatal(err)
		}
		root, ok := parse([]byte(text))
		if !ok { // a string
			return
		}
		got, reason := d.Decode(&telemetry.Event{Device: "d", Body: []byte(text)})
		if want := reference(root, telemetry.Field{Paths: fields}); got != want.value || reason != want.reason {
			t.Errorf("got %v, %v; the reference has %v, %v", got, reason, want.value, want.reason)
		}
		for cut := range text {
			checkTruncated(t, d, text[:cut], text, fields)
		}
	})
}

func TestDecodeAllIsDecodeOfEach(t *testing.T) {
	bodies := bodyGenerator()
	field := rapid.Custom(func(t *rapid.T) telemetry.Field {
		return telemetry.Field{Paths: fieldGenerator().Draw(t, "paths"), Lowest: rapid.Bool().Draw(t, "lowest")}
	})
	rapid.Check(t, func(t *rapid.T) {
		text := bodies.Draw(t, "body")
		fields := rapid.SliceOfN(field, 1, 6).Draw(t, "fields")
		d, err := telemetry.NewFieldsDecoder(fields...)
		if err != nil {
			t.Fatal(err)
		}
		switch rapid.IntRange(0, 5).Draw(t, "form") {
		case 0: // deep, so that some are read up to there
			text = strings.Repeat("[", 62) + text + strings.Repeat("]", 62)
		case 1:
			text = gzipText(text)
		case 2:
			text = strconv.Quote(text)
		case 3:
			text += text
		}
		checkAll(t, d, fields, []byte(text))
		checkAll(t, d, fields, []byte(text[:rapid.IntRange(0, len(text)).Draw(t, "cut")]))
	})
}

// A body that is cut off yields what is certain to have been complete before, and never a number that may be cut.
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
	root, complete := parser{json.NewDecoder(strings.NewReader(whole)), whole, int64(len(text))}.value(0)
	if complete || root == nil || strings.Count(text, "[")+strings.Count(text, "{") > 64 {
		return // not cut off, or nothing but part of a scalar, or perhaps too deep
	}
	got, reason := d.Decode(&telemetry.Event{Device: "d", Body: []byte(text)})
	want := reference(root, telemetry.Field{Paths: fields})
	if want.reason == telemetry.ReasonOK {
		want.reason = telemetry.ReasonDamaged
	} else {
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

// parse returns the tree of a body that is one valid JSON value, not nested too deep, and no string.
func parse(body []byte) (any, bool) {
	if !json.Valid(body) || nesting(body) > 64 {
		return nil, false
	}
	root, _ := parser{json.NewDecoder(bytes.NewReader(body)), string(body), math.MaxInt64}.value(0)
	_, isString := root.(string)
	return root, !isString
}

// nesting returns how deep objects and arrays are nested in text, a sequence of JSON values.
func nesting(text []byte) (deepest int) {
	depth, to := 0, json.NewDecoder(bytes.NewReader(text))
	to.UseNumber() // 1e400, too
	for {
		switch token, err := to.Token(); {
		case err != nil:
			return deepest
		case token == json.Delim('['), token == json.Delim('{'):
			depth++
		case token == json.Delim(']'), token == json.Delim('}'):
			depth--
		}
		deepest = max(deepest, depth)
	}
}

// A parser reads text, which is valid JSON, as if it ended at end.
type parser struct {
	*json.Decoder
	text string
	end  int64
}

// value returns as much of the next value as there is in an object or an array, and whether that is all of it; nil if
// it is a scalar and may not be all there.
func (p parser) value(in json.Delim) (v any, complete bool) {
	p.UseNumber()
	token, err := p.Token()
	if err != nil {
		panic(err) // cannot be: the text is valid
	}
	end := p.InputOffset()
	_, isDelim := token.(json.Delim)
	if rest := p.text[end:]; !isDelim && in == '{' && p.end < int64(len(p.text)) {
		// with what follows: a brace, or a comma and the quote of a name
		end = int64(len(p.text) - len(strings.TrimLeft(rest, " \t\r\n,")) + 1)
	}
	if end > p.end {
		return nil, false
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for p.More() {
			e, complete := p.value('[')
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
			name, _ := p.Token()
			if p.InputOffset() > p.end {
				return o, false
			}
			v, complete := p.value('{')
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
	text, isText := token.(string)
	if isCut := p.end < int64(len(p.text)); isCut && (in == '[' || isText && !plainNumber.MatchString(text)) {
		return doubtful{}, true
	}
	return token, true
}

// doubtful is a scalar of a body that is cut off which is no number there: in an array, where commas may be decimal
// ones, or a text that is not just a number.
type doubtful struct{}

var plainNumber = regexp.MustCompile(`^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$`)

type reading struct {
	rank   int
	value  float64
	reason telemetry.Reason
}

// reference returns what the tree holds of a field.
func reference(root any, field telemetry.Field) reading {
	if strings.TrimSpace(field.Paths) == "" {
		field.Paths = telemetry.DefaultFields
	}
	r := referrer{field: field, lowest: field.Lowest}
	var at []place
	for f := range strings.SplitSeq(field.Paths, ",") {
		at = append(at, place{len(at), strings.TrimSpace(f)})
		if last := &at[len(at)-1]; last.rest == "." {
			last.rest = ""
		}
	}
	return r.refer(root, at, 0)
}

type referrer struct {
	field  telemetry.Field
	lowest bool
}

// A place is where a path of the field is in the tree: what is left of it.
type place struct {
	rank int
	rest string
}

// in returns the place of what has a name there.
func (p place) in(name string) (place, bool) {
	names := strings.Split(p.rest, ".")
	n := strings.Count(name, ".") + 1
	if p.rest == "" || n > len(names) || !strings.EqualFold(strings.Join(names[:n], "."), name) {
		return p, false
	}
	return place{p.rank, strings.Join(names[n:], ".")}, true
}

// at returns the places in an element of an array.
func elementOf(at []place, i int, e any) (in []place) {
	for _, p := range at {
		next, _, _ := strings.Cut(p.rest, ".")
		_, isObject := e.(object)
		if !regexp.MustCompile(`^(0|[1-9]\d{0,8})$`).MatchString(next) || isObject {
			in = append(in, p)
		}
		if q, ok := p.in(strconv.Itoa(i)); ok {
			in = append(in, q)
		}
	}
	return in
}

// refer returns what v holds, which is at those places, in so many texts.
func (r *referrer) refer(v any, at []place, layer int) reading {
	var parts []reading
	whole := slices.IndexFunc(at, func(p place) bool { return p.rest == "" })
	switch v := v.(type) {
	case []any:
		for i, e := range v {
			parts = append(parts, r.refer(e, elementOf(at, i, e), layer))
		}
		return r.best(parts, true)
	case object:
		if whole >= 0 {
			parts = append(parts, reading{at[whole].rank, 0, telemetry.ReasonNotANumber})
		}
		for _, m := range v {
			var in []place
			for _, p := range at {
				if q, ok := p.in(m.name); ok && m.name != "" {
					in = append(in, q)
				}
			}
			parts = append(parts, r.refer(m.value, in, layer))
		}
		return r.best(parts, false)
	case string:
		further := slices.DeleteFunc(slices.Clone(at), func(p place) bool { return p.rest == "" })
		text := strings.TrimRight(strings.TrimLeft(strings.TrimPrefix(v, "\ufeff"), " \t\r\n"), " \t\r\n\x00")
		if len(further) > 0 && text != "" && strings.ContainsAny(text[:1], "{[") && layer < 5 && nesting([]byte(text)) <= 64 {
			parts = append(parts, r.inText(text, further, layer+1))
		}
	}
	if whole >= 0 {
		parts = append(parts, r.scalar(v, at[whole].rank))
	}
	return r.best(parts, false)
}

// inText is refer for JSON values in a text.
func (r *referrer) inText(text string, at []place, layer int) reading {
	var values []any
	for to := json.NewDecoder(strings.NewReader(text)); ; {
		var raw json.RawMessage
		switch err := to.Decode(&raw); err {
		case nil:
			root, _ := parser{json.NewDecoder(bytes.NewReader(raw)), string(raw), math.MaxInt64}.value(0)
			values = append(values, root)
			continue
		case io.EOF:
		default:
			return reading{reason: telemetry.ReasonMissing}
		}
		break
	}
	var parts []reading
	for _, v := range values {
		parts = append(parts, r.refer(v, at, layer))
	}
	return r.best(parts, true)
}

// scalar returns what v is for a path of that rank.
func (r *referrer) scalar(v any, rank int) reading {
	if (v == doubtful{}) {
		return reading{rank: rank, reason: telemetry.ReasonMalformed}
	}
	f, reason := referenceNumber(v)
	field := r.field
	switch {
	case len(field.Words) > 0 && v != nil:
		isWord := func(w string) bool {
			n, err := strconv.ParseFloat(w, 64)
			return strings.EqualFold(strings.TrimSpace(fmt.Sprint(v)), w) || err == nil && reason == telemetry.ReasonOK && n == f
		}
		return reading{rank, float64(slices.IndexFunc(field.Words, isWord) + 1), telemetry.ReasonOK}
	case field.Valid != nil && reason == telemetry.ReasonOK && (f < field.Valid.From || f > field.Valid.To):
		return reading{rank, 0, telemetry.ReasonInvalid}
	}
	return reading{rank, f, reason}
}

func (r *referrer) best(parts []reading, array bool) reading {
	worst, worse := math.Inf(-1), math.Max
	if r.lowest {
		worst, worse = math.Inf(1), math.Min
	}
	chosen := reading{rank: math.MaxInt, value: worst, reason: telemetry.ReasonMissing}
	for _, p := range parts { // the readable
		if p.reason == telemetry.ReasonOK && (array || p.rank <= chosen.rank) {
			if array || p.rank == chosen.rank {
				p.value = worse(p.value, chosen.value)
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

// withComma is a number with a decimal comma, which is not one of thousands.
var withComma = regexp.MustCompile(`^[+-]?\d+,(\d{1,2}|\d{4,})$`)

func referenceNumber(v any) (float64, telemetry.Reason) {
	var text string
	switch v := v.(type) {
	case nil:
		return 0, telemetry.ReasonNull
	case json.Number:
		text = v.String()
	case string:
		text = strings.TrimSpace(v)
	case bool:
		if v {
			return 1, telemetry.ReasonOK
		}
		return 0, telemetry.ReasonOK
	default:
		return 0, telemetry.ReasonNotANumber
	}
	switch strings.ToLower(strings.TrimLeft(text, "+-")) {
	case "nan", "inf", "infinity":
		if strings.IndexAny(strings.ToLower(text), "ni") <= 1 {
			return 0, telemetry.ReasonNotFinite
		}
	}
	if _, isText := v.(string); isText && withComma.MatchString(text) {
		text = strings.Replace(text, ",", ".", 1)
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
