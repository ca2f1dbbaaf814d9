package httppost

import (
	"context"
	"net/url"

	"alertworker/internal/notify"
)

// Encoders say what a Channel posts, as JSON.
type Encoders struct {
	Alert   func(notify.Alert) any
	Alerts  func([]notify.Alert) any // one message about all of them
	Summary func(notify.Summary) any
}

// A Channel is a [notify.Notifier] and a [notify.Reporter] for one URL. See
// [Client.Post] for what answers mean.
type Channel struct {
	*Client
	encode Encoders
}

// NewChannel returns a Channel, as New does a Client.
func NewChannel(u *url.URL, opts Options, encode Encoders) (*Channel, error) {
	client, err := New(u, opts)
	if err != nil {
		return nil, err
	}
	return &Channel{client, encode}, nil
}

// Notify posts one message about all of alerts.
func (c *Channel) Notify(ctx context.Context, alerts ...notify.Alert) error {
	if len(alerts) == 1 {
		return c.PostJSON(ctx, "alert", c.encode.Alert(alerts[0]))
	}
	return c.PostJSON(ctx, "alerts", c.encode.Alerts(alerts))
}

// Report posts s.
func (c *Channel) Report(ctx context.Context, s notify.Summary) error {
	return c.PostJSON(ctx, "summary", c.encode.Summary(s))
}
