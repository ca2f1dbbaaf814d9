package backtesting

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/twmb/avro/ocf"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

const (
	maxLine = 1 << 20 // of a recording; an IoT Hub takes messages of 256 KiB
	batch   = 512     // events that Next returns at most
	proof   = 100     // lines of which one must be a reading
)

// A Recording is a file of readings, in UTF-8 or UTF-16: CSV, JSON objects, or an Avro object container. What it is
// shows in how it begins. It is not safe for concurrent use.
//
// The columns of a CSV file are named by its first line, and are separated by commas, semicolons or tabs. One of them is
// the time; one may name the device, which else is called like the file. value is a reading of the field that the rules
// read. Any other column is a field of that name, and a property.
//
// A JSON object or Avro record is a message, or has one: what an IoT Hub's route or the Capture of an event hub writes to
// storage, what az iot hub monitor-events prints, a row of Stream Analytics, and so on; names.go has the names.
type Recording struct {
	Skipped // so far
	name    string
	file    *os.File
	size    int64
	given   Names
	names   [parts][]string                 // folded
	mustBe  bool                            // the device must be named
	row     func() (telemetry.Event, error) // reads the next one; errEmpty and errMalformed concern it alone
	lack    string                          // why the first malformed one is, for none
	number  int64                           // of the last event: no numbers are missing, as they would be if events were
	last    time.Time
	before  time.Time // that the last event has in the file
	later   int       // events that are later than the one before; the first is, too
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

// Open opens a recording. field is the one that a column called value is about, empty if there are several. Names that
// are not empty are the only ones of the time and the device that count.
func Open(name, field string, names Names) (*Recording, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open a recording: %w", err)
	}

	r := &Recording{name: name, file: f, given: names, names: partNames, mustBe: names.Device != ""}
	if names.Time != "" {
		r.names[timeOf] = folded(names.Time)
	}
	if names.Device != "" {
		r.names[deviceOf] = folded(names.Device)
	}

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
	// Excel writes a byte order mark, and PowerShell UTF-16.
	text := bufio.NewReaderSize(transform.NewReader(r.file, unicode.BOMOverride(encoding.Nop.NewDecoder())), 64<<10)
	head, err := text.Peek(text.Size())
	if err != nil && err != io.EOF {
		return err
	}

	firstLine, _, _ := bytes.Cut(head, []byte{'\n'})

	switch {
	case len(head) == 0:
		return errors.New("it is empty")
	case bytes.HasPrefix(head, []byte("Obj\x01")):
		return r.beginAvro(text)
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		return errors.New("it is compressed: unpack it first")
	case isObject.Match(head) || bytes.Contains(firstLine, []byte(`{"`)): // behind the words of a log
		o := objects{text: text, line: 1}
		r.row = func() (telemetry.Event, error) {
			text, err := o.next()
			if err != nil {
				return telemetry.Event{}, err
			}

			return r.fromObject(text)
		}

		return nil
	}

	return r.beginCSV(text, string(firstLine), field)
}

// isObject matches a text in which a line begins with a JSON object, or with an array of them.
var isObject = regexp.MustCompile(`(?m)^\s*\[?\s*{`)

// beginCSV reads the first line, which names the columns.
func (r *Recording) beginCSV(text *bufio.Reader, firstLine, field string) error {
	separator := ','
	for _, other := range ";\t" {
		if strings.Count(firstLine, string(other)) > strings.Count(firstLine, string(separator)) {
			separator = other
		}
	}

	rows := csv.NewReader(text)
	rows.Comma = separator
	rows.ReuseRecord = true
	rows.TrimLeadingSpace = separator != '\t'
	rows.FieldsPerRecord = -1
	rows.LazyQuotes = true
	header, err := rows.Read()
	if err == nil && strings.HasPrefix(header[0], "sep=") { // what separates the columns, for Excel
		header, err = rows.Read()
	}
	if err != nil {
		return errors.New("it is neither CSV nor are there JSON objects in it")
	}

	rows.FieldsPerRecord = len(header)
	t := table{header: slices.Clone(header), names: folded(slices.Clone(header)...), hasCommas: separator == ';'}
	t.time, t.device = t.column(r.names[timeOf]), t.column(r.names[deviceOf])
	r.mustBe = r.mustBe || t.device >= 0
	if t.time < 0 {
		return errors.New("its first line must name the columns: " + r.lacksTime(object{names: t.header}))
	}

	for _, name := range header {
		name = strings.TrimSpace(name)
		if strings.EqualFold(name, "value") {
			name = field
		}
		t.fields = append(t.fields, name)
	}
	if field == "" && slices.Contains(t.names, "value") {
		return errors.New("its column value could be any of several fields that the rules read: give the column the name of one")
	}

	r.row = func() (telemetry.Event, error) {
		cells, err := rows.Read()
		if wrong := new(csv.ParseError); errors.As(err, &wrong) {
			return telemetry.Event{}, r.malformed(wrong.Err.Error())
		}
		if err != nil {
			return telemetry.Event{}, err
		}

		return r.fromLine(&t, cells)
	}

	return nil
}

