package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"alertworker/internal/console"
	"alertworker/internal/notify/inbox"
)

// plainEvery is how often a view that is not live says how it stands.
const plainEvery = 5 * time.Second

// A view shows the workers side by side: a line for every alert and every
// change, in the worker's column, and live below them how everybody stands. Where
// the output is no terminal, lines begin with the worker's name instead. It is safe for
// concurrent use. Its first failure to write is what Draw returns.
type view struct {
	options
	look  console.Options
	out   io.Writer
	start time.Time

	mu       sync.Mutex
	err      error  // nothing is written after it
	live     string // what stands below
	shown    int    // lines of it on the screen
	closed   bool
	lanes    []lane
	readings int
	over     int
	alerts   int
	settling bool
	owner    map[string]string // of each partition, the last known
	rated    int               // readings at ratedAt
	ratedAt  time.Time
	rate     float64
	said     time.Time // the last plain line on how it stands
}

// newView returns a view of workers that are all dead. Close must be called.
func newView(out io.Writer, look console.Options, o options) *view {
	now := time.Now()
	v := &view{options: o, look: look, out: out, start: now, owner: map[string]string{}, ratedAt: now, said: now}
	for _, name := range workerNames[:o.workers] {
		v.lanes = append(v.lanes, lane{name: name})
	}
	if look.Live {
		v.print("\x1b[?25l") // hide the cursor
	}
	return v
}

// Reading tells of a reading that was published.
func (v *view) Reading(over bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.readings++
	if over {
		v.over++
	}
}

// Alert tells of an alert that arrived.
func (v *view) Alert(d inbox.Delivery) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := v.lane(d.Alert.Replica)
	if i < 0 {
		return
	}
	if d.Dropped {
		v.note(i, dim, "again: "+clean(d.Alert.Device))
		return
	}
	v.alerts++
	v.lanes[i].alerts++
	v.lanes[i].suppressed += d.Alert.Suppressed
	if v.look.Live {
		v.above(v.layout().alone(v.stamp(), i, v.layout().alert(d.Alert)))
		return
	}
	since := "first alert"
	if d.Alert.Suppressed > 0 {
		since = fmt.Sprintf("%d suppressed", d.Alert.Suppressed)
	}
	v.plain(i, fmt.Sprintf("ALERT  %s %s  %s", fit(clean(d.Alert.Device), 18), right(degrees(d.Alert.Temperature), 6), since))
}

// Log prints what worker i said.
func (v *view) Log(i int, line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.look.Live {
		line = v.lanes[i].name + ": " + line
		v.above(v.layout().text(yellow, clean(line)))
		return
	}
	v.plain(i, clean(line))
}

// Alive tells that worker i was started.
func (v *view) Alive(i int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lanes[i].alive = true
	if !v.lanes[i].killed.IsZero() {
		v.note(i, green, "back")
	}
}

// Dead tells that worker i was killed, and when it will be started again.
func (v *view) Dead(i int, back time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w := &v.lanes[i]
	w.alive, w.back, w.killed, w.partitions = false, back, time.Now(), nil
	v.note(i, red, "killed")
}

// Owners tells who owns which partition; the others have no owner.
func (v *view) Owners(now map[string]string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.lanes {
		w := &v.lanes[i]
		taken := map[string][]string{} // from whom
		w.partitions = nil
		for _, partition := range slices.SortedFunc(maps.Keys(now), byNumber) {
			if now[partition] != w.name {
				continue
			}
			w.partitions = append(w.partitions, partition)
			if from := v.owner[partition]; from != "" && from != w.name {
				taken[from] = append(taken[from], partition)
			}
		}
		for _, from := range slices.Sorted(maps.Keys(taken)) {
			text := fmt.Sprintf("took %s from %s", strings.Join(taken[from], " "), from)
			if j := v.lane(from); j >= 0 && !v.lanes[j].alive {
				in := fmt.Sprintf(" in %.1f s", time.Since(v.lanes[j].killed).Seconds())
				if !v.look.Live || len(text+in) <= v.layout().cell() {
					text += in
				}
			}
			v.note(i, yellow, text)
		}
	}
	maps.Copy(v.owner, now)
}

