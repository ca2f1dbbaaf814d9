package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// A Symbol is an AMQP symbol: ASCII text from a constrained domain.
type Symbol string

// A Map is an AMQP map. Keys are strings, symbols, numbers or booleans.
type Map map[any]any

// Described is a value with a descriptor that says what it means.
type Described struct {
	Descriptor any
	Value      any
}

// UUID is an AMQP uuid.
type UUID [16]byte

// maxDepth bounds the nesting of values. A performative needs six levels.
const maxDepth = 32

var errShort = errors.New("value is cut short")

// Valid reports whether b is a run of well-formed values that nest no deeper
// than this package allows and whose map keys can be compared. It says nothing
// of their meaning.
func Valid(b []byte) error {
	for len(b) > 0 {
		var err error
		if _, b, err = readValue(b, 0); err != nil {
			return err
		}
	}
	return nil
}

// readValue reads one value off the front of b. Binaries alias b; everything
// else is copied.
func readValue(b []byte, depth int) (v any, rest []byte, err error) {
	if depth > maxDepth {
		return nil, nil, fmt.Errorf("value nests deeper than %d levels", maxDepth)
	}
	if len(b) == 0 {
		return nil, nil, errShort
	}
	code, b := b[0], b[1:]
	if code != codeDescribed {
		return readEncoded(code, b, depth)
	}
	var d Described
	if d.Descriptor, b, err = readValue(b, depth+1); err != nil {
		return nil, nil, err
	}
	if d.Value, b, err = readValue(b, depth+1); err != nil {
		return nil, nil, err
	}
	return d, b, nil
}

// readEncoded reads what follows the format code.
func readEncoded(code byte, b []byte, depth int) (v any, rest []byte, err error) {
	p, rest, err := payload(code, b)
	if err != nil {
		return nil, nil, err
	}
	switch code {
	case codeNull:
		v = nil
	case codeTrue:
		v = true
	case codeFalse:
		v = false
	case codeBool:
		v = p[0] != 0
	case codeUbyte:
		v = p[0]
	case codeUshort:
		v = binary.BigEndian.Uint16(p)
	case codeUint0:
		v = uint32(0)
	case codeSmallUint:
		v = uint32(p[0])
	case codeUint:
		v = binary.BigEndian.Uint32(p)
	case codeUlong0:
		v = uint64(0)
	case codeSmallUlong:
		v = uint64(p[0])
	case codeUlong:
		v = binary.BigEndian.Uint64(p)
	case codeByte:
		v = int8(p[0])
	case codeShort:
		v = int16(binary.BigEndian.Uint16(p))
	case codeSmallInt:
		v = int32(int8(p[0]))
	case codeInt:
		v = int32(binary.BigEndian.Uint32(p))
	case codeSmallLong:
		v = int64(int8(p[0]))
	case codeLong:
		v = int64(binary.BigEndian.Uint64(p))
	case codeFloat:
		v = math.Float32frombits(binary.BigEndian.Uint32(p))
	case codeDouble:
		v = math.Float64frombits(binary.BigEndian.Uint64(p))
	case codeTimestamp:
		v = time.UnixMilli(int64(binary.BigEndian.Uint64(p)))
	case codeUUID:
		v = UUID(p)
	case codeBinary8, codeBinary32:
		v = p
	case codeString8, codeString32:
		v = string(p)
	case codeSymbol8, codeSymbol32:
		v = Symbol(p)
	case codeList0:
		v = []any{}
	case codeList8, codeList32:
		v, err = readList(code, p, depth)
	case codeMap8, codeMap32:
		v, err = readMap(code, p, depth)
	case codeArray8, codeArray32:
		v, err = readArray(code, p, depth)
	default:
		err = fmt.Errorf("type %#02x is not supported", code)
	}
	return v, rest, err
}

// payload splits b after the bytes that belong to a value of the given code:
// the high half of a code says how long they are.
func payload(code byte, b []byte) (p, rest []byte, err error) {
	var n uint64
	switch code >> 4 {
	case 0x4:
	case 0x5:
		n = 1
	case 0x6:
		n = 2
	case 0x7:
		n = 4
	case 0x8:
		n = 8
	case 0x9:
		n = 16
	case 0xa, 0xc, 0xe:
		if len(b) < 1 {
			return nil, nil, errShort
		}
		n, b = uint64(b[0]), b[1:]
	case 0xb, 0xd, 0xf:
		if len(b) < 4 {
			return nil, nil, errShort
		}
		n, b = uint64(binary.BigEndian.Uint32(b)), b[4:]
	default:
		return nil, nil, fmt.Errorf("type %#02x does not exist", code)
	}
	if n > uint64(len(b)) {
		return nil, nil, errShort
	}
	return b[:n:n], b[n:], nil
}

// count reads the number of elements of a compound value. No compound may have
// more elements than bytes, so that what is allocated stays in proportion
// to what was received.
func count(code byte, p []byte) (n int, rest []byte, err error) {
	var n64 uint64
	switch {
	case code>>4 == 0xc || code>>4 == 0xe:
		if len(p) < 1 {
			return 0, nil, errShort
		}
		n64, p = uint64(p[0]), p[1:]
	case len(p) < 4:
		return 0, nil, errShort
	default:
		n64, p = uint64(binary.BigEndian.Uint32(p)), p[4:]
	}
	if n64 > uint64(len(p)) {
		return 0, nil, fmt.Errorf("%d elements in %d bytes", n64, len(p))
	}
	return int(n64), p, nil
}

