// Package slack sends alerts to an incoming webhook of Slack, as Block Kit.
package slack

import (
	"fmt"
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
	maxFields  = 10 // of a section
)

// New returns a channel for the URL of an incoming webhook. It connects to nothing. Its errors
// hold no part of u. Slack knows no ids and drops nothing: an alert that may have arrived before says so.
func New(u *url.URL, style notify.Style, opts httppost.Options) (*httppost.Channel, error) {
	opts.Refuses = refuses
	return httppost.NewChannel(u, opts, httppost.Encoders{
		Alert:   func(a notify.Alert) any { return encode(a, style) },
		Alerts:  func(alerts []notify.Alert) any { return encodeMany(alerts, style) },
		Summary: func(s notify.Summary) any { return encodeSummary(s, style) },
	})
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

func encode(a notify.Alert, style notify.Style) message {
	headline := mark(a.Severity(), a.Resolved, a.Test) + " " + a.Message()
	m := message{Text: escape(headline), Blocks: []block{{Type: "header", Text: plain(notify.Cut(headline, maxHeader))}}}
	for facts := range slices.Chunk(style.Facts(a), maxFields) {
		fields := block{Type: "section"}
		for _, f := range facts {
			fields.Fields = append(fields.Fields, markdown("*"+f.Name+"*\n"+literal(f.Value)))
		}
		m.Blocks = append(m.Blocks, fields)
	}
	m.Blocks = append(m.Blocks, footer(a.ID, style.Links(a)))
	return m
}

// encodeMany has two blocks for each group of a digest, besides its headline and the footer.
func encodeMany(alerts []notify.Alert, style notify.Style) message {
	d := style.Digest(alerts)
	headline := mark(d.Severity, d.Resolved, false) + " " + d.Headline
	m := message{Text: escape(headline), Blocks: []block{{Type: "header", Text: plain(notify.Cut(headline, maxHeader))}}}
	for _, g := range d.Groups {
		said := ""
		if len(d.Groups) > 1 {
			said = mark(g.Severity, g.Resolved, false) + " *" + escape(g.Title) + "*"
		}
		for _, line := range g.Lines {
			if line := "\n• " + literal(line); len(said)+len(line) <= maxSection {
				said += line
			}
		}
		for _, part := range []string{strings.TrimPrefix(said, "\n"), g.More(maxSection, literal)} {
			if part != "" {
				m.Blocks = append(m.Blocks, block{Type: "section", Text: &text{"mrkdwn", part}})
			}
		}
	}
	id := alerts[0].ID
	if len(alerts) > 1 {
		id += fmt.Sprintf(" and %d more", len(alerts)-1)
	}
	m.Blocks = append(m.Blocks, footer(id, d.Link))
	return m
}

func encodeSummary(s notify.Summary, style notify.Style) message {
	line := notify.Cut(s.Message(), maxSection)
	return message{
		Text:   escape(line),
		Blocks: []block{{Type: "section", Text: plain(line)}, footer(s.ID, style.PageLinks())},
	}
}

// footer has the id and the links.
func footer(id string, links []notify.Link) block {
	b := block{Type: "context", Elements: []text{markdown(literal(notify.Cut(id, maxSection/10)))}}
	for _, l := range links {
		b.Elements = append(b.Elements, markdown("<"+escape(l.URL)+"|"+l.Text+">"))
	}
	return b
}

// mark is the color of an alert.
func mark(severity notify.Severity, resolved, test bool) string {
	switch {
	case test:
		return "⚪"
	case resolved:
		return "🟢"
	case severity == notify.Critical:
		return "🔴"
	case severity == notify.Info:
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
