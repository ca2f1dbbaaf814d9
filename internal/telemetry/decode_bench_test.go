package telemetry_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"alertworker/internal/telemetry"
)

const (
	flatBody   = `{"deviceId":"pump-17","messageId":4711,"temperature":21.4,"humidity":60.25,"ts":"2025-11-21T10:00:00Z"}`
	nestedBody = `{"machine":{"temperature":101.7,"pressure":10.2},"ambient":{"temperature":21.1,"humidity":25},"timeCreated":"2025-11-21T10:00:00Z"}`
)

func BenchmarkDecode(b *testing.B) {
	for _, bm := range []struct{ name, fields, body string }{
		{"flat", "", flatBody},
		{"nested", "machine.temperature", nestedBody},
		{"quoted", "", `{"temperature":"21.4"}`},
		{"missing", "", `{"pressure":10.2,"vibration":[1,2,3]}`},
		{"gzip", "", gzipText(flatBody)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			d := newDecoder(b, bm.fields)
			e := &telemetry.Event{Device: "pump-17", MessageSource: "Telemetry", Body: []byte(bm.body)}
			b.ReportAllocs()
			for b.Loop() {
				d.Decode(e)
			}
		})
	}

	// What else could have been done with the flat body.
	b.Run("by_hand", func(b *testing.B) {
		body := []byte(flatBody)
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := scanFlat(body, []byte("temperature")); !ok {
				b.Fatal("not found")
			}
		}
	})
	b.Run("encoding_json", func(b *testing.B) {
		body := []byte(flatBody)
		b.ReportAllocs()
		for b.Loop() {
			var v struct{ Temperature *float64 }
			if err := json.Unmarshal(body, &v); err != nil || v.Temperature == nil {
				b.Fatal(err)
			}
		}
	})
}

// sized returns a body of about n bytes with a reading in the middle of fields that nobody reads.
func sized(n int) string {
	var b strings.Builder
	b.WriteString(`{"deviceId":"pump-17"`)
	for i := 0; b.Len() < n; i++ {
		if b.Len() < n/2 && b.Len()+40 >= n/2 {
			b.WriteString(`,"temperature":21.4`)
		}
		fmt.Fprintf(&b, `,"register%d":%d.25,"state%d":"ok"`, i, i*7, i)
	}

	return b.String() + "}"
}

// What a body costs by its size and shape, beside what encoding/json takes to say whether it is JSON.
func BenchmarkDecodeSizes(b *testing.B) {
	element := `{"ts":1795833600,"name":"pump-17","temperature":21.4,"ok":true}`
	for _, bm := range []struct{ name, body string }{
		{"200_B", sized(200)},
		{"731_B", sized(731)},
		{"4_KB", sized(4 << 10)},
		{"64_KB", sized(64 << 10)},
		{"4_KB_of_text", `{"temperature":21.4,"note":"` + strings.Repeat("lorem ipsum ", 340) + `"}`},
		{"array_of_10", "[" + strings.Repeat(element+",", 9) + element + "]"},
		{"array_of_100", "[" + strings.Repeat(element+",", 99) + element + "]"},
	} {
		body := []byte(bm.body)
		run := func(how string, decode func() bool) {
			b.Run(bm.name+"/"+how, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(body)))
				for b.Loop() {
					if !decode() {
						b.Fatal("not read")
					}
				}
			})
		}
		d := newDecoder(b, "")
		e := &telemetry.Event{Device: "pump-17", Body: body}
		run("decode", func() bool { _, reason := d.Decode(e); return reason == telemetry.ReasonOK })
		run("encoding_json_valid", func() bool { return json.Valid(body) })
	}
}

