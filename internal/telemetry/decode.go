package telemetry

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
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
	ReasonMalformed                  // not JSON, or broken before any reading was complete
	ReasonMissing                    // JSON, but none of the fields is there
	ReasonNull                       // the field is null
	ReasonNotANumber                 // the field is text or an object
	ReasonNotFinite                  // the field is NaN, infinite, or beyond a float64
	ReasonInvalid                    // the field is a number outside the range that is valid
	ReasonUnsupportedEncoding        // CBOR or another binary format, or a compression that is not read
	ReasonTooLarge                   // more than MaxBody, as it came or unpacked
	ReasonTooDeep                    // no reading in the first 64 levels of nested objects and arrays
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
	ReasonMalformed:    {"malformed", "its body is not JSON, or breaks off before a reading"},
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
	ReasonTooDeep:             {"too_deep", "its body is nested too deep"},
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
	// Text makes every text, number or boolean a reading, whose Found stands for what Measurements.Text returns.
	Text bool
	// Condition: the field decides about readings of others, and is none itself. DecodeAll leaves it out
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
}

// A Decoder reads fields out of events. It is safe for concurrent use.
type Decoder struct {
	fields   []decoded
	aside    bool      // all of them are conditions
	grouped  bool      // some have a group
	given    bool      // some may be what the hub gives
	start    []cursor  // every path of every field, nothing of it matched yet
	around   []cursor  // those of conditions
	scanners sync.Pool // of *scanner
}

// A decoded field is one of a Decoder's.
type decoded struct {
	condition bool
	words     bool
	isText    bool
	inBody    bool
	names     []path // those in a body, which may be properties as well
	given     []path // those that the hub gives
	flags     []int  // of a reading: which fields must not be another word
}

// NewDecoder returns a Decoder for one field. Its highest reading counts. The
// error says which path is wrong, and how to write it.
func NewDecoder(paths string) (*Decoder, error) { return NewFieldsDecoder(Field{Paths: paths}) }

// NewFieldsDecoder returns a Decoder for up to 512 fields. The error is like NewDecoder's.
func NewFieldsDecoder(fields ...Field) (*Decoder, error) {
	if len(fields) > maxDecoded {
		return nil, fmt.Errorf("%d fields are too many to decode: give at most %d", len(fields), maxDecoded)
	}

	d := &Decoder{
		aside:    true,
		fields:   make([]decoded, len(fields)),
		scanners: sync.Pool{New: func() any { return new(scanner) }},
	}
	for i := range fields {
		if err := d.add(i, &fields[i]); err != nil {
			return nil, err
		}
	}

	for i, f := range fields {
		for j, flag := range fields {
			if flag.Flag && flag.Group == f.Group && !f.Condition {
				d.fields[i].flags = append(d.fields[i].flags, j)
			}
		}
	}

	return d, nil
}

// add adds the field with an index.
func (d *Decoder) add(i int, f *Field) error {
	paths, err := parsePaths(f.Paths)
	if err != nil {
		return err
	}

	to := &d.fields[i]
	to.condition = f.Condition
	to.words = len(f.Words) > 0
	to.isText = f.Text
	to.inBody = f.InBody
	d.aside = d.aside && f.Condition
	d.grouped = d.grouped || f.Group != 0

	for j := range paths {
		p := &paths[j]
		p.field = uint16(i)
		p.rank = uint8(j)
		p.group = uint16(f.Group)
		p.condition = f.Condition
		p.flag = f.Flag
		p.limit = f.Limit
		p.otherwise = f.Otherwise
		p.lowest = f.Lowest
		p.valid = f.Valid
		p.time = f.Time
		p.isText = f.Text
		p.words = parseWords(f.Words)
		p.written = bytes.TrimSpace([]byte(f.Unit))
		p.unit = plainUnit(p.written)
		if p.given != notGiven {
			to.given = append(to.given, *p)
			d.given = true
			continue
		}

		to.names = append(to.names, *p)
		d.start = append(d.start, cursor{path: p})
		if f.Condition {
			d.around = append(d.around, cursor{path: p})
		}
	}

	return nil
}

