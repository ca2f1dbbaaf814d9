package telemetry_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"alertworker/internal/telemetry"
)

// Measurements are what a reference finds that reads the contract: by a tree of the whole body, of which each
// measurement, and each object around it without the other elements of the arrays, is read as a body of its own.
func TestMeasurementsAgainstReference(t *testing.T) {
	path := rapid.SampledFrom([]string{"a", "b", "r", "a.b", "b.a", "r.a", "r.b", "a.r.b", "b.r", ".", "0", "r.0", "a.1", "1.b"})
	name := rapid.SampledFrom([]string{"a", "b", "r", "a.b", "b.a", "r.a", "r.b", "a.r.b", "b.r", "a.r"}) // a position would count elements
	list := rapid.Map(rapid.SliceOfNDistinct(path, 1, 3, rapid.ID), func(all []string) string { return strings.Join(all, ",") })
	each := rapid.SampledFrom([]string{".", "r", "a.r", "r.r", "a", "a.b.r", "*", "*.r", "a.*", "r*", "*.*", "a.0.r"})
	bodies := treeGenerator()
	rapid.Check(t, func(t *rapid.T) {
		text := bodies.Draw(t, "body")
		checkMeasurements(t, each.Draw(t, "each"), list.Draw(t, "field"), name.Draw(t, "condition"), text)
	})
}

// treeGenerator draws bodies of objects whose names all differ.
func treeGenerator() *rapid.Generator[string] {
	scalar := rapid.SampledFrom([]string{"1", "2.5", "-3", "null", "true", `"4"`, `"x"`, "{}", "[]"})
	deeper := func(value *rapid.Generator[string]) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				return scalar.Draw(t, "scalar")
			case 1, 2:
				return "[" + strings.Join(rapid.SliceOfN(value, 0, 4).Draw(t, "elements"), ",") + "]"
			}
			names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "B", "r", "1", "r2"}), 0, 4, rapid.ID).Draw(t, "names")
			for i, name := range names {
				names[i] = strconv.Quote(name) + ":" + value.Draw(t, "value")
			}
			return "{" + strings.Join(names, ",") + "}"
		})
	}
	return deeper(deeper(deeper(deeper(scalar))))
}

func checkMeasurements(t interface{ Errorf(string, ...any) }, path, field, only, body string) {
	root, ok := parse([]byte(body))
	if !ok {
		return
	}
	each, err := telemetry.NewEach(path)
	if err != nil {
		t.Errorf("%q: %v", path, err)
		return
	}
	reading := telemetry.Field{Paths: field}
	condition := telemetry.Field{Paths: only, Words: []string{"1", "x", "2.5"}, Condition: true}
	d, err := telemetry.NewFieldsDecoder(reading, condition)
	if err != nil {
		return // a name twice
	}

	var want []string
	var names []string
	if path != "." {
		names = strings.Split(path, ".")
	}
	hasStar := strings.ContainsAny(path, "*0") // then other arrays have measurements, or names leave a position out: see TestMeasurements
	for _, m := range measurementsOf(root, [][]string{names}, nil, false) {
		found := reference(m.value, reading)
		text := fmt.Sprint(found.value, found.reason)
		inside, around := reference(m.value, condition), ""
		for i := len(m.around) - 1; i >= 0 && absent(inside.reason) && !hasStar; i-- {
			if outer := reference(m.around[i](m.value), condition); outer.reason != telemetry.ReasonMissing {
				inside = outer
				if reference(m.around[i]([]any{}), condition) == outer { // not of the measurement, by a longer name
					around = " around"
				}
			}
		}
		if !hasStar {
			text += told(inside.value, inside.reason, around != "")
		}
		want = append(want, text)
	}

	m := telemetry.NewMeasurements(each)
	n, _ := m.Split(&telemetry.Event{Device: "d", Body: []byte(body)})
	var got []string
	for i := range n {
		var found [2]telemetry.Found
		m.Read(d, i, found[:])
		text := fmt.Sprint(found[0].Value, found[0].Reason)
		if !hasStar {
			text += told(found[1].Value, found[1].Reason, found[1].Around)
		}
		got = append(got, text)
	}
	if a, b := strings.Join(got, ", "), strings.Join(want, ", "); a != b {
		t.Errorf("%s, each %s, field %s, only %s:\ngot  %s\nwant %s", body, path, field, only, a, b)
	}
}

