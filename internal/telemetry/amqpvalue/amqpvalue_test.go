package amqpvalue_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"alertworker/internal/telemetry/amqpvalue"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)

// encode returns a value as go-amqp encodes it.
func encode(t testing.TB, v any) amqpvalue.Value {
	t.Helper()
	b, err := (&amqp.Message{Value: v}).MarshalBinary()
	if err != nil {
		t.Fatalf("%v: %v", v, err)
	}
	section, rest, ok := amqpvalue.Next(b)
	code, value, described := section.Describe()
	if !ok || len(rest) > 0 || !described || code != 0x77 {
		t.Fatalf("%x is %x of %#x, %v, %v, and %x", b, value, code, ok, described, rest)
	}
	return value
}

// What go-amqp writes is read as what it was.
func TestRead(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct {
		value any
		read  string // by every method that can
		text  string
	}{
		{amqp.Null{}, "null", "null"},
		{"text", "text text", "text"},
		{"", "text ", ""},
		{long, "text " + long, long},
		{[]byte{1, 255}, "bytes 01ff", "amqp:a00201ff"},
		{make([]byte, 300), "bytes " + strings.Repeat("00", 300), "amqp:b00000012c" + strings.Repeat("00", 300)},
		{true, "bool true", "true"},
		{false, "bool false", "false"},
		{uint8(200), "uint 200", "200"},
		{uint16(40000), "uint 40000", "40000"},
		{uint32(0), "uint 0", "0"},
		{uint32(7), "uint 7", "7"},
		{uint32(math.MaxUint32), "uint 4294967295", "4294967295"},
		{uint64(0), "uint 0", "0"},
		{uint64(7), "uint 7", "7"},
		{uint64(math.MaxUint64), "uint 18446744073709551615", "18446744073709551615"},
		{int8(-7), "int -7", "-7"},
		{int16(-700), "int -700", "-700"},
		{int32(-7), "int -7", "-7"},
		{int32(math.MinInt32), "int -2147483648", "-2147483648"},
		{int64(-7), "int -7", "-7"},
		{int64(math.MaxInt64), "int 9223372036854775807", "9223372036854775807"},
		{float32(0.1), "", "0.1"},
		{-1.5e300, "", "-1.5e+300"},
		{math.Inf(1), "", "+Inf"},
		{at, "time 2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.678Z"},
		{amqp.UUID{1}, "", "amqp:9801000000000000000000000000000000"},
		{[]any{int64(1)}, "", "amqp:d000000006000000015501"},
		{map[string]any{"a": nil}, "", "amqp:d10000000800000002a1016140"},
		{[]string{"a"}, "", "amqp:e00401a10161"},
	} {
		v := encode(t, tt.value)
		var got []string
		add := func(ok bool, format string, value any) {
			if ok {
				got = append(got, fmt.Sprintf(format, value))
			}
		}
		text, isText := v.Text()
		b, isBytes := v.Bytes()
		yes, isBool := v.Bool()
		n, isInt := v.Int()
		u, isUint := v.Uint()
		when, isTime := v.Time()
		add(v.IsNull(), "null%.0s", "")
		add(isText, "text %s", text)
		add(isBytes, "bytes %x", b)
		add(isBool, "bool %v", yes)
		add(isInt, "int %d", n)
		add(isUint, "uint %d", u)
		add(isTime, "time %s", when.Format(time.RFC3339Nano))
		if read := strings.Join(got, " "); read != tt.read {
			t.Errorf("%.40v is %q, want %q", tt.value, read, tt.read)
		}
		if s := v.String(); s != tt.text {
			t.Errorf("%.40v is shown as %q, want %q", tt.value, s, tt.text)
		}
	}
}

// What the library cannot read has a size all the same.
func TestSizes(t *testing.T) {
	for encoded, want := range map[string]bool{
		"\x73\x00\x00\x00\x41":                 true, // char
		"\x74\x22\x50\x00\x01":                 true, // decimals
		"\x84\x22\x50\x00\x00\x00\x00\x00\x01": true,
		"\x94" + strings.Repeat("\x00", 16):    true,
		"\xe0\x03\x01\x45\x00":                 true, // array of lists
		"\xb0\x00\x00\x00\x01x":                true,
		"\x00\xa3\x01d\x00\x53\x01\x45":        true, // described twice
		strings.Repeat("\x00\x40", 1000) + "@": true,
		"":                                     false,
		"\x3f":                                 false,
		"\x01":                                 false,
		"\x81\x00":                             false,
		"\xa1":                                 false,
		"\xa1\x02x":                            false,
		"\xb0\x00\x00\x01":                     false,
		"\xb0\xff\xff\xff\xffx":                false,
		"\x00":                                 false,
		"\x00\x53\x70":                         false,
		"\x00\x53\x70\xd0\x00\x00\x00\x09":     false,
		strings.Repeat("\x00", 1<<20):          false,
	} {
		v, rest, ok := amqpvalue.Next([]byte(encoded))
		if ok != want || ok && (string(v) != encoded || len(rest) > 0) {
			t.Errorf("%.40x: %.40x, %.40x, %v", encoded, []byte(v), rest, ok)
		}
	}
}

// Whatever the bytes are, nothing is read beyond them, and no iterator takes more steps than there are bytes.
func FuzzValue(f *testing.F) {
	for _, v := range []any{int64(1), "text", []byte("b"), []any{"a", []any{int32(1)}}, map[string]any{"a": at}, []int64{1}} {
		f.Add([]byte(encode(f, v)))
	}
	f.Add([]byte("\xd0\x00\x00\x00\x05\xff\xff\xff\xff\x43"))
	f.Add([]byte("\xc1\x05\x03\x43\x40\x44\x40"))
	f.Add([]byte("\xc0\x00"))
	f.Add([]byte("\x00\x53\x72\xc1\x01\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, rest, ok := amqpvalue.Next(b)
		if !bytes.Equal(append(bytes.Clone(v), rest...), b) || ok != (len(v) > 0) {
			t.Fatalf("%x is %x and %x, %v", b, v, rest, ok)
		}
		_ = v.String()
		v.Describe()
		var fields [4]amqpvalue.Value
		v.Fields(fields[:])
		for _, open := range []func() (amqpvalue.Iterator, bool){v.Elements, v.Entries} {
			i, _ := open()
			n := 0
			for e, ok := i.Next(); ok; e, ok = i.Next() {
				_ = e.String()
				n++
			}
			if n > len(b) {
				t.Fatalf("%x has %d elements", b, n)
			}
		}
	})
}
