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

// A Recording is a file of readings: CSV, a JSON object per line, or an Avro object container. It is not safe for
// concurrent use.
//
// The columns of a CSV file are named by its first line. timestamp is required; device names the device, which else
// is called like the file. value is a reading of the field that the rules read. Any other column is a field of that
// name.
//
// An Avro record is what an IoT Hub's route, or the Capture of an event hub, writes to storage: EnqueuedTimeUtc,
// Properties, SystemProperties and Body. A line of JSON is the same, or an object with timestamp, device, and either
// the message in body, or its fields.
type Recording struct {
	Skipped // so far
	name    string
	file    *os.File
	size    int64
	row     func() (telemetry.Event, error) // reads the next one; errEmpty and errMalformed concern it alone
	number  int64                           // of the last event: no numbers are missing, as they would be if events were
	last    time.Time
	events  []telemetry.Event
}

// Skipped counts lines that are no readings, or not where they should be.
type Skipped struct {
	Empty     int `json:"emptyLines"`     // without a value, or without anything
	Malformed int `json:"malformedLines"` // others that are not readable
	Unordered int `json:"unorderedLines"` // earlier than the one before: taken at its time, as a hub would
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

	r := &Recording{name: name, file: f}
	if info, err := f.Stat(); err == nil {
		r.size = info.Size()
	}

	if err := r.begin(field); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("read the recording %s: %w", name, err)
	}

	return r, nil
}

// Close closes the file.
func (r *Recording) Close() error { return r.file.Close() }

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
	case bytes.HasPrefix(head, []byte("Obj\x01")):
		return r.beginAvro(text)
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		return errors.New("it is compressed: unpack it first")
	case head[0] == '{':
		return r.beginJSON(text)
	}

	return r.beginCSV(text, field)
}

// beginCSV reads the first line, which names the columns.
func (r *Recording) beginCSV(text io.Reader, field string) error {
	rows := csv.NewReader(text)
	rows.ReuseRecord = true
	rows.TrimLeadingSpace = true
	rows.FieldsPerRecord = -1
	rows.LazyQuotes = true
	header, err := rows.Read()
	if err != nil {
		return errors.New("it is neither CSV nor a JSON object per line")
	}

	table, err := readHeader(header, field)
	if err != nil {
		return err
	}

	r.row = func() (telemetry.Event, error) {
		cells, err := rows.Read()
		if errors.As(err, new(*csv.ParseError)) {
			return telemetry.Event{}, errMalformed
		}
		if err != nil {
			return telemetry.Event{}, err
		}

		return table.event(r, cells)
	}

	return nil
}

// columns are those of a CSV file.
type columns struct {
	timestamp int
	device    int      // -1 if there is none
	fields    []string // as JSON; empty for other columns
}

// readHeader reads the first line of a CSV file. field is what a column called value is about.
func readHeader(header []string, field string) (columns, error) {
	c := columns{timestamp: -1, device: -1, fields: make([]string, len(header))}
	for i, column := range header {
		column = strings.TrimSpace(column)
		switch strings.ToLower(column) {
		case "timestamp":
			c.timestamp = i
			continue

		case "device":
			c.device = i
			continue

		case "value":
			if field == "" {
				return c, errors.New(
					"its column value could be any of several fields that the rules read: give the column the name of one",
				)
			}
			column = field
		}

		quoted, _ := json.Marshal(column) // a string: cannot fail
		c.fields[i] = string(quoted)
	}

	if c.timestamp < 0 || strings.Join(c.fields, "") == "" {
		return c, fmt.Errorf(
			"its first line must name the columns, for example timestamp,device,temperature: it is %.80q",
			strings.Join(header, ","),
		)
	}

	return c, nil
}

