package backtesting

import (
	"fmt"
	"html"
	"io"
	"strings"
	"time"

	"alertworker/internal/humanize"
)

const (
	plotWidth  = 800
	plotHeight = 60
	plotBars   = 200
	plotLeft   = 10
	plotStep   = plotHeight + 40 // from one candidate to the next
)

// Draw writes a picture of the alerts of each candidate over time, all to the same scale.
func (r *Run) Draw(w io.Writer) error {
	start, end := r.From.Unix()/bucket, r.To.Unix()/bucket+1
	wide := max(1, (end-start+plotBars-1)/plotBars) // buckets in a bar
	bars := make([][]int, len(r.Candidates))
	most := 1
	for i, c := range r.Candidates {
		bars[i] = make([]int, (end-start+wide-1)/wide+1)
		for at, n := range c.hours {
			bar := min(max(0, (at-start)/wide), int64(len(bars[i])-1))
			bars[i][bar] += n
			most = max(most, bars[i][bar])
		}
	}

	each := float64(plotWidth) / float64(len(bars[0]))
	var b strings.Builder
	fmt.Fprintf(
		&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
			`font-family="system-ui,sans-serif" font-size="12">`+"\n",
		plotWidth+2*plotLeft,
		plotStep*len(bars)+30,
	)
	b.WriteString(
		`<style>text{fill:#333}.bar{fill:#c2410c}.axis{stroke:#999}` +
			`@media(prefers-color-scheme:dark){text{fill:#ddd}.bar{fill:#fb923c}}</style>` + "\n",
	)
	for i, c := range r.Candidates {
		top := plotStep * i
		base := top + 24 + plotHeight
		fmt.Fprintf(
			&b,
			`<text x="%d" y="%d">%s: %s, %s, %s</text>`+"\n",
			plotLeft,
			top+16,
			html.EscapeString(humanize.Clean(c.Name)),
			humanize.Count(c.Alerts, "alert"),
			humanize.Count(c.Alarms, "alarm"),
			humanize.Count(c.Devices, "device"),
		)
		fmt.Fprintf(&b, `<line class="axis" x1="%d" y1="%d" x2="%d" y2="%[2]d"/>`+"\n", plotLeft, base, plotLeft+plotWidth)
		for j, n := range bars[i] {
			if n > 0 {
				height := max(1, float64(n)*plotHeight/float64(most))
				fmt.Fprintf(
					&b,
					`<rect class="bar" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n",
					plotLeft+float64(j)*each,
					float64(base)-height,
					max(1, each-0.5),
					height,
				)
			}
		}
	}

	label := func(x int, anchor, text string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", x, plotStep*len(bars)+16, anchor, text)
	}
	label(plotLeft, "start", r.From.In(r.zone).Format(stamp))
	label(
		plotLeft+plotWidth/2,
		"middle",
		fmt.Sprintf(
			"highest bar: %s in %s",
			humanize.Count(most, "alert"),
			humanize.Span(time.Duration(wide)*bucket*time.Second),
		),
	)
	label(plotLeft+plotWidth, "end", r.To.In(r.zone).Format(stamp))
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())

	return err
}
