// Package webhook posts alerts and summaries as CloudEvents to an HTTP receiver.
package webhook

import (
	"context"
	"net/http"
	"net/url"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
)

// Options are what a Webhook has besides its URL. The zero value is usable.
type Options struct {
	Secrets     []Secret        // each signs every request; with none, requests are not signed
	Concurrency int             // calls of Notify at a time for which connections are kept; 0 is 1
	Transport   *http.Transport // instead of the built-in one, for tests
}

// A Webhook is a [notify.Notifier] and a [notify.Reporter] that posts to one URL. It
// keeps connections open until Close. It prints as scheme and host.
type Webhook struct {
	*httppost.Client
	secrets []Secret
}

// New returns a Webhook for an http or https URL. A user in u becomes basic
// authentication. New connects to nothing. Its errors hold no part of u.
func New(u *url.URL, opts Options) (*Webhook, error) {
	var spellings []string
	for _, s := range opts.Secrets {
		spellings = append(spellings, s.spellings()...)
	}
	client, err := httppost.New(u, httppost.Options{
		Concurrency: opts.Concurrency,
		Transport:   opts.Transport,
		Secrets:     spellings,
		Credentials: "NOTIFY_URLS and NOTIFY_WEBHOOK_SECRET",
	})
	if err != nil {
		return nil, err
	}
	return &Webhook{client, opts.Secrets}, nil
}

// Notify posts a. Any 2xx means taken; 400, 413, 415 and 422 mean that a is refused; any
// other answer, or none, that the receiver is down or busy.
func (w *Webhook) Notify(ctx context.Context, a notify.Alert) error {
	body, err := Encode(a)
	return w.post(ctx, "alert", ContentType, a.ID, body, err)
}

// NotifyMany posts all of alerts as one batch. Answers mean what they do to Notify.
func (w *Webhook) NotifyMany(ctx context.Context, alerts []notify.Alert) error {
	body, err := EncodeBatch(alerts)
	return w.post(ctx, "alerts", BatchContentType, notify.BatchID(alerts), body, err)
}

// Report posts s. Answers mean what they do to Notify.
func (w *Webhook) Report(ctx context.Context, s notify.Summary) error {
	body, err := EncodeSummary(s)
	return w.post(ctx, "summary", ContentType, s.ID, body, err)
}

// post makes one attempt at the message with the id, unless it could not be encoded.
func (w *Webhook) post(ctx context.Context, what, contentType, id string, body []byte, err error) error {
	if err != nil {
		return w.Unsent(what, true, err)
	}
	m := httppost.Message{What: what, ContentType: contentType, Header: http.Header{}, Body: body}
	sign(m.Header, w.secrets, id, body)
	return w.Post(ctx, m)
}