// told shows a condition; one that is nowhere tells nothing.
func told(value float64, reason telemetry.Reason, around bool) string {
	if reason != telemetry.ReasonOK {
		return ""
	}
	return fmt.Sprint(" ", value, " ", around)
}

// absent reports whether a condition with this reason is looked for further out.
func absent(r telemetry.Reason) bool { return r != telemetry.ReasonOK }

// A measurement is a value of the tree, on a way from the root. around returns an object around it, the outermost first,
// in which arrays with measurements on the way have only that element which leads to it, with another value in its place.
type measurement struct {
	value  any
	around []func(value any) any
}

// A step is one on the way from the root to a measurement.
type step struct {
	parent any // an object, or an array that has measurements
	index  int
	scope  bool
}

// measurementsOf returns what v has at what is left of paths.
func measurementsOf(v any, left [][]string, way []step, isElement bool) (all []measurement) {
	whole := false
	for _, names := range left {
		whole = whole || len(names) == 0
	}
	if array, is := v.([]any); is && !isElement {
		for i, e := range array {
			next := left
			for _, names := range left {
				if len(names) > 0 && names[0] == strconv.Itoa(i) {
					next = append(next[:len(next):len(next)], names[1:])
				}
			}
			all = append(all, measurementsOf(e, next, append(way[:len(way):len(way)], step{v, i, false}), true)...)
		}
		return all
	}
	if whole {
		m := measurement{value: v}
		for i, s := range way {
			if s.scope {
				m.around = append(m.around, func(value any) any { return pruned(way[i:], value) })
			}
		}
		return []measurement{m}
	}
	o, _ := v.(object)
	for i, m := range o {
		var next [][]string
		for _, names := range left {
			for n := 1; n <= len(names); n++ {
				pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.Join(names[:n], ".")), `\*`, ".*")
				if regexp.MustCompile("(?i)^" + pattern + "$").MatchString(m.name) {
					next = append(next, names[n:])
				}
			}
		}
		if next != nil {
			all = append(all, measurementsOf(m.value, next, append(way[:len(way):len(way)], step{v, i, true}), false)...)
		}
	}
	return all
}

// pruned returns the object at which way begins, whose arrays on the way have only the element that leads on.
func pruned(way []step, end any) any {
	if len(way) == 0 {
		return end
	}
	inner := pruned(way[1:], end)
	if !way[0].scope {
		return []any{inner}
	}
	o := append(object(nil), way[0].parent.(object)...)
	o[way[0].index].value = inner
	return o
}

// No message does harm: what is found ends within it, and it is not written to.
func FuzzMeasurements(f *testing.F) {
	for _, m := range measured {
		f.Add([]byte(m.body), m.each, m.field, m.only)
	}
	f.Fuzz(func(t *testing.T, body []byte, path, field, only string) {
		each, err := telemetry.NewEach(path)
		if err != nil {
			return
		}
		d, err := telemetry.NewFieldsDecoder(
			telemetry.Field{Paths: field}, telemetry.Field{Paths: only, Words: []string{"1"}, Condition: true, Group: 1}, telemetry.Field{Paths: only, Text: true, Condition: true, Group: 1},
		)
		if err != nil {
			return
		}
		before := bytes.Clone(body)
		m := telemetry.NewMeasurements(each)
		for range 2 {
			n, reason := m.Split(gateway(string(body)))
			if (n == 0) == (reason == telemetry.ReasonOK) || reason >= telemetry.ReasonCount {
				t.Errorf("%d measurements, %v", n, reason)
			}
			for i := range n {
				var found [3]telemetry.Found
				m.Read(d, i, found[:])
				if found[2].Reason == telemetry.ReasonOK {
					m.AppendText(nil, found[2])
				}
				if len(m.Value(i)) > telemetry.MaxBody {
					t.Errorf("a measurement of %d bytes", len(m.Value(i)))
				}
			}
		}
		if !bytes.Equal(body, before) {
			t.Error("Split wrote to the body")
		}
	})
}
