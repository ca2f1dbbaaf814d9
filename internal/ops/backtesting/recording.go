package backtesting

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
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

	"github.com/twmb/avro/ocf"

	"alertworker/internal/telemetry"
)

const (
	maxLine = 1 << 20 // of a recording; an IoT Hub takes messages of 256 KiB
	batch   = 512     // events that Next returns at most
	proof   = 100     // lines of which one must be a reading
)

// A Recording is a file of readings: CSV, a JSON object per line, or an Avro object container. It is not safe for concurrent use.
//
// The columns of a CSV file are named by its first line. timestamp is required; device names the device, which else
// is called like the file. value is a reading of the field that the rules read. Any other column is a field of that name.
//
// An Avro record is what an IoT Hub's route, or the Capture of an event hub, writes to storage: EnqueuedTimeUtc, Properties,
// SystemProperties and Body. A line of JSON is the same, or an object with timestamp, device, and either the message in body, or
// its fields.
type Recording struct {
	Skipped // so far
	name    string
	file    *os.File
	size    int64
	rows    func() (row, error)
	done    func() error // what rows no longer needs; nil: nothing
	line    int          // of the last row
	number  int64        // of the last event: no numbers are missing, as they would be if events were
	last    time.Time
	devices map[string]string
	events  []telemetry.Event
	bodies  []byte
}

// Skipped counts lines that are no readings, or not where they should be.
type Skipped struct {
	Empty     int `json:"emptyLines"`     // without a value, or without anything
	Malformed int `json:"malformedLines"` // others that are not readable
	Unordered int `json:"unorderedLines"` // earlier than the one before: taken at its time, as a hub would
}

// A row is what a line holds.
type row struct {
	at                               time.Time
	device                           string // empty: the file's
	body                             []byte
	properties                       map[string]string
	source, contentType, contentCode string
}

var (
	errEmpty     = errors.New("it has no value")
	errMalformed = errors.New("it is not readable")
)

// Open opens a recording. field is the one that a column called value is about, empty if there are several.
func Open(name, field string) (*Recording, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open a recording: %w", err)
	}
	r := &Recording{name: name, file: f, devices: map[string]string{}}
	if info, err := f.Stat(); err == nil {
		r.size = info.Size()
	}
	if err := r.begin(field); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("read the recording %s: %w", name, err)
	}
	return r, nil
}

func (r *Recording) Close() error {
	if r.done != nil {
		_ = r.done()
	}
	return r.file.Close()
}

// Progress returns the share of the recording that has been read.
func (r *Recording) Progress() float64 {
	at, _ := r.file.Seek(0, io.SeekCurrent)
	return float64(at) / float64(max(r.size, 1))
}

// begin finds out the format.
func (r *Recording) begin(field string) error {
	text := bufio.NewReaderSize(r.file, 64<<10)
	head, err := text.Peek(4)
	if err != nil && err != io.EOF {
		return err
	}
	if bytes.HasPrefix(head, []byte("\xef\xbb\xbf")) {
		_, _ = text.Discard(3)
		head, _ = text.Peek(4)
	}
	switch {
	case len(head) == 0:
		return errors.New("it is empty")
	case string(head) == "Obj\x01":
		return r.beginAvro(text)
	case head[0] == 0x1f && len(head) > 1 && head[1] == 0x8b:
		return errors.New("it is compressed: unpack it first")
	case head[0] == '{':
		return r.beginJSON(text)
	}
	return r.beginCSV(text, field)
}

