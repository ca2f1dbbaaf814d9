package verify

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-json-experiment/json"
)

// line is one record as JSON: a reading or a delivery.
type line struct {
	Reading  *Reading  `json:"reading,omitempty"`
	Delivery *Delivery `json:"delivery,omitempty"`
}

// maxLine bounds what Decode reads into memory at a time.
const maxLine = 1 << 20

// An Encoder writes records for the Log of another process: each is one JSON line and
// one Write, so that a process that is killed leaves whole lines. It is safe for
// concurrent use.
type Encoder struct {
	mu sync.Mutex
	w  io.Writer
}

// NewEncoder returns an Encoder that writes to w.
func NewEncoder(w io.Writer) *Encoder { return &Encoder{w: w} }

// Published writes that r was published.
func (e *Encoder) Published(r Reading) error { return e.write(line{Reading: &r}) }

// Delivered writes that a receiver took d.
func (e *Encoder) Delivered(d Delivery) error { return e.write(line{Delivery: &d}) }

func (e *Encoder) write(l line) error {
	b, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// Decode adds to l what an Encoder wrote. It fails at the first line that is not a
// record, whose number is in the error; the lines before it have been added.
func (l *Log) Decode(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	n := 1
	for ; lines.Scan(); n++ {
		var rec line
		err := json.Unmarshal(lines.Bytes(), &rec, json.RejectUnknownMembers(true))
		if err == nil && (rec.Reading == nil) == (rec.Delivery == nil) {
			err = errors.New("neither one reading nor one delivery")
		}
		if err != nil {
			return fmt.Errorf("decode record in line %d: %w", n, err)
		}
		if rec.Reading != nil {
			l.Published(*rec.Reading)
		} else {
			l.Delivered(*rec.Delivery)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read record in line %d: %w", n, err)
	}
	return nil
}
