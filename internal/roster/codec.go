package roster

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unique"

	"alertworker/internal/records"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// format is the version of a roster's content: a line of JSON, and then the devices. Compressed by gzip. With sensors, or
// with values that devices share by a Per, it is the next one, in which the name of each sensor follows that of its device,
// the values follow the names, and in a column with a Per the number of each device's value follows. Earlier versions read
// only the first.
const (
	formatPlain = 1
	formatFull  = 2
)

// maxBytes bounds a roster, unpacked: a name with its length, and three numbers for each column.
const maxBytes = 64 << 20

type header struct {
	Format     int       `json:"format"`
	Generation string    `json:"generation,omitempty"`
	Sequence   int64     `json:"sequence"`
	Offset     string    `json:"offset,omitempty"`
	Time       time.Time `json:"time,omitzero"`
	Columns    []Column  `json:"columns"`
	Devices    int       `json:"devices"`
	Outage     int64     `json:"outage,omitempty"`
}

// Encode returns r as Decode reads it, but not compressed. Its cost is that of copying.
//
// Numbers of one kind follow one another, as differences to what most of them are near to, which gzip makes small.
func (r *Roster) Encode() []byte {
	values := []string{""}
	numbers := map[unique.Handle[string]]uint64{} // of values; what is not there has 0
	for f := range r.columns {
		if r.columns[f].Per == "" {
			continue
		}

		for d := range r.names {
			shared := r.of(d)[f].shared
			if value := r.Shared(d, f); value != "" && numbers[shared] == 0 {
				numbers[shared] = uint64(len(values))
				values = append(values, value)
			}
		}
	}

	format := formatPlain
	if len(values) > 1 || slices.ContainsFunc(r.names, func(of sensor.ID) bool { return of.Name != "" }) {
		format = formatFull
	}

	b := r.encodeHeader(format)
	for _, of := range r.names {
		b = appendText(b, of.Device)
		if format != formatPlain {
			b = appendText(b, of.Name)
		}
	}

	if format != formatPlain {
		b = binary.AppendUvarint(b, uint64(len(values)))
		for _, value := range values {
			b = appendText(b, value)
		}
	}

	for f := range r.columns {
		b = r.encodeColumn(b, f)
		if format == formatPlain || r.columns[f].Per == "" {
			continue
		}

		for d := range r.names {
			b = binary.AppendUvarint(b, numbers[r.of(d)[f].shared])
		}
	}

	return b
}

func appendText(b []byte, text string) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// encodeHeader returns the line of JSON.
func (r *Roster) encodeHeader(format int) []byte {
	p := r.Position
	line, err := json.Marshal(header{
		Format:     format,
		Generation: p.Generation,
		Sequence:   p.Sequence,
		Offset:     p.Offset,
		Time:       p.Time.UTC(),
		Columns:    r.columns,
		Devices:    len(r.names),
		Outage:     r.Outage,
	})
	if err != nil {
		panic(err) // strings and integers, and a time that a store has returned
	}

	return append(line, '\n')
}

// encodeColumn appends the last event of each device for a column.
func (r *Roster) encodeColumn(b []byte, column int) []byte {
	for d := range r.names {
		b = binary.AppendVarint(b, r.Position.Sequence-r.Heard(d, column).Sequence)
	}

	origin := r.Position.Time.UnixMilli()
	for d := range r.names {
		b = binary.AppendVarint(b, age(origin, r.Heard(d, column).Time))
	}

	for d := range r.names {
		b = binary.AppendVarint(b, r.Heard(d, column).Quiet)
	}

	return b
}

// age is how a time is written, in Unix ms: as how long it was before origin, plus 1 unless it was after that; 0 if
// there is none.
func age(origin, at int64) int64 {
	switch {
	case at == 0:
		return 0
	case at > origin:
		return origin - at
	}

	return origin - at + 1
}

// timeOf is the inverse of age.
func timeOf(origin, age int64) int64 {
	switch {
	case age == 0:
		return 0
	case age < 0:
		return origin - age
	}

	return origin - (age - 1)
}

// Decode reads what Encode returned, compressed.
func Decode(packed []byte) (*Roster, error) {
	plain, err := records.Decompress(packed, maxBytes)
	if err != nil {
		return nil, err
	}

	first, rest, _ := bytes.Cut(plain, []byte{'\n'})
	in, err := decodeHeader(first)
	if err != nil {
		return nil, err
	}

	r := New(in.Columns)
	copy(r.columns, in.Columns)
	r.Position = telemetry.Position{
		Generation: in.Generation,
		Sequence:   in.Sequence,
		Offset:     in.Offset,
		Time:       in.Time.UTC(),
	}
	r.Outage = in.Outage

	from := reader{rest: bytes.NewBuffer(rest)}
	for range in.Devices {
		of := sensor.Of(from.text())
		if in.Format != formatPlain {
			of.Name = from.text()
		}
		r.Add(of)
	}

	var values []string
	if in.Format != formatPlain {
		for range min(from.count(), from.rest.Len()) { // each takes a byte at least
			values = append(values, from.text())
		}
	}

	if r.Len() != in.Devices {
		return nil, errors.New("device names are missing, too long or duplicated")
	}

	for f := range r.columns {
		r.decodeColumn(&from, f)
		if in.Format == formatPlain || r.columns[f].Per == "" {
			continue
		}

		for d := range r.names {
			if i := from.count(); i < len(values) {
				r.Share(d, f, []byte(values[i]))
			} else {
				from.err = io.ErrUnexpectedEOF
			}
		}
	}

	if from.err != nil || from.rest.Len() > 0 {
		return nil, errors.New("it is truncated, or continues after its end")
	}

	return r, nil
}

