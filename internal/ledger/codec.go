package ledger

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"alertworker/internal/records"
	"alertworker/internal/telemetry"
)

// An UnreadableError is a record that is there and is not a ledger that this version
// understands.
type UnreadableError struct {
	Name string // of the record, as in the store
	Err  error
}

func (e *UnreadableError) Error() string {
	if errors.As(e.Err, new(*formatError)) {
		return fmt.Sprintf("read ledger %s: %v: run the version that wrote it; until then its partition is not read", e.Name, e.Err)
	}
	return fmt.Sprintf("read ledger %s: %v: its partition is not read until you restore it or delete it; "+
		"without it the partition's alarms are forgotten, and no recovery is sent for those that are open", e.Name, e.Err)
}

func (e *UnreadableError) Unwrap() error { return e.Err }

// A formatError says that another version has written a record.
type formatError struct{ format int }

func (e *formatError) Error() string {
	return fmt.Sprintf("it has format %d; this version reads only format %d", e.format, format)
}

// format is the version of a record's content: compressed JSON. It changes with every
// change to what follows, since a field that is not known would be lost at the next write.
const format = 1

type jsonLedger struct {
	Format   int          `json:"format"`
	ID       string       `json:"id"`
	Position jsonPosition `json:"position,omitzero"`
	Levels   []jsonLevel  `json:"levels,omitempty"`
	Alarms   []jsonAlarm  `json:"alarms,omitempty"`
}

type jsonPosition struct {
	Generation text      `json:"generation,omitempty"`
	Sequence   int64     `json:"sequence"`
	Offset     text      `json:"offset,omitempty"`
	Time       time.Time `json:"time,omitzero"`
}

type jsonLevel struct {
	Rule     text          `json:"rule"`
	Name     text          `json:"level,omitempty"`
	Resolved bool          `json:"resolved,omitempty"`
	Below    bool          `json:"below,omitempty"`
	Field    text          `json:"field,omitempty"`
	Window   time.Duration `json:"window,omitempty"` // in ns
	Silent   time.Duration `json:"silent,omitempty"` // in ns
	Is       []text        `json:"is,omitempty"`
	Title    text          `json:"title,omitempty"`
	Unit     text          `json:"unit,omitempty"`
	Runbook  text          `json:"runbook,omitempty"`
	Removed  time.Time     `json:"removed,omitzero"`
}

type jsonAlarm struct {
	Device      text         `json:"device"`
	Rule        text         `json:"rule"`
	Level       text         `json:"level,omitempty"`
	Open        bool         `json:"open,omitempty"`
	Value       number       `json:"value,omitzero"`
	Limit       number       `json:"limit,omitzero"`
	Since       time.Time    `json:"since,omitzero"`
	DeviceSince time.Time    `json:"deviceSince,omitzero"`
	Due         *jsonReading `json:"due,omitempty"`
	Silence     bool         `json:"silence,omitempty"`
	Log         string       `json:"log,omitempty"`
	Sequence    int64        `json:"sequence,omitempty"`
}

type jsonReading struct {
	Log        string    `json:"log,omitempty"`
	Sequence   int64     `json:"sequence"`
	Enqueued   time.Time `json:"enqueued,omitzero"`
	Value      number    `json:"value"`
	Limit      number    `json:"limit"`
	Since      time.Time `json:"since,omitzero"`
	DeviceTime time.Time `json:"deviceTime,omitzero"`
	Part       uint8     `json:"part,omitempty"`
	Opened     time.Time `json:"opened,omitzero"`
	Heard      time.Time `json:"heard,omitzero"`
	Forgotten  bool      `json:"forgotten,omitempty"`
}

// A text is any bytes: a JSON string if that says them exactly, and in little space, or
// else an array with one string, their base64.
type text string

func (t text) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(string(t)) || strings.ContainsFunc(string(t), unicode.IsControl) {
		return json.Marshal([]string{base64.StdEncoding.EncodeToString([]byte(t))})
	}
	return json.Marshal(string(t))
}

func (t *text) UnmarshalJSON(b []byte) error {
	if b[0] != '[' {
		return json.Unmarshal(b, (*string)(t))
	}
	var encoded [][]byte
	if err := json.Unmarshal(b, &encoded); err != nil {
		return err
	}
	if len(encoded) != 1 {
		return fmt.Errorf("an array of %d instead of one", len(encoded))
	}
	*t = text(encoded[0])
	return nil
}

// A number is any float64: a JSON number, or a string for what JSON has no number for. A
// device's own limit comes from its messages, and must not be able to stop its partition.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return json.Marshal(strconv.FormatFloat(f, 'g', -1, 64))
	}
	return json.Marshal(float64(n))
}

