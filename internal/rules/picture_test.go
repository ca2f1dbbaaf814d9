package rules_test

import (
	"bytes"
	"flag"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/humanize"
	"alertworker/internal/rules"
)

var update = flag.Bool("update", false, "draw the pictures in docs anew")

const docs = "../../docs/"

// A scene is what a picture shows: readings of devices, taken through the rule that stands
// above the picture in docs/rules.md.
type scene struct {
	name    string
	minutes int
	every   time.Duration // between readings
	curve   func(minute float64) float64
	panels  []panel
	tells   []string // what each panel tells, to see that the picture shows what the page says
}

// A panel is one device, or one way of the rule.
type panel struct {
	title  string
	change func(*rules.Rule)         // of the rule; nil for none
	limit  float64                   // instead of the highest level's; 0 for none
	base   float64                   // that limits are counted from
	quiet  func(minute float64) bool // nil for never
	burst  bool                      // all readings arrive together, later
	own    bool                      // conditions go by the device's time
}

// through draws a curve through points, by minute.
func through(points ...[2]float64) func(float64) float64 {
	return func(minute float64) float64 {
		for i := 1; i < len(points); i++ {
			if a, b := points[i-1], points[i]; minute <= b[0] {
				x := (minute - a[0]) / (b[0] - a[0])
				return a[1] + (b[1]-a[1])*(1-math.Cos(math.Pi*x))/2
			}
		}
		return points[len(points)-1][1]
	}
}

