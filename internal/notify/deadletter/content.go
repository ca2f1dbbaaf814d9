package deadletter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
)

const maxText = 256 // bytes of an alert that cannot be sent

// encodeAlert returns the letter about an alert that is given up.
func encodeAlert(d notify.DeadLetter, now time.Time) []byte {
	l := Letter{Kept: utc(now), Receiver: d.Receiver, Reason: d.Reason, Log: d.Alert.Log, To: d.Alert.To}

	// An alert that cannot be encoded is kept as text.
	if alert, err := webhook.Encode(d.Alert, wording.Style{}); err == nil {
		l.Payload = alert
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
func encode(l Letter) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(l); err != nil {
		panic(fmt.Sprintf("encode dead letter: %v", err))
	}

	return b.Bytes()
}

// decode reads a letter. It never fails: Broken says what is wrong.
func decode(content []byte) Letter {
	var l Letter
	if err := json.Unmarshal(content, &l); err != nil {
		return Letter{Broken: fmt.Errorf("is not a dead letter: %w", err)}
	}

	var err error
	switch l.Alert, err = webhook.Decode(l.Payload); {
	case l.Text != "":
		l.Broken = fmt.Errorf("has an alert that cannot be sent: %s", humanize.Cut(strings.ToValidUTF8(l.Text, "\uFFFD"), maxText))
	case err != nil:
		l.Broken = fmt.Errorf("has no alert that can be sent: %w", err)
	}

	l.Alert.Log, l.Alert.To = l.Log, l.To

	return l
}
