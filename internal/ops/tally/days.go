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
	maxCounted = 200_000 // devices of all days and receivers, for the sake of memory: some 30 MB
	getsAtOnce = 16
	keepDays   = 2 // before the first day that is asked for; what is older is removed
)

// A Day is what all replicas counted on one UTC day of their clocks. A device with
// several receivers counts once, as the receiver with the most has it.
type Day struct {
	Devices map[string]Count
	Others  Count // devices that were too many to be counted one by one
}

// Days returns n days, of which first begins the first, as all replicas of the scope
// wrote them, and t's counts of this moment. more says that there was more than can be
// counted: the figures are too low. It removes what is too old to be asked for.
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

// removeOld removes what nobody will ask for. What it cannot remove is left to the next time.
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

// A collection is what objects add up to.
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

// day returns the i-th day with each device as its receiver with the most has it.
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

// sideBySide calls do for all names, some at a time, until one fails.
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