// event returns the event in a line of r.
func (c columns) event(r *Recording, cells []string) (telemetry.Event, error) {
	if len(cells) != len(c.fields) {
		return telemetry.Event{}, errMalformed
	}

	device := ""
	if c.device >= 0 {
		device = cells[c.device]
		if device == "" {
			return telemetry.Event{}, errMalformed
		}
	}

	body := append(make([]byte, 0, 64), '{')
	for i, cell := range cells {
		cell = strings.TrimSpace(cell)
		if cell == "" || c.fields[i] == "" {
			continue
		}

		body = append(append(body, c.fields[i]...), ':')
		body = append(appendValue(body, cell), ',')
	}

	if len(body) == 1 {
		return telemetry.Event{}, errEmpty
	}

	body[len(body)-1] = '}'

	return r.event(cells[c.timestamp], device, body)
}

// appendValue appends a cell as JSON.
func appendValue(body []byte, cell string) []byte {
	number, err := strconv.ParseFloat(cell, 64)
	isFinite := !math.IsNaN(number) && !math.IsInf(number, 0)
	if err == nil && isFinite {
		return strconv.AppendFloat(body, number, 'g', -1, 64)
	}

	quoted, _ := json.Marshal(cell) // a string: cannot fail

	return append(body, quoted...)
}

// event returns an event at a time. device is the file's name if it is empty.
func (r *Recording) event(at, device string, body []byte) (telemetry.Event, error) {
	if device == "" {
		device = strings.TrimSuffix(filepath.Base(r.name), filepath.Ext(r.name))
	}

	enqueued, err := parseTime(at)
	// A clone, so that it does not keep its line.
	return telemetry.Event{
		Device:   strings.ToValidUTF8(strings.Clone(device), string(utf8.RuneError)),
		Body:     body,
		Enqueued: enqueued,
	}, err
}

// layouts are those of times; the last is Capture's.
var layouts = []string{time.DateTime, time.RFC3339, "2006-01-02T15:04:05", "1/2/2006 3:04:05 PM"}

// parseTime reads a time in UTC, or with its zone; or Unix seconds or milliseconds.
func parseTime(text string) (time.Time, error) {
	text = strings.TrimSpace(text)
	for _, layout := range layouts {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}

	n, err := strconv.ParseFloat(text, 64)
	isTime := n > 0 && n < 1e14
	if err != nil || !isTime {
		return time.Time{}, errMalformed
	}

	if n < 1e11 {
		n *= 1000
	}

	return time.UnixMilli(int64(n)).UTC(), nil
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

// beginJSON reads a JSON object from every line.
func (r *Recording) beginJSON(text io.Reader) error {
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, maxLine)
	number := 0
	r.row = func() (telemetry.Event, error) {
		number++
		if lines.Scan() {
			return r.fromJSON(bytes.TrimSpace(lines.Bytes()))
		}

		if lines.Err() != nil {
			return telemetry.Event{}, fmt.Errorf("line %d: %w", number, lines.Err())
		}

		return telemetry.Event{}, io.EOF
	}

	return nil
}

// fromJSON returns the event in a line, which it does not keep.
func (r *Recording) fromJSON(whole []byte) (telemetry.Event, error) {
	if len(whole) == 0 {
		return telemetry.Event{}, errEmpty
	}

	var line jsonLine
	if json.Unmarshal(whole, &line) != nil {
		return telemetry.Event{}, errMalformed
	}

	at, body := line.EnqueuedTimeUtc, []byte(line.Body)
	if at == nil {
		at = line.Timestamp
		if body == nil {
			body = bytes.Clone(whole)
		}
	}

	return r.message(strings.Trim(string(at), `"`), line.Device, line.Properties, line.SystemProperties, unpacked(body))
}

// unpacked returns the message in body: what is not marked as JSON in UTF-8 is routed in base64.
func unpacked(body []byte) []byte {
	var packed string
	if json.Unmarshal(body, &packed) != nil {
		return body
	}

	message, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return body
	}

	return message
}