// byNumber compares the ids of partitions.
func byNumber(a, b string) int {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return x - y
}

// Settling tells that the devices have stopped.
func (v *view) Settling() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.settling = true
	if !v.look.Live {
		v.print(v.stamp() + "  devices stopped; waiting for the last alerts\n")
	}
}

// Draw renews what stands below. It returns the first failure to write.
func (v *view) Draw() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if passed := now.Sub(v.ratedAt); passed >= time.Second {
		v.rate = float64(v.readings-v.rated) / passed.Seconds()
		v.rated, v.ratedAt = v.readings, now
	}
	switch {
	case v.look.Live:
		l := v.layout()
		lines := append([]string{l.rule()}, l.heads(v.stamp()[:len("00:14")], now, v.lanes)...)
		lines = append(lines, "", l.text("", v.totals()), l.text(dim, v.hint()))
		if live := strings.Join(lines, "\n"); live != v.live {
			v.live = live
			v.above("")
		}
	case now.Sub(v.said) >= plainEvery:
		v.said = now
		v.print(v.stamp() + "  " + v.totals() + "\n")
		for i, w := range v.lanes {
			if w.alive {
				v.plain(i, w.owns())
			} else {
				v.plain(i, w.absence(now))
			}
		}
	}
	return v.err
}

// totals is how everything stands, in words.
func (v *view) totals() string {
	return fmt.Sprintf("%s, %.0f/s   %d over %v°   %s   %d suppressed",
		plural(v.readings, "reading"), v.rate, v.over, v.threshold, plural(v.alerts, "alert"), max(0, v.over-v.alerts))
}

// hint is what can be done.
func (v *view) hint() string {
	if v.settling {
		return "devices stopped; waiting for the last alerts (q again: at once)"
	}
	keys := "1"
	if v.workers > 1 {
		keys = fmt.Sprintf("1-%d", v.workers)
	}
	return keys + ": kill -9, again: back   q: stop   +3: readings suppressed before"
}

// Close takes away what stands below and gives the terminal back as it was.
func (v *view) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	v.closed = true
	if v.look.Live {
		v.live = ""
		v.above("")
		v.print("\x1b[?25h")
	}
}

// lane returns the index of the worker of that name, or -1.
func (v *view) lane(name string) int {
	return slices.IndexFunc(v.lanes, func(w lane) bool { return w.name == name })
}

// note prints a line on worker i.
func (v *view) note(i int, s style, text string) {
	if v.look.Live {
		v.above(v.layout().alone(v.stamp(), i, v.layout().note(s, text)))
		return
	}
	v.plain(i, text)
}

// plain prints a line that begins with a worker's name.
func (v *view) plain(i int, text string) {
	v.print(v.stamp() + "  " + fit(v.lanes[i].name, 5) + "  " + text + "\n")
}

func (v *view) stamp() string { return elapsed(time.Since(v.start)) }

func (v *view) layout() layout {
	width := 0
	if v.look.Width != nil {
		width = v.look.Width()
	}
	if width <= 0 {
		width = 80
	}
	return layout{width: width, cells: len(v.lanes), color: v.look.Color}
}

// above prints a line, if there is any, and again below it what is live. The
// terminal must not wrap lines, or the next call would not erase all of them.
func (v *view) above(line string) {
	var b strings.Builder
	if v.shown > 0 {
		b.WriteString("\r")
		if v.shown > 1 {
			fmt.Fprintf(&b, "\x1b[%dA", v.shown-1)
		}
		b.WriteString("\x1b[J")
	}
	b.WriteString("\x1b[?7l")
	if line != "" {
		b.WriteString(line + "\n")
	}
	b.WriteString(v.live + "\x1b[?7h")
	v.shown = 0
	if v.live != "" {
		v.shown = 1 + strings.Count(v.live, "\n")
	}
	v.print(b.String())
}

// print writes s at once. A terminal that gives us its keys wants carriage returns; others do
// not mind them.
func (v *view) print(s string) {
	if v.err != nil {
		return
	}
	if v.look.Live {
		s = strings.ReplaceAll(s, "\n", "\r\n")
	}
	if _, err := io.WriteString(v.out, s); err != nil {
		v.err = fmt.Errorf("write to the screen: %w", err)
	}
}
