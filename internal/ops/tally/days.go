package tally

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"alertworker/internal/records"
)

const (
	maxRecords = 10_000   // read for one day
	maxCounted = 100_000  // devices of one day, each once per receiver: about 15 MB of memory
	maxSize    = 16 << 20 // bytes of one
	getsAtOnce = 16
	keepDays   = 2 // before the first day requested; older records are removed
)

// A Day has the counts of all replicas for one UTC day, by their clocks. A device with
// several receivers counts once, with the counts of the receiver that has the most.
type Day struct {
	Devices map[string]Count
	Others  Count // of devices beyond the number that is counted individually
}

// Days returns n days, the first beginning at first: what all replicas of the scope
// have written, and t's current counts. more reports that there was more than can be
// counted, so the figures are too low. It removes records that are too old to be requested.
func (t *Tally) Days(ctx context.Context, first time.Time, n int) (days []Day, more bool, err error) {
	if err := t.Write(ctx); err != nil {
		return nil, false, err
	}
	t.removeOld(ctx, first)
	for i := range n {
		c := collection{devices: map[string]map[string]Count{}, others: map[string]Count{}}
		names, err := t.names(ctx, t.folder+first.AddDate(0, 0, i).Format(time.DateOnly)+"/", maxRecords+1)
		if err != nil {
			return nil, false, err
		}
		if len(names) > maxRecords {
			names, more = names[:maxRecords], true
		}
		err = sideBySide(ctx, names, func(ctx context.Context, name string) error { return t.collect(ctx, name, &c) })
		if err != nil {
			return nil, false, err
		}
		days, more = append(days, c.day()), more || c.more
	}
	return days, more, nil
}

// removeOld removes records that are too old. What it cannot remove is left to the next call.
func (t *Tally) removeOld(ctx context.Context, first time.Time) {
	limit := t.folder + first.AddDate(0, 0, -keepDays).Format(time.DateOnly)
	names, err := t.names(ctx, t.folder, maxRecords)
	if err != nil {
		return
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name >= limit })
	_ = sideBySide(ctx, names, func(ctx context.Context, name string) error { return t.store.Delete(ctx, name, records.Any) })
}

// names lists the records whose names begin with prefix, at most limit of them.
func (t *Tally) names(ctx context.Context, prefix string, limit int) (names []string, err error) {
	for page, err := range records.Pages(ctx, t.store, prefix) {
		if err != nil {
			return nil, err
		}
		for _, r := range page {
			names = append(names, r.Name)
		}
		if len(names) >= limit {
			return names[:limit], nil
		}
	}
	return names, nil
}

// collect adds a record to c.
func (t *Tally) collect(ctx context.Context, name string, c *collection) error {
	r, err := t.store.Read(ctx, name, maxSize)
	if errors.Is(err, records.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var h hour
	if err := json.Unmarshal(r.Content, &h); err != nil {
		return fmt.Errorf("read tally %q: %w: delete it", name, err)
	}
	c.add(h)
	return nil
}

// A collection is the sum of a day's records.
type collection struct {
	mu      sync.Mutex
	devices map[string]map[string]Count // by receiver and device
	others  map[string]Count            // by receiver
	entries int                         // in devices
	more    bool
}

func (c *collection) add(h hour) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for receiver, n := range h.Others {
		c.others[receiver] = c.others[receiver].plus(n)
		c.more = true
	}
	for receiver, devices := range h.Devices {
		sums := c.devices[receiver]
		if sums == nil {
			sums = map[string]Count{}
			c.devices[receiver] = sums
		}
		for device, n := range devices {
			had, known := sums[device]
			if !known && c.entries >= maxCounted {
				c.others[receiver] = c.others[receiver].plus(n)
				c.more = true
				continue
			}
			if !known {
				c.entries++
			}
			sums[device] = had.plus(n)
		}
	}
}

// day returns the day, each device with the counts of its receiver that has the most.
func (c *collection) day() Day {
	d := Day{Devices: map[string]Count{}}
	for _, devices := range c.devices {
		for device, n := range devices {
			d.Devices[device] = d.Devices[device].most(n)
		}
	}
	for _, n := range c.others {
		d.Others = d.Others.most(n)
	}
	return d
}

func (c Count) most(d Count) Count {
	return Count{max(c.Alerts, d.Alerts), max(c.Suppressed, d.Suppressed)}
}

// sideBySide calls do for all names, a few concurrently, until one fails.
func sideBySide(ctx context.Context, names []string, do func(context.Context, string) error) error {
	working, ctx := errgroup.WithContext(ctx)
	working.SetLimit(getsAtOnce)
	for _, name := range names {
		working.Go(func() error { return do(ctx, name) })
	}
	return working.Wait()
}
