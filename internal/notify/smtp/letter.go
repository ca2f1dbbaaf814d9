package smtp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	htmltemplate "html/template"
	"net/mail"
	"strings"
	texttemplate "text/template"

	gomail "github.com/wneessen/go-mail"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
	"alertworker/internal/notify/wording"
)

// room is for several alerts.
const room = 32 << 10

// compose returns the mail about alerts in the format of RFC 5322.
func compose(style wording.Style, from *mail.Address, to []*mail.Address, alerts ...notify.Alert) ([]byte, error) {
	first, text := alerts[0], style.Text(room, alerts...)
	// The id is the same in every attempt, and the thread for mails that belong together.
	id, thread, subject := first.ID, "alarm\n"+first.Alarm(), wording.Subject(first)
	if len(alerts) > 1 {
		id, thread, subject = wording.BatchID(alerts), "alerts\n"+text.Headline, text.Headline
	}

	domain := from.Address[strings.LastIndexByte(from.Address, '@')+1:]
	m := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	m.FromMailAddress(from)
	m.ToMailAddress(to...)
	// It is neither folded at spaces that get lost, nor taken for encoded words, as a device can be called.
	m.Subject(strings.ReplaceAll(humanize.OneLine(subject), "=?", "= ?"))
	if !first.Sent.IsZero() { // by the store's clock: mailboxes sort by it, and spam filters compare it with theirs
		m.SetDateWithValue(first.Sent)
	}

	m.SetMessageIDWithValue(hash(id) + "@" + domain)
	m.SetGenHeader(gomail.HeaderReferences, "<thread-"+hash(thread)+"@"+domain+">")
	// Nobody's holiday reply comes back (RFC 3834, and Exchange's own field).
	m.SetGenHeader("Auto-Submitted", "auto-generated")
	m.SetGenHeader("X-Auto-Response-Suppress", "All")
	if !text.Resolved && text.Severity == notify.Critical {
		m.SetImportance(gomail.ImportanceHigh)
	}

	var b bytes.Buffer
	noText, noPage := m.SetBodyTextTemplate(textOf, text), m.AddAlternativeHTMLTemplate(pageOf, text)
	_, err := m.WriteTo(&b)
	if err := cmp.Or(noText, noPage, err); err != nil {
		return nil, fmt.Errorf("compose: %w", err)
	}

	return b.Bytes(), nil
}

// hash names something in a header.
func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// textOf is a [wording.Text] for those who read mail without HTML.
var textOf = texttemplate.Must(texttemplate.New("").Parse(`{{define "row"}}{{printf "%-20s  %s" .Name .Value}}
{{end}}{{.Headline}}
{{range .Sections}}
{{with .Title}}{{.}}
{{end}}{{range .Facts}}{{template "row" .}}{{end}}{{range .Lines}}{{template "row" .}}{{end}}{{end}}{{if .Links}}
{{range .Links}}{{printf "%-20s  %s" .Text .URL}}
{{end}}{{end}}`))

// pageOf is a [wording.Text] in HTML, without images and scripts, and without links but its own.
var pageOf = htmltemplate.Must(htmltemplate.New("").Parse(`{{define "row"}}` +
	`<tr><td style="padding: 0.1em 1.5em 0.1em 0; color: #666">{{.Name}}</td><td>{{.Value}}</td></tr>
{{end}}<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{{.Headline}}</title></head>
<body style="font-family: sans-serif; color: #222">
<p style="font-size: 1.2em"><strong>{{.Headline}}</strong></p>
{{range .Sections}}{{with .Title}}<p style="margin: 1em 0 0.2em"><strong>{{.}}</strong></p>
{{end}}<table style="border-collapse: collapse">
{{range .Facts}}{{template "row" .}}{{end}}{{range .Lines}}{{template "row" .}}{{end}}</table>
{{end}}{{range .Links}}<p><a href="{{.URL}}">{{.Text}}</a></p>
{{end}}</body>
</html>
`))
