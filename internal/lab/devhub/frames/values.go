package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"time"

	"alertworker/internal/telemetry/amqpvalue"
)

// A Symbol is an AMQP symbol: ASCII text from a constrained domain.
type Symbol string

// A Map is an AMQP map with text as keys. A value of it that was read is a string, an int64, or the
// [amqpvalue.Value] that it came as.
type Map map[Symbol]any

// Described is a value with a descriptor that says what it means.
type Described struct {
	Descriptor uint64
	Value      any
}

var errShort = errors.New("value is cut short, or of an unknown type")

// A list is what AMQP sends as a list with a descriptor. Its fields are pointers to those of a struct, in the
// order of the standard, and nil for those that no struct here has. All of the standard's fields are there, because a
// list is sent with its trailing nulls: Microsoft's library sends them, and the Python client reads by position.
type list interface {
	code() uint64
	fields() []any
}

type (
	// ofLink marks a field that is not sent without a handle.
	ofLink struct {
		field  any
		handle *uint32
	}
	// sent is the value of a field that is not read.
	sent struct{ value any }
)

// readList sets the fields of l to the elements of v. Those that are absent or null keep their zero values.
func readList(l list, v amqpvalue.Value) error {
	elements, ok := v.Elements()
	if !ok {
		return errors.New("not a list")
	}

	for i, field := range l.fields() {
		v, _ := elements.Next()

		switch f := field.(type) {
		case ofLink:
			field = f.field
		case sent, nil:
			continue
		}

		if !v.IsNull() && !read(reflect.ValueOf(field).Elem(), v) {
			return fmt.Errorf("field %d is of another type", i)
		}
	}

	for more := true; more; {
		_, more = elements.Next()
	}

	if !elements.Done() {
		return errShort
	}

	return nil
}

// read sets a field to v, and reports whether v is of its type.
func read(field reflect.Value, v amqpvalue.Value) (ok bool) {
	switch field.Kind() {
	case reflect.Pointer:
		to := reflect.New(field.Type().Elem())
		field.Set(to)
		l, isList := to.Interface().(list)
		if !isList {
			return read(to.Elem(), v)
		}

		code, content, _ := v.Describe()

		return code == l.code() && readList(l, content) == nil

	case reflect.Bool:
		var b bool
		b, ok = v.Bool()
		field.SetBool(b)

	case reflect.String:
		var text []byte
		text, ok = v.Text()
		field.SetString(string(text))

	case reflect.Slice:
		if field.Type() == reflect.TypeFor[amqpvalue.Value]() {
			field.Set(reflect.ValueOf(v))
			return true
		}

		var b []byte
		b, ok = v.Bytes()
		field.SetBytes(b)

	case reflect.Map:
		var m Map
		m, ok = readMap(v)
		field.Set(reflect.ValueOf(m))

	case reflect.Int64: // a time.Duration
		var ms uint64
		ms, ok = v.Uint()
		field.SetInt(int64(time.Duration(uint32(ms)) * time.Millisecond))

	default:
		var n uint64
		n, ok = v.Uint()
		ok = ok && !field.OverflowUint(n)
		field.SetUint(n)
	}

	return ok
}

// readMap reads a map with text as keys.
func readMap(v amqpvalue.Value) (m Map, ok bool) {
	entries, ok := v.Entries()
	m = Map{}
	for ok && !entries.Done() {
		key, _ := entries.Next()
		value, more := entries.Next()
		name, isText := key.Text()
		ok = more && isText
		m[Symbol(name)] = simple(value)
	}

	return m, ok
}

// simple returns v as Go has it, also if it has a descriptor, which a filter has and which its name tells too. Some
// clients send a number as descriptor, others a symbol.
func simple(v amqpvalue.Value) any {
	isDescribed := !v.IsNull() && v[0] == amqpvalue.Described
	if isDescribed {
		_, content, _ := amqpvalue.Next(v[1:])
		v = content
	}

	if text, ok := v.Text(); ok {
		return string(text)
	}

	if n, ok := v.Int(); ok {
		return n
	}

	return v
}