func readList(code byte, p []byte, depth int) ([]any, error) {
	n, p, err := count(code, p)
	if err != nil {
		return nil, err
	}
	list := make([]any, n)
	for i := range list {
		if list[i], p, err = readValue(p, depth+1); err != nil {
			return nil, err
		}
	}
	if len(p) > 0 {
		return nil, fmt.Errorf("%d bytes after the last element of a list", len(p))
	}
	return list, nil
}

func readMap(code byte, p []byte, depth int) (Map, error) {
	n, p, err := count(code, p)
	if err != nil {
		return nil, err
	}
	if n%2 != 0 {
		return nil, errors.New("map with a key that has no value")
	}
	m := make(Map, n/2)
	for range n / 2 {
		var k, v any
		if k, p, err = readValue(p, depth+1); err != nil {
			return nil, err
		}
		if v, p, err = readValue(p, depth+1); err != nil {
			return nil, err
		}
		switch k.(type) {
		case nil, []byte, []any, Map, Described:
			return nil, fmt.Errorf("map key of type %T", k)
		}
		m[k] = v
	}
	if len(p) > 0 {
		return nil, fmt.Errorf("%d bytes after the last element of a map", len(p))
	}
	return m, nil
}

func readArray(code byte, p []byte, depth int) ([]any, error) {
	n, p, err := count(code, p)
	if err != nil {
		return nil, err
	}
	if len(p) == 0 {
		return nil, errShort
	}
	element, p := p[0], p[1:]
	if element == codeDescribed {
		return nil, errors.New("arrays of described values are not supported")
	}
	list := make([]any, n)
	for i := range list {
		if depth >= maxDepth {
			return nil, fmt.Errorf("value nests deeper than %d levels", maxDepth)
		}
		if list[i], p, err = readEncoded(element, p, depth+1); err != nil {
			return nil, err
		}
	}
	if len(p) > 0 {
		return nil, fmt.Errorf("%d bytes after the last element of an array", len(p))
	}
	return list, nil
}

// appendValue appends the encoding of v. It panics on a type that no
// performative of this package has.
func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, codeNull)
	case bool:
		if v {
			return append(b, codeTrue)
		}
		return append(b, codeFalse)
	case uint8:
		return append(b, codeUbyte, v)
	case uint16:
		return binary.BigEndian.AppendUint16(append(b, codeUshort), v)
	case uint32:
		switch {
		case v == 0:
			return append(b, codeUint0)
		case v <= math.MaxUint8:
			return append(b, codeSmallUint, byte(v))
		}
		return binary.BigEndian.AppendUint32(append(b, codeUint), v)
	case uint64:
		if v <= math.MaxUint8 {
			return append(b, codeSmallUlong, byte(v))
		}
		return binary.BigEndian.AppendUint64(append(b, codeUlong), v)
	case int32:
		return binary.BigEndian.AppendUint32(append(b, codeInt), uint32(v))
	case int64:
		return binary.BigEndian.AppendUint64(append(b, codeLong), uint64(v))
	case string:
		return append(appendLen(b, codeString8, len(v)), v...)
	case Symbol:
		return append(appendLen(b, codeSymbol8, len(v)), v...)
	case []byte:
		return append(appendLen(b, codeBinary8, len(v)), v...)
	case Described:
		return appendValue(appendValue(append(b, codeDescribed), v.Descriptor), v.Value)
	case []any:
		b, start := beginCompound(b, codeList32)
		for _, e := range v {
			b = appendValue(b, e)
		}
		return endCompound(b, start, len(v))
	case Map:
		b, start := beginCompound(b, codeMap32)
		for k, e := range v {
			b = appendValue(appendValue(b, k), e)
		}
		return endCompound(b, start, 2*len(v))
	case []Symbol:
		b, start := beginCompound(b, codeArray32)
		b = append(b, codeSymbol32)
		for _, s := range v {
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
		}
		return endCompound(b, start, len(v))
	}
	panic(fmt.Sprintf("frames: cannot encode a %T", v))
}

// appendLen appends the code and length of a variable-width value, given the
// code of its short form.
func appendLen(b []byte, short byte, n int) []byte {
	if n <= math.MaxUint8 {
		return append(b, short, byte(n))
	}
	return binary.BigEndian.AppendUint32(append(b, short+0x10), uint32(n))
}

func beginCompound(b []byte, code byte) (_ []byte, start int) {
	b = append(b, code, 0, 0, 0, 0, 0, 0, 0, 0)
	return b, len(b) - 8
}

func endCompound(b []byte, start, count int) []byte {
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	binary.BigEndian.PutUint32(b[start+4:], uint32(count))
	return b
}

// Format codes.
const (
	codeDescribed  = 0x00
	codeNull       = 0x40
	codeTrue       = 0x41
	codeFalse      = 0x42
	codeUint0      = 0x43
	codeUlong0     = 0x44
	codeList0      = 0x45
	codeUbyte      = 0x50
	codeByte       = 0x51
	codeSmallUint  = 0x52
	codeSmallUlong = 0x53
	codeSmallInt   = 0x54
	codeSmallLong  = 0x55
	codeBool       = 0x56
	codeUshort     = 0x60
	codeShort      = 0x61
	codeUint       = 0x70
	codeInt        = 0x71
	codeFloat      = 0x72
	codeUlong      = 0x80
	codeLong       = 0x81
	codeDouble     = 0x82
	codeTimestamp  = 0x83
	codeUUID       = 0x98
	codeBinary8    = 0xa0
	codeString8    = 0xa1
	codeSymbol8    = 0xa3
	codeBinary32   = 0xb0
	codeString32   = 0xb1
	codeSymbol32   = 0xb3
	codeList8      = 0xc0
	codeMap8       = 0xc1
	codeList32     = 0xd0
	codeMap32      = 0xd1
	codeArray8     = 0xe0
	codeArray32    = 0xf0
)
