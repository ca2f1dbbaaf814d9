package receivers_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "draw the picture in docs anew")

const pictureFile = "../../../docs/channels.svg"

// The picture of what arrives is drawn from the payloads that are sent.
//
//	go test -run Picture ./internal/notify/receivers -update
func TestPicture(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 292" width="860" height="292" role="img" aria-labelledby="title">
<title id="title">The alert of a device as a card in Teams and as a message in Slack: headline, device, value, limit, time, suppressed readings, id, and a link to the status page</title>
<style>
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
<rect width="860" height="292" class="paper" rx="6"/>
`)
	drawTeams(t, &b)
	drawSlack(t, &b)
	b.WriteString("</svg>\n")
	if *update {
		if err := os.WriteFile(pictureFile, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(pictureFile); err != nil || !bytes.Equal(got, b.Bytes()) {
		t.Errorf("%s is not what is sent (go test -update draws it anew): %v", pictureFile, err)
	}
}

// read reads the golden payload of an ordinary alert.
func read(t *testing.T, channel string, into any) {
	t.Helper()
	payload, err := os.ReadFile("../" + channel + "/testdata/alert.json")
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
	read(t, "teams", &m)
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
	var m struct {
		Blocks []struct {
			Text             struct{ Text string }
			Fields, Elements []struct{ Text string }
		}
	}
	read(t, "slack", &m)
	write(b, 440, 28, "where", "Slack")
	box(b, 440, 40, 400, 232, "card")
	headline, ok := strings.CutPrefix(m.Blocks[0].Text.Text, "🔴 ")
	if !ok {
		t.Errorf("the headline is %q, without the color of a critical alert", m.Blocks[0].Text.Text)
	}
	b.WriteString("<circle cx=\"463\" cy=\"66\" r=\"7\" fill=\"#cf222e\"/>\n") // not every font has the emoji
	write(b, 478, 72, "head", headline)
	for i, field := range m.Blocks[1].Fields {
		name, value, _ := strings.Cut(field.Text, "\n")
		x, y := 456+192*(i%2), 102+46*(i/2)
		write(b, x, y, "bold", strings.Trim(name, "*"))
		write(b, x, y+19, "code", html.UnescapeString(strings.Trim(value, "`")))
	}
	var footer strings.Builder
	for _, e := range m.Blocks[2].Elements {
		if label, ok := strings.CutPrefix(e.Text, "<"); ok {
			_, label, _ = strings.Cut(strings.TrimSuffix(label, ">"), "|")
			fmt.Fprintf(&footer, "<tspan class=\"soft link\">   %s</tspan>", html.EscapeString(label))
			continue
		}
		fmt.Fprintf(&footer, "<tspan>%s</tspan>", html.EscapeString(strings.Trim(e.Text, "`")))
	}
	fmt.Fprintf(b, "<text x=\"456\" y=\"256\" class=\"soft\">%s</text>\n", footer.String())
}
