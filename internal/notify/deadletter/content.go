package deadletter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
)

const maxText = 256 // bytes of an alert that cannot be sent

// letter is the content of a blob in one of the folders. People and scripts read it: fields may be
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

	Discarded time.Time `json:"discarded,omitzero"`
	By        string    `json:"by,omitempty"` // who replayed or discarded it, as they say
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

// utc returns t in UTC, or the zero time if RFC 3339 cannot express t.
func utc(t time.Time) time.Time {
	t = t.UTC()
	if t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// encode cannot fail: JSON can express every letter.
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
func decode(content []byte) Letter {
	var l letter
	if err := json.Unmarshal(content, &l); err != nil {
		return Letter{Broken: fmt.Errorf("is not a dead letter: %w", err)}
	}

	out := Letter{Kept: l.Kept, Receiver: l.Receiver, Reason: l.Reason, Payload: l.Alert, Replayed: l.Replayed, Discarded: l.Discarded, By: l.By, content: l}

	if l.Alert == nil {
		out.Broken = errors.New("has no alert that can be sent")
		if l.Text != "" {
			out.Broken = fmt.Errorf("has an alert that cannot be sent: %s", humanize.Cut(strings.ToValidUTF8(l.Text, "\uFFFD"), maxText))
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
