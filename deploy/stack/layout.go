package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"alertworker/internal/notify"
)

// A layout says where on a line things stand: the time, then a cell for every
// worker.
type layout struct {
	width int // of the terminal, in columns
	cells int
	color bool
}

type style string

const (
	bold   style = "\x1b[1m"
	dim    style = "\x1b[2m"
	red    style = "\x1b[31m"
	green  style = "\x1b[32m"
	yellow style = "\x1b[33m"
	reset        = "\x1b[0m"
)

func (l layout) paint(s style, text string) string {
	if !l.color {
		return text
	}
	return string(s) + text + reset
}

const (
	stampWidth = 7 // 00:14.2
	gap        = "  "
	maxCell    = 36
	minCell    = 12
)

// cell returns the width of a cell.
func (l layout) cell() int {
	each := (l.width-1-stampWidth)/l.cells - len(gap)
	return min(max(each, minCell), maxCell)
}

// row puts cells, as wide as cell says or empty, on a line that begins at a time or with none.
func (l layout) row(stamp string, cells ...string) string {
	var b strings.Builder
	b.WriteString(l.paint(dim, fit(stamp, stampWidth)))
	for _, c := range cells {
		if c == "" {
			c = strings.Repeat(" ", l.cell())
		}
		b.WriteString(gap + c)
	}
	return strings.TrimRight(b.String(), " ")
}

// alone puts a cell on a line of its own, in column i.
func (l layout) alone(stamp string, i int, cell string) string {
	cells := make([]string, i+1)
	cells[i] = cell
	return l.row(stamp, cells...)
}

// alert is the cell of an alert: who, how hot, and how many readings were
// suppressed since the device's last alert.
func (l layout) alert(a notify.Alert) string {
	suppressed := ""
	if a.Suppressed > 0 {
		suppressed = "+" + strconv.FormatInt(a.Suppressed, 10)
	}
	const heat, quiet = 6, 6
	return l.paint(bold, fit(clean(a.Device), l.cell()-heat-quiet)) +
		l.paint(red, right(degrees(a.Temperature), heat)) +
		l.paint(dim, right(suppressed, quiet))
}

// note is the cell of anything else.
func (l layout) note(s style, text string) string { return l.paint(s, fit(text, l.cell())) }

// A lane is what is known of a worker.
type lane struct {
	name       string
	alive      bool
	back       time.Time // when it is started again, while it is dead
	killed     time.Time // when it was killed last
	partitions []string
	alerts     int
	suppressed int64
}

// heads are three lines on the workers.
func (l layout) heads(stamp string, now time.Time, lanes []lane) []string {
	var name, state, count []string
	for _, w := range lanes {
		if w.alive {
			name = append(name, l.note(green, "● "+w.name))
			state = append(state, l.note("", w.owns()))
		} else {
			name = append(name, l.note(red, "✗ "+w.name))
			state = append(state, l.note(red, w.absence(now)))
		}
		sent := plural(w.alerts, "alert")
		if w.suppressed > 0 {
			sent += fmt.Sprintf("  +%d", w.suppressed)
		}
		count = append(count, l.note(dim, sent))
	}
	return []string{l.row(stamp, name...), l.row("", state...), l.row("", count...)}
}

func (w lane) owns() string {
	if len(w.partitions) == 0 {
		return "no partition yet"
	}
	return "partitions " + strings.Join(w.partitions, " ")
}

func (w lane) absence(now time.Time) string {
	return fmt.Sprintf("killed, back in %d s", max(0, int(w.back.Sub(now).Seconds()+0.5)))
}

// text is a line that belongs to nobody.
func (l layout) text(s style, text string) string {
	room := max(0, l.width-1-stampWidth-len(gap))
	return strings.Repeat(" ", stampWidth) + gap + l.paint(s, strings.TrimRight(fit(text, room), " "))
}

func (l layout) rule() string { return l.paint(dim, strings.Repeat("─", max(0, l.width-1))) }

// elapsed writes a duration as minutes, seconds and tenths.
func elapsed(d time.Duration) string {
	tenths := d / (100 * time.Millisecond)
	return fmt.Sprintf("%02d:%02d.%d", tenths/600, tenths/10%60, tenths%10)
}

// clean replaces what could do more to a terminal than to stand there.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// fit makes s n characters wide; an ellipsis stands for what is cut.
func fit(s string, n int) string {
	length := utf8.RuneCountInString(s)
	switch {
	case length <= n:
		return s + strings.Repeat(" ", n-length)
	case n < 1:
		return ""
	}
	return string([]rune(s)[:n-1]) + "…"
}

func right(s string, n int) string {
	return strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s))) + s
}

func degrees(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
