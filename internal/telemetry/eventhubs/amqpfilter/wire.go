package amqpfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Format codes of AMQP 1.0, part 1.6.
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
	codeChar       = 0x73
	codeDecimal32  = 0x74
	codeUlong      = 0x80
	codeLong       = 0x81
	codeDouble     = 0x82
	codeTimestamp  = 0x83
	codeDecimal64  = 0x84
	codeDecimal128 = 0x94
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

// widths are the lengths, with their code, of the values of a fixed width that the library
// knows. Go can compare all of them.
var widths = [256]uint8{
	codeNull: 1, codeTrue: 1, codeFalse: 1, codeUint0: 1, codeUlong0: 1,
	codeUbyte: 2, codeByte: 2, codeSmallUint: 2, codeSmallUlong: 2, codeSmallInt: 2, codeSmallLong: 2, codeBool: 2,
	codeUshort: 3, codeShort: 3,
	codeUint: 5, codeInt: 5, codeFloat: 5,
	codeUlong: 9, codeLong: 9, codeDouble: 9, codeTimestamp: 9,
	codeUUID: 17,
}

// Bounds on what the library is given to build. Without the first its stack can
// overflow, without the second a message of 1 MiB can make it allocate 50 GiB.
const (
	maxDepth  = 64
	maxValues = 1 << 16 // in one message; also the library's own bound on one list, map or array
)

var (
	errShort    = errors.New("cut short")
	errCount    = errors.New("list, map or array with an impossible size")
	errDepth    = fmt.Errorf("values nested more than %d deep", maxDepth)
	errValues   = fmt.Errorf("more than %d values", maxValues)
	errKey      = errors.New("map key that is a list, a map, an array or binary")
	errText     = errors.New("key or field that must be text is not")
	errField    = errors.New("field of another type than it must have")
	errSection  = errors.New("unknown section, or none where one must begin")
	errNested   = errors.New("part of a message or of a frame inside a value")
	errDecimal  = errors.New("decimal number")
	errChar     = errors.New("char")
	errArray    = errors.New("array of a type that the client library does not know")
	errUnknown  = errors.New("unknown type")
	errRequired = errors.New("required field missing")
)

// A walker walks over values the way the library decodes them: it fails where
// the library fails or panics, and reads exactly what the library reads. In
// particular the library believes what a list or map says of its elements'
// number, not of their size.
//
// Methods take the rest that they have not read, and allocate nothing.
type walker struct {
	b      []byte
	values int // so far
}

// skip reads n bytes.
func (w *walker) skip(n int) error {
	if n > len(w.b) {
		return errShort
	}
	w.b = w.b[n:]
	return nil
}

// null reads a null if there is one.
func (w *walker) null() bool {
	if len(w.b) > 0 && w.b[0] == codeNull {
		w.b = w.b[1:]
		return true
	}
	return false
}

// sized reads a size of the given width, after prefix bytes, and as many bytes.
func (w *walker) sized(prefix, width int) error {
	if len(w.b) < prefix+width {
		return errShort
	}
	size := uint64(w.b[prefix])
	if width == 4 {
		size = uint64(binary.BigEndian.Uint32(w.b[prefix:]))
	}
	if size > uint64(len(w.b)-prefix-width) {
		return errShort
	}
	w.b = w.b[prefix+width+int(size):]
	return nil
}

// count takes some more values into account.
func (w *walker) count(n int) error {
	if w.values += n; w.values > maxValues {
		return errValues
	}
	return nil
}

// value reads any value. It says whether Go can use it as the key of a map: the
// library tries.
func (w *walker) value(depth int) (key bool, err error) {
	if len(w.b) == 0 {
		return false, errShort
	}
	if depth > maxDepth {
		return false, errDepth
	}
	if err := w.count(1); err != nil {
		return false, err
	}
	code := w.b[0]
	if n := widths[code]; n > 0 {
		return true, w.skip(int(n))
	}
	switch code {
	case codeString8, codeSymbol8:
		return true, w.sized(1, 1)
	case codeString32, codeSymbol32:
		return true, w.sized(1, 4)
	case codeBinary8:
		return false, w.sized(1, 1)
	case codeBinary32:
		return false, w.sized(1, 4)
	case codeList0, codeList8, codeList32:
		return false, w.list(depth)
	case codeMap8, codeMap32:
		n, err := w.mapCount()
		if err != nil {
			return false, err
		}
		return false, w.entries(n, depth, nil)
	case codeArray8, codeArray32:
		return false, w.array(depth)
	case codeDescribed:
		return w.described(depth)
	case codeDecimal32, codeDecimal64, codeDecimal128:
		return false, errDecimal
	case codeChar:
		return false, errChar
	}
	return false, errUnknown
}