func (r *Recording) beginCSV(text io.Reader, field string) error {
	rows := csv.NewReader(text)
	rows.ReuseRecord, rows.TrimLeadingSpace, rows.FieldsPerRecord, rows.LazyQuotes = true, true, -1, true
	header, err := rows.Read()
	if err != nil {
		return errors.New("it is neither CSV nor a JSON object per line")
	}
	timestamp, device := -1, -1
	var names []string // of what is a field, as JSON; empty for others
	for i, column := range header {
		name := ""
		switch column = strings.TrimSpace(column); strings.ToLower(column) {
		case "timestamp":
			timestamp = i
		case "device":
			device = i
		case "value":
			if field == "" {
				return errors.New("its column value could be any of several fields that the rules read: give the column the name of one")
			}
			column = field
			fallthrough
		default:
			quoted, _ := json.Marshal(column)
			name = string(quoted)
		}
		names = append(names, name)
	}
	fields := len(names) - min(timestamp+1, 1) - min(device+1, 1)
	if timestamp < 0 || fields == 0 {
		return fmt.Errorf("its first line must name the columns, for example timestamp,device,temperature: it is %.80q", strings.Join(header, ","))
	}
	r.rows = func() (row, error) {
		cells, err := rows.Read()
		var wrong *csv.ParseError
		switch {
		case errors.As(err, &wrong):
			r.line = wrong.Line
			return row{}, errMalformed
		case err != nil:
			return row{}, err
		}
		r.line, _ = rows.FieldPos(0)
		if len(cells) != len(names) {
			return row{}, errMalformed
		}
		var made row
		if device >= 0 {
			if made.device = cells[device]; made.device == "" {
				return made, errMalformed
			}
		}
		start := len(r.bodies)
		for i, cell := range cells {
			if names[i] != "" {
				r.appendField(names[i], strings.TrimSpace(cell), len(r.bodies) == start)
			}
		}
		if len(r.bodies) == start {
			return made, errEmpty
		}
		r.bodies = append(r.bodies, '}')
		made.body = r.bodies[start:len(r.bodies):len(r.bodies)]
		made.at, err = parseTime(cells[timestamp])
		return made, err
	}
	return nil
}

// appendField appends a cell to a body.
func (r *Recording) appendField(name, cell string, first bool) {
	if cell == "" {
		return
	}
	separator := byte(',')
	if first {
		separator = '{'
	}
	r.bodies = append(append(append(r.bodies, separator), name...), ':')
	if number, err := strconv.ParseFloat(cell, 64); err == nil && !math.IsNaN(number) && !math.IsInf(number, 0) {
		r.bodies = strconv.AppendFloat(r.bodies, number, 'g', -1, 64)
	} else if quoted, err := json.Marshal(cell); err == nil {
		r.bodies = append(r.bodies, quoted...)
	}
}

// parseTime reads a time in UTC, or with its zone; or Unix seconds or milliseconds.
func parseTime(text string) (time.Time, error) {
	text = strings.TrimSpace(text)
	for _, layout := range [...]string{time.DateTime, time.RFC3339, "2006-01-02T15:04:05", "1/2/2006 3:04:05 PM"} { // the last is Capture's
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil && n > 0 && n < 1e14 {
		if n < 1e11 {
			n *= 1000
		}
		return time.UnixMilli(int64(n)).UTC(), nil
	}
	return time.Time{}, errMalformed
}

// A jsonLine is one of either kind. Names are compared without regard to case.
type jsonLine struct {
	EnqueuedTimeUtc  json.RawMessage
	Timestamp        json.RawMessage
	Device           string
	Properties       map[string]any
	SystemProperties map[string]any
	Body             json.RawMessage
}

func (r *Recording) beginJSON(text io.Reader) error {
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, maxLine)
	r.rows = func() (row, error) {
		if !lines.Scan() {
			if lines.Err() != nil {
				return row{}, fmt.Errorf("line %d: %w", r.line+1, lines.Err())
			}
			return row{}, io.EOF
		}
		r.line++
		whole := bytes.TrimSpace(lines.Bytes())
		if len(whole) == 0 {
			return row{}, errEmpty
		}
		var line jsonLine
		if json.Unmarshal(whole, &line) != nil {
			return row{}, errMalformed
		}
		return r.fromJSON(whole, line)
	}
	return nil
}

func (r *Recording) fromJSON(whole []byte, line jsonLine) (row, error) {
	body := []byte(line.Body)
	if body == nil && line.EnqueuedTimeUtc == nil {
		body = whole
	}
	var packed string // what is not marked as JSON in UTF-8 is routed in base64
	if json.Unmarshal(body, &packed) == nil {
		if unpacked, err := base64.StdEncoding.DecodeString(packed); err == nil {
			body = unpacked
		}
	}
	at := line.EnqueuedTimeUtc
	if at == nil {
		at = line.Timestamp
	}
	return r.message(strings.Trim(string(at), `"`), line.Device, line.Properties, line.SystemProperties, body)
}

