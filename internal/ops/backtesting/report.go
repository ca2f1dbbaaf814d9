package backtesting

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

const (
	shownDevices = 10 // the noisiest, and of a difference
	stamp        = "2006-01-02 15:04"
)

// Print writes r for people. skipped is what the source left out.
func (r *Run) Print(w io.Writer, skipped Skipped) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, r.Extent())
	if skipped != (Skipped{}) {
		fmt.Fprintf(out, "lines: %s\n", skipped)
	}

	if !r.Complete {
		fmt.Fprintln(out, "stopped: what follows is about these events alone")
	}

	fmt.Fprintln(out, "\n\talarms\tincidents\talerts\tdevices\talerts per day\tmost in a day\tlongest alarm")
	for _, c := range r.Candidates {
		day, most := "", 0 // the day with the most alerts
		for _, d := range slices.Sorted(maps.Keys(c.Days)) {
			if c.Days[d] > most {
				day, most = d, c.Days[d]
			}
		}

		// alerts per day, of a recording of less than a day those that there are
		perDay := math.Round(100*float64(c.Alerts)/max(r.To.Sub(r.From).Hours()/24, 1)) / 100
		fmt.Fprintf(
			out,
			"%s\t%d\t%d\t%d\t%d\t%v\t%s\t%s\n",
			humanize.Clean(c.Name),
			c.Alarms,
			c.Incidents,
			c.Alerts,
			c.Devices,
			perDay,
			strings.TrimSpace(fmt.Sprint(most, " ", day)),
			c.Longest,
		)
	}

	fmt.Fprintln(out, "\nmessages\talerts\trecoveries")
	for _, c := range r.Candidates {
		for _, to := range c.Receivers {
			fmt.Fprintf(out, "%s\t%d\t%d\tto %s\n", humanize.Clean(c.Name), to.Alerts, to.Recoveries, to.Name)
		}
	}

	fmt.Fprintln(out, "\nnoisiest\tdevice\talerts\talarms")
	for _, c := range r.Candidates {
		for _, d := range c.Noisiest {
			fmt.Fprintf(out, "%s\t%s\t%d\t%d\n", humanize.Clean(c.Name), humanize.Clean(d.Name), d.Alerts, d.Alarms)
		}
	}

	if len(r.Candidates) > 1 {
		fmt.Fprintf(out, "\ncompared with\t%s\n", humanize.Clean(r.Candidates[0].Name))
	}
	for _, c := range r.Candidates[1:] {
		fmt.Fprintf(out, "%s\tnewly reported\t%s\n", humanize.Clean(c.Name), some(c.NewlyReported))
		fmt.Fprintf(out, "%s\tno longer reported\t%s\n", humanize.Clean(c.Name), some(c.NoLonger))
	}

	told := ""
	for _, c := range r.Candidates {
		if notes := c.notes(); notes != told && notes != "" {
			fmt.Fprintf(out, "\n%s: %s\n", humanize.Clean(c.Name), notes)
			told = notes
		}
	}

	return out.Flush()
}

// Extent says how many events there were, from when to when.
func (r *Run) Extent() string {
	from, to := r.From.In(r.zone), r.To.In(r.zone)
	return fmt.Sprintf(
		"%s, %s to %s (%s)",
		humanize.Count(r.Readings, "event"),
		from.Format(stamp),
		to.Format(stamp+" MST"),
		humanize.Span(to.Sub(from)),
	)
}

// some names devices, not too many.
func some(names []string) string {
	if len(names) == 0 {
		return "none"
	}

	text := humanize.Clean(strings.Join(names[:min(shownDevices, len(names))], ", "))
	if more := len(names) - shownDevices; more > 0 {
		text += fmt.Sprintf(" and %d more (--json names all)", more)
	}

	return text
}

// notes says what else is to be known of the events.
func (c *Candidate) notes() string {
	counted := c.test.Counters()
	var parts []string
	add := func(n int64, what, text string) {
		if n > 0 {
			parts = append(parts, humanize.Count(int(n), what)+" "+text)
		}
	}
	for reason := range telemetry.Reason(telemetry.ReasonCount) {
		switch {
		case reason == telemetry.ReasonDamaged:
			add(counted.Events[reason].Load(), "event", "with a body that is not quite JSON, which ends no alarm")
		case reason != telemetry.ReasonOK:
			add(counted.Events[reason].Load(), "event", "without a reading: "+reason.Text())
		}
	}

	add(counted.Quieted.Load(), "reading", "muted")
	add(counted.Untracked.Load(), "reading", "beyond the alarms that a partition keeps")
	add(counted.Unwatched.Load(), "message", "of devices beyond those that a partition watches for silence")

	return strings.Join(parts, "; ")
}

// String shows the alarm, or that there was none.
func (l *longest) String() string {
	if l == nil {
		return "none"
	}

	text := humanize.Span(time.Duration(l.Seconds*float64(time.Second))) + " " + humanize.Clean(sensor.ID{Device: l.Device, Name: l.Sensor}.String())
	if l.Open {
		text += ", still open"
	}

	return text
}

// PrintJSON writes r as one JSON object. Differences are to the first candidate.
func (r *Run) PrintJSON(w io.Writer, skipped Skipped) error {
	type candidate struct {
		Name string `json:"name"`
		result
	}

	report := struct {
		Events   int       `json:"events"`
		From     time.Time `json:"from"`
		To       time.Time `json:"to"`
		Complete bool      `json:"complete"`
		Skipped
		Candidates []candidate `json:"candidates"`
	}{r.Readings, r.From, r.To, r.Complete, skipped, nil}
	for _, c := range r.Candidates {
		report.Candidates = append(report.Candidates, candidate{c.Name, c.result})
	}

	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")

	return encoder.Encode(report)
}
