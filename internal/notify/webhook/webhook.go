// Package webhook posts alerts as CloudEvents to an HTTP receiver.
package webhook

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

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

// A Sign completes the header of a message with an id, posted at now by the receiver's clock. An error means that the
// message cannot be posted now.
type Sign func(ctx context.Context, h http.Header, now time.Time, id string, body []byte) error

// New returns a Webhook for an http or https URL, whose requests are signed with each of secrets. A user in u becomes
// basic authentication. New connects to nothing. Its errors hold no part of u.
func New(u *url.URL, style wording.Style, secrets []Secret, opts httppost.Options) (*Webhook, error) {
	for _, s := range secrets {
		key := base64.StdEncoding.EncodeToString([]byte(s.key))
		opts.Secrets = append(opts.Secrets, secretPrefix+key, key, s.key)
	}

	opts.Credentials = "NOTIFY_URLS and NOTIFY_WEBHOOK_SECRET"
	return NewSigned(u, style, opts, func(_ context.Context, h http.Header, now time.Time, id string, body []byte) error {
		if len(secrets) == 0 {
			return nil
		}

		timestamp := strconv.FormatInt(now.Unix(), 10)
		var signatures []string
		for _, s := range secrets {
			signatures = append(signatures, s.Signature(id, timestamp, body))
		}

		h.Set("webhook-id", id)
		h.Set("webhook-timestamp", timestamp)
		h.Set("webhook-signature", strings.Join(signatures, " "))

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
		m := httppost.Message{What: "alert", ContentType: ContentType, Body: body}
		return w.post(ctx, m, alerts[0].Sent, alerts[0].ID, err)
	}

	body, err := EncodeBatch(alerts, w.style)
	m := httppost.Message{What: "alerts", ContentType: BatchContentType, Body: body}
	return w.post(ctx, m, alerts[0].Sent, wording.BatchID(alerts), err)
}

// post makes one attempt at the message with the id, unless it could not be encoded. A receiver refuses what was signed
// too long ago by its clock: if the answer shows that the clock was mistaken, the message is signed and posted again.
func (w *Webhook) post(ctx context.Context, m httppost.Message, sent time.Time, id string, err error) error {
	if err != nil {
		return w.Unsent(m.What, true, err)
	}

	signed := func(now time.Time) error {
		m.Header = http.Header{}
		if err := w.sign(ctx, m.Header, now, id, m.Body); err != nil {
			return w.Unsent(m.What, false, err)
		}
		return w.Post(ctx, m)
	}

	now := w.Now(sent)
	err = signed(now)
	if e := notify.AsError(err); err != nil && e.Untaken && w.Mistook(now) {
		err = signed(w.Now(now))
	}

	return err
}
