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

	"github.com/go-json-experiment/json/jsontext"

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
		return fmt.Sprintf(
			"read ledger %s: %v: run the version that wrote it; until then its partition is not read",
			e.Name,
			e.Err,
		)
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

type record struct {
	Format   int          `json:"format"`
	ID       string       `json:"id"`
	Position jsonPosition `json:"position,omitzero"`
	Content
}

type jsonPosition struct {
	Generation Text      `json:"generation,omitempty"`
	Sequence   int64     `json:"sequence"`
	Offset     Text      `json:"offset,omitempty"`
	Time       time.Time `json:"time,omitzero"`
}

// A Text is any bytes: a JSON string if that says them exactly, and in no more space, or
// else an array with one string, their base64.
type Text string

func (t Text) MarshalJSON() ([]byte, error) {
	quoted, err := jsontext.AppendQuote(nil, string(t)) // unlike json.Marshal it does not make six bytes of a <
	if err == nil && len(quoted) <= len(`[""]`)+base64.StdEncoding.EncodedLen(len(t)) {
		return quoted, nil
	}
	return json.Marshal([]string{base64.StdEncoding.EncodeToString([]byte(t))})
}

func (t *Text) UnmarshalJSON(b []byte) error {
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

	*t = Text(encoded[0])

	return nil
}

// A Number is any float64: a JSON number, or a string for what JSON has no number for. A
// device's own limit comes from its messages, and must not be able to stop its partition.
type Number float64

func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return json.Marshal(strconv.FormatFloat(f, 'g', -1, 64))
	}
	return json.Marshal(float64(n))
}

func (n *Number) UnmarshalJSON(b []byte) error {
	if b[0] != '"' {
		return json.Unmarshal(b, (*float64)(n))
	}

	f, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 64)
	*n = Number(f)
	return err
}

// encode returns the content of a record.
func encode(id string, c Content) ([]byte, error) {
	at := c.Position
	r := record{
		format,
		id,
		jsonPosition{Text(at.Generation), at.Sequence, Text(at.Offset), at.Time.UTC()},
		c,
	}

	var plain bytes.Buffer
	to := json.NewEncoder(&plain)
	to.SetEscapeHTML(false)
	if err := to.Encode(r); err != nil {
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

	var in record
	from := json.NewDecoder(bytes.NewReader(plain))
	from.DisallowUnknownFields()
	if err := from.Decode(&in); err != nil {
		return "", Content{}, fmt.Errorf("its JSON is not that of a ledger: %w", err)
	}
	if in.ID == "" {
		return "", Content{}, errors.New("it has no id")
	}

	at := in.Position
	in.Content.Position = telemetry.Position{
		Generation: string(at.Generation),
		Sequence:   at.Sequence,
		Offset:     string(at.Offset),
		Time:       at.Time.UTC(),
	}
	return in.ID, in.Content, nil
}
