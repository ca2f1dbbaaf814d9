// Package recent remembers windows in force beside the gate, so that a hot device costs the store nothing until its
// window is over. It only ever suppresses, and only as long as the store would; forgetting costs a store call.
//
// What it remembers counts from before the call that it learned it from, and holds only while both clocks of this
// machine say so: the wall clock, which can be set, and the monotonic clock, which stands still while the machine is
// suspended.
package recent

import (
	"context"
	"time"

	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
)

// A Gate is a throttle.Gate that remembers the windows that its answers show, and counts what they suppress. What a
// request calls the device may be a value that devices share: then it counts devices, each once. It is safe for
// concurrent use.
type Gate struct {
	*throttle.Gate
	window  time.Duration
	windows *windows
}

// New returns a Gate that remembers its windows in table, where no other gate finds them.
func New(c throttle.Config, table *Windows) *Gate {
	return &Gate{Gate: throttle.New(c), window: c.Window, windows: newWindows(table)}
}

// Claim is that of throttle.Gate, but does not ask the store while nothing can be claimed: a store with a coarse clock
// frees a key late.
func (g *Gate) Claim(ctx context.Context, r throttle.Request) (*throttle.Claim, throttle.Result, error) {
	wait, inForce := g.windows.wait(r.Of())
	mayBeCovered := inForce && !r.Recovery
	if wait > 0 && !mayBeCovered {
		return nil, throttle.Result{Outcome: throttle.Busy, Retry: time.Now().Add(wait)}, nil
	}

	c, result, err := g.Gate.Claim(ctx, r)
	if w := result.Window; w != (throttle.Window{}) {
		g.windows.remember(r.Of(), w.Ends, w.Frees)
	}

	return c, result, err
}

// Settle is that of throttle.Gate.
func (g *Gate) Settle(ctx context.Context, c *throttle.Claim, answer throttle.Answer) (throttle.Result, error) {
	result, err := g.Gate.Settle(ctx, c, answer)
	if w := result.Window; w != (throttle.Window{}) {
		g.windows.sent(c.Of(), w.Ends, w.Frees)
	}

	return result, err
}

// Recent reports whether a device's, or sensor's, recorded window is known, without asking
// the store, to be still in force, and counts one more suppressed reading if so. It
// allocates nothing.
func (g *Gate) Recent(of sensor.ID) bool { return g.RecentSince(of, time.Time{}) }

// RecentShared is Recent for the window of value, which device shares with others: it counts devices, each once.
func (g *Gate) RecentShared(value, device string) bool {
	recent := g.windows.suppress(sensor.Of(value), 0, 0, instant{})
	if recent {
		g.windows.share(value, device)
	}
	return recent
}

// RecentSince is Recent for a window that began at since or later.
func (g *Gate) RecentSince(of sensor.ID, since time.Time) bool {
	return g.windows.suppress(of, 1, g.window, g.windows.at(since))
}

// Suppressed counts n more suppressed readings of a device or sensor, which its next alert reports.
func (g *Gate) Suppressed(of sensor.ID, n int64) { g.windows.add(of, n) }

// SuppressedShared counts device among those whose readings were suppressed in the window of value, which they share.
func (g *Gate) SuppressedShared(value, device string) { g.windows.share(value, device) }

// Count returns how many suppressed readings this replica has counted since the last alert about
// it; of a value that devices share, how many of them.
func (g *Gate) Count(of sensor.ID) int64 { return g.windows.suppressed(of) }

// Refused starts the window of a device or sensor on this replica alone: its alert is a dead letter, because the receiver
// refuses what it says, and would refuse the next one too. A recovery waits for its end.
func (g *Gate) Refused(of sensor.ID) {
	until := time.Now().Add(g.window)
	g.windows.sent(of, until, until)
}