// appendValue appends the encoding of v, or of what it points to. It panics on a type that nothing in this package has.
func appendValue(b []byte, v any) []byte {
	if p := reflect.ValueOf(v); p.Kind() == reflect.Pointer {
		l, isList := v.(list)
		switch {
		case p.IsNil():
			v = nil
		case isList:
			return appendList(b, l)
		default:
			return appendValue(b, p.Elem().Interface())
		}
	}

	switch v := v.(type) {
	case nil:
		return append(b, amqpvalue.Null)

	case ofLink:
		if v.handle == nil {
			return append(b, amqpvalue.Null)
		}
		return appendValue(b, v.field)

	case sent:
		return appendValue(b, v.value)

	case string:
		return appendText(append(b, amqpvalue.String32), v)

	case Symbol:
		return appendText(append(b, amqpvalue.Symbol32), v)

	case amqpvalue.Value:
		if len(v) == 0 {
			return append(b, amqpvalue.Null)
		}
		return append(b, v...)

	case []byte:
		return appendText(append(b, amqpvalue.Binary32), v)

	case Described:
		b = append(b, amqpvalue.Described)
		b = appendValue(b, v.Descriptor)

		return appendValue(b, v.Value)

	case Map:
		if len(v) == 0 {
			return append(b, amqpvalue.Null)
		}

		b, start := beginCompound(b, amqpvalue.Map32)
		for key, element := range v {
			b = appendValue(b, key)
			b = appendValue(b, element)
		}

		return endCompound(b, start, 2*len(v))

	case []Symbol:
		b, start := beginCompound(b, amqpvalue.Array32)
		b = append(b, amqpvalue.Symbol32)
		for _, symbol := range v {
			b = appendText(b, symbol)
		}

		return endCompound(b, start, len(v))

	case bool:
		if v {
			return append(b, amqpvalue.True)
		}
		return append(b, amqpvalue.False)

	case uint8:
		return append(b, amqpvalue.Ubyte, v)

	case uint16:
		return binary.BigEndian.AppendUint16(append(b, amqpvalue.Ushort), v)

	case uint32:
		return binary.BigEndian.AppendUint32(append(b, amqpvalue.Uint), v)

	case time.Duration:
		return binary.BigEndian.AppendUint32(append(b, amqpvalue.Uint), uint32(v.Milliseconds()))

	case uint64:
		return binary.BigEndian.AppendUint64(append(b, amqpvalue.Ulong), v)

	case int32:
		return binary.BigEndian.AppendUint32(append(b, amqpvalue.Int), uint32(v))

	case int64:
		return binary.BigEndian.AppendUint64(append(b, amqpvalue.Long), uint64(v))
	}

	panic(fmt.Sprintf("frames: cannot encode a %T", v))
}

// appendText appends bytes after their length.
func appendText[T string | Symbol | []byte](b []byte, text T) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))

	return append(b, text...)
}

// appendList appends a list with its descriptor.
func appendList(b []byte, l list) []byte {
	b = append(b, amqpvalue.Described, amqpvalue.SmallUlong, byte(l.code())) // the only form that go-amqp knows
	b, start := beginCompound(b, amqpvalue.List32)
	fields := l.fields()
	for _, field := range fields {
		b = appendValue(b, field)
	}

	return endCompound(b, start, len(fields))
}

// beginCompound appends what a value that holds others begins with. Its size and count are set by endCompound.
func beginCompound(b []byte, code byte) (_ []byte, start int) {
	b = append(b, code, 0, 0, 0, 0, 0, 0, 0, 0)

	return b, len(b) - 8
}

// endCompound sets the size and the count of the value that was begun at start.
func endCompound(b []byte, start, count int) []byte {
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	binary.BigEndian.PutUint32(b[start+4:], uint32(count))
	return b
}
