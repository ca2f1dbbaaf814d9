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
	Secret      Secret          // signs every request; the zero Secret none
	Concurrency int             // calls of Notify at a time for which connections are kept; 0 is 1
	Transport   *http.Transport // instead of the built-in one, for tests
}

// A Webhook is a [notify.Notifier] and a [notify.Reporter] that posts to one URL. It
// keeps connections open until Close. It prints as scheme and host.
type Webhook struct {
	*httppost.Client
	secret Secret
}

// New returns a Webhook for an http or https URL. A user in u becomes basic
// authentication. New connects to nothing. Its errors hold no part of u.
func New(u *url.URL, opts Options) (*Webhook, error) {
	client, err := httppost.New(u, httppost.Options{
		Concurrency: opts.Concurrency,
		Transport:   opts.Transport,
		Secrets:     opts.Secret.spellings(),
		Credentials: "NOTIFY_URLS and NOTIFY_WEBHOOK_SECRET",
	})
	if err != nil {
		return nil, err
	}
	return &Webhook{client, opts.Secret}, nil
}

// Notify posts a. Any 2xx means taken; 400, 413, 415 and 422 mean that a is refused; any
// other answer, or none, that the receiver is down or busy.
func (w *Webhook) Notify(ctx context.Context, a notify.Alert) error {
	body, err := Encode(a)
	return w.post(ctx, "alert", a.ID, body, err)
}

// Report posts s. Answers mean what they do to Notify.
func (w *Webhook) Report(ctx context.Context, s notify.Summary) error {
	body, err := EncodeSummary(s)
	return w.post(ctx, "summary", s.ID, body, err)
}

// post makes one attempt at the event with the id, which is an alert or a summary,
// unless it could not be encoded.
func (w *Webhook) post(ctx context.Context, what, id string, body []byte, err error) error {
	if err != nil {
		return w.Unsent(what, true, err)
	}
	m := httppost.Message{What: what, ContentType: ContentType, Header: http.Header{}, Body: body}
	if !w.secret.IsZero() {
		w.secret.sign(m.Header, id, body)
	}
	return w.Post(ctx, m)
}
