package amqpfilter_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	amqp "github.com/Azure/go-amqp"

	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs/amqpfilter"
)

// section is the descriptor of a section of application properties.
const section = "\x00\x53\x74"

// encode returns properties as an Event has them.
func encode(t testing.TB, properties map[string]any) []byte {
	t.Helper()
	b, err := (&amqp.Message{ApplicationProperties: properties}).MarshalBinary()
	if err != nil || !strings.HasPrefix(string(b), section) {
		t.Fatalf("%v: %x, %v", properties, b, err)
	}
	return b[len(section):]
}

// A property is the same whether it is looked up in what the filter has checked, or in what
// the library makes of that.
func FuzzProperty(f *testing.F) {
	values := []any{
		nil, true, false, uint8(200), int8(-1), uint16(40000), int16(-1), uint32(0), uint32(200), uint32(1 << 31), int32(-1), int32(1 << 20),
		uint64(0), uint64(200), uint64(1 << 63), int64(-1), int64(1 << 40), float32(1.5), -1.5, math.NaN(), math.Inf(1), "s", string(make([]byte, 300)),
		[]byte{1}, at.Enqueued, amqp.UUID{1}, []any{1, "a"}, map[string]any{"a": int32(1)}, []string{"a"},
	}
	for _, v := range values {
		f.Add(encode(f, map[string]any{"p": v}), "p")
		f.Add(encode(f, map[string]any{"first": v, "P": "other case", "p": "text"}), "p")
	}
	for _, s := range []string{
		"\xc1\x0b\x04\xa1\x01p\x54\x01\xa1\x01p\x54\x02", // a name twice
		"\xc1\x06\x02\xa3\x01p\xa3\x00",                  // symbols
		"\xc1\x06\x02\xa1\x01p\x56\x02",                  // a boolean that is neither 0 nor 1
		"\xc1\x04\x01\xa1\x01p\x40",                      // an odd count
		"\xc1\x08\x02\xa1\x01p\x00\xa3\x00\x40",          // a described value
		"\xc1\x01\x00",
		"",
	} {
		f.Add([]byte(s), "p")
	}
	f.Fuzz(func(t *testing.T, encoded []byte, name string) {
		if len(encoded) > 1<<16 || amqpfilter.Check(append([]byte(section), encoded...)) != nil {
			return
		}
		m, err := library(append([]byte(section), encoded...))
		if err != nil || len(m.Data) > 0 || m.Value != nil || m.Sequence != nil || len(m.Annotations) > 0 || m.Header != nil || m.Properties != nil || m.Footer != nil || m.DeliveryAnnotations != nil {
			return // more than one section
		}
		names := []string{name}
		for name := range m.ApplicationProperties {
			names = append(names, name, strings.ToUpper(name), name+"x")
		}
		for _, name := range names {
			got, want := amqpfilter.Property(encoded, name), telemetry.PropertiesOf(m.ApplicationProperties).Get(name)
			number := got.Number == want.Number || math.IsNaN(got.Number) && math.IsNaN(want.Number)
			if got.Kind != want.Kind || string(got.Text) != string(want.Text) || !number || !got.Time.Equal(want.Time) {
				t.Errorf("%x: %q is %+v, want %+v", encoded, name, got, want)
			}
		}
	})
}

// enriched returns n properties, in no order.
func enriched(n int) map[string]any {
	all := map[string]any{"maxTemp": "85.5"}
	for i := 1; i < n; i++ {
		all[fmt.Sprintf("property-%d", i)] = "$twin.tags.something"
	}
	return all
}

func TestPropertyAllocatesNothing(t *testing.T) {
	encoded := encode(t, enriched(10))
	if n := testing.AllocsPerRun(100, func() {
		if p := amqpfilter.Property(encoded, "maxTemp"); string(p.Text) != "85.5" {
			t.Errorf("got %+v", p)
		}
		if p := amqpfilter.Property(encoded, "maxtemp"); p.Kind != telemetry.PropertyAbsent {
			t.Errorf("got %+v", p)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkProperty looks one property up among some:
//
//	go test -bench Property -benchmem ./internal/telemetry/eventhubs/amqpfilter
func BenchmarkProperty(b *testing.B) {
	for _, n := range []int{3, 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			encoded := encode(b, enriched(n))
			b.ReportAllocs()
			for b.Loop() {
				amqpfilter.Property(encoded, "maxTemp")
			}
		})
	}
}
