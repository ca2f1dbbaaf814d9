package telemetry_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/telemetrytest"
)

// A property is what go-amqp makes of it. Of any other bytes no more is read than there is.
func FuzzProperties(f *testing.F) {
	for _, v := range []any{
		nil, true, uint8(200), int64(-1), uint64(1 << 63), float32(1.5), math.NaN(), "s", strings.Repeat("x", 300),
		[]byte{1}, time.UnixMilli(1767323045678), amqp.UUID{1}, []any{1, "a"}, map[string]any{"a": int32(1)}, []string{"a"},
	} {
		f.Add([]byte(telemetrytest.Properties(map[string]any{"p": v})), "p")
		f.Add([]byte(telemetrytest.Properties(map[string]any{"first": v, "P": "other case", "p": "text"})), "p")
	}
	for _, s := range []string{
		"\xc1\x0b\x04\xa1\x01p\x54\x01\xa1\x01p\x54\x02",     // a name twice
		"\xc1\x07\x02\xa3\x01p\xa3\x00",                      // symbols
		"\xc1\x06\x02\xa1\x01p\x56\x02",                      // a boolean that is neither 0 nor 1
		"\xc1\x05\x01\xa1\x01p\x40",                          // an odd count
		"\xc1\x0b\x04\x54\x01\x40\xa1\x01p\xa1\x01x",         // a name that is no text
		"\xc1\x10\x04\xa1\x01d\x74\x22\x50\x00\x01\xa1\x01p", // cut short after a decimal
		"\xc1\x01\x00",
		"",
	} {
		f.Add([]byte(s), "p")
	}
	f.Fuzz(func(t *testing.T, encoded []byte, name string) {
		if len(encoded) > 1<<12 {
			return
		}
		n := 0
		for name, value := range telemetry.Properties(encoded).All() {
			_ = fmt.Sprint(string(name), value)
			n++
		}
		if n > len(encoded)/2 {
			t.Fatalf("%x has %d properties", encoded, n)
		}
		telemetry.Properties(encoded).Find([]byte(name))

		all, ok := decode(encoded)
		if !ok {
			return
		}
		p := telemetrytest.Properties(all)
		for each, want := range all {
			for _, name := range []string{each, each + "x", name} {
				want := want
				if name != each {
					want = all[name]
				}
				_, isExact := all[name]
				isLike := slices.ContainsFunc(slices.Collect(maps.Keys(all)), func(other string) bool { return strings.EqualFold(other, name) })
				if isLike && !isExact {
					continue // of several that are like it, the last
				}
				if got := p.Find([]byte(name)); !same(got, want) {
					t.Errorf("%x: %q is %v, want %v", encoded, name, got, want)
				}
			}
		}
	})
}

// decode returns what go-amqp reads of encoded properties, and can write again.
func decode(encoded []byte) (all map[string]any, ok bool) {
	defer func() {
		if recover() != nil {
			all, ok = nil, false
		}
	}()
	var m amqp.Message
	if err := m.UnmarshalBinary(append([]byte("\x00\x53\x74"), encoded...)); err != nil {
		return nil, false
	}
	_ = telemetrytest.Properties(m.ApplicationProperties)
	return m.ApplicationProperties, true
}

// same reports whether a property is the value.
func same(p telemetry.Property, want any) bool {
	switch v := want.(type) {
	case nil:
		return p.IsNull()
	case string:
		text, ok := p.Text()
		return ok && string(text) == v
	case bool:
		b, ok := p.Bool()
		return ok && b == v
	case []byte:
		b, ok := p.Bytes()
		return ok && string(b) == string(v)
	case time.Time:
		at, ok := p.Time()
		return ok && at.Equal(v)
	case float32, float64:
		f, err := strconv.ParseFloat(p.String(), 64)
		return err == nil && (fmt.Sprint(p) == fmt.Sprint(v) || math.IsNaN(f))
	case int8, int16, int32, int64, uint8, uint16, uint32, uint64:
		_, hasSign := p.Int()
		_, hasNone := p.Uint()
		return (hasSign || hasNone) && fmt.Sprint(p) == fmt.Sprint(v)
	}
	return strings.HasPrefix(p.String(), "amqp:")
}

// enriched returns n properties.
func enriched(n int) telemetry.Properties {
	all := map[string]any{"maxTemp": "85.5"}
	for i := 1; i < n; i++ {
		all[fmt.Sprintf("property-%d", i)] = "$twin.tags.something"
	}
	return telemetrytest.Properties(all)
}

func TestPropertiesAllocateNothing(t *testing.T) {
	p := enriched(10)
	if n := testing.AllocsPerRun(100, func() {
		if text, _ := p.Find([]byte("maxTemp")).Text(); string(text) != "85.5" {
			t.Errorf("got %s", text)
		}
		if text, _ := p.Find([]byte("maxtemp")).Text(); string(text) != "85.5" {
			t.Errorf("in another case: got %s", text)
		}
		if v := p.Find([]byte("max")); !v.IsNull() {
			t.Errorf("got %v", v)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkProperty looks one property up among some:
//
//	go test -bench Property -benchmem ./internal/telemetry
func BenchmarkProperty(b *testing.B) {
	for _, n := range []int{3, 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := enriched(n)
			b.ReportAllocs()
			for b.Loop() {
				p.Find([]byte("maxTemp"))
			}
		})
	}
}
