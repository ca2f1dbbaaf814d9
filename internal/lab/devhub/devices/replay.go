package devices

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxRow bounds what a Replay holds of its file at a time.
const maxRow = 64 << 10

// A Replay publishes recorded readings. It is not safe for concurrent use.
type Replay struct {
	name   string
	file   io.Closer
	rows   *csv.Reader
	limit  *limitedReader
	speed  float64
	device string // if the file names none
	line   int    // of the last row read

	timestampColumn, valueColumn, deviceColumn int // the last is -1 without devices
}

// OpenReplay opens a CSV file with the columns timestamp and value, and device
// if there are several, in any order. Without that column all readings
// are of one device, called like the file. Timestamps are RFC 3339 or
// "2006-01-02 15:04:05", UTC. Speed is in times real time; 0 or less is as fast as
// possible.
func OpenReplay(file string, speed float64) (*Replay, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open replay: %w", err)
	}
	r, err := newReplay(file, f, speed)
	if err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

func newReplay(name string, file io.ReadCloser, speed float64) (*Replay, error) {
	base := filepath.Base(name)
	r := &Replay{
		name:   name,
		file:   file,
		limit:  &limitedReader{r: file, left: maxRow},
		speed:  speed,
		device: strings.TrimSuffix(base, filepath.Ext(base)),
	}
	r.rows = csv.NewReader(r.limit)
	r.rows.ReuseRecord = true
	r.rows.TrimLeadingSpace = true

	header, err := r.row()
	if err != nil && err != io.EOF {
		return nil, err
	}
	column := func(name string) int {
		return slices.IndexFunc(header, func(s string) bool {
			return strings.EqualFold(strings.TrimSpace(strings.TrimPrefix(s, "\ufeff")), name)
		})
	}
	r.timestampColumn, r.valueColumn, r.deviceColumn = column("timestamp"), column("value"), column("device")
	if r.timestampColumn < 0 || r.valueColumn < 0 {
		return nil, fmt.Errorf("%s:1: the first line must name the columns: timestamp,value or timestamp,device,value", name)
	}
	return r, nil
}

// ParseSpeed reads what OpenReplay wants as its speed: a number, or "max" for
// as fast as possible.
func ParseSpeed(s string) (float64, error) {
	if s == "max" {
		return 0, nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("speed %q is neither a number, in times real time, nor \"max\"", s)
	}
	return v, nil
}

// Close closes the file. Run must have returned.
func (r *Replay) Close() error { return r.file.Close() }

// Run publishes the readings in the order of the file, each when its time has come; a
// timestamp before that of an earlier row has come already. It returns nil after the
// last one or when ctx ends, and an error if publish fails or if a row is not a
// reading, with the file and the line.
func (r *Replay) Run(ctx context.Context, publish func(context.Context, Message) error) error {
	start := time.Now()
	var first time.Time
	for n := 0; ; n++ {
		m, at, err := r.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if n == 0 {
			first = at
		}
		err = publishAt(ctx, start.Add(r.after(at.Sub(first))), m, publish)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", r.name, r.line, err)
		}
	}
}

// after returns how long after the start of the replay a reading is due that was
// recorded so long after the first.
func (r *Replay) after(recorded time.Duration) time.Duration {
	if r.speed <= 0 {
		return 0
	}
	const century = 100 * 365 * 24 * time.Hour // far from overflow
	return time.Duration(max(0, min(float64(recorded)/r.speed, float64(century))))
}

// next returns the next reading, and io.EOF after the last.
func (r *Replay) next() (m Message, at time.Time, err error) {
	row, err := r.row()
	if err != nil {
		return m, at, err
	}
	bad := func(format string, args ...any) (Message, time.Time, error) {
		return Message{}, time.Time{}, fmt.Errorf("%s:%d: %w", r.name, r.line, fmt.Errorf(format, args...))
	}

	text := strings.TrimSpace(row[r.timestampColumn])
	at, err = time.Parse(time.DateTime, text)
	if err != nil {
		at, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return bad("timestamp %q is neither like %q nor like %q", text, time.DateTime, time.RFC3339)
	}

	text = strings.TrimSpace(row[r.valueColumn])
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return bad("value %q is not a number", text)
	}

	device := r.device
	if r.deviceColumn >= 0 {
		device = strings.Clone(row[r.deviceColumn]) // the row is one string: do not keep it all
	}
	if device == "" || !utf8.ValidString(device) {
		return bad("device %q is empty or not UTF-8", device)
	}
	return Message{
		Device:        device,
		Body:          append(strconv.AppendFloat([]byte(`{"temperature":`), value, 'g', -1, 64), '}'),
		MessageSource: telemetry,
		IsTelemetry:   true,
		Temperature:   value,
		Recorded:      at,
	}, at, nil
}

// row returns the next row, valid until the next call, and sets r.line.
func (r *Replay) row() ([]string, error) {
	row, err := r.rows.Read()
	var parse *csv.ParseError
	switch {
	case err == nil:
		r.line, _ = r.rows.FieldPos(0)
		r.limit.left = maxRow
		return row, nil
	case err == io.EOF:
		return nil, err
	case errors.As(err, &parse):
		return nil, fmt.Errorf("%s:%d: %w", r.name, parse.Line, parse.Err)
	default:
		return nil, fmt.Errorf("%s:%d: %w", r.name, r.line+1, err)
	}
}

// A limitedReader refuses to read more than left bytes.
type limitedReader struct {
	r    io.Reader
	left int
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("row longer than %d bytes: is a quote missing?", maxRow)
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}
