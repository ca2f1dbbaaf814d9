package smtp

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"net/mail"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	gomail "github.com/wneessen/go-mail"

	"alertworker/internal/notify"
	"alertworker/internal/notify/redact"
)

// A letter is what a mail says.
type letter struct {
	id       string // the same in every attempt
	thread   string // the same for letters that belong together
	subject  string
	headline string
	urgent   bool
	sections []section
	links    []notify.Link
}

// A section is a table.
type section struct {
	title string // empty for none
	rows  [][2]string
}

func alertLetter(a notify.Alert, style notify.Style) letter {
	var facts section
	for _, f := range style.Facts(a) {
		facts.rows = append(facts.rows, [2]string{f.Name, f.Value})
	}
	return letter{
		id:       a.ID,
		thread:   "alarm\n" + a.Alarm(),
		subject:  a.Subject(),
		headline: a.Message(),
		urgent:   !a.Resolved && a.Severity() == notify.Critical,
		sections: []section{facts},
		links:    style.Links(a),
	}
}

// manyLetter is one about several alerts.
func manyLetter(alerts []notify.Alert, style notify.Style) letter {
	d := style.Digest(alerts)
	l := letter{
		id:       notify.BatchID(alerts),
		thread:   "alerts\n" + d.Headline,
		subject:  d.Headline,
		headline: d.Headline,
		urgent:   !d.Resolved && d.Severity == notify.Critical,
		links:    d.Link,
	}
	for _, g := range d.Groups {
		s := section{title: g.Title}
		for _, line := range g.Lines {
			name, rest, _ := strings.Cut(line, ": ")
			s.rows = append(s.rows, [2]string{name, rest})
		}
		if more := g.More(maxNames, func(s string) string { return s }); more != "" {
			s.rows = append(s.rows, [2]string{"", more})
		}
		l.sections = append(l.sections, s)
	}
	return l
}

// maxNames is how many bytes of names a mail about many has for each rule and level.
const maxNames = 16 << 10

func summaryLetter(s notify.Summary, style notify.Style) letter {
	subject := "alertworker: summary of " + s.Days[0].Date.UTC().Format(time.DateOnly)
	l := letter{id: s.ID, thread: "summary\n" + s.Scope, subject: subject, headline: subject, links: style.PageLinks()}
	for i, day := range s.Days {
		title := day.Date.UTC().Format(time.DateOnly)
		if i == 1 {
			title += ", so far"
		}
		l.sections = append(l.sections, section{title, dayRows(day)})
	}
	for _, day := range s.Days {
		l.sections = append(l.sections, deviceSections(day)...)
	}
	scope := [][2]string{{"Scope", redact.Excerpt(s.Scope)}}
	if s.More {
		scope = append(scope, [2]string{"Note", "there were more devices than could be counted: figures are too low"})
	}
	l.sections = append(l.sections, section{rows: scope})
	return l
}

func dayRows(d notify.Day) [][2]string {
	const unknown = "not known"
	alerts, devices, suppressed, letters := unknown, unknown, unknown, unknown
	if !d.Unknown {
		alerts, devices, suppressed = count(d.Alerts), count(d.Devices), count(d.Suppressed)
	}
	if d.DeadLetters != nil {
		letters = strconv.Itoa(*d.DeadLetters)
	}
	return [][2]string{{"Alerts", alerts}, {"Devices", devices}, {"Suppressed readings", suppressed}, {"Dead letters", letters}}
}

// deviceSections lists the devices with the most alerts, and those with the most
// suppressed readings.
func deviceSections(d notify.Day) (list []section) {
	for _, top := range []struct {
		title   string
		devices []notify.DeviceCount
	}{{"Most alerts", d.MostAlerts}, {"Most suppressed readings", d.MostSuppressed}} {
		if len(top.devices) == 0 {
			continue
		}
		s := section{title: top.title + " on " + d.Date.UTC().Format(time.DateOnly)}
		for _, c := range top.devices {
			s.rows = append(s.rows, [2]string{redact.Excerpt(c.Device), fmt.Sprintf("%d alerts, %d suppressed", c.Alerts, c.Suppressed)})
		}
		list = append(list, s)
	}
	return list
}

func count(n int64) string { return strconv.FormatInt(n, 10) }

