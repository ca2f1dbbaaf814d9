package httppost

import (
	"context"
	"net/url"

	"alertworker/internal/notify"
	"alertworker/internal/notify/wording"
)

// A Channel is a [notify.Notifier] for people, at one URL. See [Client.Post] for what answers mean.
type Channel struct {
	*Client
	style  wording.Style
	room   int
	encode func(wording.Text) any
}

// NewChannel returns a Channel, as New does a Client. It posts, as JSON, what encode makes of a text in which several alerts
// take so much room: see [wording.Style.Text].
func NewChannel(u *url.URL, opts Options, style wording.Style, room int, encode func(wording.Text) any) (*Channel, error) {
	client, err := New(u, opts)
	if err != nil {
		return nil, err
	}
	return &Channel{client, style, room, encode}, nil
}

// Notify posts one message about all of alerts.
func (c *Channel) Notify(ctx context.Context, alerts ...notify.Alert) error {
	return c.PostJSON(ctx, "alert", c.encode(c.style.Text(c.room, alerts...)))
}
