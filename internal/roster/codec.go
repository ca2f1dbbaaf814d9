package roster

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"alertworker/internal/records"
	"alertworker/internal/telemetry"
)

// format is the version of a roster's content: a line of JSON, and then the devices. Compressed by gzip.
const format = 1

// maxBytes bounds a roster, unpacked: a name with its length, and three numbers for each column.
const maxBytes = 64 << 20

type header struct {
	Format     int       `json:"format"`
	Generation string    `json:"generation,omitempty"`
	Sequence   int64     `json:"sequence"`
	Offset     string    `json:"offset,omitempty"`
	Time       time.Time `json:"time,omitzero"`
	Proven     int64     `json:"proven,omitempty"`
	Columns    []Column  `json:"columns"`
	Devices    int       `json:"devices"`
}

// Encode returns r as Decode reads it, but not compressed. Its cost is that of copying.
//
// Numbers of one kind follow one another, as differences to what most of them are near to, which gzip makes small.
func (r *Roster) Encode() []byte {
	p := r.Position
	first, err := json.Marshal(header{
		Format:     format,
		Generation: p.Generation,
		Sequence:   p.Sequence,
		Offset:     p.Offset,
		Time:       p.Time.UTC(),
		Proven:     r.Proven,
		Columns:    r.columns,
		Devices:    len(r.names),
	})
	if err != nil {
		panic(err) // strings and integers, and a time that a store has returned
	}

	b := append(first, '\n')
	for _, name := range r.names {
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
	}

	origin := p.Time.UnixMilli()
	for f := range r.columns {
		for d := range r.names {
			b = binary.AppendVarint(b, p.Sequence-r.Heard(d, f).Sequence)
		}

		for d := range r.names {
			h := r.Heard(d, f)
			if h.Time == 0 {
				b = append(b, 0)
				continue
			}

			at := origin - h.Time
			if at >= 0 {
				at++ // 0 is none
			}

			b = binary.AppendVarint(b, at)
		}

		for d := range r.names {
			b = binary.AppendVarint(b, r.Heard(d, f).Quiet)
		}
	}

	return b
}

// Decode reads what Encode returned, compressed.
func Decode(packed []byte) (*Roster, error) {
	plain, err := records.Decompress(packed, maxBytes)
	if err != nil {
		return nil, err
	}

	first, rest, _ := bytes.Cut(plain, []byte{'\n'})
	var in header
	if err := json.Unmarshal(first, &in); err != nil {
		return nil, errors.New("it does not begin with a line of JSON")
	}

	switch {
	case in.Format != format:
		return nil, fmt.Errorf("it has format %d; this version reads only format %d", in.Format, format)
	case len(in.Columns) == 0 || len(in.Columns) > MaxColumns || in.Devices < 0 || in.Devices > MaxDevices:
		return nil, fmt.Errorf("it has %d devices and %d columns", in.Devices, len(in.Columns))
	}

	r := New(in.Columns)
	copy(r.columns, in.Columns)
	r.Proven = in.Proven
	r.Position = telemetry.Position{
		Generation: in.Generation,
		Sequence:   in.Sequence,
		Offset:     in.Offset,
		Time:       in.Time.UTC(),
	}

	from := reader{rest: rest}
	for range in.Devices {
		r.Add(from.text())
	}

	if r.Len() != in.Devices {
		return nil, errors.New("device names are missing, too long or duplicated")
	}

	origin := in.Time.UnixMilli()
	for f := range r.columns {
		of := func(d int) *Place { return &r.heard[d*len(r.columns)+f] }
		for d := range r.names {
			of(d).Sequence = in.Sequence - from.number()
		}

		for d := range r.names {
			switch at := from.number(); {
			case at == 0:
				*of(d) = Place{}
			case at > 0:
				of(d).Time = origin - (at - 1)
			default:
				of(d).Time = origin - at
			}
		}

		for d := range r.names {
			if quiet := from.number(); of(d).Time != 0 {
				r.set(d*len(r.columns)+f, Heard{of(d).Sequence, of(d).Time, quiet})
			}
		}
	}

	if from.short || len(from.rest) > 0 {
		return nil, errors.New("it is truncated, or continues after its end")
	}

	return r, nil
}

// A reader takes values from the front of rest. Beyond the end they are zero.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) number() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.short = true
		n = len(r.rest)
		v = 0
	}

	r.rest = r.rest[n:]
	return v
}

func (r *reader) text() string {
	size, n := binary.Uvarint(r.rest)
	if n <= 0 || size > uint64(len(r.rest)-n) {
		r.short, r.rest = true, nil
		return ""
	}

	s := string(r.rest[n : n+int(size)])
	r.rest = r.rest[n+int(size):]

	return s
}

// With returns r for the rules of these columns, which come first, at now in Unix ms. A rule goes on with its own
// column, or with that of a rule that hears the same, unless it was about other devices: which ones it is about, only
// their next events say. If nobody has heard for that lately, or something else was heard, devices count as heard now,
// and what a rule that hears the same has heard meanwhile counts. Columns of other rules are kept for a while: see
// KeepIdle.
func (r *Roster) With(columns []Column, now int64) *Roster {
	to := New(columns)
	to.Position, to.Proven = r.Position, r.Proven
	from := make([]int, len(columns))
	for i := range to.columns {
		c := &to.columns[i]
		if from[i] = r.source(*c); from[i] < 0 {
			c.Floor = later(c.Floor, Place{r.Position.Sequence, now}) // what came before nobody has heard for it
			continue
		}

		was := r.columns[from[i]]
		c.Floor, c.Gap = was.Floor, was.Gap
		if was.Idle != 0 || was.Hears != c.Hears {
			c.Floor = later(c.Floor, Place{r.Position.Sequence, now})
		}
	}

	for i, c := range r.columns {
		if c.Idle == 0 {
			c.Idle = now
		}

		if to.Column(c.Rule) < 0 && now-c.Idle < KeepIdle.Milliseconds() && len(to.columns) < MaxColumns {
			to.columns, from = append(to.columns, c), append(from, i)
		}
	}

	hear := func(column, from int) {
		for d, name := range r.names {
			if h := r.Heard(d, from); h != (Heard{}) {
				to.Hear(to.Add(name), column, h)
			}
		}
	}
	for column, f := range from {
		if f < 0 {
			continue
		}
		hear(column, f)
		if other := r.active(to.columns[column]); r.columns[f].Idle != 0 && column < len(columns) && other >= 0 {
			hear(column, other) // it has heard the same meanwhile
		}
	}
	return to
}

// source returns the column of r that c goes on with, -1 if there is none.
func (r *Roster) source(c Column) int {
	if own := r.Column(c.Rule); own >= 0 && r.columns[own].Only == c.Only {
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