// text reads a string or a symbol.
func (w *walker) text() error {
	if len(w.b) == 0 {
		return errShort
	}
	switch w.b[0] {
	case codeString8, codeSymbol8:
		return w.sized(1, 1)
	case codeString32, codeSymbol32:
		return w.sized(1, 4)
	}
	return errText
}

// elements reads the size and the number of elements of a list, a map or an
// array, after prefix bytes. The library does not compare the two for maps.
func (w *walker) elements(prefix int, wide, compare bool) (n int, err error) {
	width := 1
	if wide {
		width = 4
	}
	if len(w.b) < prefix+2*width {
		return 0, errShort
	}
	b := w.b[prefix:]
	size, count := uint64(b[0]), uint64(b[width])
	if wide {
		size, count = uint64(binary.BigEndian.Uint32(b)), uint64(binary.BigEndian.Uint32(b[4:]))
	}
	w.b = b[2*width:]
	switch {
	case size > uint64(len(b)-width), count > maxValues:
		return 0, errCount
	case compare && (size < uint64(width) || count > size-uint64(width)):
		return 0, errCount
	case !compare && count > uint64(len(w.b)):
		return 0, errCount
	}
	return int(count), nil
}

func (w *walker) listCount() (int, error) {
	switch {
	case len(w.b) == 0:
		return 0, errShort
	case w.b[0] == codeList0:
		return 0, w.skip(1)
	case w.b[0] == codeList8, w.b[0] == codeList32:
		return w.elements(1, w.b[0] == codeList32, true)
	}
	return 0, errField
}

func (w *walker) mapCount() (int, error) {
	switch {
	case len(w.b) == 0:
		return 0, errShort
	case w.b[0] == codeMap8, w.b[0] == codeMap32:
		return w.elements(1, w.b[0] == codeMap32, false)
	}
	return 0, errField
}

