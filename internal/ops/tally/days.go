package tally

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"
)

const (
	maxObjects = 10_000  // read for one day
	maxCounted = 200_000 // devices of all days and receivers: about 30 MB of memory
	getsAtOnce = 16
	keepDays   = 2 // before the first day requested; older objects are removed
)

// A Day has the counts of all replicas for one UTC day, by their clocks. A device with
// several receivers counts once, with the counts of the receiver that has the most.
type Day struct {
	Devices map[string]Count
	Others  Count // of devices beyond the number that is counted individually
}

// Days returns n days, the first beginning at first: what all replicas of the scope
// have written, and t's current counts. more reports that there was more than can be
// counted, so the figures are too low. It removes objects that are too old to be requested.
func (t *Tally) Days(ctx context.Context, first time.Time, n int) (days []Day, more bool, err error) {
	if err := t.Write(ctx); err != nil {
		return nil, false, err
	}
	t.removeOld(ctx, first)
	c := collection{days: make([]map[string]map[string]Count, n), others: make([]map[string]Count, n)}
	for i := range n {
		names, err := t.store.List(ctx, t.folder+first.AddDate(0, 0, i).Format(time.DateOnly)+"/", maxObjects+1)
		if err != nil {
			return nil, false, err
		}
		if len(names) > maxObjects {
			names, c.more = names[:maxObjects], true
		}
		err = sideBySide(ctx, names, func(ctx context.Context, name string) error { return t.collect(ctx, name, &c, i) })
		if err != nil {
			return nil, false, err
		}
		days = append(days, c.day(i))
	}
	return days, c.more, nil
}

// removeOld removes objects that are too old. What it cannot remove is left to the next call.
func (t *Tally) removeOld(ctx context.Context, first time.Time) {
	limit := t.folder + first.AddDate(0, 0, -keepDays).Format(time.DateOnly)
	names, err := t.store.List(ctx, t.folder, maxObjects)
	if err != nil {
		return
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name >= limit })
	_ = sideBySide(ctx, names, t.store.Delete)
}

// collect adds an object of the i-th day to c.
func (t *Tally) collect(ctx context.Context, name string, c *collection, i int) error {
	content, err := t.store.Get(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var h hour
	if err := json.Unmarshal(content, &h); err != nil {
		return fmt.Errorf("read tally %q: %w: delete it", name, err)
	}
	c.add(i, h)
	return nil
}

// A collection is the sum of objects.
type collection struct {
	mu      sync.Mutex
	days    []map[string]map[string]Count // by receiver and device
	others  []map[string]Count            // by receiver
	entries int
	more    bool
}

func (c *collection) add(i int, h hour) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.days[i] == nil {
		c.days[i], c.others[i] = map[string]map[string]Count{}, map[string]Count{}
	}
	for receiver, n := range h.Others {
		c.others[i][receiver] = c.others[i][receiver].plus(n)
		c.more = true
	}
	for receiver, devices := range h.Devices {
		sums := c.days[i][receiver]
		if sums == nil {
			sums = map[string]Count{}
			c.days[i][receiver] = sums
		}
		for device, n := range devices {
			had, known := sums[device]
			if !known && c.entries >= maxCounted {
				c.others[i][receiver] = c.others[i][receiver].plus(n)
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

// day returns the i-th day, each device with the counts of its receiver that has the most.
func (c *collection) day(i int) Day {
	d := Day{Devices: map[string]Count{}}
	for _, devices := range c.days[i] {
		for device, n := range devices {
			d.Devices[device] = d.Devices[device].most(n)
		}
	}
	for _, n := range c.others[i] {
		d.Others = d.Others.most(n)
	}
	return d
}

func (c Count) most(d Count) Count {
	return Count{max(c.Alerts, d.Alerts), max(c.Suppressed, d.Suppressed)}
}

// sideBySide calls do for all names, a few concurrently, until one fails.
func sideBySide(ctx context.Context, names []string, do func(context.Context, string) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, getsAtOnce)
	var working sync.WaitGroup
	for _, name := range names {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		working.Go(func() {
			defer func() { <-slots }()
			if err := do(ctx, name); err != nil {
				cancel(err)
			}
		})
	}
	working.Wait()
	return context.Cause(ctx)
}
