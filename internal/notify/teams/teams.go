// Package teams sends alerts to a channel or chat of Microsoft Teams, as an adaptive card
// to a webhook of Workflows.
package teams

import (
	"net/url"
	"regexp"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/wording"
)

// room is for several alerts. Teams takes 28 KB in one message, and there is more in a card.
const room = 14_000

// New returns a channel for the URL of a workflow's webhook. It connects to nothing. Its errors
// hold no part of u. Workflows know no ids and drop nothing: an alert that may have arrived before says so. They
// answer before they have posted the card: that one fails later is only in its own history.
func New(u *url.URL, style wording.Style, opts httppost.Options) (*httppost.Channel, error) {
	opts.Settings = settings
	return httppost.NewChannel(u, opts, func(alerts []notify.Alert) any { return encode(style.Text(room, alerts...)) })
}

// settings is in answers about the workflow, whose error has a code such as WorkflowTriggerIsNotEnabled, or about the schema
// that somebody gave its trigger, such as TriggerInputSchemaMismatch. They come with 400, to every message alike.
var settings = regexp.MustCompile(`"Workflow|(?i:schema)`)

type message struct {
	Type        string       `json:"type"`
	Attachments []attachment `json:"attachments"`
}

type attachment struct {
	ContentType string `json:"contentType"`
	Content     card   `json:"content"`
}

// card is an adaptive card. Its text is in runs alone, which are not read as Markdown.
type card struct {
	Schema  string   `json:"$schema"`
	Type    string   `json:"type"`
	Version string   `json:"version"`
	Summary string   `json:"fallbackText"`
	Body    []line   `json:"body"`
	Actions []action `json:"actions,omitempty"`
}

type line struct {
	Type    string `json:"type"`
	Spacing string `json:"spacing,omitempty"`
	Inlines []run  `json:"inlines"`
}

type run struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	Size   string `json:"size,omitempty"`
	Weight string `json:"weight,omitempty"`
	Color  string `json:"color,omitempty"`
	Subtle bool   `json:"isSubtle,omitempty"`
}

type action struct {
	Type  string `json:"type"`
	Title string `json:"title"`
	URL   string `json:"url"`
}

func encode(t wording.Text) message {
	c := card{
		Schema:  "http://adaptivecards.io/schemas/adaptive-card.json",
		Type:    "AdaptiveCard",
		Version: "1.4",
		Summary: t.Headline,
		Body: []line{
			newLine("", run{Text: t.Headline, Size: "Large", Weight: "Bolder", Color: color(t.Severity, t.Resolved)}),
		},
	}
	add := func(runs ...run) { c.Body = append(c.Body, newLine("Small", runs...)) }
	for _, s := range t.Sections {
		if s.Title != "" {
			add(run{Text: s.Title, Weight: "Bolder", Color: color(s.Severity, s.Resolved)})
		}

		for _, f := range s.Facts {
			add(run{Text: f.Name + ": ", Weight: "Bolder"}, run{Text: f.Value})
		}

		for _, l := range s.Lines {
			add(run{Text: l.String()})
		}
	}

	c.Body = append(c.Body, newLine("", run{Text: t.ID, Size: "Small", Subtle: true}))
	for _, l := range t.Links {
		c.Actions = append(c.Actions, action{Type: "Action.OpenUrl", Title: l.Text, URL: l.URL})
	}

	return message{
		Type:        "message",
		Attachments: []attachment{{ContentType: "application/vnd.microsoft.card.adaptive", Content: c}},
	}
}

// newLine returns a line of text with so much space before it.
func newLine(spacing string, runs ...run) line {
	for i := range runs {
		runs[i].Type = "TextRun"
	}
	return line{Type: "RichTextBlock", Spacing: spacing, Inlines: runs}
}

// color returns the color of a card.
func color(severity notify.Severity, resolved bool) string {
	if resolved {
		return "Good"
	}
	return colors[severity]
}

// colors are those of alerts; a test is Info.
var colors = map[notify.Severity]string{
	notify.Critical: "Attention", notify.Serious: "Warning", notify.Warning: "Warning", notify.Info: "Accent",
}
