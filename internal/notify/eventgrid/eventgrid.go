// Package eventgrid publishes alerts and summaries to a topic of Azure Event Grid, as the
// CloudEvents that webhooks get.
package eventgrid

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/webhook"
)

// An EventGrid is a [notify.Notifier] and a [notify.Reporter] for one topic, whose input
// schema must be CloudEvents 1.0.
type EventGrid struct {
	*httppost.Client
	key   string             // empty: token is used
	token notify.TokenSource // nil if there is a key
}

// New returns an EventGrid for the endpoint of a topic. The password in u is the topic's
// access key; without one, token is asked. New connects to nothing. Its errors hold no
// part of u.
func New(u *url.URL, token notify.TokenSource, opts httppost.Options) (*EventGrid, error) {
	endpoint := *u
	endpoint.User = nil
	if strings.Trim(endpoint.Path, "/") == "" {
		endpoint.Path = "/api/events"
	}
	query := endpoint.Query()
	if !query.Has("api-version") {
		query.Set("api-version", "2018-01-01")
	}
	endpoint.RawQuery = query.Encode()

	opts.Refuses = refuses
	e := &EventGrid{token: token}
	if HasKey(u) {
		e.key, _ = u.User.Password()
		e.token = nil
		opts.Secrets = []string{e.key}
	} else if u.User != nil {
		return nil, errors.New("must have the access key as a password, as in eventgrid+https://:KEY@TOPIC, or no user at all to use an Azure identity")
	}
	var err error
	e.Client, err = httppost.New(&endpoint, opts)
	return e, err
}

// HasKey reports whether u has an access key.
func HasKey(u *url.URL) bool {
	key, _ := u.User.Password()
	return key != ""
}

// refuses takes it for the topic's fault, not the message's, if the topic is for events of
// another schema, which Event Grid answers with 400.
func refuses(code int, body string) bool {
	_, schema, _ := strings.Cut(body, "configured to receive event in '")
	return httppost.RefusesMessage(code, body) && (schema == "" || strings.HasPrefix(schema, "CloudEvent"))
}

// Notify publishes a. See [httppost.Client.Post] for what answers mean.
func (e *EventGrid) Notify(ctx context.Context, a notify.Alert) error {
	body, err := webhook.Encode(a)
	return e.publish(ctx, "alert", webhook.ContentType, body, err)
}

// NotifyMany publishes all of alerts as one batch. Answers mean what they do to Notify.
func (e *EventGrid) NotifyMany(ctx context.Context, alerts []notify.Alert) error {
	body, err := webhook.EncodeBatch(alerts)
	return e.publish(ctx, "alerts", webhook.BatchContentType, body, err)
}

// Report publishes s. Answers mean what they do to Notify.
func (e *EventGrid) Report(ctx context.Context, s notify.Summary) error {
	body, err := webhook.EncodeSummary(s)
	return e.publish(ctx, "summary", webhook.ContentType, body, err)
}

func (e *EventGrid) publish(ctx context.Context, what, contentType string, body []byte, err error) error {
	if err != nil {
		return e.Unsent(what, true, err)
	}
	m := httppost.Message{What: what, ContentType: contentType, Header: http.Header{}, Body: body}
	if e.key != "" {
		m.Header.Set("aeg-sas-key", e.key)
		return e.Post(ctx, m)
	}
	token, err := e.token(ctx)
	if err != nil {
		return e.Unsent(what, false, err)
	}
	m.Header.Set("Authorization", "Bearer "+token)
	return e.Post(ctx, m)
}
