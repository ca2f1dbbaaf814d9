package receivers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"strings"
	"testing"
)

// The pictures of what arrives are drawn from the payloads that are sent.
//
//	go test -run Picture ./internal/notify/receivers -update
func TestPicture(t *testing.T) {
	picture(t, "channels.svg", 860, 292, "The alert of a device as a card in Teams and as a message in Slack: headline, device, value, limit, time, suppressed readings, id, and a link to the status page", func(b *bytes.Buffer) {
		drawTeams(t, b)
		drawSlack(t, b)
	})
}

// So is that of a message for many.
func TestPictureOfMany(t *testing.T) {
	var m slackMessage
	read(t, "testdata/slack/storm.json", &m)
	var drawn bytes.Buffer
	y := drawMany(t, &drawn, m)
	picture(t, "storm.svg", 860, y+20, "One message in Slack for 26 devices: the rule and level, how many devices are at or above the limit, the ten hottest with value and limit, the names of the others, two devices that are normal again, and a link to the status page",
		func(b *bytes.Buffer) {
			fmt.Fprintf(b, "<rect x=\"20\" y=\"40\" width=\"820\" height=\"%d\" rx=\"6\" class=\"card\"/>\n%s", y-40, &drawn)
		})
}

// picture draws a file of docs, or compares it with what is there.
func picture(t *testing.T, name string, width, height int, title string, draw func(*bytes.Buffer)) {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="title">
<title id="title">%[3]s</title>
`, width, height, title)
	b.WriteString(`<style>
text { font: 13px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328; white-space: pre; }
.where { font-weight: 600; fill: #59636e; }
.head { font-size: 17px; font-weight: 600; }
.attention { fill: #c4314b; }
.bold { font-weight: 600; }
.soft { font-size: 12px; fill: #59636e; }
.code { font-family: ui-monospace, Menlo, Consolas, "Noto Sans Mono", monospace; font-size: 12px; fill: #c01343; }
.link { fill: #0969da; }
.paper, .pill { fill: #f6f8fa; }
.card { fill: #ffffff; }
.card, .pill { stroke: #d0d7de; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.where, .soft { fill: #9198a1; }
.attention { fill: #f97386; }
.code { fill: #ff8fa3; }
.link { fill: #4493f8; }
.paper, .pill { fill: #151b23; }
.card { fill: #0d1117; }
.card, .pill { stroke: #3d444d; }
}
</style>
`)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" class=\"paper\" rx=\"6\"/>\n", width, height)
	draw(&b)
	b.WriteString("</svg>\n")
	file := "../../../docs/" + name
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, b.Bytes()) {
		t.Errorf("%s is not what is sent (go test -update draws it anew): %v", file, err)
	}
}

// read reads a golden payload.
func read(t *testing.T, file string, into any) {
	t.Helper()
	payload, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(payload, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func write(b *bytes.Buffer, x, y int, class, text string) {
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" class=\"%s\">%s</text>\n", x, y, class, html.EscapeString(text))
}

func box(b *bytes.Buffer, x, y, width, height int, class string) {
	fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" class=\"%s\"/>\n", x, y, width, height, class)
}

func drawTeams(t *testing.T, b *bytes.Buffer) {
	var m struct {
		Attachments []struct {
			Content struct {
				Body []struct {
					Inlines []struct{ Text, Size, Weight, Color string }
				}
				Actions []struct{ Title string }
			}
		}
	}
	read(t, "testdata/teams/alert.json", &m)
	card := m.Attachments[0].Content
	write(b, 20, 28, "where", "Microsoft Teams")
	box(b, 20, 40, 400, 232, "card")
	y := 70
	for _, line := range card.Body {
		var runs strings.Builder
		class := "line"
		for _, run := range line.Inlines {
			switch {
			case run.Size == "Large":
				class, y = "head "+strings.ToLower(run.Color), y+2
			case run.Size == "Small":
				class, y = "soft", y+4
			}
			style := ""
			if run.Weight == "Bolder" && run.Size == "" {
				style = ` class="bold"`
			}
			fmt.Fprintf(&runs, "<tspan%s>%s</tspan>", style, html.EscapeString(run.Text))
		}
		fmt.Fprintf(b, "<text x=\"36\" y=\"%d\" class=\"%s\">%s</text>\n", y, class, runs.String())
		y += 23
	}
	for _, a := range card.Actions {
		box(b, 36, y-8, 100, 28, "pill")
		write(b, 48, y+11, "bold", a.Title)
	}
}

func drawSlack(t *testing.T, b *bytes.Buffer) {
	var m slackMessage
	read(t, "testdata/slack/alert.json", &m)
	write(b, 440, 28, "where", "Slack")
	box(b, 440, 40, 400, 232, "card")
	dotted(t, b, 456, 72, "head", m.Blocks[0].Text.Text)
	for i, field := range m.Blocks[1].Fields {
		name, value, _ := strings.Cut(field.Text, "\n")
		x, y := 456+192*(i%2), 102+46*(i/2)
		write(b, x, y, "bold", strings.Trim(name, "*"))
		write(b, x, y+19, "code", html.UnescapeString(strings.Trim(value, "`")))
	}
	writeFooter(b, 456, 256, m)
}

// slackMessage is what the pictures show of one.
type slackMessage struct {
	Blocks []struct {
		Text             struct{ Text string }
		Fields, Elements []struct{ Text string }
	}
}

// dotted writes a line that begins with the color of an alert; not every font has the emoji.
func dotted(t *testing.T, b *bytes.Buffer, x, y int, class, text string) {
	mark, text, _ := strings.Cut(text, " ")
	color := map[string]string{"🔴": "#cf222e", "🟢": "#1a7f37"}[mark]
	if color == "" {
		t.Errorf("%q does not begin with a color", mark+" "+text)
	}
	fmt.Fprintf(b, "<circle cx=\"%d\" cy=\"%d\" r=\"7\" fill=\"%s\"/>\n", x+7, y-6, color)
	write(b, x+22, y, class, text)
}

func writeFooter(b *bytes.Buffer, x, y int, m slackMessage) {
	var footer strings.Builder
	for _, e := range m.Blocks[len(m.Blocks)-1].Elements {
		if label, ok := strings.CutPrefix(e.Text, "<"); ok {
			_, label, _ = strings.Cut(strings.TrimSuffix(label, ">"), "|")
			fmt.Fprintf(&footer, "<tspan class=\"soft link\">   %s</tspan>", html.EscapeString(label))
			continue
		}
		fmt.Fprintf(&footer, "<tspan>%s</tspan>", html.EscapeString(strings.Trim(e.Text, "`")))
	}
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" class=\"soft\">%s</text>\n", x, y, footer.String())
}

// drawMany draws a message for many, and returns where it ends.
func drawMany(t *testing.T, b *bytes.Buffer, m slackMessage) (y int) {
	const perLine = 104 // characters
	write(b, 20, 28, "where", "Slack")
	y = 72
	dotted(t, b, 36, y, "head", m.Blocks[0].Text.Text)
	y += 6
	for _, block := range m.Blocks[1 : len(m.Blocks)-1] {
		for line := range strings.Lines(block.Text.Text) {
			y += 22
			line = strings.TrimSuffix(line, "\n")
			if strings.Contains(line, "*") {
				y += 6
				dotted(t, b, 36, y, "bold", html.UnescapeString(strings.ReplaceAll(line, "*", "")))
				continue
			}
			item, _ := strings.CutPrefix(line, "• ")
			write(b, 40, y, "line", "•")
			for words := strings.Fields(html.UnescapeString(strings.Trim(item, "`"))); len(words) > 0; y += 20 {
				n, width := 0, 0
				for n < len(words) && width+len(words[n]) < perLine {
					width += len(words[n]) + 1
					n++
				}
				write(b, 54, y, "code", strings.Join(words[:n], " "))
				words = words[n:]
			}
			y -= 20
		}
	}
	writeFooter(b, 36, y+32, m)
	return y + 50
}
