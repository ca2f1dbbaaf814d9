// Package ntfy sends alerts to a topic of ntfy, which shows them on phones and desktops.
package ntfy

import (
	"context"
	"errors"
	"net/url"
	"path"
	"strings"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
)

// maxMessage is less than the 4,096 bytes from which ntfy makes a message an attachment.
const maxMessage = 1000 // characters, of at most four bytes

// An Ntfy is a [notify.Notifier] and a [notify.Reporter] for one topic. Ntfy knows no ids
// and drops nothing: an alert that may have arrived before says so.
type Ntfy struct {
	*httppost.Client
	topic string
	link  string
}

// New returns an Ntfy for the URL of a topic. A user in it becomes basic authentication; an access
// token is a password without a user. A click on a notification leads to link, unless
// it is empty. New connects to nothing. Its errors hold no part of u.
func New(u *url.URL, link string, opts httppost.Options) (*Ntfy, error) {
	server := *u
	topic := path.Base(strings.TrimRight(u.Path, "/"))
	if topic == "." || topic == "/" {
		return nil, errors.New("must end in the name of a topic, as ntfy+https://ntfy.sh/TOPIC does")
	}
	server.Path, server.RawPath = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), topic), ""
	opts.Refuses = refuses
	opts.Secrets = []string{topic} // whoever knows a topic can read it
	client, err := httppost.New(&server, opts)
	if err != nil {
		return nil, err
	}
	return &Ntfy{client, topic, link}, nil
}

// refuses takes it for the setting's fault, not the message's, if the topic's name is not
// allowed, which ntfy answers with 400.
func refuses(code int, body string) bool {
	return httppost.RefusesMessage(code, body) && !strings.Contains(body, "invalid request: topic")
}

// Notify posts a. See [httppost.Client.Post] for what answers mean.
func (n *Ntfy) Notify(ctx context.Context, a notify.Alert) error {
	return n.PostJSON(ctx, "alert", encode(a, n.topic, n.link))
}

// Report posts s. Answers mean what they do to Notify.
func (n *Ntfy) Report(ctx context.Context, s notify.Summary) error {
	return n.PostJSON(ctx, "summary", message{
		Topic: n.topic, Title: "Summary", Message: notify.Cut(s.Message(), maxMessage), Priority: 2, Tags: []string{"bar_chart"}, Click: n.link,
	})
}

type message struct {
	Topic    string   `json:"topic"`
	Title    string   `json:"title"`
	Message  string   `json:"message"`
	Priority int      `json:"priority"` // 1 to 5; 3 is the default
	Tags     []string `json:"tags"`     // names of emojis
	Click    string   `json:"click,omitempty"`
}

func encode(a notify.Alert, topic, link string) message {
	var lines []string
	for _, f := range a.Facts() {
		lines = append(lines, f.Name+": "+f.Value)
	}
	m := message{
		Topic:    topic,
		Title:    a.Message(),
		Message:  notify.Cut(strings.Join(lines, "\n"), maxMessage),
		Priority: map[notify.Severity]int{notify.Critical: 5, notify.Serious: 4, notify.Warning: 3, notify.Info: 2}[a.Severity()],
		Tags:     []string{"rotating_light"},
		Click:    link,
	}
	switch {
	case a.Test:
		m.Tags = []string{"test_tube"}
	case a.Resolved:
		m.Priority, m.Tags = min(m.Priority, 3), []string{"white_check_mark"}
	case a.Severity() == notify.Info:
		m.Tags = []string{"information_source"}
	case m.Priority < 5:
		m.Tags = []string{"warning"}
	}
	return m
}
