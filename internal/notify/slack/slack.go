// Package slack sends alerts to an incoming webhook of Slack, as Block Kit.
package slack

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
)

// The most characters that Slack takes.
const (
	maxHeader  = 150
	maxSection = 3000
)

// A Slack is a [notify.Notifier] and a [notify.Reporter] for one incoming webhook. Slack
// knows no ids and drops nothing: an alert that may have arrived before says so.
type Slack struct {
	*httppost.Client
	link string
}

// New returns a Slack for the URL of an incoming webhook. Messages link to link, unless
// it is empty. New connects to nothing. Its errors hold no part of u.
func New(u *url.URL, link string, opts httppost.Options) (*Slack, error) {
	opts.Refuses = refuses
	client, err := httppost.New(u, opts)
	if err != nil {
		return nil, err
	}
	return &Slack{client, link}, nil
}

// about are answers that are about the webhook, its channel or its workspace, although
// some come with 400.
var about = []string{
	"user_not_found", "channel_not_found", "channel_is_archived", "action_prohibited", "posting_to_general_channel_denied",
	"invalid_token", "no_service", "no_active_hooks", "no_team", "team_disabled",
}

func refuses(code int, body string) bool {
	return httppost.RefusesMessage(code, body) && !slices.ContainsFunc(about, func(s string) bool { return strings.Contains(body, s) })
}

// Notify posts a. See [httppost.Client.Post] for what answers mean.
func (s *Slack) Notify(ctx context.Context, a notify.Alert) error {
	return s.PostJSON(ctx, "alert", encode(a, s.link))
}

// Report posts s. Answers mean what they do to Notify.
func (s *Slack) Report(ctx context.Context, sum notify.Summary) error {
	return s.PostJSON(ctx, "summary", encodeSummary(sum, s.link))
}

type message struct {
	Text   string  `json:"text"` // in notifications
	Blocks []block `json:"blocks"`
}

type block struct {
	Type     string `json:"type"`
	Text     *text  `json:"text,omitempty"`
	Fields   []text `json:"fields,omitempty"`   // at most 10 of 2,000 characters
	Elements []text `json:"elements,omitempty"` // at most 10
}

type text struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func plain(s string) *text { return &text{"plain_text", s} }

func markdown(s string) text { return text{"mrkdwn", s} }

func encode(a notify.Alert, link string) message {
	headline := mark(a) + " " + a.Message()
	fields := block{Type: "section"}
	for _, f := range a.Facts() {
		fields.Fields = append(fields.Fields, markdown("*"+f.Name+"*\n"+literal(f.Value)))
	}
	return message{
		Text: escape(headline),
		Blocks: []block{
			{Type: "header", Text: plain(notify.Cut(headline, maxHeader))},
			fields,
			footer(a.ID, link),
		},
	}
}

func encodeSummary(s notify.Summary, link string) message {
	line := notify.Cut(s.Message(), maxSection)
	return message{
		Text:   escape(line),
		Blocks: []block{{Type: "section", Text: plain(line)}, footer(s.ID, link)},
	}
}

// footer has the id and the link.
func footer(id, link string) block {
	b := block{Type: "context", Elements: []text{markdown(literal(notify.Cut(id, maxSection/10)))}}
	if link != "" {
		b.Elements = append(b.Elements, markdown("<"+escape(link)+"|Status page>"))
	}
	return b
}

// mark is the color of an alert.
func mark(a notify.Alert) string {
	switch {
	case a.Test:
		return "⚪"
	case a.Resolved:
		return "🟢"
	case a.Severity() == notify.Critical:
		return "🔴"
	case a.Severity() == notify.Info:
		return "🔵"
	}
	return "🟠"
}

// escape takes from Slack's three control characters their meaning.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// literal returns s as code, so that *, _ and ~ in it stay what they are. Nothing stands
// for a backtick in code.
func literal(s string) string {
	return "`" + escape(strings.ReplaceAll(s, "`", "'")) + "`"
}
