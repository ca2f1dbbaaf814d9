// Package amqpvalue reads encoded AMQP 1.0 values (part 1.6 of the standard) in place. It
// builds nothing, allocates nothing and does not recurse: a value that nobody reads is skipped
// by its encoded size, so a hostile one costs no more than its bytes.
package amqpvalue

import (
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
		if n >= len(b) || heads[b[n]>>4] == 0 || heads[b[n]>>4] > len(b)-n {
			return nil, b, false
		}

		code := b[n]
		head := b[n:][:heads[code>>4]]
		n += len(head)
		switch code >> 4 {
		case 0x0:
			if code != Described {
				return nil, b, false
			}
			values += 2 // a descriptor and a value

		case 0xa, 0xb, 0xc, 0xd, 0xe, 0xf:
			size := number(head[1:])
			if size > uint64(len(b)-n) {
				return nil, b, false
			}
			n += int(size)
		}
	}

	return b[:n:n], b[n:], true
}

// heads are, by the first four bits of their code, how many bytes values of fixed width have, and others in front of what
// they hold: the code, and in one byte or four how much that is. It is 0 for codes that the standard does not have.
var heads = [16]int{
	0x0: 1, 0x4: 1, 0x5: 2, 0x6: 3, 0x7: 5, 0x8: 9, 0x9: 17,
	0xa: 2, 0xb: 5, 0xc: 2, 0xd: 5, 0xe: 2, 0xf: 5,
}

// number returns what the bytes are as an integer.
func number(b []byte) (n uint64) {
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

// A kind is what values with some codes are alike in.
type kind uint8

const (
	other kind = iota
	null
	text
	binary
	boolean
	signed
	unsigned
	float
	double
	timestamp
	list
	dictionary
	described
)

var kinds = [256]kind{
	Null: null, Described: described, Timestamp: timestamp, Float: float, Double: double,
	True: boolean, False: boolean, Bool: boolean,
	Uint0: unsigned, Ulong0: unsigned, Ubyte: unsigned, SmallUint: unsigned, SmallUlong: unsigned, Ushort: unsigned, Uint: unsigned, Ulong: unsigned,
	Byte: signed, SmallInt: signed, SmallLong: signed, Short: signed, Int: signed, Long: signed,
	String8: text, String32: text, Symbol8: text, Symbol32: text,
	Binary8: binary, Binary32: binary,
	List0: list, List8: list, List32: list,
	Map8: dictionary, Map32: dictionary,
}

func (v Value) kind() kind {
	if len(v) == 0 {
		return null
	}
	return kinds[v[0]]
}

// content returns what a value holds behind its head.
func (v Value) content() []byte { return v[heads[v[0]>>4]:] }

// IsNull reports whether there is no value, or null.
func (v Value) IsNull() bool { return v.kind() == null }

// Text returns a string or a symbol. It aliases v.
func (v Value) Text() (b []byte, ok bool) {
	if v.kind() != text {
		return nil, false
	}
	return v.content(), true
}

// Bytes returns a binary. It aliases v.
func (v Value) Bytes() (b []byte, ok bool) {
	if v.kind() != binary {
		return nil, false
	}
	return v.content(), true
}

// Bool returns a boolean.
func (v Value) Bool() (b, ok bool) {
	if v.kind() != boolean {
		return false, false
	}
	return v[0] == True || v[0] == Bool && v[1] != 0, true
}

// Int returns an integer of a type with a sign.
func (v Value) Int() (n int64, ok bool) {
	if v.kind() != signed {
		return 0, false
	}

	unused := 64 - 8*(len(v)-1)

	return int64(number(v[1:])<<unused) >> unused, true
}

// Uint returns an integer of a type without a sign.
func (v Value) Uint() (n uint64, ok bool) {
	if v.kind() != unsigned {
		return 0, false
	}
	return number(v[1:]), true
}

// Time returns a timestamp, in UTC.
func (v Value) Time() (t time.Time, ok bool) {
	if v.kind() != timestamp {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(number(v[1:]))).UTC(), true
}

// String shows the value to people: binary, and a type that this package does not read, as its
// encoded bytes.
func (v Value) String() string { return string(v.Append(nil)) }

// Append appends what String returns.
func (v Value) Append(to []byte) []byte {
	switch v.kind() {
	case null:
		return append(to, "null"...)
	case text:
		return append(to, v.content()...)
	case boolean:
		b, _ := v.Bool()
		return strconv.AppendBool(to, b)
	case signed:
		n, _ := v.Int()
		return strconv.AppendInt(to, n, 10)
	case unsigned:
		return strconv.AppendUint(to, number(v[1:]), 10)
	case float:
		return strconv.AppendFloat(to, float64(math.Float32frombits(uint32(number(v[1:])))), 'g', -1, 32)
	case double:
		return strconv.AppendFloat(to, math.Float64frombits(number(v[1:])), 'g', -1, 64)
	case timestamp:
		t, _ := v.Time()
		return t.AppendFormat(to, time.RFC3339Nano)
	default:
		return fmt.Appendf(to, "amqp:%x", []byte(v))
	}
}

// Describe returns what a described value holds, and its descriptor, which must be a number.
func (v Value) Describe() (descriptor uint64, inner Value, ok bool) {
	if v.kind() != described {
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
func (v Value) Elements() (Iterator, bool) { return v.compound(list) }

// Entries returns an Iterator over a map, and false for any other value and for a map that has
// a key without a value.
func (v Value) Entries() (Iterator, bool) {
	i, ok := v.compound(dictionary)
	return i, ok && i.left%2 == 0
}

// compound returns an Iterator over a value of a kind, which says how many elements it has in as many bytes as how long it is.
func (v Value) compound(of kind) (i Iterator, ok bool) {
	if v.kind() != of {
		return Iterator{}, false
	}

	content, width := v.content(), heads[v[0]>>4]-1
	if len(content) < width {
		return Iterator{}, false
	}

	return Iterator{rest: content[width:], left: int(number(content[:width]))}, true
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