func (n *number) UnmarshalJSON(b []byte) error {
	if b[0] != '"' {
		return json.Unmarshal(b, (*float64)(n))
	}
	f, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 64)
	*n = number(f)
	return err
}

// encode returns the content of a record.
func encode(id string, c Content) ([]byte, error) {
	at := c.Position
	out := jsonLedger{Format: format, ID: id, Position: jsonPosition{text(at.Generation), at.Sequence, text(at.Offset), at.Time.UTC()}}
	for _, l := range c.Levels {
		kept := jsonLevel{text(l.Rule), text(l.Name), l.Resolved, l.Below, text(l.Field), l.Window, l.Silent, nil, text(l.Title), text(l.Unit), text(l.Runbook), l.Removed.UTC()}
		for _, word := range l.Is {
			kept.Is = append(kept.Is, text(word))
		}
		out.Levels = append(out.Levels, kept)
	}
	if len(c.Alarms) > 0 {
		out.Alarms = make([]jsonAlarm, len(c.Alarms))
	}
	for i, a := range c.Alarms {
		out.Alarms[i] = jsonAlarm{Device: text(a.Device), Rule: text(a.Rule), Level: text(a.Level), Open: a.Open, Value: number(a.Value), Limit: number(a.Limit), Since: a.Since.UTC(), DeviceSince: a.DeviceSince.UTC(), Silence: a.Silence, Log: a.Log, Sequence: a.Sequence}
		if r := a.Due; r != nil {
			out.Alarms[i].Due = &jsonReading{r.Log, r.Sequence, r.Enqueued.UTC(), number(r.Value), number(r.Limit), r.Since.UTC(), r.DeviceTime.UTC(), r.Part, r.Opened.UTC(), r.Heard.UTC(), r.Forgotten}
		}
	}
	var plain bytes.Buffer
	to := json.NewEncoder(&plain)
	to.SetEscapeHTML(false)
	if err := to.Encode(out); err != nil {
		return nil, err
	}
	if plain.Len() > MaxBytes {
		return nil, fmt.Errorf("%d alarms take %d bytes, and a ledger holds %d", len(c.Alarms), plain.Len(), MaxBytes)
	}
	return records.Compress(plain.Bytes()), nil
}

// decode reads what encode returned.
func decode(packed []byte) (id string, c Content, err error) {
	plain, err := records.Decompress(packed, MaxBytes)
	if err != nil {
		return "", Content{}, err
	}
	var written struct {
		Format *int `json:"format"`
	}
	if err := json.Unmarshal(plain, &written); err != nil || written.Format == nil {
		return "", Content{}, errors.New("it is not JSON with a format")
	}
	if *written.Format != format {
		return "", Content{}, &formatError{*written.Format}
	}
	var in jsonLedger
	from := json.NewDecoder(bytes.NewReader(plain))
	from.DisallowUnknownFields()
	if err := from.Decode(&in); err != nil {
		return "", Content{}, fmt.Errorf("its JSON is not that of a ledger: %w", err)
	}
	if in.ID == "" {
		return "", Content{}, errors.New("it has no id")
	}
	c.Position = telemetry.Position{Generation: string(in.Position.Generation), Sequence: in.Position.Sequence, Offset: string(in.Position.Offset), Time: in.Position.Time.UTC()}
	for _, l := range in.Levels {
		kept := Level{string(l.Rule), string(l.Name), l.Resolved, l.Below, string(l.Field), l.Window, l.Silent, nil, string(l.Title), string(l.Unit), string(l.Runbook), l.Removed.UTC()}
		for _, word := range l.Is {
			kept.Is = append(kept.Is, string(word))
		}
		c.Levels = append(c.Levels, kept)
	}
	if len(in.Alarms) > 0 {
		c.Alarms = make([]Alarm, len(in.Alarms))
	}
	for i, a := range in.Alarms {
		c.Alarms[i] = Alarm{Device: string(a.Device), Rule: string(a.Rule), Level: string(a.Level), Open: a.Open, Value: float64(a.Value), Limit: float64(a.Limit), Since: a.Since.UTC(), DeviceSince: a.DeviceSince.UTC(), Silence: a.Silence, Log: a.Log, Sequence: a.Sequence}
		if r := a.Due; r != nil {
			c.Alarms[i].Due = &Reading{r.Log, r.Sequence, r.Enqueued.UTC(), float64(r.Value), float64(r.Limit), r.Since.UTC(), r.DeviceTime.UTC(), r.Part, r.Opened.UTC(), r.Heard.UTC(), r.Forgotten}
		}
	}
	return in.ID, c, nil
}
