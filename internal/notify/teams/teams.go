// Package teams sends alerts to a channel or chat of Microsoft Teams, as an adaptive card
// to a webhook of Workflows.
package teams

import (
	"net/url"
	"strings"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
)

// Teams takes 28 KB in one message.
const (
	maxText  = 4000 // characters of a summary
	maxNames = 8000 // bytes of the names in a card about many, which JSON may escape
)

// New returns a channel for the URL of a workflow's webhook. It connects to nothing. Its errors
// hold no part of u. Workflows know no ids and drop nothing: an alert that may have arrived before says so. They
// answer before they have posted the card: that one fails later is only in its own history.
func New(u *url.URL, style notify.Style, opts httppost.Options) (*httppost.Channel, error) {
	opts.Refuses = refuses
	return httppost.NewChannel(u, opts, httppost.Encoders{
		Alert:   func(a notify.Alert) any { return encode(a, style) },
		Alerts:  func(alerts []notify.Alert) any { return encodeMany(alerts, style) },
		Summary: func(s notify.Summary) any { return encodeSummary(s, style) },
	})
}

// refuses takes it for the workflow's fault, not the message's, if the code of the error is about
// it, such as WorkflowTriggerIsNotEnabled, or about the schema that somebody gave its trigger, such as
// TriggerInputSchemaMismatch. They come with 400, to every message alike.
func refuses(code int, body string) bool {
	return httppost.RefusesMessage(code, body) && !strings.Contains(body, `"Workflow`) && !strings.Contains(strings.ToLower(body), "schema")
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

func encode(a notify.Alert, style notify.Style) message {
	body := []line{headline(a.Message(), color(a.Severity(), a.Resolved))}
	for _, f := range style.Facts(a) {
		body = append(body, small(run{Text: f.Name + ": ", Weight: "Bolder"}, run{Text: f.Value}))
	}
	return newMessage(a.Message(), append(body, id(a.ID)), style.Links(a))
}

func encodeMany(alerts []notify.Alert, style notify.Style) message {
	d := style.Digest(alerts)
	body := []line{headline(d.Headline, color(d.Severity, d.Resolved))}
	for _, g := range d.Groups {
		if len(d.Groups) > 1 {
			body = append(body, small(run{Text: g.Title, Weight: "Bolder", Color: color(g.Severity, g.Resolved)}))
		}
		for _, l := range g.Lines {
			body = append(body, small(run{Text: l}))
		}
		if more := g.More(maxNames/len(d.Groups), func(s string) string { return s }); more != "" {
			body = append(body, small(run{Text: more}))
		}
	}
	return newMessage(d.Headline, body, d.Link)
}

func encodeSummary(s notify.Summary, style notify.Style) message {
	text := notify.Cut(s.Message(), maxText)
	return newMessage("summary", []line{newLine("", run{Text: text}), id(s.ID)}, style.PageLinks())
}

func newLine(spacing string, runs ...run) line {
	for i := range runs {
		runs[i].Type = "TextRun"
	}
	return line{Type: "RichTextBlock", Spacing: spacing, Inlines: runs}
}

func headline(text, color string) line {
	return newLine("", run{Text: text, Size: "Large", Weight: "Bolder", Color: color})
}

func small(runs ...run) line { return newLine("Small", runs...) }

// id is the last line of a card.
func id(id string) line {
	return newLine("", run{Text: notify.Cut(id, 300), Size: "Small", Subtle: true})
}

func newMessage(summary string, body []line, links []notify.Link) message {
	c := card{
		Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4",
		Summary: summary, Body: body,
	}
	for _, l := range links {
		c.Actions = append(c.Actions, action{Type: "Action.OpenUrl", Title: l.Text, URL: l.URL})
	}
	return message{Type: "message", Attachments: []attachment{{ContentType: "application/vnd.microsoft.card.adaptive", Content: c}}}
}

func color(severity notify.Severity, resolved bool) string {
	switch {
	case resolved:
		return "Good"
	case severity == notify.Info: // as a test is
		return "Accent"
	case severity == notify.Critical:
		return "Attention"
	}
	return "Warning"
}