var scenes = []scene{
	{
		name: "window", minutes: 12, every: 20 * time.Second,
		curve:  through([2]float64{0, 72}, [2]float64{3, 86}, [2]float64{5, 88}, [2]float64{7, 84}, [2]float64{9, 73}, [2]float64{12, 71}),
		panels: []panel{{}},
		tells:  []string{"alert 1:40, alert 4:40, alert 7:40"},
	},
	{
		name: "clear", minutes: 14, every: 20 * time.Second,
		curve: through([2]float64{0, 70}, [2]float64{2, 82.5}, [2]float64{4, 76.5}, [2]float64{6, 82.5}, [2]float64{8, 76.5}, [2]float64{10, 82.5}, [2]float64{12.3, 69}, [2]float64{14, 68}),
		panels: []panel{
			{title: "without clear", change: func(r *rules.Rule) { r.Levels[0].Clear = r.Levels[0].Limit }},
			{title: "clear: 75"},
		},
		tells: []string{"alert 1:40, resolved 3:10, alert 5:20, resolved 7:00, alert 9:20, resolved 10:50", "alert 1:40, alert 5:20, alert 9:20, resolved 11:20"},
	},
	{
		name: "for", minutes: 12, every: 20 * time.Second,
		curve:  through([2]float64{0, 72}, [2]float64{1.5, 84}, [2]float64{3, 72}, [2]float64{4.5, 73}, [2]float64{6, 85}, [2]float64{9, 86}, [2]float64{11, 72}, [2]float64{12, 72}),
		panels: []panel{{}},
		tells:  []string{"alert 7:20"},
	},
	{
		name: "clear-for", minutes: 16, every: 20 * time.Second,
		curve: through([2]float64{0, 72}, [2]float64{2, 84}, [2]float64{2.6, 84}, [2]float64{4, 74}, [2]float64{5.6, 84}, [2]float64{6.2, 84}, [2]float64{7.6, 74}, [2]float64{9.2, 84},
			[2]float64{9.8, 84}, [2]float64{11.4, 72}, [2]float64{16, 71}),
		panels: []panel{
			{title: "without clear_for", change: func(r *rules.Rule) { r.ClearedFor = 0 }},
			{title: "clear_for: 3m"},
		},
		tells: []string{
			"alert 1:20, resolved 3:20, alert 5:00, resolved 7:00, alert 8:40, resolved 10:40",
			"alert 1:20, alert 5:00, alert 8:40, resolved 13:40",
		},
	},
	{
		name: "resolved", minutes: 16, every: 20 * time.Second,
		curve: through([2]float64{0, 72}, [2]float64{1.2, 85}, [2]float64{2.2, 72}, [2]float64{6, 71},
			[2]float64{7, 85}, [2]float64{7.8, 73}, [2]float64{8.6, 84}, [2]float64{9.4, 73}, [2]float64{10.2, 84}, [2]float64{12.4, 84}, [2]float64{14, 72}, [2]float64{16, 71}),
		panels: []panel{{}},
		tells:  []string{"alert 1:00, resolved 5:00, alert 6:40, alert 11:00, resolved 15:00"},
	},
	{
		name: "levels", minutes: 16, every: 20 * time.Second,
		curve:  through([2]float64{0, 60}, [2]float64{3, 74}, [2]float64{4, 75}, [2]float64{6, 85}, [2]float64{8.5, 85}, [2]float64{10.5, 72}, [2]float64{12.5, 72}, [2]float64{14.5, 60}, [2]float64{16, 60}),
		panels: []panel{{}},
		tells:  []string{"warning alert 2:00, critical alert 5:00, warning alert 10:00, critical resolved 10:00, warning resolved 15:00"},
	},
	{
		name: "levels-for", minutes: 16, every: 20 * time.Second,
		curve:  through([2]float64{0, 64}, [2]float64{3, 75}, [2]float64{4, 76}, [2]float64{5, 84}, [2]float64{6, 84}, [2]float64{7.5, 75}, [2]float64{11, 75}, [2]float64{13, 64}, [2]float64{16, 64}),
		panels: []panel{{}},
		tells:  []string{"critical alert 4:40, warning alert 7:00"},
	},
	{
		name: "override", minutes: 12, every: 20 * time.Second,
		curve: through([2]float64{0, 72}, [2]float64{3, 86}, [2]float64{5, 87}, [2]float64{6.5, 92}, [2]float64{8, 92}, [2]float64{10, 74}, [2]float64{12, 72}),
		panels: []panel{
			{title: "a device whose twin has no maxTemp"},
			{title: "a device whose twin has maxTemp: 90", limit: 90},
		},
		tells: []string{"alert 1:40, alert 6:40", "alert 6:00"},
	},
	{
		name: "base", minutes: 12, every: 20 * time.Second,
		curve: through([2]float64{0, 68}, [2]float64{3, 81}, [2]float64{5, 82}, [2]float64{6.5, 88}, [2]float64{8, 88}, [2]float64{10, 70}, [2]float64{12, 68}),
		panels: []panel{
			{title: "setpoint: 70", base: 70},
			{title: "setpoint: 80", base: 80},
		},
		tells: []string{"alert 1:40, alert 5:40", "alert 6:00"},
	},
	{
		name: "burst", minutes: 14, every: 20 * time.Second,
		curve: through([2]float64{0, 72}, [2]float64{3, 86}, [2]float64{9, 88}, [2]float64{11, 74}, [2]float64{14, 72}),
		panels: []panel{
			{title: "by the hub's time: everything arrives within seconds, hours later", burst: true},
			{title: "with TIME_PROPERTY", burst: true, own: true},
		},
		tells: []string{"", "alert 3:40"},
	},
	{
		name: "quiet", minutes: 14, every: 20 * time.Second,
		curve:  through([2]float64{0, 72}, [2]float64{2, 84}, [2]float64{3, 84}, [2]float64{4.5, 72}, [2]float64{5.5, 72}, [2]float64{7, 85}, [2]float64{10.5, 85}, [2]float64{12.5, 72}, [2]float64{14, 72}),
		panels: []panel{{quiet: func(m float64) bool { return m < 8.5 }}},
		tells:  []string{"alert 8:40, resolved 11:40"},
	},
}

// A step is what one reading did to one level.
type step struct {
	minute, value float64
	breaching     bool
	state         rules.State
	inhibited     bool
	quiet         bool
}

// An event is what people are told.
type event struct {
	level         int
	minute, value float64
	resolved      bool
}

// A lane is what a picture shows of one level.
type lane struct {
	limit, clear float64
	steps        []step
	windows      [][2]float64 // begin and end, in minutes
}