// message returns the event of a message. device counts if the hub's properties name none.
func (r *Recording) message(
	at, device string,
	properties, system map[string]any,
	body []byte,
) (telemetry.Event, error) {
	if len(body) == 0 {
		return telemetry.Event{}, errEmpty
	}

	text := func(name string) string {
		value, _ := system[name].(string)
		return value
	}
	e, err := r.event(at, cmp.Or(text("connectionDeviceId"), text("iothub-connection-device-id"), device), body)
	e.ContentType = text("contentType")
	e.ContentEncoding = text("contentEncoding")
	e.MessageSource = text("iothub-message-source")
	own := map[string]telemetry.Property{}
	for name, value := range properties {
		own[name] = telemetry.Text(fmt.Sprint(value))
	}

	e.Properties = telemetry.EncodeProperties(own)

	return e, err
}

// beginAvro reads the schema, and then a record at a time.
func (r *Recording) beginAvro(file io.Reader) error {
	records, err := ocf.NewReader(file) // which bounds what a block takes to 64 MiB
	if err != nil {
		return fmt.Errorf("it begins like Avro, but is not: %w", err)
	}

	var names []string
	for _, f := range records.Schema().Root().Fields {
		names = append(names, f.Name)
	}

	if !slices.Contains(names, "EnqueuedTimeUtc") || !slices.Contains(names, "Body") {
		return fmt.Errorf(
			"it is Avro, but not what a route to storage or Capture writes: its records lack EnqueuedTimeUtc or Body, and "+
				"have %q",
			names,
		)
	}

	number := 0
	r.row = func() (telemetry.Event, error) {
		number++
		var record map[string]any
		err := records.Decode(&record)
		if err == io.EOF {
			return telemetry.Event{}, err
		}
		if err != nil {
			return telemetry.Event{}, fmt.Errorf("record %d: it is cut off or damaged: %w", number, err)
		}

		at, _ := record["EnqueuedTimeUtc"].(string)
		properties, _ := record["Properties"].(map[string]any)
		systemProperties, _ := record["SystemProperties"].(map[string]any)
		body, _ := record["Body"].([]byte)

		return r.message(at, "", properties, systemProperties, bytes.Clone(body))
	}

	return nil
}

// Next implements Source. All events are of one partition.
func (r *Recording) Next(ctx context.Context) (string, []telemetry.Event, error) {
	if ctx.Err() != nil {
		return "", nil, ctx.Err()
	}

	r.events = r.events[:0]
	for len(r.events) < batch {
		e, err := r.row()
		switch {
		case err == nil:
			r.add(e)
		case errors.Is(err, errEmpty):
			r.Empty++
		case errors.Is(err, errMalformed):
			r.Malformed++
		case err == io.EOF:
			return r.end()
		default:
			return "", nil, fmt.Errorf("read the recording %s: %w", r.name, err)
		}

		if r.last.IsZero() && r.Malformed >= proof {
			return "", nil, r.none()
		}
	}

	return "0", r.events, nil
}

// add adds an event to those that Next returns, as a hub would take it.
func (r *Recording) add(e telemetry.Event) {
	if e.Enqueued.Before(r.last) {
		r.Unordered++
		e.Enqueued = r.last
	}

	r.last = e.Enqueued
	r.number++
	e.Position = telemetry.Position{Sequence: r.number, Offset: "0", Time: e.Enqueued}
	r.events = append(r.events, e)
}

// end is what Next returns at the end of the file.
func (r *Recording) end() (string, []telemetry.Event, error) {
	switch {
	case len(r.events) > 0:
		return "0", r.events, nil
	case r.last.IsZero():
		return "", nil, r.none()
	}

	return "", nil, io.EOF
}

// none is why there is nothing to read.
func (r *Recording) none() error {
	return fmt.Errorf(
		"read the recording %s: no reading in %d lines; a line needs a timestamp such as 2026-03-01T14:00:00Z, and a "+
			"value: see docs/questions.md",
		r.name,
		r.Empty+r.Malformed,
	)
}

// String counts the lines for people.
func (s Skipped) String() string {
	return fmt.Sprintf(
		"%d empty, %d not readable, %d out of order, taken at the time of the line before",
		s.Empty,
		s.Malformed,
		s.Unordered,
	)
}
