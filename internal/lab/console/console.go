// Package console is what the simulation prints: a line for every alert and every event of a worker, one every few
// seconds of how much there was, and the summary at the end.
package console

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"

	"golang.org/x/term"
)

// interval is between two lines of how much there was.
const interval = 5 * time.Second

// Options say how a Console prints.
type Options struct {
	Color     bool    // use colors, which never carry meaning alone
	Threshold float64 // of readings
	Silent    bool    // devices that are not heard are worth an alert
}

// HasColors reports whether f is a terminal that is to have colors: NO_COLOR, CI and a dumb TERM turn them off.
func HasColors(f *os.File, getenv func(string) string) bool {
	wanted := getenv("NO_COLOR") == "" && getenv("CI") == "" && getenv("TERM") != "dumb"

	return wanted && term.IsTerminal(int(f.Fd()))
}

// A Console prints what happens. It is safe for concurrent use; its calls block only on
// its writer. Text from outside, such as device ids, is cleaned of control characters
// before it is printed.
type Console struct {
	opts    Options
	start   time.Time
	stop    context.CancelFunc
	running sync.WaitGroup

	mu         sync.Mutex
	w          io.Writer
	err        error // the first of w; nothing is written after it
	readings   int
	over       int
	alerts     int
	recoveries int
	silences   int // alerts about silence, which alerts does not count
	rated      int // readings at the last line that told the rate
	names      int // width of the widest device id so far
}

// New returns a Console that writes to w. Close must be called.
func New(w io.Writer, o Options) *Console {
	ctx, stop := context.WithCancel(context.Background())
	c := &Console{
		opts:  o,
		start: time.Now(),
		stop:  stop,
		w:     w,
		names: 18, // a device and its sensor
	}

	c.running.Go(func() { c.run(ctx) })

	return c
}

// run prints how much there was, until ctx ends.
func (c *Console) run(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.mu.Lock()
			c.print(c.statusLine() + "\n")
			c.rated = c.readings
			c.mu.Unlock()
		}
	}
}

// Close ends the lines of how much there was, and returns the first error of the writer. Other lines and the summary can
// still be printed.
func (c *Console) Close() error {
	c.stop()
	c.running.Wait()

	return c.Err()
}

// Reading counts a reading that was published.
func (c *Console) Reading(over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.readings++
	if over {
		c.over++
	}
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

	c.print(c.alertLine(a, lag) + "\n")
}

// Event prints a line about a worker. text may come from outside.
func (c *Console) Event(worker, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.print(fmt.Sprintf("%s  %s  %s\n", c.elapsed(), pad(worker, len("ALERT")), humanize.Clean(text)))
}

// Err returns the first error of the writer.
func (c *Console) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Write prints p, which is whole lines: a log can write to a Console. It trusts p and does not clean it.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.print(string(p))
	if c.err != nil {
		return 0, c.err
	}

	return len(p), nil
}

// print writes s at once, so that nothing else comes in between.
func (c *Console) print(s string) {
	if c.err != nil {
		return
	}

	if _, err := io.WriteString(c.w, s); err != nil {
		c.err = fmt.Errorf("write to the console: %w", err)
	}
}
