package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"alertworker/internal/notify"
	"alertworker/internal/notify/wording"
)

// The media types of a CloudEvent in structured mode, and of several.
const (
	ContentType      = "application/cloudevents+json"
	BatchContentType = "application/cloudevents-batch+json"
)

// The last words of the types of alerts.
const (
	high   = "high"   // at or above the limit
	low    = "low"    // at or below it
	silent = "silent" // not heard
	normal = "normal" // resolved
)

// typeOf returns the type of a's event. Receivers should check only how it ends, in the
// rule's name and one of these words.
func typeOf(a notify.Alert) string {
	word := high
	switch {
	case a.Resolved:
		word = normal
	case a.Silent > 0:
		word = silent
	case a.Below:
		word = low
	}

	return "alertworker." + a.Rule + "." + word
}

// maxWindow is up to where a float64 of seconds is exact to the nanosecond.
const maxWindow = 48 * 24 * time.Hour

// event is a CloudEvent 1.0. Receivers depend on it and its data: fields may be added,
// never renamed.
type event struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject,omitempty"` // CloudEvents forbids an empty one
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            data      `json:"data"`
}

type data struct {
	Message string   `json:"message"` // for people: not decoded
	Per     *per     `json:"per,omitempty"`
	Value   *float64 `json:"value,omitempty"` // nil, like Limit, about silence
	Limit   *float64 `json:"limit,omitempty"`
	// Value, and below it Limit, of the rule that has these names for them
	Temperature *float64 `json:"temperature,omitempty"`
	Threshold   *float64 `json:"threshold,omitempty"`
	Silent      float64  `json:"silent,omitempty"`  // seconds, like the next two
	AtFloor     bool     `json:"atFloor,omitempty"` // events may have been lost between LastHeard and Since
	Window      float64  `json:"window"`
	Remember    float64  `json:"remember,omitempty"`
	notify.Alert
	*notify.Incident // of an alert about one, and of its end; else nil
}

// per is what devices share alerts by.
type per struct {
	Property string `json:"property"`
	Value    string `json:"value,omitempty"` // empty: the message has none, and the device counts
}

// Encode returns a as a CloudEvent 1.0 in structured JSON. Times are UTC in RFC
// 3339, except in the message for people, durations are numbers of seconds; what a does not have is left out. It
// fails for what JSON or CloudEvents cannot say: a value that is no number, an id that is empty or has control
// characters.
func Encode(a notify.Alert, style wording.Style) ([]byte, error) {
	if a.ID == "" || strings.ContainsFunc(a.ID, unicode.IsControl) {
		return nil, fmt.Errorf("encode alert %q: the id is empty or has control characters", a.ID)
	}

	inUTC(&a)
	e := event{
		SpecVersion:     "1.0",
		ID:              a.ID,
		Source:          a.Source,
		Type:            typeOf(a),
		Subject:         a.About(),
		Time:            a.Enqueued,
		DataContentType: "application/json",
		Data: data{
			Message:  style.Message(a),
			Silent:   a.Silent.Seconds(),
			Window:   a.Window.Seconds(),
			Remember: a.Remember.Seconds(),
			Alert:    a,
			Incident: a.Incident,
		},
	}

	if a.Silent > 0 {
		e.Data.AtFloor = !a.LastHeard.IsZero() && a.LastHeard.Before(a.Since)
	} else {
		e.Data.Value, e.Data.Limit = &a.Temperature, &a.Threshold
	}

	if a.Rule == notify.DefaultRule {
		e.Data.Temperature, e.Data.Threshold = e.Data.Value, e.Data.Limit
	}

	if a.Per != "" {
		e.Data.Per = &per{a.Per, a.PerValue}
	}

	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode alert %q: %w", a.ID, err)
	}

	return body, nil
}

// inUTC makes the times of a such.
func inUTC(a *notify.Alert) {
	times := []*time.Time{&a.LastHeard, &a.Since, &a.Enqueued, &a.DeviceTime, &a.Expires}
	if a.Incident != nil {
		i := *a.Incident
		a.Incident = &i
		times = append(times, &i.Began)
	}

	for _, t := range times {
		*t = t.UTC()
	}
}

// EncodeBatch returns alerts as a batch of CloudEvents. It fails if Encode would for any of them.
func EncodeBatch(alerts []notify.Alert, style wording.Style) ([]byte, error) {
	batch := make([]json.RawMessage, len(alerts))
	for i, a := range alerts {
		var err error
		if batch[i], err = Encode(a, style); err != nil {
			return nil, err
		}
	}

	return json.Marshal(batch)
}

// ErrNoAlert is what Decode's error is if it was given an event of another type.
var ErrNoAlert = errors.New("no alert")

// Decode is the inverse of Encode, for receivers, except for what is about one attempt.
// It takes any CloudEvent whose type ends in the rule's name and ".high", ".low" or
// ".normal", ignores fields it does not know, and says what is
// wrong with others.
func Decode(body []byte) (notify.Alert, error) {
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		return notify.Alert{}, fmt.Errorf("decode alert: %w", err)
	}
	a, err := alertOf(e)
	if err != nil {
		return notify.Alert{}, fmt.Errorf("decode alert %q: %w", e.ID, err)
	}

	return a, nil
}

// alertOf returns the alert that e is, if it is one that could be encoded again.
func alertOf(e event) (notify.Alert, error) {
	d, word := &e.Data, e.Type[strings.LastIndexByte(e.Type, '.')+1:]
	isOurs := slices.Contains([]string{high, low, silent, normal}, word) && strings.HasSuffix(e.Type, "."+d.Rule+"."+word)
	isNoWindow := func(seconds float64) bool { return seconds < 0 || seconds > maxWindow.Seconds() }
	switch {
	case e.SpecVersion != "1.0":
		return notify.Alert{}, fmt.Errorf("specversion is %q, want 1.0", e.SpecVersion)
	case !isOurs:
		return notify.Alert{}, fmt.Errorf(
			"%w: type is %q, want one that ends in .RULE.%s, .%s, .%s or .%s, with the rule of data.rule",
			ErrNoAlert, e.Type, high, low, silent, normal)
	case slices.ContainsFunc([]float64{d.Window, d.Remember, d.Silent}, isNoWindow):
		return notify.Alert{}, fmt.Errorf("data.window, data.remember or data.silent is %v, %v or %v, want 0 to %.0f seconds",
			d.Window, d.Remember, d.Silent, maxWindow.Seconds())
	case d.Silent == 0 && (d.Value == nil || d.Limit == nil):
		return notify.Alert{}, errors.New("data.value or data.limit is missing")
	}

	a := d.Alert
	a.ID, a.Source, a.Incident = e.ID, e.Source, d.Incident
	a.Resolved, a.Below = word == normal, word == low || word == normal && a.Below
	a.Silent = seconds(d.Silent)
	a.Window = seconds(d.Window)
	a.Remember = seconds(d.Remember)
	if d.Silent == 0 {
		a.Temperature, a.Threshold = *d.Value, *d.Limit
	}

	if d.Per != nil {
		a.Per, a.PerValue = d.Per.Property, d.Per.Value
	}

	inUTC(&a)
	if e.Subject != a.About() || !strings.HasSuffix(typeOf(a), "."+word) {
		return notify.Alert{}, fmt.Errorf("type and subject are %q and %q, but those of data %q and %q", e.Type, e.Subject, typeOf(a), a.About())
	}

	_, err := Encode(a, wording.Style{})

	return a, err
}

// seconds returns a duration that JSON has as a number of seconds.
func seconds(n float64) time.Duration { return time.Duration(math.Round(n * float64(time.Second))) }
