// Package teams sends alerts to a channel or chat of Microsoft Teams, as an adaptive card
// to a webhook of Workflows.
package teams

import (
	"context"
	"net/url"
	"strings"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
)

// maxText is the most characters of a summary. Teams takes 28 KB in one message.
const maxText = 4000

// A Teams is a [notify.Notifier] and a [notify.Reporter] for one workflow. Workflows know
// no ids and drop nothing: an alert that may have arrived before says so.
type Teams struct {
	*httppost.Client
	link string
}

// New returns a Teams for the URL of a workflow's webhook. Cards link to link, unless it
// is empty. New connects to nothing. Its errors hold no part of u.
func New(u *url.URL, link string, opts httppost.Options) (*Teams, error) {
	opts.Refuses = refuses
	client, err := httppost.New(u, opts)
	if err != nil {
		return nil, err
	}
	return &Teams{client, link}, nil
}

// refuses takes it for the workflow's fault, not the message's, if the code of the
// error is about it, such as WorkflowTriggerIsNotEnabled, which comes with 400.
func refuses(code int, body string) bool {
	return httppost.RefusesMessage(code, body) && !strings.Contains(body, `"Workflow`)
}

// Notify posts a. The workflow answers before it has posted the card: that it fails later
// is only in its own history. See [httppost.Client.Post] for what answers mean.
func (t *Teams) Notify(ctx context.Context, a notify.Alert) error {
	return t.PostJSON(ctx, "alert", encode(a, t.link))
}

// Report posts s. Answers mean what they do to Notify.
func (t *Teams) Report(ctx context.Context, s notify.Summary) error {
	return t.PostJSON(ctx, "summary", encodeSummary(s, t.link))
}

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

func encode(a notify.Alert, link string) message {
	body := []line{{Type: "RichTextBlock", Inlines: []run{{Type: "TextRun", Text: a.Message(), Size: "Large", Weight: "Bolder", Color: color(a)}}}}
	for _, f := range a.Facts() {
		body = append(body, line{Type: "RichTextBlock", Spacing: "Small", Inlines: []run{
			{Type: "TextRun", Text: f.Name + ": ", Weight: "Bolder"},
			{Type: "TextRun", Text: f.Value},
		}})
	}
	return newMessage(a.Message(), append(body, id(a.ID)), link)
}

func encodeSummary(s notify.Summary, link string) message {
	text := notify.Cut(s.Message(), maxText)
	return newMessage("summary", []line{{Type: "RichTextBlock", Inlines: []run{{Type: "TextRun", Text: text}}}, id(s.ID)}, link)
}

// id is the last line of a card.
func id(id string) line {
	return line{Type: "RichTextBlock", Inlines: []run{{Type: "TextRun", Text: notify.Cut(id, 300), Size: "Small", Subtle: true}}}
}

func newMessage(summary string, body []line, link string) message {
	c := card{
		Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4",
		Summary: summary, Body: body,
	}
	if link != "" {
		c.Actions = []action{{Type: "Action.OpenUrl", Title: "Status page", URL: link}}
	}
	return message{Type: "message", Attachments: []attachment{{ContentType: "application/vnd.microsoft.card.adaptive", Content: c}}}
}

func color(a notify.Alert) string {
	switch {
	case a.Resolved:
		return "Good"
	case a.Severity() == notify.Info: // as a test is
		return "Accent"
	case a.Severity() == notify.Critical:
		return "Attention"
	}
	return "Warning"
}
