// Package webhook posts alerts as CloudEvents to an HTTP receiver.
package webhook

import (
	"context"
	"net/http"
	"net/url"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/wording"
)

// A Webhook is a [notify.Notifier] that posts CloudEvents to one URL. It keeps connections open until Close. It
// prints as scheme and host.
type Webhook struct {
	*httppost.Client
	style wording.Style
	sign  Sign
}

// A Sign completes the header of a message with an id. An error means that the message cannot be posted now.
type Sign func(ctx context.Context, h http.Header, id string, body []byte) error

// New returns a Webhook for an http or https URL, whose requests are signed with each of secrets. A user in u becomes
// basic authentication. New connects to nothing. Its errors hold no part of u.
func New(u *url.URL, style wording.Style, secrets []Secret, opts httppost.Options) (*Webhook, error) {
	for _, s := range secrets {
		opts.Secrets = append(opts.Secrets, s.spellings()...)
	}

	opts.Credentials = "NOTIFY_URLS and NOTIFY_WEBHOOK_SECRET"
	return NewSigned(u, style, opts, func(_ context.Context, h http.Header, id string, body []byte) error {
		sign(h, secrets, id, body)
		return nil
	})
}

// NewSigned is New with another way to sign.
func NewSigned(u *url.URL, style wording.Style, opts httppost.Options, sign Sign) (*Webhook, error) {
	client, err := httppost.New(u, opts)
	if err != nil {
		return nil, err
	}
	return &Webhook{client, style, sign}, nil
}

// Notify posts an alert, or several as one batch. See [httppost.Client.Post] for what answers mean.
func (w *Webhook) Notify(ctx context.Context, alerts ...notify.Alert) error {
	if len(alerts) == 1 {
		body, err := Encode(alerts[0], w.style)
		return w.post(ctx, "alert", ContentType, alerts[0].ID, body, err)
	}

	body, err := EncodeBatch(alerts, w.style)
	return w.post(ctx, "alerts", BatchContentType, wording.BatchID(alerts), body, err)
}

// post makes one attempt at the message with the id, unless it could not be encoded.
func (w *Webhook) post(ctx context.Context, what, contentType, id string, body []byte, err error) error {
	if err != nil {
		return w.Unsent(what, true, err)
	}

	m := httppost.Message{What: what, ContentType: contentType, Header: http.Header{}, Body: body}
	if err := w.sign(ctx, m.Header, id, body); err != nil {
		return w.Unsent(what, false, err)
	}

	return w.Post(ctx, m)
}
