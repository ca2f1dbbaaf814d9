package admin_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"alertworker/internal/notify"
	"alertworker/internal/telemetry"
)

const (
	pictureFile   = "../../../docs/status.svg"
	pictureWidth  = 1100
	pictureHeight = 1885
)

// The picture of the page in the README is the page.
//
//	go test -run Picture ./internal/ops/admin -update
func TestPicture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		time.Sleep(9*time.Hour + 14*time.Minute)
		w.busy(7)
		w.set(func() { w.worker.receivers = w.worker.receivers[:1] })
		w.worker.stats.Ambiguous.Store(0)
		w.set(func() {
			w.partitions = slices.DeleteFunc(w.partitions, func(p telemetry.PartitionStatus) bool { return p.Partition == "10" })
		})
		time.Sleep(time.Minute)
		for i, device := range []string{"oven-3", "boiler#12", "kiln/north", "line-2.press"} {
			time.Sleep(time.Duration(5+7*i) * time.Second)
			w.take(notify.Alert{
				ID: fmt.Sprint("contoso/telemetry/0/", i), Device: device, Temperature: 81.4 + float64(37*i%11), Threshold: 80,
				Partition: "0", Sequence: int64(1_203_911 + 31*i), Window: time.Minute, Suppressed: int64(17 * i),
			})
		}
		w.admin.Past()
		time.Sleep(6 * time.Second)
		picture := pictureOf(t, w.do("GET", "/").Body.String())
		if *update {
			if err := os.WriteFile(pictureFile, picture, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(pictureFile)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(picture, want) {
			t.Errorf("the page differs from %s: look at it, then go test -run Picture ./internal/ops/admin -update", pictureFile)
		}
	})
}

// narrow are the styles for narrow screens: a picture is scaled instead.
var narrow = regexp.MustCompile(`(?s)@media \(max-width.*?\n}\n`)

// pictureOf puts the page into an SVG, where HTML is XML.
func pictureOf(t *testing.T, page string) []byte {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var style, main *html.Node
	for n := range root.Descendants() {
		switch n.DataAtom {
		case atom.Style:
			style = n
		case atom.Main:
			main = n
		}
	}
	css := narrow.ReplaceAllString(style.FirstChild.Data, "")
	css = strings.Replace(css, "\nbody {", "\n.body { height: 100%;", 1)

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %d">`+"\n", pictureWidth, pictureHeight, pictureHeight)
	b.WriteString("<style>")
	_ = xml.EscapeText(&b, []byte(css))
	fmt.Fprintf(&b, "</style>\n<foreignObject width=\"%d\" height=\"%d\"><div xmlns=\"http://www.w3.org/1999/xhtml\" class=\"body\">\n", pictureWidth, pictureHeight)
	writeXML(&b, main)
	b.WriteString("\n</div></foreignObject>\n</svg>\n")
	return b.Bytes()
}

// writeXML writes n as XML.
func writeXML(b *bytes.Buffer, n *html.Node) {
	if n.Type == html.TextNode {
		_ = xml.EscapeText(b, []byte(n.Data))
		return
	}
	b.WriteString("<" + n.Data)
	if n.Data == "svg" {
		b.WriteString(` xmlns="http://www.w3.org/2000/svg"`)
	}
	for _, a := range n.Attr {
		b.WriteString(" " + a.Key + `="`)
		_ = xml.EscapeText(b, []byte(a.Val))
		b.WriteString(`"`)
	}
	b.WriteString(">")
	for c := range n.ChildNodes() {
		writeXML(b, c)
	}
	b.WriteString("</" + n.Data + ">")
}
