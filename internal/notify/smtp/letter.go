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
	"time"

	gomail "github.com/wneessen/go-mail"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
	"alertworker/internal/notify/wording"
)

// A letter is a mail.
type letter struct {
	wording.Text
	id      string // the same in every attempt
	thread  string // the same for letters that belong together
	subject string
	date    time.Time // by the store's clock: mailboxes sort by it, and spam filters compare it with theirs; zero: now
}

// newLetter returns the one about alerts.
func newLetter(style wording.Style, alerts ...notify.Alert) letter {
	t := style.Text(room, alerts...)
	if len(alerts) > 1 {
		return letter{t, wording.BatchID(alerts), "alerts\n" + t.Headline, t.Headline, alerts[0].Sent}
	}
	return letter{t, alerts[0].ID, "alarm\n" + alerts[0].Alarm(), wording.Subject(alerts[0]), alerts[0].Sent}
}

// room is for several alerts.
const room = 32 << 10

// compose returns the mail in the format of RFC 5322.
func (l letter) compose(from *mail.Address, to []*mail.Address) ([]byte, error) {
	domain := from.Address[strings.LastIndexByte(from.Address, '@')+1:]
	m := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	m.FromMailAddress(from)
	m.ToMailAddress(to...)
	// It is neither folded at spaces that get lost, nor taken for encoded words, as a device can be called.
	m.Subject(strings.ReplaceAll(humanize.OneLine(l.subject), "=?", "= ?"))
	if !l.date.IsZero() {
		m.SetDateWithValue(l.date)
	}

	m.SetMessageIDWithValue(hash(l.id) + "@" + domain)
	m.SetGenHeader(gomail.HeaderReferences, "<thread-"+hash(l.thread)+"@"+domain+">")
	// Nobody's holiday reply comes back (RFC 3834, and Exchange's own field).
	m.SetGenHeader("Auto-Submitted", "auto-generated")
	m.SetGenHeader("X-Auto-Response-Suppress", "All")
	if !l.Resolved && l.Severity == notify.Critical {
		m.SetImportance(gomail.ImportanceHigh)
	}

	var b bytes.Buffer
	noText, noPage := m.SetBodyTextTemplate(textOf, l.Text), m.AddAlternativeHTMLTemplate(pageOf, l.Text)
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