// message returns the row of a message. device may be empty.
func (r *Recording) message(at, device string, properties, systemProperties map[string]any, body []byte) (made row, err error) {
	system := func(name string) string {
		text, _ := systemProperties[name].(string)
		return text
	}
	made = row{contentType: system("contentType"), contentCode: system("contentEncoding"), source: system("iothub-message-source")}
	made.device = cmp.Or(system("connectionDeviceId"), system("iothub-connection-device-id"), device)
	for name, value := range properties {
		if made.properties == nil {
			made.properties = map[string]string{}
		}
		made.properties[name] = fmt.Sprint(value)
	}
	if len(body) == 0 {
		return made, errEmpty
	}
	start := len(r.bodies)
	r.bodies = append(r.bodies, body...)
	made.body = r.bodies[start:len(r.bodies):len(r.bodies)]
	made.at, err = parseTime(at)
	return made, err
}

func (r *Recording) beginAvro(file io.Reader) error {
	records, err := ocf.NewReader(file) // which bounds what a block takes to 64 MiB
	if err != nil {
		return fmt.Errorf("it begins like Avro, but is not: %w", err)
	}
	r.done = records.Close
	var names []string
	for _, f := range records.Schema().Root().Fields {
		names = append(names, f.Name)
	}
	if !slices.Contains(names, "EnqueuedTimeUtc") || !slices.Contains(names, "Body") {
		_ = r.done()
		return fmt.Errorf("it is Avro, but not what a route to storage or Capture writes: its records lack EnqueuedTimeUtc or Body, and have %q", names)
	}
	r.rows = func() (row, error) {
		r.line++
		var record map[string]any
		if err := records.Decode(&record); err == io.EOF {
			return row{}, err
		} else if err != nil {
			return row{}, fmt.Errorf("record %d: it is cut off or damaged: %w", r.line, err)
		}
		at, _ := record["EnqueuedTimeUtc"].(string)
		properties, _ := record["Properties"].(map[string]any)
		systemProperties, _ := record["SystemProperties"].(map[string]any)
		body, _ := record["Body"].([]byte)
		return r.message(at, "", properties, systemProperties, body)
	}
	return nil
}

// Next implements Source. All events are of one partition.
func (r *Recording) Next(ctx context.Context) (string, []telemetry.Event, error) {
	if ctx.Err() != nil {
		return "", nil, ctx.Err()
	}
	events, err := r.next()
	return "0", events, err
}

func (r *Recording) next() ([]telemetry.Event, error) {
	r.events, r.bodies = r.events[:0], r.bodies[:0]
	for len(r.events) < batch {
		line, err := r.rows()
		switch {
		case err == io.EOF && len(r.events) > 0:
			return r.events, nil
		case err == io.EOF && r.last.IsZero():
			return nil, r.none()
		case errors.Is(err, errEmpty):
			r.Empty++
			continue
		case errors.Is(err, errMalformed):
			if r.Malformed++; r.last.IsZero() && r.Malformed >= proof {
				return nil, r.none()
			}
			continue
		case err == io.EOF:
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("read the recording %s: %w", r.name, err)
		}
		if line.at.Before(r.last) {
			r.Unordered++
			line.at = r.last
		}
		r.last = line.at
		r.number++
		r.events = append(r.events, telemetry.Event{
			Position: telemetry.Position{Sequence: r.number, Offset: "0", Time: line.at}, Device: r.device(line.device), Body: line.body, Enqueued: line.at,
			MessageSource: line.source, ContentType: line.contentType, ContentEncoding: line.contentCode, Properties: telemetry.EncodeProperties(line.properties),
		})
	}
	return r.events, nil
}

// none is why there is nothing to read.
func (r *Recording) none() error {
	return fmt.Errorf("read the recording %s: no reading in %d lines; a line needs a timestamp such as 2026-03-01T14:00:00Z, and a value: see docs/questions.md", r.name, r.Empty+r.Malformed)
}

// device returns a name that outlives its line.
func (r *Recording) device(name string) string {
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(r.name), filepath.Ext(r.name))
	}
	kept, ok := r.devices[name]
	if !ok {
		kept = strings.ToValidUTF8(strings.Clone(name), string(utf8.RuneError))
		r.devices[kept] = kept
	}
	return kept
}

// String says what was skipped, empty if nothing was.
func (s Skipped) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{s.Empty, "empty"}, {s.Malformed, "not readable"}, {s.Unordered, "out of order, taken at the time of the line before"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}
