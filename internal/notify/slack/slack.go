// Package slack sends alerts to an incoming webhook of Slack, as Block Kit.
package slack

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/wording"
)

// The most characters that Slack takes.
const (
	maxHeader  = 150
	maxSection = 3000 // counted in bytes here, which are no fewer
	maxFields  = 10   // of a section

	room = 12_000 // for several alerts; no limit is known
)

// New returns a channel for the URL of an incoming webhook. It connects to nothing. Its errors
// hold no part of u. Slack knows no ids and drops nothing: an alert that may have arrived before says so.
func New(u *url.URL, style wording.Style, opts httppost.Options) (*httppost.Channel, error) {
	opts.Settings = settings
	opts.Says = "ok" // https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
	return httppost.NewChannel(u, opts, func(alerts []notify.Alert) any { return encode(style.Text(room, alerts...)) })
}

// settings are answers that are about the webhook, its channel or its workspace, although some come with 400.
var settings = regexp.MustCompile("user_not_found|channel_not_found|channel_is_archived|action_prohibited|posting_to_general_channel_denied|" +
	"invalid_token|no_service|no_active_hooks|no_team|team_disabled")

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

func markdown(s string) text { return text{"mrkdwn", s} }

func encode(t wording.Text) message {
	headline := mark(t.Severity, t.Resolved, t.Test) + " " + t.Headline
	m := message{Text: escape(headline), Blocks: []block{{Type: "header", Text: &text{"plain_text", wording.Cut(headline, maxHeader)}}}}
	for _, s := range t.Sections {
		said := ""
		if s.Title != "" {
			said = mark(s.Severity, s.Resolved, false) + " *" + escape(s.Title) + "*"
		}

		for _, line := range s.Lines {
			item := "\n• " + literal(line.String())
			if len(said)+len(item) > maxSection {
				m.section(said)
				said = ""
			}
			said += item
		}

		m.section(said)

		for facts := range slices.Chunk(s.Facts, maxFields) {
			fields := block{Type: "section"}
			for _, f := range facts {
				fields.Fields = append(fields.Fields, markdown("*"+escape(f.Name)+"*\n"+literal(f.Value)))
			}
			m.Blocks = append(m.Blocks, fields)
		}
	}

	id := block{Type: "context", Elements: []text{markdown(literal(t.ID))}}
	for _, l := range t.Links {
		at := escape(strings.ReplaceAll(l.URL, "|", "%7C")) // a bar would end it
		id.Elements = append(id.Elements, markdown("<"+at+"|"+l.Text+">"))
	}

	m.Blocks = append(m.Blocks, id)

	return m
}

// section adds a block of text, unless it is empty.
func (m *message) section(said string) {
	if said = strings.TrimPrefix(said, "\n"); said != "" {
		m.Blocks = append(m.Blocks, block{Type: "section", Text: &text{"mrkdwn", said}})
	}
}

// mark is the color of an alert.
func mark(severity notify.Severity, resolved, test bool) string {
	switch {
	case test:
		return "⚪"
	case resolved:
		return "🟢"
	}

	return marks[severity]
}

var marks = map[notify.Severity]string{notify.Critical: "🔴", notify.Serious: "🟠", notify.Warning: "🟠", notify.Info: "🔵"}

// escape escapes Slack's three control characters.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// literal returns s as code, so that *, _ and ~ in it stay what they are. Nothing stands
// for a backtick in code.
func literal(s string) string {
	return "`" + escape(strings.ReplaceAll(s, "`", "'")) + "`"
}