// A table is a CSV file, whose first line names the columns.
type table struct {
	header       []string
	names        []string // folded
	fields       []string // of a message
	time, device int      // columns; -1: none
	hasCommas    bool     // in numbers, as in 91,5
}

// column returns the index of the column that has the first of the names that one has, -1 if none has any.
func (t *table) column(names []string) int {
	for _, name := range names {
		if i := slices.Index(t.names, name); i >= 0 {
			return i
		}
	}
	return -1
}

// fromLine returns the event in a line of CSV.
func (r *Recording) fromLine(t *table, cells []string) (telemetry.Event, error) {
	line := object{names: t.header, at: map[string][]byte{}}
	own := map[string]telemetry.Property{}
	body := append(make([]byte, 0, 64), '{')
	for i, cell := range cells {
		cell = strings.TrimSpace(cell)
		line.at[t.names[i]] = quote(cell)
		if cell == "" || i == t.time || i == t.device {
			continue
		}

		if t.hasCommas {
			cell = withPoint(cell)
		}

		value := quote(cell)
		if number, ok := telemetry.ParseNumber([]byte(cell)); ok {
			value = strconv.AppendFloat(nil, number, 'g', -1, 64)
		}

		body = append(append(body, quote(t.fields[i])...), ':')
		body = append(append(body, value...), ',')
		own[t.fields[i]] = telemetry.Text(cell)
	}

	body[len(body)-1] = '}'
	if len(own) == 0 {
		body = nil
	}

	return r.event(line, body, own)
}

// quote returns a text as JSON.
func quote(text string) []byte {
	quoted, _ := json.Marshal(text) // a string: cannot fail
	return quoted
}

// withPoint returns a number with a decimal comma, such as 1.234,5, with a decimal point, and any other cell as it is.
func withPoint(cell string) string {
	whole, fraction, ok := strings.Cut(cell, ",")
	if !ok {
		return cell
	}

	number := strings.ReplaceAll(whole, ".", "") + "." + fraction
	if _, ok := telemetry.ParseNumber([]byte(number)); !ok {
		return cell
	}

	return number
}

// event returns the message in o, with a body and properties of its own. The device is called like the file if nothing names
// it.
func (r *Recording) event(o object, body []byte, own map[string]telemetry.Property) (telemetry.Event, error) {
	at, device := o.text(r.names[timeOf]), o.text(r.names[deviceOf])
	enqueued, isTime := parseTime(at)
	switch {
	case at == "":
		return telemetry.Event{}, r.malformed(r.lacksTime(o))
	case device == "" && r.mustBe:
		return telemetry.Event{}, r.malformed(o.lacks(cmp.Or(r.given.Device, "device")))
	case !isTime:
		return telemetry.Event{}, r.malformed(fmt.Sprintf("its time is %.40q, which is not a time, or could be several", at))
	case len(body) == 0:
		return telemetry.Event{}, errEmpty
	case device == "":
		device = strings.TrimSuffix(filepath.Base(r.name), filepath.Ext(r.name))
	}

	// A clone, so that it does not keep its line.
	return telemetry.Event{
		Device:        sensor.Device(strings.ToValidUTF8(strings.Clone(device), string(utf8.RuneError))),
		Module:        o.text(r.names[moduleOf]),
		Component:     o.text(r.names[componentOf]),
		MessageSource: o.text(r.names[sourceOf]),
		Properties:    telemetry.EncodeProperties(own),
		Body:          body,
		Enqueued:      enqueued,
	}, nil
}

func (r *Recording) lacksTime(o object) string {
	const usual = "time (timestamp, EnqueuedTimeUtc, EventEnqueuedUtcTime, enqueuedTime, …): name the time with --time"
	return o.lacks(cmp.Or(r.given.Time, usual))
}

// lacks says that o does not have something, and what it has: at most 20 names and 400 bytes of them.
func (o object) lacks(what string) string {
	has := strings.ToValidUTF8(strings.Join(o.names[:min(len(o.names), 20)], ", "), "?")
	if len(has) > 400 {
		has = strings.ToValidUTF8(has[:400], "") + "…"
	}

	text := fmt.Sprintf("it has no %s; it has %s", what, has)
	if o.at[payload] != nil {
		text += ": record with az iot hub monitor-events --properties all"
	}
	return text
}

// malformed returns errMalformed. The first reason is kept for none.
func (r *Recording) malformed(why string) error {
	r.lack = cmp.Or(r.lack, why)
	return errMalformed
}

