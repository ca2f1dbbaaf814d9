// Package alertmanager sends alerts to a Prometheus Alertmanager, through its API v2.
package alertmanager

import (
	"context"
	"net/url"
	"strings"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
)

const (
	// slack is for how late the next alert of a device that stays hot may be, besides
	// the window.
	slack = 5 * time.Minute

	// untilResolved is how long an alert lasts whose resolved will follow. No alert may come
	// for long before that: while the value is between the limit and where the alarm
	// ends, or while the device is silent.
	untilResolved = 7 * 24 * time.Hour

	testLasts = time.Minute // until a test alert resolves itself
)

// An Alertmanager is a [notify.Notifier] for one member of a cluster; members tell each other
// of notifications, not of alerts, so that each needs a URL of its own.
type Alertmanager struct {
	*httppost.Client
	link string
}

// New returns an Alertmanager at u, the address of its web interface. Alerts link to
// link, unless it is empty. New connects to nothing. Its errors hold no part of u.
func New(u *url.URL, link string, opts httppost.Options) (*Alertmanager, error) {
	client, err := httppost.New(u.JoinPath("api", "v2", "alerts"), opts)
	if err != nil {
		return nil, err
	}
	return &Alertmanager{client, link}, nil
}

// Notify posts a. See [httppost.Client.Post] for what answers mean.
func (m *Alertmanager) Notify(ctx context.Context, a notify.Alert) error {
	return m.PostJSON(ctx, "alert", []alert{encode(a, m.link, time.Now())})
}

type alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// encode returns a as it is at now. The labels say which alert it is, so they hold nothing
// that changes from one alert of a device, rule and level to the next.
func encode(a notify.Alert, link string, now time.Time) alert {
	now = now.UTC()
	e := alert{
		Labels: map[string]string{
			"alertname": a.RuleName(),
			"device":    a.Device,
			"severity":  string(a.Severity()),
			"source":    a.Source,
		},
		Annotations:  map[string]string{"summary": a.Message(), "id": a.ID, "replica": a.Replica},
		StartsAt:     a.Enqueued.UTC(),
		GeneratorURL: link,
	}
	if a.Level != "" {
		e.Labels["level"] = a.Level
	}
	if a.Test {
		e.Labels["test"] = "true"
	}
	for _, f := range a.Facts() {
		e.Annotations[strings.ToLower(f.Name)] = f.Value
	}
	if a.Since.Before(a.Enqueued) && !a.Since.IsZero() {
		e.StartsAt = a.Since.UTC()
	}
	switch {
	case a.Resolved:
		e.EndsAt = now
	case a.Test:
		e.EndsAt = now.Add(testLasts)
	case a.WillResolve:
		e.EndsAt = now.Add(untilResolved)
	default:
		// A device's alerts come about a window apart, or two if it reports once per window.
		// An alert that ended before the next would resolve by itself, and fire again.
		e.EndsAt = now.Add(2*a.Window + slack)
	}
	if e.StartsAt.After(e.EndsAt) { // the hub's clock is ahead of ours
		e.StartsAt = e.EndsAt
	}
	return e
}