// play takes the curve through r, whose decisions are the worker's own, and through a model
// of the gate: a window after each alert, and resolved alerts that wait for its end.
func play(r *rules.Rule, s *scene, p panel) (lanes []lane, told []event) {
	type gate struct {
		told bool
		end  float64 // of the window
		owed *event
	}
	lanes, gates := make([]lane, len(r.Levels)), make([]gate, len(r.Levels))
	for i := range r.Levels {
		l := &r.Levels[i]
		lanes[i].limit = rules.Counted(p.base, l.Limit)
		if isOwn := l.LimitAt.Name != "" && !l.LimitAt.Plus; isOwn && p.limit != 0 {
			lanes[i].limit = p.limit
		}
		lanes[i].clear = r.Levels[i].ClearOf(lanes[i].limit)
	}
	settle := func(now float64) {
		for i := range gates {
			if g := &gates[i]; g.owed != nil && max(g.end, g.owed.minute) <= now {
				if g.told {
					g.owed.minute = max(g.end, g.owed.minute)
					told = append(told, *g.owed)
				}
				g.owed, g.told, g.end = nil, false, 0 // what follows a resolved may come at once
			}
		}
	}
	for at := time.Duration(0); at <= time.Duration(s.minutes)*time.Minute; at += s.every {
		now := at.Minutes()
		settle(now)
		value := math.Round(s.curve(now)*10) / 10
		quiet := p.quiet != nil && p.quiet(now)
		inhibited := false
		for i := len(r.Levels) - 1; i >= 0; i-- { // the highest first
			l, g, was := &lanes[i], &gates[i], rules.State{}
			if n := len(l.steps); n > 0 {
				was = l.steps[n-1].state
			}
			moment := rules.Moment{Hub: at.Microseconds()}
			if p.burst {
				moment.Hub = 1e12 + at.Milliseconds()
			}
			if p.own {
				moment.Device = at.Microseconds() + 1
			}
			next := r.Next(&r.Levels[i], was, value, l.limit, l.clear, moment)
			breaching := r.Breaching(value, l.limit)
			l.steps = append(l.steps, step{now, value, breaching, next, inhibited, quiet})
			open := next.Phase == rules.Open
			switch {
			case open && was.Phase != rules.Open:
				g.owed = nil
			case !open && was.Phase == rules.Open && r.Resolved:
				g.owed = &event{i, now, value, true}
			}
			if open && breaching && !inhibited && !quiet && now >= g.end {
				told = append(told, event{i, now, value, false})
				g.told, g.end = true, now+r.Window.Minutes()
				if !p.burst { // else it begins later
					l.windows = append(l.windows, [2]float64{now, g.end})
				}
			}
			inhibited = inhibited || open
		}
	}
	settle(float64(s.minutes))
	slices.SortStableFunc(told, func(a, b event) int { return int((a.minute - b.minute) * 1e6) })
	return lanes, told
}

// say lists what was told.
func say(r *rules.Rule, told []event) string {
	var parts []string
	for _, e := range told {
		text := "alert"
		if e.resolved {
			text = "resolved"
		}
		if name := r.Levels[e.level].Name; name != "" {
			text = name + " " + text
		}
		seconds := int(math.Round(e.minute * 60))
		parts = append(parts, fmt.Sprintf("%s %d:%02d", text, seconds/60, seconds%60))
	}
	return strings.Join(parts, ", ")
}

// The pictures are drawn by what decides, from the rules in docs/rules.md.
//
//	go test -run Pictures ./internal/rules -update
func TestPictures(t *testing.T) {
	page, err := os.ReadFile(docs + "rules.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			before, _, ok := strings.Cut(string(page), "(rules-"+s.name+".svg)")
			blocks := yamlBlock.FindAllStringSubmatch(before, -1)
			if !ok || len(blocks) == 0 {
				t.Fatal("docs/rules.md has no such picture, or no rule before it")
			}
			set := load(t, blocks[len(blocks)-1][1])
			if len(set.Rules) != 1 {
				t.Fatalf("%d rules stand before the picture", len(set.Rules))
			}
			got, tells := draw(&set.Rules[0], &s)
			for i, told := range tells {
				if i >= len(s.tells) || told != s.tells[i] {
					t.Errorf("panel %d tells %q", i, told)
				}
			}
			file := docs + "rules-" + s.name + ".svg"
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if drawn, err := os.ReadFile(file); err != nil || !bytes.Equal(drawn, got) {
				t.Errorf("%s is not what the rules say (go test -run Pictures ./internal/rules -update draws it anew): %v", file, err)
			}
		})
	}
}

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// load reads a file of rules as the worker does.
func load(t *testing.T, text string) rules.Set {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return environment(t, map[string]string{"RULES_FILE": path})
}

