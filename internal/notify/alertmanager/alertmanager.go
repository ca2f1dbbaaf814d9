// Package alertmanager sends alerts to a Prometheus Alertmanager, through its API v2.
package alertmanager

import (
	"context"
	"maps"
	"net/url"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/wording"
)

const (
	// slack is for how late the next alert of a device that stays hot may be, besides
	// the window.
	slack = 5 * time.Minute

	// untilResolved is how long an alert lasts whose recovery will follow. No alert may come
	// for long before that: while the value is between the limit and where the alarm
	// ends, or while the device is silent.
	untilResolved = 7 * 24 * time.Hour

	testLasts = time.Minute // until a test alert resolves itself

	endedBefore = 5 * time.Minute  // is when a recovery says that the alert ended, or when it started
	clockError  = 10 * time.Second // by how much Alertmanager's clock may be behind ours
)

// An Alertmanager is a [notify.Notifier] for one member of a cluster; members tell each other
// of notifications, not of alerts, so that each needs a URL of its own.
type Alertmanager struct {
	*httppost.Client
	style wording.Style
}

// New returns an Alertmanager at u, the address of its web interface. It connects to nothing. Its
// errors hold no part of u.
func New(u *url.URL, style wording.Style, opts httppost.Options) (*Alertmanager, error) {
	client, err := httppost.New(u.JoinPath("api", "v2", "alerts"), opts)
	if err != nil {
		return nil, err
	}
	return &Alertmanager{client, style}, nil
}

// Notify posts all of alerts at once. See [httppost.Client.Post] for what answers mean. Alertmanager notifies nobody of an
// alert that has ended by its clock when it comes: if the answer shows that the clock was mistaken, they are posted again.
func (m *Alertmanager) Notify(ctx context.Context, alerts ...notify.Alert) error {
	now := m.Now(alerts[0].Sent)

	err := m.post(ctx, now, alerts)
	if m.Mistook(now) {
		err = m.post(ctx, m.Now(now), alerts)
	}

	return err
}

// post posts alerts as they are at now.
func (m *Alertmanager) post(ctx context.Context, now time.Time, alerts []notify.Alert) error {
	encoded := make([]alert, len(alerts))
	for i, a := range alerts {
		encoded[i] = encode(a, m.style, now)
	}
	return m.PostJSON(ctx, "alerts", encoded)
}

// Try is a [notify.Tryable]: it posts a list of no alerts, which Alertmanager takes like any other.
func (m *Alertmanager) Try(ctx context.Context) error {
	return m.PostJSON(ctx, "a list of no alerts", []alert{})
}

type alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// ourLabels are the names of labels that what devices share is never called.
var ourLabels = []string{"alertname", "device", "sensor", "level", "severity", "source", "test"}

// encode returns a as it is at now, by Alertmanager's clock. The labels say which alert it is, so they hold nothing
// that changes from one alert of a device, rule and level to the next.
func encode(a notify.Alert, style wording.Style, now time.Time) alert {
	now = now.UTC()
	e := alert{
		Labels: map[string]string{
			"alertname": a.Rule,
			"severity":  string(a.Severity()),
			"source":    a.Source,
		},
		Annotations: style.Fields(a),
		StartsAt:    a.Enqueued.UTC(),
	}

	if style.Page != "" {
		e.GeneratorURL = style.Links(a)[0].URL
	}

	e.Annotations["summary"] = style.Message(a)
	e.Annotations["runbook_url"] = a.Runbook
	e.Labels["level"] = a.Level
	if of := a.Of(); a.Incident != nil {
		e.Labels[wording.FieldName(a.Per, ourLabels)] = a.PerValue
	} else {
		e.Labels["device"], e.Labels["sensor"] = of.Device, of.Name
	}

	if a.Test {
		e.Labels["test"] = "true"
	}

	// A label without a value is none; an annotation is left out likewise.
	isEmpty := func(name, value string) bool { return value == "" && name != "device" }
	maps.DeleteFunc(e.Labels, isEmpty)
	maps.DeleteFunc(e.Annotations, isEmpty)

	if a.Since.Before(a.Enqueued) && !a.Since.IsZero() {
		e.StartsAt = a.Since.UTC()
	}

	switch {
	case a.Resolved:
		// An end after Alertmanager's own now is none, and then the end that was announced before
		// counts. So it is well in the past, by any clock.
		e.StartsAt = earlier(e.StartsAt, now.Add(-clockError))
		e.EndsAt = now.Add(-min(endedBefore, now.Sub(e.StartsAt)))

	case a.Test:
		e.EndsAt = now.Add(testLasts)

	case a.WillResolve:
		e.EndsAt = now.Add(untilResolved)

	default:
		// A device's alerts come about a window apart, or two if it reports once per window.
		// An alert that ended before the next would resolve by itself, and fire again.
		e.EndsAt = now.Add(2*max(a.Window, a.Repeat) + slack)
	}

	e.StartsAt = earlier(e.StartsAt, e.EndsAt) // the hub's clock may be ahead of ours

	return e
}

// earlier returns the first of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
