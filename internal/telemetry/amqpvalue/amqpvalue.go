// Package amqpvalue reads encoded AMQP 1.0 values (part 1.6 of the standard) in place. It
// builds nothing, allocates nothing and does not recurse: a value that nobody reads is skipped
// by its encoded size, so a hostile one costs no more than its bytes.
package amqpvalue

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Format codes.
const (
	Described  = 0x00
	Null       = 0x40
	True       = 0x41
	False      = 0x42
	Uint0      = 0x43
	Ulong0     = 0x44
	List0      = 0x45
	Ubyte      = 0x50
	Byte       = 0x51
	SmallUint  = 0x52
	SmallUlong = 0x53
	SmallInt   = 0x54
	SmallLong  = 0x55
	Bool       = 0x56
	Ushort     = 0x60
	Short      = 0x61
	Uint       = 0x70
	Int        = 0x71
	Float      = 0x72
	Ulong      = 0x80
	Long       = 0x81
	Double     = 0x82
	Timestamp  = 0x83
	Binary8    = 0xa0
	String8    = 0xa1
	Symbol8    = 0xa3
	Binary32   = 0xb0
	String32   = 0xb1
	Symbol32   = 0xb3
	List8      = 0xc0
	Map8       = 0xc1
	List32     = 0xd0
	Map32      = 0xd1
	Array8     = 0xe0
	Array32    = 0xf0
)

// A Value is one encoded value that Next, or an Iterator, has returned: it is as long as it
// says. The zero Value is null.
type Value []byte

// Next returns the value at the beginning of b and what follows it. ok is false if the value
// is cut short or of a type whose size the standard does not define.
func Next(b []byte) (v Value, rest []byte, ok bool) {
	n := 0
	for values := 1; values > 0; values-- {
		if n >= len(b) {
			return nil, b, false
		}

		size := uint64(sizes[b[n]>>4])
		switch {
		case size == 0:
			if b[n] != Described {
				return nil, b, false
			}
			values += 2 // a descriptor and a value
			size = 1

		case size == variable8:
			if len(b)-n < 2 {
				return nil, b, false
			}
			size = 2 + uint64(b[n+1])

		case size == variable32:
			if len(b)-n < 5 {
				return nil, b, false
			}
			size = 5 + uint64(binary.BigEndian.Uint32(b[n+1:]))
		}

		if size > uint64(len(b)-n) {
			return nil, b, false
		}

		n += int(size)
	}

	return b[:n:n], b[n:], true
}

// sizes are those of values with their code, by its first four bits.
var sizes = [16]uint8{
	0x4: 1, 0x5: 2, 0x6: 3, 0x7: 5, 0x8: 9, 0x9: 17,
	0xa: variable8, 0xc: variable8, 0xe: variable8,
	0xb: variable32, 0xd: variable32, 0xf: variable32,
}

// The size follows the code, in one or four bytes.
const variable8, variable32 = 0xfe, 0xff

func (v Value) code() byte {
	if len(v) == 0 {
		return Null
	}
	return v[0]
}

// IsNull reports whether there is no value, or null.
func (v Value) IsNull() bool { return v.code() == Null }

// Text returns a string or a symbol. It aliases v.
func (v Value) Text() (text []byte, ok bool) {
	switch v.code() {
	case String8, Symbol8, String32, Symbol32:
		return v.content(), true
	}

	return nil, false
}

// Bytes returns a binary. It aliases v.
func (v Value) Bytes() (b []byte, ok bool) {
	switch v.code() {
	case Binary8, Binary32:
		return v.content(), true
	}

	return nil, false
}

// content returns what follows the size of a value of variable width.
func (v Value) content() []byte {
	if sizes[v[0]>>4] == variable8 {
		return v[2:]
	}
	return v[5:]
}

// bits returns a value of fixed width, of at most 8 bytes.
func (v Value) bits() (bits uint64) {
	for _, b := range v[1:] {
		bits = bits<<8 | uint64(b)
	}
	return bits
}

// Bool returns a boolean.
func (v Value) Bool() (b, ok bool) {
	switch v.code() {
	case True:
		return true, true
	case False:
		return false, true
	case Bool:
		return v[1] != 0, true
	}

	return false, false
}

