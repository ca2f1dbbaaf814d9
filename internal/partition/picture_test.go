package partition_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
	partitions "alertworker/internal/partition"
	"alertworker/internal/rules"
)

var draws = flag.Bool("draw", false, "draw docs/rules-silent.svg and docs/rules-site.svg anew")

// A pictured is what a picture in docs/rules.md shows: what a worker does, in virtual time, by the rule beside it.
type pictured struct {
	name    string
	beside  string // the rule, as the page has it
	rule    rules.Rule
	minutes int
	devices []string
	sends   func(device, minute int) (temperature float64, ok bool)
	legend  string
	told    string
}

var pictures = []pictured{
	{
		name: "silent", beside: "{name: offline, silent: 15m, window: 20m, resolved: true}",
		rule:    rules.Rule{Name: "offline", Window: 20 * time.Minute, Resolved: true, Forget: rules.DefaultForget, Silent: 15 * time.Minute, Levels: []rules.Level{{}}},
		minutes: 100, devices: []string{"messages"},
		sends: func(_, minute int) (float64, bool) {
			return 0, minute%5 == 2 && (minute < 20 || minute > 50 && minute < 65 || minute > 80 && minute < 90)
		},
		legend: "box: the alarm is open; line above a notice: its window of 20m",
		told:   "alert 32, recovery 52, alert 77, recovery 97",
	},
	{
		name: "site", beside: "{name: warm, field: temperature, above: -15, for: 10m, window: 1h, per: site, resolved: false}",
		rule:    rules.Rule{Name: "warm", Field: "temperature", Window: time.Hour, Per: "site", Levels: []rules.Level{{Limit: -15, Clear: -15, For: 10 * time.Minute}}},
		minutes: 150, devices: []string{"freezer-1", "freezer-2", "freezer-3", "freezer-4"},
		sends: func(device, minute int) (float64, bool) {
			if minute > []int{22, 30, 40, 70}[device] && minute < 115+5*device {
				return -12, minute%5 == device
			}
			return -20, minute%5 == device
		},
		legend: "box: the device's alarm is open; line above a notice: the window of 1h of all devices in berlin",
		told:   "alert 35, alert 95",
	},
}

