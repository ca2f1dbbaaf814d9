package smtp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html"
	"net/mail"
	"slices"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"

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

// rows are those of the table that shows s.
func rows(s wording.Section) []wording.Fact { return slices.Concat(s.Facts, s.Lines) }

// compose returns the mail in the format of RFC 5322.
func (l letter) compose(from *mail.Address, to []*mail.Address) ([]byte, error) {
	domain := from.Address[strings.LastIndexByte(from.Address, '@')+1:]
	m := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	m.FromMailAddress(from)
	m.ToMailAddress(to...)
	m.Subject(plain(l.subject))
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

	m.SetBodyString(gomail.TypeTextPlain, l.text())
	m.AddAlternativeString(gomail.TypeTextHTML, l.page())
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("compose: %w", err)
	}

	return b.Bytes(), nil
}

// hash names something in a header.
func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// plain returns a subject that looks like s, and is neither folded at spaces that get lost nor taken for encoded
// words, as a device can be called.
func plain(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "=?", "= ?")
}

// text is the letter for those who read mail without HTML.
func (l letter) text() string {
	var b strings.Builder
	b.WriteString(l.Headline + "\n")
	for _, s := range l.Sections {
		b.WriteString("\n")
		if s.Title != "" {
			b.WriteString(s.Title + "\n")
		}

		for _, row := range rows(s) {
			fmt.Fprintf(&b, "%-20s  %s\n", row.Name, row.Value)
		}
	}

	for i, link := range l.Links {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%-20s  %s\n", link.Text, link.URL)
	}

	return b.String()
}

// page is the letter in HTML, without images and scripts, and without links but its own.
func (l letter) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>%[1]s</title></head>
<body style="font-family: sans-serif; color: #222">
<p style="font-size: 1.2em"><strong>%[1]s</strong></p>
`, html.EscapeString(l.Headline))
	for _, s := range l.Sections {
		if s.Title != "" {
			fmt.Fprintf(&b, "<p style=\"margin: 1em 0 0.2em\"><strong>%s</strong></p>\n", html.EscapeString(s.Title))
		}

		b.WriteString("<table style=\"border-collapse: collapse\">\n")
		for _, row := range rows(s) {
			fmt.Fprintf(
				&b,
				"<tr><td style=\"padding: 0.1em 1.5em 0.1em 0; color: #666\">%s</td><td>%s</td></tr>\n",
				html.EscapeString(row.Name),
				html.EscapeString(row.Value),
			)
		}

		b.WriteString("</table>\n")
	}

	for _, link := range l.Links {
		fmt.Fprintf(&b, "<p><a href=\"%s\">%s</a></p>\n", html.EscapeString(link.URL), html.EscapeString(link.Text))
	}

	b.WriteString("</body>\n</html>\n")

	return b.String()
}
