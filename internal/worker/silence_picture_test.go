package worker_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/rules"
)

var draws = flag.Bool("draw", false, "draw docs/rules-silent.svg anew")

// The picture in docs/rules.md shows what a worker does, in virtual time, by the rule beside it.
func TestSilencePicture(t *testing.T) {
	const (
		file, style   = "../../docs/rules-silent.svg", "../../docs/rules-window.svg" // of which the new one has the style
		minutes       = 100
		left, right   = 118.0, 836.0
		height, width = 168, 860
	)
	type event struct {
		minute   float64
		recovery bool
	}
	var heard []float64
	var notified []event
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, func(r *rules.Rule) { r.Window = 20 * time.Minute }, r)
		start := time.Now()
		r.set(func(_ context.Context, a notify.Alert) error {
			notified = append(notified, event{time.Since(start).Minutes(), a.Resolved})
			return nil
		})
		s.start(p)
		for minute := range minutes {
			if minute%5 == 2 && (minute < 20 || minute > 50 && minute < 65 || minute > 80 && minute < 90) {
				p.publishBody("oven", "{}")
				heard = append(heard, float64(minute))
			}
			time.Sleep(time.Minute)
		}
		s.end()
	})
	var told []string
	for _, e := range notified {
		told = append(told, fmt.Sprintf("%s %.0f", map[bool]string{false: "alert", true: "recovery"}[e.recovery], e.minute))
	}
	if got, want := strings.Join(told, ", "), "alert 32, recovery 52, alert 77, recovery 97"; got != want {
		t.Fatalf("notified at minute: %s; want %s", got, want)
	}

	head, err := os.ReadFile(style)
	if err != nil {
		t.Fatal(err)
	}
	_, css, _ := strings.Cut(string(head), "<style>")
	css, _, _ = strings.Cut(css, "</style>")
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="title desc">
<title id="title">The rule offline: messages, silences, windows and notices</title>
<desc id="desc">Notified at minute: %s.</desc>
<style>%s</style>
<rect x="0.5" y="0.5" width="%d" height="%d" rx="6" class="paper"/>
`, width, height, strings.Join(told, ", "), css, width-1, height-1)
	x := func(minute float64) float64 { return left + (right-left)*minute/minutes }
	text := func(x, y float64, class, s string) {
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\" class=%q>%s</text>\n", x, y, class, s)
	}
	bar := func(from, to, y, h float64, class string) {
		fmt.Fprintf(&b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\" class=%q/>\n", x(from), y, x(to)-x(from), h, class)
	}
	dot := func(minute, y, r float64, class string) {
		fmt.Fprintf(&b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=%q/>\n", x(minute), y, r, class)
	}
	text(left-8, 34, "soft end", "messages")
	for _, m := range heard {
		dot(m, 30, 3, "reading")
	}
	text(left-8, 76, "soft end", "alarm")
	for i, m := range heard { // until the next one, or the end
		next := float64(minutes)
		if i+1 < len(heard) {
			next = heard[i+1]
		}
		if open := m + silent.Minutes(); open < next {
			bar(open, next, 62, 20, "open")
		}
	}
	for _, e := range notified {
		class, word := "alert", "silent"
		if e.recovery {
			class, word = "resolved", "normal"
		} else {
			bar(e.minute, min(minutes, e.minute+20), 88, 3, "window")
		}
		dot(e.minute, 100, 4.5, class)
		text(x(e.minute)+8, 104, class+"-text", word)
	}
	text(left-8, 104, "soft end", "notified")
	fmt.Fprintf(&b, "<line x1=\"%.1f\" y1=\"122\" x2=\"%.1f\" y2=\"122\" class=\"grid\"/>\n", left, right)
	for m := 0; m <= minutes; m += 10 {
		label := fmt.Sprint(m)
		if m == minutes {
			label += " min"
		}
		text(x(float64(m)), 139, "soft mid", label)
	}
	text(left, 158, "soft", "silent: 15m, window: 20m (the line above a notice)")
	b.WriteString("</svg>\n")
	if *draws {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	there, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(there, b.Bytes()) {
		t.Errorf("%s is not what the worker does (%v): go test ./internal/worker -run Picture -draw", file, err)
	}
}