// layouts are those of times that telemetry.ParseTime does not know. A date with slashes counts only with AM or PM:
// 3/12/2026 17:00 is in March or in December.
var layouts = []string{
	"1/2/2006 3:04:05 PM", // Capture; Log Analytics, with a comma
	"1/2/2006 3:04 PM",
	"2.1.2006 15:04:05", // Excel in German
	"2.1.2006 15:04",
	"2006-01-02 15:04",
	"2006-01-02T15:04",
	"2006-01-02T15:04Z07:00",
}

// commonly writes a time as the layouts do: browsers put a narrow space in front of PM.
var commonly = strings.NewReplacer(", ", " ", "\u202f", " ", "\u00a0", " ")

// parseTime reads a time in UTC, or with its zone; or Unix seconds, milliseconds and so on.
func parseTime(text string) (at time.Time, ok bool) {
	text = strings.TrimSuffix(strings.TrimSpace(text), " UTC")
	if at, ok = telemetry.ParseTime([]byte(text)); ok {
		return at.UTC(), at.Unix() > 0
	}

	text = commonly.Replace(text)
	for _, layout := range layouts {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), true
		}
	}

	return time.Time{}, false
}

// fromObject returns the event in a JSON object that is valid. It does not keep text.
func (r *Recording) fromObject(text []byte) (telemetry.Event, error) {
	o, own := parse(text), map[string]telemetry.Property{}
	body, isWhole := o.body()
	if isWhole {
		body = bytes.Clone(text)
		o.addTo(own)
	}

	for _, name := range propertyNames {
		if properties := o.at[name]; jsontext.Value(properties).Kind() == '{' {
			parse(properties).addTo(own)
		}
	}

	return r.event(o, body, own)
}

// beginAvro reads the schema, and then a record at a time, as the JSON object that it would be.
func (r *Recording) beginAvro(file io.Reader) error {
	records, err := ocf.NewReader(file) // which bounds what a block takes to 64 MiB
	if err != nil {
		return fmt.Errorf("it begins like Avro, but is not: %w", err)
	}

	number := 0
	r.row = func() (telemetry.Event, error) {
		number++
		var record any
		err := records.Decode(&record)
		if err == io.EOF {
			return telemetry.Event{}, err
		}
		if err != nil {
			return telemetry.Event{}, fmt.Errorf("record %d: it is cut off or damaged: %w", number, err)
		}

		text, err := json.Marshal(record)
		if err != nil { // NaN, which JSON has not
			return telemetry.Event{}, r.malformed("it cannot be JSON: " + err.Error())
		}

		return r.fromObject(text)
	}

	return nil
}

// Next implements Source. All events are of one partition.
func (r *Recording) Next(ctx context.Context) (string, []telemetry.Event, error) {
	if ctx.Err() != nil {
		return "", nil, ctx.Err()
	}

	r.events = r.events[:0]
	var end error
	for len(r.events) < batch && end == nil {
		e, err := r.row()
		switch {
		case err == nil:
			r.add(e)
		case errors.Is(err, errEmpty):
			r.Empty++
		case errors.Is(err, errMalformed):
			r.Malformed++
		default:
			end = err
		}

		if r.last.IsZero() && r.Malformed >= proof {
			end = io.EOF
		}
	}

	switch {
	case end != nil && end != io.EOF:
		return "", nil, fmt.Errorf("read the recording %s: %w", r.name, end)
	case r.last.IsZero():
		return "", nil, r.none()
	case r.Unordered > 1 && r.later == 1: // as Log Analytics shows them: all would be taken at the time of the newest
		return "", nil, fmt.Errorf("read the recording %s: its newest readings come first: sort it by time", r.name)
	case len(r.events) == 0:
		return "", nil, io.EOF
	}

	return "0", r.events, nil
}

// add adds an event to those that Next returns, as a hub would take it.
func (r *Recording) add(e telemetry.Event) {
	if e.Enqueued.After(r.before) {
		r.later++
	}

	r.before = e.Enqueued
	if e.Enqueued.Before(r.last) {
		r.Unordered++
		e.Enqueued = r.last
	}

	r.last = e.Enqueued
	r.number++
	e.Position = telemetry.Position{Sequence: r.number, Offset: "0", Time: e.Enqueued}
	r.events = append(r.events, e)
}

// none is why there is nothing to read.
func (r *Recording) none() error {
	reason := "a line needs a timestamp such as 2026-03-01T14:00:00Z, and a value"
	if r.lack != "" {
		reason = "of the first, " + r.lack
	}
	return fmt.Errorf(
		"read the recording %s: no reading in %d lines; %s: see docs/questions.md",
		r.name,
		r.Empty+r.Malformed,
		reason,
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
