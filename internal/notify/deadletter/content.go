package deadletter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"alertworker/internal/notify"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
	"alertworker/internal/telemetry"
)

// The most bytes that are kept of a malformed event.
const (
	maxBody       = 16 << 10
	maxProperties = 4 << 10 // names and values together
	maxLabel      = 256     // of any other text
)

const mark = "…" // ends text that was cut

// letter is the content of a blob in alerts/ or replayed/. People and scripts read it: fields may be
// added, never renamed.
type letter struct {
	Kept     time.Time       `json:"kept"` // by the replica's clock
	Receiver string          `json:"receiver"`
	Reason   string          `json:"reason"`
	Alert    json.RawMessage `json:"alert,omitempty"` // as webhooks get it
	Log      string          `json:"log,omitempty"`   // that numbered its reading
	To       string          `json:"to,omitempty"`    // the receiver's recipients who did not get it; empty: none did
	// The alert, if it cannot be encoded.
	Text string `json:"text,omitempty"`

	// Of a letter that was sent again: when, and who took it.
	Replayed   time.Time `json:"replayed,omitzero"`
	ReplayedTo string    `json:"replayedTo,omitempty"`
}

// malformed is the content of a blob in malformed/.
type malformed struct {
	Kept   time.Time `json:"kept"`
	Reason string    `json:"reason"`
	Event
}

// An Event is one that could not be decoded.
type Event struct {
	Device          string            `json:"device"`
	Partition       string            `json:"partition"`
	Sequence        int64             `json:"sequence"`
	Enqueued        time.Time         `json:"enqueuedTime"` // when the hub got it
	MessageSource   string            `json:"messageSource,omitempty"`
	ContentType     string            `json:"contentType,omitempty"`
	ContentEncoding string            `json:"contentEncoding,omitempty"`
	Properties      map[string]string `json:"properties,omitempty"`
	Size            int               `json:"size"`                 // of the whole body, in bytes
	Body            string            `json:"body,omitempty"`       // its beginning, if it is UTF-8
	BodyBase64      string            `json:"bodyBase64,omitempty"` // if it is not
	Truncated       bool              `json:"truncated,omitempty"`  // body or properties
}

// encodeAlert returns the letter about an alert that is given up.
func encodeAlert(d notify.DeadLetter, now time.Time) []byte {
	l := letter{Kept: utc(now), Receiver: d.Receiver, Reason: d.Reason, Log: d.Alert.Log, To: d.Alert.To}

	// An alert that cannot be encoded is kept as text.
	if alert, err := webhook.Encode(d.Alert, wording.Style{}); err == nil {
		l.Alert = alert
	} else {
		l.Text = fmt.Sprintf("%+v", d.Alert)
	}

	return encode(l)
}

// encodeMalformed returns the letter about an event that cannot be decoded.
func encodeMalformed(e telemetry.MalformedEvent, now time.Time) []byte {
	m := malformed{
		Kept:   utc(now),
		Reason: e.Reason.String(),
		Event: Event{
			Device:          cut(e.Event.Device, maxLabel),
			Partition:       cut(e.Partition, maxLabel),
			Sequence:        e.Event.Sequence,
			Enqueued:        utc(e.Event.Enqueued),
			MessageSource:   cut(e.Event.MessageSource, maxLabel),
			ContentType:     cut(e.Event.ContentType, maxLabel),
			ContentEncoding: cut(e.Event.ContentEncoding, maxLabel),
			Size:            len(e.Event.Body),
		},
	}

	body := e.Event.Body[:min(len(e.Event.Body), maxBody)]
	whole := len(body) == len(e.Event.Body)
	text := body

	if !whole {
		for i := 1; i < utf8.UTFMax && !utf8.Valid(text); i++ { // a character may be cut
			text = text[:len(text)-1]
		}
	}

	if utf8.Valid(text) {
		m.Body = string(text)
	} else {
		m.BodyBase64 = base64.StdEncoding.EncodeToString(body)
	}

	var all bool
	m.Properties, all = properties(e.Event.Properties)
	m.Truncated = !whole || !all

	return encode(m)
}

// properties returns those of p that fit, and whether those are all.
func properties(p telemetry.Properties) (kept map[string]string, all bool) {
	kept = map[string]string{}
	room := maxProperties
	for name, value := range p.All() {
		text := value.String()
		if room -= len(name) + len(text); room < 0 {
			return kept, false
		}
		kept[string(name)] = text
	}

	return kept, true
}

// cut returns s, or its beginning and a mark if it has more than n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len(mark)], "") + mark
}

// utc returns t in UTC, or the zero time if RFC 3339 cannot express t.
func utc(t time.Time) time.Time {
	t = t.UTC()
	if t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// encode cannot fail: JSON can express every letter and malformed.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("encode dead letter: %v", err))
	}

	return b.Bytes()
}

// decode reads a letter. It never fails: Broken says what is wrong.
func decode(kind Kind, content []byte) Letter {
	if kind == Undecodable {
		return decodeMalformed(content)
	}

	var l letter
	if err := json.Unmarshal(content, &l); err != nil {
		return Letter{Broken: fmt.Errorf("is not a dead letter: %w", err)}
	}

	out := Letter{Kept: l.Kept, Receiver: l.Receiver, Reason: l.Reason, Payload: l.Alert, Replayed: l.Replayed, content: l}

	if l.Alert == nil {
		out.Broken = errors.New("has no alert that can be sent")
		if l.Text != "" {
			out.Broken = fmt.Errorf("has an alert that cannot be sent: %s", cut(strings.ToValidUTF8(l.Text, "\uFFFD"), maxLabel))
		}
		return out
	}

	var err error
	if out.Alert, err = webhook.Decode(l.Alert); err != nil {
		out.Broken = fmt.Errorf("has no alert that can be sent: %w", err)
	}

	out.Alert.Log = l.Log
	out.Alert.To = l.To

	return out
}

// decodeMalformed is the inverse of encodeMalformed; a letter that cannot be read is Broken.
func decodeMalformed(content []byte) Letter {
	var m malformed
	if err := json.Unmarshal(content, &m); err != nil {
		return Letter{Broken: fmt.Errorf("is not an event: %w", err)}
	}
	return Letter{Kept: m.Kept, Reason: m.Reason, Payload: content, Event: &m.Event}
}
