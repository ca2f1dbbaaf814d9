package httppost

import (
	"context"
	"net/url"

	"alertworker/internal/notify"
)

// A Channel is a [notify.Notifier] at one URL. See [Client.Post] for what answers mean.
type Channel struct {
	*Client
	encode func(alerts []notify.Alert) any
}

// NewChannel returns a Channel, as New does a Client. It posts, as JSON, what encode makes of the alerts of a message.
func NewChannel(u *url.URL, opts Options, encode func(alerts []notify.Alert) any) (*Channel, error) {
	client, err := New(u, opts)
	if err != nil {
		return nil, err
	}
	return &Channel{client, encode}, nil
}

// Notify posts one message, about the alerts that encode makes it of.
func (c *Channel) Notify(ctx context.Context, alerts ...notify.Alert) error {
	return c.PostJSON(ctx, "alert", c.encode(alerts))
}