// environment returns the rules of a worker with these settings and what it needs besides.
func environment(t *testing.T, settings map[string]string) rules.Set {
	t.Helper()
	for _, v := range config.Variables() {
		t.Setenv(v.Name, settings[v.Name])
	}
	t.Setenv("EVENTHUB_CONNECTION_STRING", "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=YQ==;EntityPath=hub")
	t.Setenv("THROTTLE_STORE", "memory")
	t.Setenv("CHECKPOINT_STORE", "memory")
	t.Setenv("NOTIFY_URLS", "log:")
	c, _, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c.Rules()
}

// Every example on the page is accepted.
func TestExamples(t *testing.T) {
	page, err := os.ReadFile(docs + "rules.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, m := range yamlBlock.FindAllStringSubmatch(string(page), -1) {
		if strings.HasPrefix(m[1], "rules:") {
			load(t, m[1])
			examples++
		}
	}
	assignment := regexp.MustCompile(`(?m)^(?:export )?([A-Z_]+)=(\S+)`)
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		settings := map[string]string{}
		for _, a := range assignment.FindAllStringSubmatch(m[1], -1) {
			settings[a[1]] = a[2]
		}
		if settings["TEMPERATURE_THRESHOLD"] != "" {
			environment(t, settings)
			examples++
		}
	}
	if examples < 9 {
		t.Errorf("only %d examples were found", examples)
	}
}

const (
	width    = 860
	left     = 118 // where time begins
	right    = 836
	plot     = 128 // height of the curve
	laneRow  = 30
	panelTop = 26
)

