package telemetry

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A Reason says why an event gave no reading. The zero Reason, ReasonOK, says
// that it did.
type Reason uint8

const (
	ReasonOK                  Reason = iota
	ReasonDamaged                    // a reading, of a body that is not JSON: see Damage
	ReasonNotTelemetry               // a twin change, a lifecycle event: not sent by the device as telemetry
	ReasonNoDevice                   // the hub names no device
	ReasonEmpty                      // no body, or nothing but white space
	ReasonMalformed                  // not JSON, or broken, or nested more than 64 deep, before any reading was complete
	ReasonMissing                    // JSON, but none of the fields is there
	ReasonNull                       // the field is null
	ReasonNotANumber                 // the field is text or an object
	ReasonNotFinite                  // the field is NaN, infinite, or beyond a float64
	ReasonInvalid                    // the field is a number outside the range that is valid
	ReasonUnsupportedEncoding        // CBOR or another binary format, or a compression that is not read
	ReasonTooLarge                   // more than MaxBody, as it came or unpacked
	ReasonUndecodableMessage         // not the body but the message around it: see Event.Undecodable

	// ReasonCount is the number of reasons, for arrays indexed by Reason.
	ReasonCount = iota
)

// reasons are the words for them: for programs, and what the event lacks, as part of a sentence.
var reasons = [ReasonCount]struct{ name, text string }{
	ReasonOK:           {"ok", "it has a reading"},
	ReasonDamaged:      {"damaged", "it has a reading, but its body is not quite JSON"},
	ReasonNotTelemetry: {"not_telemetry", "it is not telemetry but a twin change, a lifecycle event or the like"},
	ReasonNoDevice:     {"no_device", "the hub names no device"},
	ReasonEmpty:        {"empty", "its body is empty"},
	ReasonMalformed:    {"malformed", "its body is not JSON, or breaks off or is nested too deep before a reading"},
	ReasonMissing: {
		"missing",
		"none of the fields in TEMPERATURE_FIELD, or of the rules in RULES or RULES_FILE, is in it",
	},
	ReasonNull:                {"null", "its reading is null"},
	ReasonNotANumber:          {"not_a_number", "its reading is not a number"},
	ReasonNotFinite:           {"not_finite", "its reading is NaN, infinite or too large"},
	ReasonInvalid:             {"invalid", "its reading is outside the valid range of its rule"},
	ReasonUnsupportedEncoding: {"unsupported_encoding", "its body has an encoding that is not supported"},
	ReasonTooLarge:            {"too_large", "its body is larger than 1 MiB"},
	ReasonUndecodableMessage:  {"undecodable_message", "the message around its body cannot be decoded"},
}

// String returns the reason as the value of a metric's label.
func (r Reason) String() string { return reasons[r].name }

func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Text says for people what an event with this reason lacks, as part of a sentence.
func (r Reason) Text() string { return reasons[r].text }

// Decoded reports whether a field with this reason is one of a body that could be read.
func (r Reason) Decoded() bool {
	return r.HasReading() || r >= ReasonMissing && r <= ReasonInvalid
}

// HasReading reports whether an event with this reason has a reading.
func (r Reason) HasReading() bool { return r <= ReasonDamaged }

const (
	// MaxBody is the largest body that is decoded, in bytes, packed or unpacked.
	// IoT Hub takes 256 KiB, Event Hubs 1 MiB.
	MaxBody = 1 << 20

	maxDepth = 64       // of nested objects and arrays
	maxKept  = 64 << 10 // bytes of buffers that a scanner keeps
)

// maxDecoded is how many fields a Decoder takes: see groups.
const maxDecoded = 512

// A Field says where in an event a reading is, and what counts as one.
type Field struct {
	// Paths are names separated by commas, in the order in which they are preferred: dotted paths, and names that the
	// hub gives, such as $module. See Measurements for where they are looked up. Blank means DefaultFields.
	Paths  string
	Lowest bool // of several readings the lowest counts, else the highest
	// Valid is the range of readings that a sensor can have measured. A number outside is no
	// reading. Nil: all are valid.
	Valid *Range
	// Words, if there are any, make every text, number or boolean a reading: the position of the word
	// that it is among Words, counted from 1, or 0 if it is none of them. Case does not matter, nor
	// how a number is written.
	Words []string
	// Time makes a text or number that ParseTime or UnixTime takes a reading: in Unix µs.
	Time bool
	// Unit may stand behind a number in a text, with or without a degree sign: 91.5 °C and 91.5C if it is °C. Empty: none
	// may.
	Unit string
	// Text makes every text, number or boolean a reading, whose Found stands for what Measurements.AppendText appends.
	Text bool
	// Condition: the field decides about readings of others, and is none itself. Measurements.Read leaves it out
	// of its result.
	Condition bool
	// Flag: the field is a condition with Words, and where it is another one, the reading of its Group is not valid.
	Flag bool
	// Limit: the field is a condition with a number that readings of its Group are compared with. Otherwise is that where a
	// measurement has none; nil: then it says nothing.
	Limit     bool
	Otherwise *float64
	// InBody: the name is that of no application property.
	InBody bool
	// Group, unless it is 0, makes fields with the same one say something of one another: what of them is in the elements
	// of an array is of one element, that with the worst reading of those in which all conditions hold. A group has one
	// reading, and conditions.
	Group int
}