// Int returns an integer of a type with a sign.
func (v Value) Int() (n int64, ok bool) {
	switch v.code() {
	case Byte, SmallInt, SmallLong, Short, Int, Long:
		unused := 64 - 8*(len(v)-1)
		return int64(v.bits()<<unused) >> unused, true
	}

	return 0, false
}

// Uint returns an integer of a type without a sign.
func (v Value) Uint() (n uint64, ok bool) {
	switch v.code() {
	case Uint0, Ulong0, Ubyte, SmallUint, SmallUlong, Ushort, Uint, Ulong:
		return v.bits(), true
	}

	return 0, false
}

// Number returns a number of any type but the decimal ones. It may be NaN or infinite.
func (v Value) Number() (f float64, ok bool) {
	if n, ok := v.Int(); ok {
		return float64(n), true
	}
	if n, ok := v.Uint(); ok {
		return float64(n), true
	}

	switch v.code() {
	case Float:
		return float64(math.Float32frombits(uint32(v.bits()))), true
	case Double:
		return math.Float64frombits(v.bits()), true
	}

	return 0, false
}

// Time returns a timestamp, in UTC.
func (v Value) Time() (t time.Time, ok bool) {
	if v.code() != Timestamp {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(v.bits())).UTC(), true
}

// String shows the value to people: binary, and a type that this package does not read, as its
// encoded bytes.
func (v Value) String() string { return string(v.Append(nil)) }

// Append appends what String returns.
func (v Value) Append(to []byte) []byte {
	if text, ok := v.Text(); ok {
		return append(to, text...)
	}
	if b, ok := v.Bool(); ok {
		return strconv.AppendBool(to, b)
	}
	if n, ok := v.Int(); ok {
		return strconv.AppendInt(to, n, 10)
	}
	if n, ok := v.Uint(); ok {
		return strconv.AppendUint(to, n, 10)
	}

	if f, ok := v.Number(); ok {
		bits := 64
		if v.code() == Float {
			bits = 32
		}
		return strconv.AppendFloat(to, f, 'g', -1, bits)
	}

	if t, ok := v.Time(); ok {
		return t.AppendFormat(to, time.RFC3339Nano)
	}
	if v.IsNull() {
		return append(to, "null"...)
	}

	return fmt.Appendf(to, "amqp:%x", []byte(v))
}

// Describe returns what a described value holds, and its descriptor, which must be a number.
func (v Value) Describe() (descriptor uint64, inner Value, ok bool) {
	if v.code() != Described {
		return 0, nil, false
	}

	d, rest, _ := Next(v[1:])
	descriptor, ok = d.Uint()
	return descriptor, rest, ok
}

// An Iterator walks over the elements of a list, or over the keys and values of a map.
type Iterator struct {
	rest []byte
	left int
}

// Elements returns an Iterator over a list, and false for any other value.
func (v Value) Elements() (Iterator, bool) {
	if v.code() == List0 {
		return Iterator{}, true
	}
	return v.compound(List8, List32)
}

// Entries returns an Iterator over a map, and false for any other value and for a map that has
// a key without a value.
func (v Value) Entries() (Iterator, bool) {
	i, ok := v.compound(Map8, Map32)
	return i, ok && i.left%2 == 0
}

func (v Value) compound(narrow, wide byte) (i Iterator, ok bool) {
	switch c := v.code(); {
	case c == narrow && len(v) >= 3:
		return Iterator{rest: v[3:], left: int(v[2])}, true
	case c == wide && len(v) >= 9:
		return Iterator{rest: v[9:], left: int(binary.BigEndian.Uint32(v[5:]))}, true
	}

	return Iterator{}, false
}

// Next returns the next element. ok is false at the end, and if the elements go beyond the
// size of what holds them: see Done.
func (i *Iterator) Next() (v Value, ok bool) {
	if i.left == 0 {
		return nil, false
	}

	if v, i.rest, ok = Next(i.rest); ok {
		i.left--
	}

	return v, ok
}

// Done reports whether Next has returned every element.
func (i *Iterator) Done() bool { return i.left == 0 }

// Fields sets into to the first fields of a list; those that the list does not have become
// null. ok is false if v is no list, or one of them cannot be read.
func (v Value) Fields(into []Value) (ok bool) {
	clear(into)
	fields, ok := v.Elements()
	for n := 0; ok && n < len(into) && !fields.Done(); n++ {
		into[n], ok = fields.Next()
	}

	return ok
}