// draw draws a scene and returns what each panel tells.
func draw(r *rules.Rule, s *scene) (svg []byte, tells []string) {
	var body bytes.Buffer
	y := 14.0
	for _, p := range s.panels {
		changed := *r
		changed.Levels = slices.Clone(r.Levels)
		if p.change != nil {
			p.change(&changed)
		}
		lanes, told := play(&changed, s, p)
		tells = append(tells, say(&changed, told))
		y = drawPanel(&body, y, &changed, s, p, lanes, told)
	}
	height := drawTime(&body, y, s)
	height = drawLegend(&body, height, r, s)

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%[1]d" height="%.0[2]f" role="img" aria-labelledby="title desc">
<title id="title">The rule %s: readings, alarm, windows and what is told</title>
<desc id="desc">`, width, height, r.Name)
	for i, told := range tells {
		title := s.panels[i].title
		if title != "" {
			title += ": "
		}
		fmt.Fprintf(&b, "%stold at minute: %s. ", html.EscapeString(title), told)
	}
	b.WriteString(`</desc>
<style>
text { font: 12px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328; }
.name { font-weight: 600; font-size: 13px; }
.soft { fill: #59636e; }
.end { text-anchor: end; } .mid { text-anchor: middle; }
.paper { fill: #ffffff; stroke: #d0d7de; }
.lane { fill: #f6f8fa; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.curve { fill: none; stroke: #59636e; stroke-width: 1.5; }
.reading { fill: #59636e; }
.limit { stroke: #bc4c00; stroke-width: 1.5; } .clear { stroke: #1a7f37; stroke-width: 1.5; stroke-dasharray: 5 4; }
.limit-text { fill: #bc4c00; } .clear-text { fill: #1a7f37; }
.open { fill: #fff1e5; stroke: #bc4c00; } .pending { fill: none; stroke: #bc4c00; stroke-dasharray: 3 3; }
.window { fill: #0969da; } .muted { fill: #8c959f; opacity: 0.18; }
.alert { fill: #cf222e; } .resolved { fill: #1a7f37; }
.alert-text { fill: #cf222e; font-weight: 600; } .resolved-text { fill: #1a7f37; font-weight: 600; }
.over { fill: #ffffff; stroke: #cf222e; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.soft { fill: #9198a1; }
.paper { fill: #0d1117; stroke: #3d444d; }
.lane { fill: #151b23; }
.grid { stroke: #3d444d; }
.curve { stroke: #9198a1; }
.reading { fill: #9198a1; }
.limit { stroke: #f0883e; } .clear { stroke: #3fb950; }
.limit-text { fill: #f0883e; } .clear-text { fill: #3fb950; }
.open { fill: #2d1b0e; stroke: #f0883e; } .pending { stroke: #f0883e; }
.window { fill: #4493f8; }
.alert { fill: #f85149; } .resolved { fill: #3fb950; }
.alert-text { fill: #f85149; } .resolved-text { fill: #3fb950; }
.over { fill: #0d1117; stroke: #f85149; }
}
</style>
`)
	fmt.Fprintf(&b, "<rect x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%.0f\" rx=\"6\" class=\"paper\"/>\n", width-1, height-1)
	b.Write(body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes(), tells
}

func (s *scene) x(minute float64) float64 {
	return left + (right-left)*min(minute, float64(s.minutes))/float64(s.minutes)
}

func text(b *bytes.Buffer, x, y float64, class, s string) {
	fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>\n", x, y, class, html.EscapeString(s))
}

func line(b *bytes.Buffer, x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(b, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1, x2, y2, class)
}

func rect(b *bytes.Buffer, x1, y, x2, h float64, class string) {
	fmt.Fprintf(b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\" class=\"%s\"/>\n", x1, y, x2-x1, h, class)
}

func dot(b *bytes.Buffer, x, y, r float64, class string) {
	fmt.Fprintf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=\"%s\"/>\n", x, y, r, class)
}

// drawPanel draws one panel from y on and returns where it ends.
func drawPanel(b *bytes.Buffer, y float64, r *rules.Rule, s *scene, p panel, lanes []lane, told []event) float64 {
	if p.title != "" {
		text(b, left, y+14, "name", p.title)
		y += panelTop
	}
	steps := lanes[0].steps
	low, high := steps[0].value, steps[0].value
	for _, st := range steps {
		low, high = min(low, st.value), max(high, st.value)
	}
	for _, l := range lanes {
		low, high = min(low, l.limit, l.clear), max(high, l.limit, l.clear)
	}
	low, high = low-2, high+3
	level := func(v float64) float64 { return y + plot*(high-v)/(high-low) }

	// When the device is quiet, over everything.
	bottom := y + plot + laneRow*float64(len(lanes))
	for i, st := range steps {
		if st.quiet && (i == 0 || !steps[i-1].quiet) {
			end := i
			for end < len(steps)-1 && steps[end+1].quiet {
				end++
			}
			rect(b, s.x(st.minute), y, s.x(steps[min(end+1, len(steps)-1)].minute), bottom-y, "muted")
			text(b, s.x(st.minute)+6, y+14, "soft", "muted")
		}
	}
	for _, l := range lanes {
		name := ""
		if len(lanes) > 1 {
			name = r.Levels[slices.IndexFunc(r.Levels, func(o rules.Level) bool { return o.Limit == l.limit })].Name + " "
		}
		line(b, left, level(l.limit), right, level(l.limit), "limit")
		text(b, left-8, level(l.limit)+4, "limit-text end", fmt.Sprintf("%s%v", name, l.limit))
	}
	for _, l := range lanes {
		if l.clear != l.limit {
			line(b, left, level(l.clear), right, level(l.clear), "clear")
			text(b, left-8, level(l.clear)+4, "clear-text end", fmt.Sprintf("clear %v", l.clear))
		}
	}
	var points []string
	for m := 0.0; m <= float64(s.minutes); m += float64(s.minutes) / 240 {
		points = append(points, fmt.Sprintf("%.1f,%.1f", s.x(m), level(s.curve(m))))
	}
	fmt.Fprintf(b, "<polyline points=\"%s\" class=\"curve\"/>\n", strings.Join(points, " "))
	for i, st := range steps {
		class, size := "reading", 2.0
		if slices.ContainsFunc(lanes, func(l lane) bool { return l.steps[i].breaching }) {
			class, size = "over", 3
		}
		if slices.ContainsFunc(told, func(e event) bool { return !e.resolved && e.minute == st.minute }) {
			class, size = "alert", 4.5
		}
		dot(b, s.x(st.minute), level(st.value), size, class)
	}

	y += plot
	for i := len(lanes) - 1; i >= 0; i-- {
		drawLane(b, y, r, i, s, &lanes[i], told)
		y += laneRow
	}
	return y + 8
}

// drawLane draws the alarm of a level, its windows and what is told.
func drawLane(b *bytes.Buffer, y float64, r *rules.Rule, index int, s *scene, l *lane, told []event) {
	rect(b, left, y+2, right, laneRow-6, "lane")
	name := "alarm"
	if r.Levels[index].Name != "" {
		name = r.Levels[index].Name
	}
	text(b, left-8, y+19, "soft end", name)
	for i := 0; i < len(l.steps); i++ {
		begin := i
		for i < len(l.steps)-1 && l.steps[i+1].state.Phase == l.steps[begin].state.Phase {
			i++
		}
		end := s.x(l.steps[min(i+1, len(l.steps)-1)].minute)
		switch l.steps[begin].state.Phase {
		case rules.Pending:
			rect(b, s.x(l.steps[begin].minute), y+2.5, end, laneRow-7, "pending")
		case rules.Open:
			rect(b, s.x(l.steps[begin].minute), y+2.5, end, laneRow-7, "open")
		}
	}
	for _, w := range l.windows {
		rect(b, s.x(w[0]), y+laneRow-7, s.x(w[1]), 3, "window")
	}
	for _, e := range told {
		if e.level != index {
			continue
		}
		class := "alert"
		if e.resolved {
			class = "resolved"
		}
		dot(b, s.x(e.minute), y+12.5, 4.5, class)
		if s.x(e.minute) > width-70 {
			text(b, s.x(e.minute)-8, y+17, class+"-text end", class)
		} else {
			text(b, s.x(e.minute)+8, y+17, class+"-text", class)
		}
	}
}

// drawTime draws the axis of time and returns where it ends.
func drawTime(b *bytes.Buffer, y float64, s *scene) float64 {
	every := 2
	if s.minutes > 20 {
		every = 10
	}
	line(b, left, y, right, y, "grid")
	for m := 0; m <= s.minutes; m += every {
		line(b, s.x(float64(m)), y, s.x(float64(m)), y+4, "grid")
		label := fmt.Sprint(m)
		if m == s.minutes {
			label += " min"
		}
		text(b, s.x(float64(m)), y+17, "soft mid", label)
	}
	return y + 24
}

// drawLegend explains what is drawn and returns where it ends.
func drawLegend(b *bytes.Buffer, y float64, r *rules.Rule, s *scene) float64 {
	y += 14
	x := 118.0
	entry := func(draw func(x float64), label string) {
		draw(x)
		text(b, x+26, y+4, "soft", label)
		x += 34 + 6.4*float64(len(label))
	}
	entry(func(x float64) { dot(b, x+10, y, 2, "reading"); dot(b, x+19, y, 3, "over") }, "reading, over the limit")
	if slices.ContainsFunc(r.Levels, func(l rules.Level) bool { return l.For > 0 }) {
		entry(func(x float64) { rect(b, x, y-6, x+20, 12, "pending") }, "pending")
	}
	entry(func(x float64) { rect(b, x, y-6, x+20, 12, "open") }, "open alarm")
	entry(func(x float64) { rect(b, x, y-1, x+20, 3, "window") }, "window of "+humanize.Plain(r.Window))
	entry(func(x float64) { dot(b, x+14, y, 4.5, "alert") }, "told: alert")
	if r.Resolved {
		entry(func(x float64) { dot(b, x+14, y, 4.5, "resolved") }, "told: normal again")
	}
	return y + 16
}
