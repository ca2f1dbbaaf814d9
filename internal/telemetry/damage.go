package telemetry

import (
	"fmt"
	"unicode/utf8"
)

// A Damage is the first place at which a body is not JSON. The zero Damage is none.
type Damage struct {
	Offset int32 // bytes before it; of a body that is packed in another one, those of the inner one
	Found  rune  // what is there; -1: the body ends
	Kind   DamageKind
}

// A DamageKind says what must be there instead.
type DamageKind uint8

const (
	noDamage      DamageKind = iota
	damagedBody              // an object or an array
	damagedName              // a name, or the end of an object
	damagedColon             // a colon after a name
	damagedValue             // a value, or the end of an array
	damagedNext              // a comma, or the end of an object or an array
	damagedText              // something that text can have without an escape
	damagedEscape            // an escape that JSON has
	damagedEnd               // the end of a text
	damagedDepth             // nothing that is nested deeper
	damagedSize              // the end, because too much had to be escaped
	damagedSum               // another checksum
)

var damageKinds = [...]string{
	damagedBody:   "where an object or an array must begin",
	damagedName:   "where a name in double quotes must begin",
	damagedColon:  "where a colon must follow a name",
	damagedValue:  "where a value must begin",
	damagedNext:   "where a comma or a closing bracket must follow",
	damagedText:   "inside text, where it must be escaped",
	damagedEscape: "after a backslash, with which it is no escape",
	damagedEnd:    "inside text that has no closing quote",
	damagedDepth:  "inside 64 objects and arrays, which is as deep as damaged JSON is read",
	damagedSize:   "behind more characters without an escape than are repaired",
}

// DamageOf returns where body, or what is packed in it, stops being JSON. It is zero if that is JSON, or if body has
// another format.
func DamageOf(body []byte) Damage {
	s := newScanner()
	s.unpack(body, func(text []byte) (broken bool) { return s.walkAll(text, "", func(string, []byte) {}) })
	if s.changed && s.mended.damage.Kind == noDamage {
		return Damage{Kind: damagedSum}
	}

	return s.mended.damage
}

// Text says for people what is wrong with a message of a device, such as "not JSON at byte 17 of a message of oven-7:
// found ' where a name in double quotes must begin". It is empty if d is none.
func (d Damage) Text(device string) string {
	switch d.Kind {
	case noDamage:
		return ""
	case damagedSum:
		return "the checksum in a message of " + device + " is not that of what is packed in it"
	}

	return fmt.Sprintf("not JSON at byte %d of a message of %s: found %s %s", d.Offset, device, d.found(), damageKinds[d.Kind])
}

// found names what is at the place.
func (d Damage) found() string {
	switch {
	case d.Found < 0:
		return "the end"
	case d.Found == '\n', d.Found == '\r':
		return "a line break"
	case d.Found <= ' ', d.Found == 0x7f, d.Found == utf8.RuneError:
		return fmt.Sprintf("the character U+%04X", d.Found)
	}

	return string(d.Found)
}