// DecodeAll sets found, which has one element for each field, in one pass over the body: each
// to the reading in e, in the unit in which the device sends it. It returns ReasonOK if at least one field
// has a reading, or else the reason of the first field that is there. Conditions do not count.
//
// Only what the device itself sent as telemetry counts, and only the device
// that the hub names, never one that the body claims. The body is JSON; a body
// that is not is unpacked first if it is gzip, zlib, deflate, UTF-16, base64 or JSON
// in a JSON string, by its bytes alone: devices put anything into the
// labels. Bare NaN and Infinity, as Python writes them, are taken for values.
//
// A path is matched without regard to case. It goes through arrays and text that is JSON, and
// a name in the body may hold dots: machine.temperature finds
// {"machine":{"temperature":1}}, {"machine":[{"temperature":1}]} and
// {"machine.temperature":1}. A number is a position where an array is: values.0 is its first element. The path . is the
// body itself. In an object the first path with a finite number
// counts; a number may stand in a string, and true and false are 1 and 0. Where a body holds several
// readings, as an array, as several JSON values or under one name twice, the
// highest counts, or the lowest if the field says so, and one that cannot be read hides
// no other. If none can be read, the reason is that of the first path that is there.
//
// A body that is nearly JSON, or is cut off, is read as far as nobody can take what was sent for something else: see
// repairer. What DecodeAll returns is ReasonDamaged then, and ReasonMalformed without a reading. Zlib with a wrong
// checksum is damaged, too. Nothing counts of gzip, or of a JSON string, that is cut off.
//
// A body that is nested more than 64 deep is damaged, and read up to there; without a reading its reason is ReasonTooDeep.
//
// DecodeAll does not look at e after it returned. It allocates nothing for
// plain JSON, and for any body its time and memory are bounded by MaxBody.
//
// A Decoder without fields does not look into the body. Without other fields than conditions it returns ReasonOK for
// telemetry of a device.
func (d *Decoder) DecodeAll(e *Event, found []Found) Reason {
	s := d.scanners.Get().(*scanner)
	s.texts = s.texts[:0]
	reason := d.decode(s, e, found)
	if cap(s.text)+cap(s.repair)+cap(s.texts) <= maxKept {
		s.json.reset(nil)
		d.scanners.Put(s)
	}

	return reason
}

// decode is DecodeAll with a scanner.
func (d *Decoder) decode(s *scanner, e *Event, found []Found) Reason {
	found = found[:len(d.fields)]
	reason := unread(e)
	if reason != ReasonOK || len(d.fields) == 0 {
		for i := range found {
			found[i] = Found{Reason: reason}
		}
		return reason
	}

	for i := range found {
		found[i] = Found{Reason: ReasonMalformed} // until a layer of the body says something else
	}

	end := s.unpack(e.Body, func(text []byte) (broken bool) {
		return s.readValues(d, d.start, text, found)
	})
	damaged := s.isUncertain()
	for i := range found {
		f := &found[i]
		//planted:damaged-is-whole f.Damaged = false; skip
		f.Damaged = damaged
		if f.Reason == ReasonMalformed {
			f.Reason = end
		}

		if to := &d.fields[i]; f.Reason != ReasonOK && len(e.Properties) > 0 || len(to.given) > 0 {
			to.elsewhere(s, i, e, nil, f)
		}
	}

	return d.reason(found, damaged)
}

// reason returns what DecodeAll does for what was found, in which it marks readings that flags say are not valid.
func (d *Decoder) reason(found []Found, damaged bool) Reason {
	reason := ReasonMissing
	if d.aside { // nothing but conditions
		reason = ReasonOK
	}

	for i := range found {
		to, f := &d.fields[i], &found[i]
		if to.condition {
			continue
		}

		for _, flag := range to.flags {
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