// compose returns the mail in the format of RFC 5322. It fails for an empty id.
func (l letter) compose(from *mail.Address, to []*mail.Address) ([]byte, error) {
	if l.id == "" {
		return nil, errors.New("it has no id")
	}
	domain := from.Address[strings.LastIndexByte(from.Address, '@')+1:]
	page := l.page()
	m := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	m.FromMailAddress(from)
	m.ToMailAddress(to...)
	m.Subject(literally(l.subject))
	m.SetMessageIDWithValue(messageID(l.id) + "@" + domain)
	thread := sha256.Sum256([]byte(l.thread))
	m.SetGenHeader(gomail.HeaderReferences, "<thread-"+hex.EncodeToString(thread[:16])+"@"+domain+">")
	// Nobody's holiday reply comes back (RFC 3834, and Exchange's own field).
	m.SetGenHeader("Auto-Submitted", "auto-generated")
	m.SetGenHeader("X-Auto-Response-Suppress", "All")
	if l.urgent {
		m.SetImportance(gomail.ImportanceHigh)
	}
	m.SetBodyString(gomail.TypeTextPlain, l.text())
	m.AddAlternativeString(gomail.TypeTextHTML, page)
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("compose: %w", err)
	}
	return b.Bytes(), nil
}

// literally returns a subject that shows as s: the library encodes what is not ASCII, and
// leaves alone what looks encoded already or has spaces that get lost, as a device can be called.
func literally(s string) string {
	if !strings.Contains(s, "=?") && s == strings.Join(strings.Fields(s), " ") {
		return s
	}
	var words []string
	for len(s) > 0 {
		n := len(s)
		if n > maxWord {
			for n = maxWord; !utf8.RuneStart(s[n]); n-- {
			}
		}
		words = append(words, "=?UTF-8?B?"+base64.StdEncoding.EncodeToString([]byte(s[:n]))+"?=")
		s = s[n:]
	}
	return strings.Join(words, " ")
}

// maxWord is how many bytes an encoded word has room for: it may be 75 characters long.
const maxWord = 45

// maxMessageID leaves room in a line of mail, which has at most 998 characters.
const maxMessageID = 700

// messageID returns what stands before the @ of a Message-ID: id, with every byte but
// letters, digits, "-", "_" and "/" as "=" and two hexadecimal digits. An id that is too
// long becomes its hash, after what no byte becomes. Different ids are different.
func messageID(id string) string {
	var b strings.Builder
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '/':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	if b.Len() > maxMessageID {
		sum := sha256.Sum256([]byte(id))
		return "=sha256/" + hex.EncodeToString(sum[:])
	}
	return b.String()
}

// text is the letter for those who read mail without HTML.
func (l letter) text() string {
	var b strings.Builder
	b.WriteString(l.headline + "\n")
	for _, s := range l.sections {
		b.WriteString("\n")
		if s.title != "" {
			b.WriteString(s.title + "\n")
		}
		for _, row := range s.rows {
			fmt.Fprintf(&b, "%-*s  %s\n", textColumn, row[0], row[1])
		}
	}
	for i, link := range l.links {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%-*s  %s\n", textColumn, link.Text, link.URL)
	}
	return b.String()
}

const textColumn = 20

// page is the letter in HTML, without images and scripts, and without links but its own.
func (l letter) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>%[1]s</title></head>
<body style="font-family: sans-serif; color: #222">
<p style="font-size: 1.2em"><strong>%[1]s</strong></p>
`, html.EscapeString(l.headline))
	for _, s := range l.sections {
		if s.title != "" {
			fmt.Fprintf(&b, "<p style=\"margin: 1em 0 0.2em\"><strong>%s</strong></p>\n", html.EscapeString(s.title))
		}
		b.WriteString("<table style=\"border-collapse: collapse\">\n")
		for _, row := range s.rows {
			fmt.Fprintf(&b, "<tr><td style=\"padding: 0.1em 1.5em 0.1em 0; color: #666\">%s</td><td>%s</td></tr>\n", html.EscapeString(row[0]), html.EscapeString(row[1]))
		}
		b.WriteString("</table>\n")
	}
	for _, link := range l.links {
		fmt.Fprintf(&b, "<p><a href=\"%s\">%s</a></p>\n", html.EscapeString(link.URL), html.EscapeString(link.Text))
	}
	b.WriteString("</body>\n</html>\n")
	return b.String()
}
