// Package ntfy sends alerts to a topic of ntfy, which shows them on phones and desktops.
package ntfy

import (
	"errors"
	"net/url"
	"path"
	"strings"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
)

// Messages have less than the 4,096 bytes from which ntfy makes them attachments.
const (
	maxMessage = 1000 // characters, of at most four bytes
	maxMany    = 3900 // bytes
)

// New returns a channel for the URL of a topic. A user in it becomes basic authentication; an access
// token is a password without a user. New connects to nothing. Its errors hold no part of u. Ntfy knows no ids
// and drops nothing: an alert that may have arrived before says so.
func New(u *url.URL, style notify.Style, opts httppost.Options) (*httppost.Channel, error) {
	server := *u
	topic := path.Base(strings.TrimRight(u.Path, "/"))
	if topic == "." || topic == "/" {
		return nil, errors.New("must end in the name of a topic, as ntfy+https://ntfy.sh/TOPIC does")
	}
	server.Path, server.RawPath = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), topic), ""
	opts.Refuses = refuses
	opts.Secrets = []string{topic} // whoever knows a topic can read it
	return httppost.NewChannel(&server, opts, httppost.Encoders{
		Alert:   func(a notify.Alert) any { return encode(a, topic, style) },
		Alerts:  func(alerts []notify.Alert) any { return encodeMany(alerts, topic, style) },
		Summary: func(s notify.Summary) any { return encodeSummary(s, topic, style) },
	})
}

// refuses takes it for the setting's fault, not the message's, if the topic's name is not
// allowed, which ntfy answers with 400.
func refuses(code int, body string) bool {
	return httppost.RefusesMessage(code, body) && !strings.Contains(body, "invalid request: topic")
}

type message struct {
	Topic    string   `json:"topic"`
	Title    string   `json:"title"`
	Message  string   `json:"message"`
	Priority int      `json:"priority"` // 1 to 5; 3 is the default
	Tags     []string `json:"tags"`     // names of emojis
	Click    string   `json:"click,omitempty"`
	Actions  []action `json:"actions,omitempty"` // at most 3
}

// An action is a button.
type action struct {
	Action string `json:"action"`
	Label  string `json:"label"`
	URL    string `json:"url"`
}

// linked returns m with links: a click leads to the first, and each of the others is a button.
func (m message) linked(links []notify.Link) message {
	for i, l := range links {
		if i == 0 {
			m.Click = l.URL
			continue
		}
		m.Actions = append(m.Actions, action{"view", l.Text, l.URL})
	}
	return m
}

func encode(a notify.Alert, topic string, style notify.Style) message {
	var lines []string
	for _, f := range style.Facts(a) {
		lines = append(lines, f.Name+": "+f.Value)
	}
	m := newMessage(topic, a.Message(), notify.Cut(strings.Join(lines, "\n"), maxMessage), a.Severity(), a.Resolved)
	if a.Test {
		m.Tags = []string{"test_tube"}
	}
	return m.linked(style.Links(a))
}

func encodeMany(alerts []notify.Alert, topic string, style notify.Style) message {
	d := style.Digest(alerts)
	return newMessage(topic, d.Headline, d.Text(maxMany), d.Severity, d.Resolved).linked(d.Link)
}

func encodeSummary(s notify.Summary, topic string, style notify.Style) message {
	m := message{Topic: topic, Title: "Summary", Message: notify.Cut(s.Message(), maxMessage), Priority: 2, Tags: []string{"bar_chart"}}
	return m.linked(style.PageLinks())
}

func newMessage(topic, title, text string, severity notify.Severity, resolved bool) message {
	m := message{
		Topic:    topic,
		Title:    title,
		Message:  text,
		Priority: map[notify.Severity]int{notify.Critical: 5, notify.Serious: 4, notify.Warning: 3, notify.Info: 2}[severity],
		Tags:     []string{"rotating_light"},
	}
	switch {
	case resolved:
		m.Priority, m.Tags = min(m.Priority, 3), []string{"white_check_mark"}
	case severity == notify.Info:
		m.Tags = []string{"information_source"}
	case m.Priority < 5:
		m.Tags = []string{"warning"}
	}
	return m
}
