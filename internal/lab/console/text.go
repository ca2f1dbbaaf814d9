package console

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"alertworker/internal/humanize"
	"alertworker/internal/lab/verify"
	"alertworker/internal/notify"
)

// maxName is how much of a device id, in characters, a line shows.
const maxName = 24

// maxEvidence is how many violations of each kind the summary shows.
const maxEvidence = 10

type style string

const (
	bold  style = "\x1b[1m"
	dim   style = "\x1b[2m"
	red   style = "\x1b[31m"
	green style = "\x1b[32m"
	reset       = "\x1b[0m"
)

// paint returns s in a style, if the output has colors.
func (c *Console) paint(s style, text string) string {
	if !c.opts.Color {
		return text
	}
	return string(s) + text + reset
}

// elapsed is the first column of every line.
func (c *Console) elapsed() string {
	return c.paint(dim, tenths(time.Since(c.start)))
}

// tenths formats a time since the start.
func tenths(d time.Duration) string {
	n := d / (100 * time.Millisecond)
	return fmt.Sprintf("%02d:%02d.%d", n/600, n/10%60, n%10)
}

func (c *Console) alertLine(a notify.Alert, lag time.Duration) string {
	name := shorten(humanize.Clean(a.From().String()), maxName)
	c.names = max(c.names, utf8.RuneCountInString(name))
	what := c.paint(red, "ALERT")
	far := fmt.Sprintf("%6s over %v", "+"+degrees(a.Temperature-a.Threshold), a.Threshold)
	since := "first alert"

	switch {
	case a.Resolved:
		what = c.paint(green, pad("OK", len("ALERT")))
		far = fmt.Sprintf("%5s under %v", degrees(a.Threshold-a.Temperature), a.Threshold)
		since = "recovered"
		if !a.Since.IsZero() {
			since = "hot for " + a.Enqueued.Sub(a.Since).Round(time.Second).String()
		}

	case a.Suppressed > 0:
		since = grouped(int(a.Suppressed)) + " suppressed"
	}

	value := degrees(a.Temperature)

	if a.Silent > 0 {
		value = ""
		far = pad("silent for "+a.Silent.String(), 14)
		since = "first alert"
		if !a.LastHeard.IsZero() {
			since = "heard at " + tenths(a.LastHeard.Sub(c.start))
		}

		if a.Resolved {
			far, since = pad("heard again", 14), "silent for "+a.Enqueued.Sub(a.Since).Round(time.Second).String()
		}
	}

	took := fmt.Sprintf("%d ms", lag.Milliseconds())
	if a.Resolved { // it waits for the window
		took = lag.Round(time.Second).String()
	}

	return fmt.Sprintf("%s  %s  %s  %s  %s  %-16s  %s",
		c.elapsed(),
		what,
		c.paint(bold, pad(name, c.names)),
		c.paint(bold, fmt.Sprintf("%7s", value)),
		far,
		since,
		c.paint(dim, humanize.Clean(a.Replica)+", "+took))
}

func (c *Console) statusLine() string {
	line := fmt.Sprintf(
		"%s  %s %s  %s/s  %s over %v  %s %s",
		c.elapsed(),
		c.paint(bold, grouped(c.readings)),
		either(c.readings, "reading", "readings"),
		strconv.FormatFloat(float64(c.readings-c.rated)/interval.Seconds(), 'f', 0, 64),
		c.paint(
			bold,
			grouped(c.over),
		),
		c.opts.Threshold,
		c.paint(bold, grouped(c.alerts)),
		either(c.alerts, "alert", "alerts"),
	)

	line += "  " + c.paint(bold, grouped(c.recoveries)) + " " + either(c.recoveries, "recovery", "recoveries")

	if c.opts.Silent {
		line += "  " + c.paint(bold, grouped(c.silences)) + " silent"
	}

	return line + "  " + c.paint(bold, grouped(max(0, c.over-c.alerts))) + " suppressed"
}

// Summary prints a report as a table and in words, which contain "lost 0, too close 0,
// stale 0, wrong 0" if the promise held.
func (c *Console) Summary(r verify.Report) {
	took := time.Since(c.start).Round(100 * time.Millisecond)

	var b strings.Builder
	row := func(n int, what string) { fmt.Fprintf(&b, "%12s  %s\n", grouped(n), what) }
	b.WriteByte('\n')
	row(r.Readings, either(r.Readings, "reading", "readings")+" in "+took.String())
	row(r.Over, "over the threshold of "+fmt.Sprint(c.opts.Threshold))
	if r.Quieted > 0 {
		row(r.Quieted, "of quiet devices: no alerts are sent for them")
	}

	why := ""

	if r.Opened > 0 {
		row(r.Opened, either(r.Opened, "alarm", "alarms")+" opened")
		why = fmt.Sprintf(": none within %v of the last, and again while an alarm lasts", r.Rules.Window)
	}

	row(r.Alerts, either(r.Alerts, "alert", "alerts")+" sent"+why)
	row(r.Recoveries, either(r.Recoveries, "recovery", "recoveries")+" sent")
	row(r.Suppressed, "suppressed, within "+r.Rules.Window.String()+" of an alert")
	if r.Dropped > 0 {
		row(r.Dropped, "repeated, for the receiver to drop")
	}

	if r.Open > 0 {
		row(r.Open, "too near the end to be judged")
	}

	row(len(r.Lost), "lost")
	row(len(r.TooClose), "too close")
	row(len(r.Stale), "stale: the last message is no longer true")
	row(len(r.Wrong), "wrong: nothing should have been sent")
	b.WriteByte('\n')

	counts := fmt.Sprintf(
		"lost %d, too close %d, stale %d, wrong %d",
		len(r.Lost),
		len(r.TooClose),
		len(r.Stale),
		len(r.Wrong),
	)

	switch {
	case !r.OK():
		fmt.Fprintf(&b, "  %s\n", c.paint(red, "BROKEN: "+counts))

	case r.Over == 0:
		fmt.Fprintf(&b, "  %s\n", c.paint(green, counts+": nothing was over the threshold"))

	default:
		hot := "hot"
		if c.opts.Silent {
			hot = "hot or silent"
		}

		text := ": every " + hot + " device was reported, none twice within " + r.Rules.Window.String()
		if r.Recoveries > 0 {
			text += ", and every recovery was reported"
		}

		fmt.Fprintf(&b, "  %s\n", c.paint(green, counts+text))
	}

	evidence(&b, "lost", r.Lost)
	evidence(&b, "too close", r.TooClose)
	evidence(&b, "stale", r.Stale)
	evidence(&b, "wrong", r.Wrong)

	c.mu.Lock()
	defer c.mu.Unlock()

	c.print(b.String())
}

func evidence(b *strings.Builder, kind string, all []verify.Violation) {
	for i, e := range all {
		if i == maxEvidence {
			fmt.Fprintf(b, "  %s: and %s more\n", kind, grouped(len(all)-i))
			return
		}
		fmt.Fprintf(b, "  %s: %s\n", kind, humanize.Clean(e.Evidence))
	}
}

// shorten cuts s to n characters, the last of them an ellipsis if s was longer.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
}

// degrees formats a temperature to the tenth, and a huge one with an exponent.
func degrees(v float64) string {
	if math.Abs(v) >= 1e5 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// either returns the word for n.
func either(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// grouped writes 1234567 as 1,234,567.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}

	return s
}