// go test ./internal/partition -run Pictures -draw
func TestPictures(t *testing.T) {
	page, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	style, err := os.ReadFile("../../docs/rules-window.svg") // which has the style of all
	if err != nil {
		t.Fatal(err)
	}
	_, css, _ := strings.Cut(string(style), "<style>")
	css, _, _ = strings.Cut(css, "</style>")
	for i := range pictures {
		p := &pictures[i]
		t.Run(p.name, func(t *testing.T) {
			if before, _, ok := strings.Cut(string(page), "(rules-"+p.name+".svg)"); !ok || !strings.Contains(before, "\n- "+p.beside+"\n") {
				t.Error("docs/rules.md has no such picture, or not the rule before it")
			}
			drawn, told := p.draw(t, css)
			if told != p.told {
				t.Errorf("notified at minute: %s; want %s", told, p.told)
			}
			file := "../../docs/rules-" + p.name + ".svg"
			if *draws {
				if err := os.WriteFile(file, drawn, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if there, err := os.ReadFile(file); err != nil || !bytes.Equal(there, drawn) {
				t.Errorf("%s is not what the worker does (%v): go test ./internal/partition -run Pictures -draw", file, err)
			}
		})
	}
}

// A happened is what a worker did: at which minute each device was heard and had an open alarm, and each notice.
type happened struct {
	heard   map[int][]mark
	open    map[int][][2]float64
	notices []notice
}

type mark struct {
	minute float64
	over   bool
}

type notice struct {
	minute float64
	notify.Alert
}

// play has a worker take the devices' messages.
func (p *pictured) play(t *testing.T) (h happened) {
	h.heard, h.open = map[int][]mark{}, map[int][][2]float64{}
	synctest.Test(t, func(t *testing.T) {
		hub, r := newPartition("0"), &receiver{}
		s := newSetup(t, r)
		s.config.Rules.Rules = []rules.Rule{p.rule}
		start := time.Now()
		r.set(func(_ context.Context, a notify.Alert) error {
			h.notices = append(h.notices, notice{time.Since(start).Minutes(), a})
			return nil
		})
		s.start(hub)
		const step = 15 * time.Second
		was := map[int]bool{}
		for at := time.Duration(0); at < time.Duration(p.minutes)*time.Minute; at += step {
			minute := at.Minutes()
			for i, device := range p.devices {
				if temperature, ok := p.sends(i, int(minute)); ok && at%time.Minute == 0 {
					hub.publishOf(device, "berlin", temperature)
					h.heard[i] = append(h.heard[i], mark{minute, p.rule.Field != "" && p.rule.Breaching(temperature, p.rule.Levels[0].Limit)})
				}
			}
			synctest.Wait()
			alarms := s.open()
			for i, device := range p.devices {
				open := slices.ContainsFunc(alarms, func(a partitions.AlarmState) bool { return a.Device == device })
				if open && !was[i] {
					h.open[i] = append(h.open[i], [2]float64{minute})
				}
				if open {
					h.open[i][len(h.open[i])-1][1] = (at + step).Minutes()
				}
				was[i] = open
			}
			time.Sleep(step)
		}
		s.end()
	})
	return h
}

// draw returns the picture, and what receivers were told.
func (p *pictured) draw(t *testing.T, css string) (svg []byte, told string) {
	const left, right, width, row = 118.0, 836.0, 860, 34
	h := p.play(t)
	for i, n := range h.notices {
		if i > 0 {
			told += ", "
		}
		told += fmt.Sprintf("%s %.0f", map[bool]string{false: "alert", true: "recovery"}[n.Resolved], n.minute)
	}
	axis := 20 + row*len(p.devices) + 40
	height := axis + 46
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="title desc">
<title id="title">The rule %s: messages, alarms, windows and notices</title>
<desc id="desc">Notified at minute: %s.</desc>
<style>%s</style>
<rect x="0.5" y="0.5" width="%d" height="%d" rx="6" class="paper"/>
`, width, height, p.rule.Name, told, css, width-1, height-1)
	x := func(minute float64) float64 { return left + (right-left)*minute/float64(p.minutes) }
	text := func(x, y float64, class, s string) {
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\" class=%q>%s</text>\n", x, y, class, s)
	}
	bar := func(from, to, y, h float64, class string) {
		fmt.Fprintf(&b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\" class=%q/>\n", x(from), y, x(to)-x(from), h, class)
	}
	dot := func(minute, y, r float64, class string) {
		fmt.Fprintf(&b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=%q/>\n", x(minute), y, r, class)
	}
	for i, device := range p.devices {
		y := float64(20 + row*i)
		text(left-8, y+14, "soft end", device)
		for _, open := range h.open[i] {
			bar(open[0], open[1], y, 20, "open")
		}
		for _, m := range h.heard[i] {
			if m.over {
				dot(m.minute, y+10, 3, "over")
			} else {
				dot(m.minute, y+10, 2, "reading")
			}
		}
	}
	y := float64(20 + row*len(p.devices))
	text(left-8, y+22, "soft end", "notified")
	for _, n := range h.notices {
		class, word := "alert", "silent"
		switch {
		case n.Resolved:
			class, word = "resolved", "normal"
		case n.PerValue != "":
			word = n.PerValue + ", " + n.Device
			if n.Suppressed > 0 {
				word += fmt.Sprintf(" (suppressed: %d)", n.Suppressed)
			}
		}
		if !n.Resolved {
			bar(n.minute, min(float64(p.minutes), n.minute+p.rule.Window.Minutes()), y+6, 3, "window")
		}
		dot(n.minute, y+18, 4.5, class)
		if x(n.minute) > right-70 {
			text(x(n.minute)-8, y+22, class+"-text end", word)
		} else {
			text(x(n.minute)+8, y+22, class+"-text", word)
		}
	}
	fmt.Fprintf(&b, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%[2]d\" class=\"grid\"/>\n", left, axis, right)
	for m := 0; m <= p.minutes; m += 10 {
		label := fmt.Sprint(m)
		if m == p.minutes {
			label += " min"
		}
		text(x(float64(m)), float64(axis+17), "soft mid", label)
	}
	text(left, float64(axis+36), "soft", p.legend)
	b.WriteString("</svg>\n")
	return b.Bytes(), told
}
