package notify

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

const (
	maxDigestLines  = 10 // devices with value and limit
	maxDigestGroups = 16
)

// A Digest is a message about several alerts, for people. Its texts are lines of printable characters,
// like those of an Alert.
type Digest struct {
	Headline string // at most 250 characters
	Severity Severity
	Resolved bool    // all are
	Groups   []Group // alerts before recoveries, the most severe first; at most 16
	Link     []Link  // to the list of all, if people can reach it
}

// A Group are the alerts of one rule and level.
type Group struct {
	Title    string // "hot, critical: 45 devices at or above 80 °C"
	Severity Severity
	Resolved bool
	Lines    []string // the first of the ten devices that the Digest shows with value and limit
	Others   []string // the names of the other devices
}

// Digest returns the message about alerts, of which there is at least one.
func (s Style) Digest(alerts []Alert) Digest {
	d := Digest{Resolved: true, Link: s.PageLinks()}
	sorted := slices.SortedFunc(slices.Values(alerts), worstFirst)
	devices, resolved := map[string]bool{}, 0
	for i, a := range sorted {
		if i == 0 {
			d.Severity = a.Severity()
		}
		if a.Resolved {
			resolved++
		}
		d.Resolved = d.Resolved && a.Resolved
		devices[a.Device] = true
	}
	left := maxDigestLines
	for len(sorted) > 0 {
		n := len(sorted)
		if i := slices.IndexFunc(sorted, func(a Alert) bool { return !sameGroup(a, sorted[0]) }); i > 0 {
			n = i
		}
		g := group(sorted[:n])
		if len(d.Groups) == maxDigestGroups-1 && n < len(sorted) {
			g, n = rest(sorted), len(sorted)
		}
		for _, a := range sorted[:n] {
			if left > 0 {
				left--
				g.Lines = append(g.Lines, a.line())
				continue
			}
			g.Others = append(g.Others, a.names())
		}
		d.Groups, sorted = append(d.Groups, g), sorted[n:]
	}
	switch {
	case len(d.Groups) == 1:
		d.Headline = printable(d.Groups[0].Title, maxMessage-1)
	case resolved == 0:
		d.Headline = fmt.Sprintf("%s: %d alerts", countDevices(len(devices)), len(alerts))
	case resolved == len(alerts):
		d.Headline = countDevices(len(devices)) + " normal again"
	default:
		d.Headline = fmt.Sprintf("%s: %d alerts, %d normal again", countDevices(len(devices)), len(alerts)-resolved, resolved)
	}
	return d
}

// BatchID names a message about alerts: the same for the same alerts, in any order.
func BatchID(alerts []Alert) string {
	var ids []string
	for _, a := range alerts {
		ids = append(ids, a.ID)
	}
	slices.Sort(ids)
	sum := sha256.Sum256([]byte(strings.Join(ids, "\n")))
	return "batch-" + hex.EncodeToString(sum[:16])
}

// severities, the highest first.
var severities = []Severity{Critical, Serious, Warning, Info}

// worstFirst orders alerts before recoveries, then by severity, rule, level and value.
func worstFirst(a, b Alert) int {
	values := cmp.Compare(b.Temperature, a.Temperature)
	if a.Below {
		values = -values
	}
	return cmp.Or(
		compareBool(a.Resolved, b.Resolved), cmp.Compare(slices.Index(severities, a.Severity()), slices.Index(severities, b.Severity())),
		cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Level, b.Level), compareBool(a.Removed, b.Removed), compareBool(a.Below, b.Below),
		values, cmp.Compare(a.Device, b.Device),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func sameGroup(a, b Alert) bool {
	return a.Resolved == b.Resolved && a.Rule == b.Rule && a.Level == b.Level && a.Removed == b.Removed && a.Below == b.Below
}

// group returns the group of alerts that are of one rule and level, without its devices.
func group(alerts []Alert) Group {
	a := alerts[0]
	g := Group{Severity: a.Severity(), Resolved: a.Resolved}
	side := " at or above "
	if a.Below {
		side = " at or below "
	}
	limit := a.value(a.Threshold)
	if slices.ContainsFunc(alerts, func(b Alert) bool { return b.Threshold != a.Threshold }) {
		limit = "their limits"
	}
	what := side + limit
	switch {
	case a.Removed:
		what = ": the rule was removed, their alarms have ended"
	case a.Resolved:
		what = " normal again"
	case a.Silent > 0:
		what = " silent for " + plain(a.Silent)
	case a.Word != "":
		what = ""
	}
	g.Title = a.ruleAndLevel() + ": " + countDevices(len(alerts)) + what
	if a.Test {
		g.Title += " (test)"
	}
	return g
}

// rest is the last group of a digest that would have too many.
func rest(alerts []Alert) Group {
	g := Group{Title: fmt.Sprintf("%d more, of other rules and levels", len(alerts)), Severity: alerts[0].Severity(), Resolved: true}
	for _, a := range alerts {
		g.Resolved = g.Resolved && a.Resolved
	}
	return g
}

// line is a in the group of its rule and level.
func (a Alert) line() string {
	s := a.names()
	switch {
	case a.Silent > 0 && !a.Resolved:
		s += ": since " + a.Since.UTC().Format(minute)
	case a.Removed, a.Silent > 0, a.Word != "" && a.Resolved:
	case a.Word != "":
		s += ": " + printable(a.Word, maxName)
	default:
		s += ": " + a.value(a.Temperature) + ", limit " + number(a.Threshold)
	}
	for name, value := range a.Shown.All() {
		s += ", " + printable(name, maxName) + " " + printable(cmp.Or(value, "–"), maxName)
	}
	if a.Ambiguous {
		s += " (possibly a repeat)"
	}
	return printable(s, maxMessage-1)
}

func countDevices(n int) string {
	if n == 1 {
		return "1 device"
	}
	return fmt.Sprintf("%d devices", n)
}

// More names the devices that g has no lines for, in at most limit bytes: "and 35 more: a, b, c and
// 32 others". It is empty if there are none. quote makes a name what the channel takes for text.
func (g Group) More(limit int, quote func(string) string) string {
	if len(g.Others) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d more", len(g.Others))
	if len(g.Lines) > 0 {
		b.Reset()
		fmt.Fprintf(&b, "and %d more", len(g.Others))
	}
	const reserve = len(" and 100 others")
	for i, name := range g.Others {
		next := ", " + quote(name)
		if i == 0 {
			next = ": " + quote(name)
		}
		if b.Len()+len(next)+reserve > limit {
			if i > 0 {
				fmt.Fprintf(&b, " and %d others", len(g.Others)-i)
			}
			break
		}
		b.WriteString(next)
	}
	return b.String()
}

// Text is d without its headline as lines of text, in at most limit bytes.
func (d Digest) Text(limit int) string {
	var b strings.Builder
	write := func(line string) {
		if b.Len()+len(line)+1 <= limit {
			b.WriteString(line + "\n")
		}
	}
	for i, g := range d.Groups {
		if len(d.Groups) > 1 {
			write(g.Title)
		}
		for _, line := range g.Lines {
			write(line)
		}
		if more := g.More((limit-b.Len())/(len(d.Groups)-i)-1, func(s string) string { return s }); more != "" {
			write(more)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