// gatewayBody is a message of a gateway with so many measurements.
func gatewayBody(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"ts":%d,"sensor":"probe-%d","t":21.%d,"q":"good"}`, 1795833600+i, i, i%10))
	}
	return `{"gateway":"gw-12","mode":"run","readings":[` + strings.Join(all, ",") + `]}`
}

// gatewayFields are what a rule reads of it: a reading, a condition in it, one around it, and the sensor.
var gatewayFields = []telemetry.Field{
	{Paths: "t", Group: 1},
	{Paths: "q", Words: []string{"good"}, Condition: true, Flag: true, Group: 1},
	{Paths: "mode", Words: []string{"run"}, Condition: true, Group: 1},
	{Paths: "sensor", Text: true, Condition: true, Group: 1},
}

// What a message of several measurements costs, beside what encoding/json takes to decode it. The last is what one of a
// single measurement does.
func BenchmarkMeasurements(b *testing.B) {
	each, err := telemetry.NewEach("readings")
	if err != nil {
		b.Fatal(err)
	}
	d, err := telemetry.NewFieldsDecoder(gatewayFields...)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{10, 100, 1} {
		body := []byte(gatewayBody(n))
		run := func(how string, decode func() int) {
			b.Run(fmt.Sprintf("%d/%s", n, how), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(body)))
				for b.Loop() {
					if decode() != n {
						b.Fatal("not read")
					}
				}
			})
		}
		m, e := telemetry.NewMeasurements(each), &telemetry.Event{Device: "gw-12", Body: body}
		run("each", func() int { return readAll(m, d, e) })
		run("encoding_json", func() int {
			var v struct {
				Mode     string
				Readings []struct {
					Sensor, Q string
					T         float64
				}
			}
			if json.Unmarshal(body, &v) != nil {
				return 0
			}
			return len(v.Readings)
		})
	}
}

// readAll returns how many measurements of e have a reading.
func readAll(m *telemetry.Measurements, d *telemetry.Decoder, e *telemetry.Event) (with int) {
	var found [4]telemetry.Found
	n, _ := m.Split(e)
	for i := range n {
		if m.Read(d, i, found[:]).HasReading() {
			with++
		}
	}
	return with
}

// What bodies cost that are not JSON.
func BenchmarkDecodeDamaged(b *testing.B) {
	const commas, python = `{"ts":1795833600,"name":"pump-17","temperature":21.4,"ok":true,},`, `{'ts': 1795833600, 'name': 'pump-17', 'temperature': 21.4, 'ok': True}, `
	for _, bm := range []struct{ name, body string }{
		{"1_KB/commas", "[" + strings.Repeat(commas, 16) + "]"},
		{"1_KB/Python", "[" + strings.Repeat(python, 14) + "]"},
		{"256_KB/commas", "[" + strings.Repeat(commas, 4000) + "]"},
		{"256_KB/Python", "[" + strings.Repeat(python, 3600) + "]"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			d := newDecoder(b, "")
			e := &telemetry.Event{Device: "pump-17", Body: []byte(bm.body)}
			b.ReportAllocs()
			b.SetBytes(int64(len(bm.body)))
			for b.Loop() {
				if _, reason := d.Decode(e); reason != telemetry.ReasonDamaged {
					b.Fatal(reason)
				}
			}
		})
	}
}

// What another field costs in the same pass.
func BenchmarkDecodeAll(b *testing.B) {
	for _, bm := range []struct {
		name, body string
		fields     []telemetry.Field
	}{
		{"flat/1", flatBody, []telemetry.Field{{}}},
		{"flat/2", flatBody, []telemetry.Field{{}, {Paths: "humidity"}}},
		{"flat/4", flatBody, []telemetry.Field{{}, {Paths: "humidity"}, {Lowest: true}, {Paths: "pressure"}}},
		{"nested/1", nestedBody, []telemetry.Field{{Paths: "machine.temperature"}}},
		{"nested/2", nestedBody, []telemetry.Field{{Paths: "machine.temperature"}, {Paths: "machine.pressure"}}},
		{"nested/4", nestedBody, []telemetry.Field{{Paths: "machine.temperature"}, {Paths: "machine.pressure"}, {Paths: "ambient.temperature", Lowest: true}, {Paths: "ambient.humidity"}}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			d, err := telemetry.NewFieldsDecoder(bm.fields...)
			if err != nil {
				b.Fatal(err)
			}
			e := &telemetry.Event{Device: "pump-17", MessageSource: "Telemetry", Body: []byte(bm.body)}
			found := make([]telemetry.Found, len(bm.fields))
			b.ReportAllocs()
			for b.Loop() {
				d.DecodeAll(e, found)
			}
		})
	}
}

// scanFlat is the least that a scanner written by hand would do, the fastest case only: one
// flat object of valid JSON without escapes, one field.
func scanFlat(b, field []byte) (float64, bool) {
	i, found, value := 1, false, 0.0
	str := func() []byte {
		start := i + 1
		i = start + bytes.IndexByte(b[start:], '"') + 1
		return b[start : i-1]
	}
	for b[i] != '}' {
		name := str()
		i++ // colon
		if b[i] == '"' {
			str()
		} else {
			start := i
			for b[i] != ',' && b[i] != '}' {
				i++
			}
			if bytes.EqualFold(name, field) {
				f, err := strconv.ParseFloat(string(b[start:i]), 64)
				value, found = f, err == nil
			}
		}
		if b[i] == ',' {
			i++
		}
	}
	return value, found
}

func newDecoder(tb testing.TB, fields string) *telemetry.Decoder {
	tb.Helper()
	d, err := telemetry.NewDecoder(fields)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}
