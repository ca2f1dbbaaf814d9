package webhook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"alertworker/internal/notify"
)

// ContentType is the media type of a CloudEvent in structured mode.
const ContentType = "application/cloudevents+json"

// suffix returns how the event's type ends, which is all that receivers should check.
func suffix(rule string, resolved bool) string {
	if resolved {
		return "." + cmp.Or(rule, notify.DefaultRule) + ".normal"
	}
	return "." + cmp.Or(rule, notify.DefaultRule) + ".high"
}

// maxWindow is up to where a float64 of seconds is exact to the nanosecond.
const maxWindow = 48 * 24 * time.Hour

// event is a CloudEvent 1.0. Receivers depend on it and its data: fields may be added,
// never renamed.
type event[D any] struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject,omitempty"` // CloudEvents forbids an empty one
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            D         `json:"data"`
}

// encode returns e, which lacks what all events have, in structured JSON. what names it in errors.
func encode[D any](what string, e event[D]) ([]byte, error) {
	if e.ID == "" || strings.ContainsFunc(e.ID, unicode.IsControl) {
		return nil, fmt.Errorf("encode %s %q: the id is empty or has control characters", what, e.ID)
	}
	e.SpecVersion, e.DataContentType, e.Time = "1.0", "application/json", e.Time.UTC()
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode %s %q: %w", what, e.ID, err)
	}
	return b, nil
}

type data struct {
	Message      string    `json:"message"` // for people: not decoded
	Device       string    `json:"device"`
	Rule         string    `json:"rule,omitempty"`
	Level        string    `json:"level,omitempty"`
	Temperature  float64   `json:"temperature"`
	Threshold    float64   `json:"threshold"`
	EnqueuedTime time.Time `json:"enqueuedTime"`
	Partition    string    `json:"partition"`
	Sequence     int64     `json:"sequence"`
	Window       float64   `json:"window"` // seconds
	Token        int64     `json:"token"`  // below 2^53, so that every JSON reader keeps it whole
	Suppressed   int64     `json:"suppressed"`
	Replica      string    `json:"replica"`
	Expires      time.Time `json:"expires,omitzero"`
	Test         bool      `json:"test,omitempty"`
}

// Encode returns a as a CloudEvent 1.0 in structured JSON. Times are UTC in RFC
// 3339, the window is a number of seconds; expires is left out if a has none,
// and test unless a is one. It fails for what JSON or CloudEvents cannot say: a
// temperature that is no number, an id that is empty or has control characters.
func Encode(a notify.Alert) ([]byte, error) {
	return encode("alert", event[data]{
		ID:      a.ID,
		Source:  a.Source,
		Type:    "alertworker" + suffix(a.Rule, a.Resolved),
		Subject: a.Device,
		Time:    a.Enqueued,
		Data: data{
			Message:      a.Message(),
			Device:       a.Device,
			Rule:         a.Rule,
			Level:        a.Level,
			Temperature:  a.Temperature,
			Threshold:    a.Threshold,
			EnqueuedTime: a.Enqueued.UTC(),
			Partition:    a.Partition,
			Sequence:     a.Sequence,
			Window:       a.Window.Seconds(),
			Token:        a.Token,
			Suppressed:   a.Suppressed,
			Replica:      a.Replica,
			Expires:      a.Expires.UTC(),
			Test:         a.Test,
		},
	})
}

// ErrNoAlert is what Decode's error is if it was given an event of another type,
// such as a summary.
var ErrNoAlert = errors.New("no alert")

// Decode is the inverse of Encode, for receivers, except for what is about one attempt.
// It takes any CloudEvent whose type ends in the rule's name and ".high" or ".normal",
// ignores fields it does not know, and says what is wrong with others.
func Decode(body []byte) (notify.Alert, error) {
	var e event[data]
	if err := json.Unmarshal(body, &e); err != nil {
		return notify.Alert{}, fmt.Errorf("decode alert: %w", err)
	}
	if err := checkAlert(e); err != nil {
		return notify.Alert{}, fmt.Errorf("decode alert %q: %w", e.ID, err)
	}
	return notify.Alert{
		ID:          e.ID,
		Source:      e.Source,
		Device:      e.Data.Device,
		Rule:        e.Data.Rule,
		Level:       e.Data.Level,
		Resolved:    strings.HasSuffix(e.Type, suffix(e.Data.Rule, true)),
		Temperature: e.Data.Temperature,
		Threshold:   e.Data.Threshold,
		Enqueued:    e.Data.EnqueuedTime.UTC(),
		Partition:   e.Data.Partition,
		Sequence:    e.Data.Sequence,
		Window:      time.Duration(math.Round(e.Data.Window * float64(time.Second))),
		Token:       e.Data.Token,
		Expires:     e.Data.Expires.UTC(),
		Suppressed:  e.Data.Suppressed,
		Replica:     e.Data.Replica,
		Test:        e.Data.Test,
	}, nil
}

func checkAlert(e event[data]) error {
	switch {
	case e.SpecVersion != "1.0":
		return fmt.Errorf("specversion is %q, want 1.0", e.SpecVersion)
	case e.ID == "" || strings.ContainsFunc(e.ID, unicode.IsControl):
		return errors.New("id is empty or has control characters")
	case !strings.HasSuffix(e.Type, suffix(e.Data.Rule, false)) && !strings.HasSuffix(e.Type, suffix(e.Data.Rule, true)):
		return fmt.Errorf("%w: type is %q, want one that ends in %s", ErrNoAlert, e.Type, suffix(e.Data.Rule, false))
	case e.Subject != e.Data.Device:
		return fmt.Errorf("subject is %q but data.device is %q", e.Subject, e.Data.Device)
	case !(e.Data.Window >= 0 && e.Data.Window <= maxWindow.Seconds()):
		return fmt.Errorf("data.window is %v, want 0 to %.0f seconds", e.Data.Window, maxWindow.Seconds())
	case !inRange(e.Data.EnqueuedTime) || !inRange(e.Data.Expires):
		return errors.New("data.enqueuedTime or data.expires is out of the range of RFC 3339")
	}
	return nil
}

// inRange reports whether RFC 3339 can express t, in UTC.
func inRange(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 0 && year <= 9999
}
