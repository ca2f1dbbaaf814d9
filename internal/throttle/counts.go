package throttle

import (
	"context"
	"iter"
	"strings"
	"time"

	"alertworker/internal/lease"
)

const secondsPerDay = 24 * 60 * 60

// counts are a device's, of the last UTC day with an alert, and at [1] of the day before that.
type counts struct {
	Day        int64    `json:"day"` // since 1970
	Alerts     [2]int64 `json:"alerts"`
	Suppressed [2]int64 `json:"suppressed"`
}

// add returns c with one more alert at now, by the store's clock, and the readings
// suppressed before it.
func (c counts) add(now time.Time, suppressed int64) counts {
	i := 0
	switch day := now.Unix() / secondsPerDay; day {
	case c.Day:
	case c.Day + 1:
		c.Day, c.Alerts[1], c.Suppressed[1] = day, c.Alerts[0], c.Suppressed[0]
		c.Alerts[0], c.Suppressed[0] = 0, 0
	case c.Day - 1: // the clock was set back at midnight
		i = 1
	default:
		c = counts{Day: day}
	}
	c.Alerts[i]++
	c.Suppressed[i] += suppressed
	return c
}

// sound reports whether c can have been counted.
func (c counts) sound() bool {
	return min(c.Alerts[0], c.Alerts[1], c.Suppressed[0], c.Suppressed[1]) >= 0
}

// A Tally is what a device had in one UTC day.
type Tally struct {
	Alerts     int64 // that the receiver has taken
	Suppressed int64 // readings kept quiet before these, as far as their senders knew
}

// Counts are those of one device and receiver. They reach back from the device's last alert
// to the beginning of the day before.
type Counts struct {
	Device, Receiver string
	counts           counts
}

// On returns the tally of the UTC day that has t.
func (c Counts) On(t time.Time) Tally {
	switch c.counts.Day - t.Unix()/secondsPerDay {
	case 0:
		return Tally{c.counts.Alerts[0], c.counts.Suppressed[0]}
	case 1:
		return Tally{c.counts.Alerts[1], c.counts.Suppressed[1]}
	}
	return Tally{}
}

// Counted yields what the gates of scope, of all receivers, have counted in s, in
// no order. What they count meanwhile may be missing, and a device may come
// twice. It ends with the first error, which Is errors.ErrUnsupported if s cannot
// list. Left out are devices whose names are too long for a key to hold: some 600 bytes,
// less where they are no UTF-8.
func Counted(ctx context.Context, s lease.Store, scope string) iter.Seq2[Counts, error] {
	prefix := scope + "/"
	return func(yield func(Counts, error) bool) {
		for e, err := range lease.List(ctx, s, prefix) {
			if err != nil {
				yield(Counts{}, err)
				return
			}
			receiver, device, ok := strings.Cut(e.Key[len(prefix):], "/")
			if !ok || strings.Contains(device, "/") { // of a longer scope
				continue
			}
			c := parseNote(e.Record.Note).Counts
			if c.Day == 0 || !c.sound() {
				continue
			}
			if !yield(Counts{unescape(device), unescape(receiver), c}, nil) {
				return
			}
		}
	}
}