// A Range holds the numbers from From to To, both included.
type Range struct{ From, To float64 }

// A Found is what one field of an event holds.
type Found struct {
	Value  float64 // 0 unless Reason is ReasonOK
	Reason Reason  // never ReasonDamaged
	// Damaged: the body is not JSON, though it could be read in part, or its checksum is wrong. What such an event says may
	// alert, and never ends, clears or interrupts anything.
	Damaged bool
	// Around: the field is not in the measurement itself but in what is around it.
	Around bool

	rank uint8 // of the path it is from
}

// A Decoder says what fields Measurements.Read finds. It is not changed, and safe for concurrent use.
type Decoder struct {
	fields  []decoded
	missing Reason   // of an event without readings: ReasonOK if all fields are conditions
	grouped bool     // some have a group
	flags   [][]int  // of each group: which fields must not be another word
	start   []cursor // every path of every field, nothing of it matched yet
	around  []cursor // those of conditions
}

// A decoded field is one of a Decoder's.
type decoded struct {
	field   Field
	words   []word
	written []byte // the unit as it stands in the settings
	unit    []byte // and as plainUnit has it
	names   []path // those in a body, which may be properties as well
	given   []path // those that the hub gives
}

// NewDecoder returns a Decoder for one field. Its highest reading counts. The
// error says which path is wrong, and how to write it.
func NewDecoder(paths string) (*Decoder, error) { return NewFieldsDecoder(Field{Paths: paths}) }

// NewFieldsDecoder returns a Decoder for up to 512 fields. The error is like NewDecoder's.
func NewFieldsDecoder(fields ...Field) (*Decoder, error) {
	if len(fields) > maxDecoded {
		return nil, fmt.Errorf("%d fields are too many to decode: give at most %d", len(fields), maxDecoded)
	}

	d := &Decoder{fields: make([]decoded, len(fields))}
	for i, f := range fields {
		paths, err := parsePaths(f.Paths)
		if err != nil {
			return nil, err
		}

		to := &d.fields[i]
		to.field = f
		to.written = bytes.TrimSpace([]byte(f.Unit))
		to.unit = plainUnit(to.written)
		for _, text := range f.Words {
			number, err := strconv.ParseFloat(text, 64)
			if err != nil {
				number = math.NaN()
			}
			to.words = append(to.words, word{text: []byte(text), number: number})
		}

		d.grouped = d.grouped || f.Group != 0
		if !f.Condition {
			d.missing = ReasonMissing
		}
		for len(d.flags) <= f.Group {
			d.flags = append(d.flags, nil)
		}
		if f.Flag {
			d.flags[f.Group] = append(d.flags[f.Group], i)
		}

		for j := range paths {
			p := &paths[j]
			p.index = uint16(i)
			p.rank = uint8(j)
			p.of = to
			if p.given != notGiven {
				to.given = append(to.given, *p)
				continue
			}

			to.names = append(to.names, *p)
			d.start = append(d.start, cursor{path: p})
			if f.Condition {
				d.around = append(d.around, cursor{path: p})
			}
		}
	}

	return d, nil
}

// reason returns what Measurements.Read does for what was found, in which it marks readings that flags say are not valid.
func (d *Decoder) reason(found []Found, damaged bool) Reason {
	reason := d.missing
	for i := range found {
		to, f := &d.fields[i], &found[i]
		if to.field.Condition {
			continue
		}

		for _, flag := range d.flags[to.field.Group] {
			if f.Reason == ReasonOK && found[flag].Reason == ReasonOK && found[flag].Value == 0 {
				f.Value, f.Reason = 0, ReasonInvalid
			}
		}

		if f.Reason == ReasonOK || reason == ReasonMissing {
			reason = f.Reason
		}
	}

	if damaged && reason == ReasonOK {
		return ReasonDamaged
	}

	return reason
}

// unread returns why the body of e is not even looked at.
func unread(e *Event) Reason {
	switch {
	case e.Undecodable != "":
		return ReasonUndecodableMessage
	case e.MessageSource != "Telemetry" && e.MessageSource != "" && !strings.EqualFold(e.MessageSource, "Telemetry"):
		return ReasonNotTelemetry
	case e.Device == "":
		return ReasonNoDevice
	}

	return ReasonOK
}
