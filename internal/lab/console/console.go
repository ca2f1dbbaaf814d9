// Package console is the terminal view of the simulation: a line for every alert and
// every event of a worker, a live view of devices below them, and the
// summary at the end. If the output is not a terminal, the live view is plain lines
// every few seconds.
package console

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"

	"golang.org/x/term"
)

const (
	liveInterval  = 250 * time.Millisecond
	plainInterval = 5 * time.Second
	hottest       = 3    // devices in the live view
	maxDevices    = 4096 // that the live view looks at
	history       = 12   // readings in a sparkline
)

// Options say what the output can do. The zero Options are for a file.
type Options struct {
	Live      bool       // move the cursor and redraw
	Color     bool       // use colors, which never carry meaning alone
	Width     func() int // columns, asked at every redraw; nil and 0 mean 80
	Threshold float64    // of readings
	Silent    bool       // devices that are not heard are worth an alert
}

// Detect returns the Options for f. NO_COLOR turns colors off; CI and a dumb
// TERM make the output plain.
func Detect(f *os.File, getenv func(string) string) Options {
	fd := int(f.Fd())
	live := term.IsTerminal(fd) && getenv("CI") == "" && getenv("TERM") != "dumb"

	return Options{
		Live:  live,
		Color: live && getenv("NO_COLOR") == "",
		Width: func() int { width, _, _ := term.GetSize(fd); return width },
	}
}

// A Console prints what happens. It is safe for concurrent use; its calls block only on
// its writer. Text from outside, such as device ids, is cleaned of control characters
// before it is printed.
type Console struct {
	opts    Options
	start   time.Time
	stop    context.CancelFunc
	running sync.WaitGroup
	close   sync.Once

	mu         sync.Mutex
	w          io.Writer
	err        error    // the first of w; nothing is written after it
	shown      int      // lines of the live view on the screen
	live       []string // its last drawing
	readings   int
	over       int
	alerts     int
	recoveries int
	silences   int       // alerts about silence, which alerts does not count
	rated      int       // readings at the last drawing that renewed the rate
	ratedAt    time.Time // when that was
	rate       float64
	names      int                  // width of the widest device id so far
	devices    map[string][]float64 // their latest readings, oldest first
}

// New returns a Console that writes to w. Close must be called.
func New(w io.Writer, o Options) *Console {
	ctx, stop := context.WithCancel(context.Background())
	c := &Console{
		opts:    o,
		start:   time.Now(),
		stop:    stop,
		w:       w,
		names:   18, // a device and its sensor
		devices: make(map[string][]float64),
	}

	c.ratedAt = c.start
	if o.Live {
		c.print("\x1b[?25l") // hide the cursor
	}

	c.running.Go(func() { c.run(ctx) })

	return c
}

// run redraws the live view, or prints the plain line, until ctx ends.
func (c *Console) run(ctx context.Context) {
	interval := plainInterval
	if c.opts.Live {
		interval = liveInterval
	}

	ticker := time.NewTicker(interval)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.mu.Lock()
			c.progress()
			c.mu.Unlock()
		}
	}
}

// Close removes the live view, restores the terminal, and returns the first error of
// the writer. Lines and the summary can still be printed.
func (c *Console) Close() error {
	c.close.Do(func() {
		c.stop()
		c.running.Wait()

		c.mu.Lock()
		defer c.mu.Unlock()

		if c.opts.Live {
			c.print(c.erase() + "\x1b[?25h")
			c.live = nil
		}
	})
	return c.Err()
}

// Reading counts a reading that was published, and shows its device.
func (c *Console) Reading(device string, temperature float64, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.readings++
	if over {
		c.over++
	}

	if !c.opts.Live {
		return
	}

	latest, known := c.devices[device]
	if !known && len(c.devices) == maxDevices {
		return
	}

	c.devices[device] = append(latest[max(0, len(latest)-history+1):], temperature)
}

// Alert prints the line of an alert, or of a device that is normal again, that was taken lag after its reading.
func (c *Console) Alert(a notify.Alert, lag time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	switch {
	case a.Resolved:
		c.recoveries++

	case a.Silent > 0:
		c.silences++

	default:
		c.alerts++
	}

	c.above(c.alertLine(a, lag) + "\n")
}

// Event prints a line about a worker. text may come from outside.
func (c *Console) Event(worker, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.above(c.workerLine(worker, humanize.Clean(text)) + "\n")
}

// Err returns the first error of the writer.
func (c *Console) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Write prints p, whole lines, above the live view: a log can write to a
// Console. It trusts p and does not clean it.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	text := string(p)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}

	c.above(text)
	if c.err != nil {
		return 0, c.err
	}

	return len(p), nil
}

// above prints text, whole lines, and the live view again below it.
func (c *Console) above(text string) {
	erase := c.erase()
	c.print(erase + text + c.draw())
}

// progress renews the live view, or prints the plain line.
func (c *Console) progress() {
	if now := time.Now(); now.Sub(c.ratedAt) >= time.Second {
		c.rate = float64(c.readings-c.rated) / now.Sub(c.ratedAt).Seconds()
		c.rated, c.ratedAt = c.readings, now
	}

	if !c.opts.Live {
		c.print(c.statusLine() + "\n")
		return
	}

	width := 0
	if c.opts.Width != nil {
		width = c.opts.Width()
	}

	c.live = append([]string{c.statusLine()}, c.hottestLines()...)
	for i, line := range c.live {
		c.live[i] = truncate(line, cmp.Or(width, 80)-1)
	}

	c.print(c.erase() + c.draw())
}

// draw returns what puts the live view on the screen, the cursor at its end.
// The terminal must not wrap its lines, or erase would miss some.
func (c *Console) draw() string {
	if c.shown = len(c.live); c.shown == 0 {
		return ""
	}
	return "\x1b[?7l" + strings.Join(c.live, "\n") + "\x1b[?7h"
}

// erase returns what takes the live view off the screen, the cursor where it began.
func (c *Console) erase() string {
	if c.shown == 0 {
		return ""
	}

	up := ""
	if c.shown > 1 {
		up = fmt.Sprintf("\x1b[%dA", c.shown-1)
	}

	c.shown = 0

	return "\r" + up + "\x1b[J"
}

// print writes s at once, so that nothing else comes in between.
func (c *Console) print(s string) {
	if c.err != nil || s == "" {
		return
	}

	if _, err := io.WriteString(c.w, s); err != nil {
		c.err = fmt.Errorf("write to the console: %w", err)
	}
}