func (w *walker) list(depth int) error {
	n, err := w.listCount()
	if err != nil {
		return err
	}
	if n > len(w.b) {
		return errCount
	}
	for range n {
		if _, err := w.value(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

// entries reads the n keys and values of a map, and shows them to p.
func (w *walker) entries(n, depth int, p *place) error {
	for i := 0; i < n; i += 2 { // the library reads a value for the last key, counted or not
		k := w.b
		key, err := w.value(depth + 1)
		if err != nil {
			return err
		}
		v := w.b
		if _, err := w.value(depth + 1); err != nil {
			return err
		}
		if !key {
			return errKey
		}
		if p != nil {
			p.annotation(k[:len(k)-len(v)], v[:len(v)-len(w.b)])
		}
	}
	return nil
}

// textDict reads a map whose keys are text.
func (w *walker) textDict(depth int) error {
	n, err := w.mapCount()
	if err != nil {
		return err
	}
	for i := 0; i < n; i += 2 {
		if err := w.text(); err != nil {
			return err
		}
		if _, err := w.value(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) array(depth int) error {
	wide := w.b[0] == codeArray32
	n, err := w.elements(1, wide, true)
	if err != nil {
		return err
	}
	if err := w.count(n); err != nil {
		return err
	}
	left := len(w.b)
	if left == 0 {
		return errShort
	}
	element := w.b[0]
	w.b = w.b[1:]
	if width := widths[element]; width > 0 && element != codeNull {
		return w.skip(n * int(width-1))
	}
	switch element {
	case codeString8, codeSymbol8, codeBinary8, codeString32, codeSymbol32, codeBinary32:
		if 2*n > left {
			return errCount
		}
		width := 1
		if element >= codeBinary32 {
			width = 4
		}
		for range n {
			if err := w.sized(0, width); err != nil {
				return err
			}
		}
		return nil
	case codeMap8, codeMap32:
		if depth >= maxDepth {
			return errDepth
		}
		for range n {
			entries, err := w.elements(0, element == codeMap32, false)
			if err != nil {
				return err
			}
			if err := w.entries(entries, depth+1, nil); err != nil {
				return err
			}
		}
		return nil
	}
	return errArray
}

// descriptor reads the descriptor of a composite, a number.
func (w *walker) descriptor() (code uint64, err error) {
	if len(w.b) < 2 || w.b[0] != codeDescribed {
		return 0, errShort
	}
	switch w.b[1] {
	case codeUlong0:
		return 0, w.skip(2)
	case codeSmallUlong:
		if len(w.b) < 3 {
			return 0, errShort
		}
		code = uint64(w.b[2])
		return code, w.skip(3)
	case codeUlong:
		if len(w.b) < 10 {
			return 0, errShort
		}
		code = binary.BigEndian.Uint64(w.b[2:])
		return code, w.skip(10)
	}
	return 0, errField
}

// described reads a described value: what the library knows by its number as that,
// anything else as a descriptor with a value.
func (w *walker) described(depth int) (key bool, err error) {
	if len(w.b) < 2 {
		return false, errShort
	}
	code := uint64(0)
	if w.b[1] == codeSmallUlong || w.b[1] == codeUlong {
		d := *w
		if code, err = d.descriptor(); err != nil {
			return false, err
		}
	}
	switch {
	case code >= 0x10 && code <= 0x18, code == 0x28, code == 0x29, code >= 0x40 && code <= 0x44, code >= 0x70 && code <= 0x78:
		return false, errNested
	case code == 0x1d || code >= 0x23 && code <= 0x27 || code >= 0x2b && code <= 0x2e:
		return true, w.composite(depth, composites[code], nil)
	}
	w.b = w.b[1:]
	d, err := w.value(depth + 1)
	if err != nil {
		return false, err
	}
	v, err := w.value(depth + 1)
	return d && v, err
}

// A field is the type that the library wants a field of a composite to have.
type field byte

const (
	fieldAny field = iota
	fieldBool
	fieldUbyte
	fieldUint
	fieldUlong
	fieldUnsigned // of any width
	fieldTime
	fieldBinary
	fieldText
	fieldDict // with keys that are text
	fieldError
	required = 1 << 7 // never null
)

// composites are the fields of what may stand inside a value, by code.
var composites = [...][]field{
	0x1d: {fieldText | required, fieldText, fieldDict},  // error
	0x23: {fieldUint | required, fieldUlong | required}, // received
	0x24: {},                                            // accepted
	0x25: {fieldError},                                  // rejected
	0x26: {},                                            // released
	0x27: {fieldBool, fieldBool, fieldDict},             // modified
	0x2e: {},                                            // and 0x2b to 0x2d: lifetime policies
}

var (
	header     = []field{fieldBool, fieldUbyte, fieldUnsigned, fieldBool, fieldUint}
	properties = []field{fieldAny, fieldBinary, fieldText, fieldText, fieldText, fieldAny, fieldText, fieldText, fieldTime, fieldTime, fieldText, fieldUint, fieldText}
)

// composite reads a descriptor that the caller has looked at, and a list of fields. It
// sets the first of them, encoded, in values, except those that are not there.
func (w *walker) composite(depth int, fields []field, values [][]byte) error {
	if _, err := w.descriptor(); err != nil {
		return err
	}
	n, err := w.listCount()
	if err != nil {
		return err
	}
	if n > len(fields) {
		return errCount
	}
	for i, f := range fields {
		if i >= n || w.null() {
			if f&required != 0 {
				return errRequired
			}
			continue
		}
		before := w.b
		if err := w.field(depth, f&^required); err != nil {
			return err
		}
		if i < len(values) {
			values[i] = before[:len(before)-len(w.b)]
		}
	}
	return nil
}

func (w *walker) field(depth int, f field) error {
	if len(w.b) == 0 {
		return errShort
	}
	ok := false
	switch c := w.b[0]; f {
	case fieldAny:
		ok = true
	case fieldText:
		return w.text()
	case fieldDict:
		return w.textDict(depth)
	case fieldError:
		if depth >= maxDepth {
			return errDepth
		}
		d := *w
		if code, err := d.descriptor(); err != nil || byte(code) != 0x1d {
			return errField
		}
		return w.composite(depth+1, composites[0x1d], nil)
	case fieldBool:
		ok = c == codeBool || c == codeTrue || c == codeFalse
	case fieldUbyte:
		ok = c == codeUbyte
	case fieldUint:
		ok = c == codeUint || c == codeSmallUint || c == codeUint0
	case fieldUlong:
		ok = c == codeUlong || c == codeSmallUlong || c == codeUlong0
	case fieldUnsigned:
		ok = c == codeUint || c == codeSmallUint || c == codeUint0 || c == codeUlong || c == codeSmallUlong || c == codeUlong0 || c == codeUbyte || c == codeUshort
	case fieldTime:
		ok = c == codeTimestamp
	case fieldBinary:
		ok = c == codeBinary8 || c == codeBinary32
	}
	if !ok {
		return errField
	}
	_, err := w.value(depth + 1)
	return err
}