// decodeHeader reads the line of JSON. Its error says what is wrong with the roster.
func decodeHeader(line []byte) (in header, err error) {
	if json.Unmarshal(line, &in) != nil {
		return in, errors.New("it does not begin with a line of JSON")
	}

	if in.Format < formatPlain || in.Format > formatFull {
		return in, fmt.Errorf("it has format %d; this version reads only formats %d to %d", in.Format, formatPlain, formatFull)
	}

	columns := len(in.Columns)
	if columns == 0 || columns > MaxColumns || in.Devices < 0 || in.Devices > MaxDevices {
		return in, fmt.Errorf("it has %d devices and %d columns", in.Devices, columns)
	}

	return in, nil
}

// awaited is the sequence number of a device that version 1.0 expected although nobody had heard it.
const awaited = -2

// decodeColumn takes from what encodeColumn appended. A device without a time was not heard for the column.
func (r *Roster) decodeColumn(from *reader, column int) {
	for d := range r.names {
		r.of(d)[column].Sequence = r.Position.Sequence - from.number()
	}

	origin := r.Position.Time.UnixMilli()
	for d := range r.names {
		r.of(d)[column].Time = timeOf(origin, from.number())
	}

	for d := range r.names {
		h := &r.of(d)[column].Heard
		h.Quiet = from.number()
		if h.Time == 0 || h.Sequence == awaited {
			*h = Heard{}
		}
	}
}

// A reader takes values from the front of rest. err is the first error; values after it mean nothing.
type reader struct {
	rest *bytes.Buffer
	err  error
}

// number takes the next integer.
func (r *reader) number() int64 {
	v, err := binary.ReadVarint(r.rest)
	r.err = cmp.Or(r.err, err)

	return v
}

// count takes the next number that is never negative.
func (r *reader) count() int {
	v, err := binary.ReadUvarint(r.rest)
	r.err = cmp.Or(r.err, err)

	return int(min(v, maxBytes))
}

// text takes the next text, which its length precedes.
func (r *reader) text() string {
	size := r.count()
	text := string(r.rest.Next(size))
	if len(text) < size {
		r.err = io.ErrUnexpectedEOF
	}

	return text
}

// With returns r for the rules of these columns, which come first, at now in Unix ms. A rule goes on with its own
// column, or with that of a rule that hears the same, unless it was about other devices: which ones it is about, only
// their next events say. If it expects more than it did, who was expected still is. While it was missing, what a rule
// that hears the same has heard counts. If nobody has heard for that lately, or something else was heard, devices count
// as heard now. Columns of other rules are kept for a while: see KeepIdle.
func (r *Roster) With(columns []Column, now int64) *Roster {
	to := New(columns)
	to.Position = r.Position
	to.Outage = r.Outage

	unheard := Place{r.Position.Sequence, now}
	from := make([]int, len(columns)) // the column of r that each goes on with, -1 if there is none
	for i := range to.columns {
		c := &to.columns[i]
		from[i] = r.source(*c)
		isHeard := false // what came before now was
		if from[i] >= 0 {
			was := r.columns[from[i]]
			c.Floor = was.Floor
			c.Gap = was.Gap
			if other := r.active(*c); was.Idle != 0 && other >= 0 { // it has heard the same meanwhile
				was = r.columns[other]
				c.Floor = later(c.Floor, later(was.Floor, was.Gap)) // a gap that is short for one may be long for the other
			}
			isHeard = was.Idle == 0 && was.Hears == c.Hears
		}

		if !isHeard {
			c.Floor = later(c.Floor, unheard)
		}
	}

	for i, c := range r.columns {
		c.Idle = cmp.Or(c.Idle, now)
		isKept := now-c.Idle < KeepIdle.Milliseconds() && len(to.columns) < MaxColumns
		//planted:missing-rule-forgets if false
		if isKept && to.Column(c.Rule) < 0 {
			to.columns = append(to.columns, c)
			from = append(from, i)
		}
	}

	for column, f := range from {
		if f < 0 {
			continue
		}

		to.hearAll(column, r, f)
		if r.columns[f].Idle != 0 && column < len(columns) {
			if other := r.active(to.columns[column]); other >= 0 {
				to.hearAll(column, r, other)
			}
		}

		if to.columns[column].Floor == unheard {
			to.ExcuseAll(column, now)
		}
	}

	return to
}

// hearAll records for a column of r what another roster has heard for one of its own.
func (r *Roster) hearAll(column int, other *Roster, of int) {
	for d, name := range other.names {
		h := other.Heard(d, of)
		if h == (Heard{}) {
			continue
		}

		device := r.Add(name)
		r.Hear(device, column, h)
		if r.columns[column].Per == other.columns[of].Per && r.Heard(device, column).Sequence == h.Sequence {
			r.Share(device, column, []byte(other.Shared(d, of)))
		}
	}
}

// source returns the column of r that c goes on with, -1 if there is none.
func (r *Roster) source(c Column) int {
	own := r.Column(c.Rule)
	if own >= 0 && (r.columns[own].Only == c.Only || c.Covers != nil && c.Covers(r.columns[own].Only)) {
		return own
	}

	return r.active(c)
}

// active returns a column that somebody hears for, and that hears the same as c; -1 if there is none.
func (r *Roster) active(c Column) int {
	return slices.IndexFunc(r.columns, func(of Column) bool { return of.Idle == 0 && of.Same(c) })
}

// Same reports whether c and of hear the same of the same devices.
func (c Column) Same(of Column) bool { return c.Hears == of.Hears && c.Only == of.Only }
