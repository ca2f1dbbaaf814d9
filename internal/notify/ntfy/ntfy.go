// Package ntfy sends alerts to a topic of ntfy, which shows them on phones and desktops.
package ntfy

import (
	"errors"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/wording"
)

// maxMessage is how many bytes a message has: of 4,096 ntfy makes an attachment.
const maxMessage = 3900

// New returns a channel for the URL of a topic. A user in it becomes basic authentication; an access
// token is a password without a user. New connects to nothing. Its errors hold no part of u. Ntfy knows no ids
// and drops nothing: an alert that may have arrived before says so.
func New(u *url.URL, style wording.Style, opts httppost.Options) (*httppost.Channel, error) {
	server := *u
	topic := path.Base(strings.TrimRight(u.Path, "/"))
	if topic == "." || topic == "/" {
		return nil, errors.New("must end in the name of a topic, as ntfy+https://ntfy.sh/TOPIC does")
	}

	server.Path, server.RawPath = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), topic), ""
	opts.Settings = settings
	opts.Secrets = []string{topic} // whoever knows a topic can read it

	return httppost.NewChannel(&server, opts, func(alerts []notify.Alert) any {
		return encode(style.Text(maxMessage, alerts...), topic)
	})
}

// settings is in the answer, a 400, if the topic's name is not allowed.
var settings = regexp.MustCompile("invalid request: topic")

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

var priorities = map[notify.Severity]int{notify.Critical: 5, notify.Serious: 4, notify.Warning: 3, notify.Info: 2}

var tags = map[notify.Severity]string{
	notify.Critical: "rotating_light", notify.Serious: "warning", notify.Warning: "warning", notify.Info: "information_source",
}

func encode(t wording.Text, topic string) message {
	var body strings.Builder // as far as there is room: facts of one alert may be too long
	for _, s := range t.Sections {
		for _, f := range slices.Concat([]wording.Fact{{Value: s.Title}}, s.Facts, s.Lines) {
			if line := f.String(); line != "" && body.Len()+len(line) < maxMessage {
				body.WriteString(line + "\n")
			}
		}
	}

	m := message{
		Topic:    topic,
		Title:    t.Headline,
		Message:  strings.TrimSuffix(body.String(), "\n"),
		Priority: priorities[t.Severity],
		Tags:     []string{tags[t.Severity]},
	}
	switch {
	case t.Test:
		m.Tags = []string{"test_tube"}
	case t.Resolved:
		m.Priority, m.Tags = min(m.Priority, 3), []string{"white_check_mark"}
	}

	for i, l := range t.Links { // a click leads to the first, and each of the others is a button
		if i == 0 {
			m.Click = l.URL
			continue
		}
		m.Actions = append(m.Actions, action{"view", l.Text, l.URL})
	}

	return m
}
