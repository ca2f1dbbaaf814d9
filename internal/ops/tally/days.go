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
	maxCounted = 200_000  // devices of all days and receivers: about 30 MB of memory
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
	c := collection{days: make([]map[string]map[string]Count, n), others: make([]map[string]Count, n)}
	for i := range n {
		names, err := t.names(ctx, t.folder+first.AddDate(0, 0, i).Format(time.DateOnly)+"/", maxRecords+1)
		if err != nil {
			return nil, false, err
		}
		if len(names) > maxRecords {
			names, c.more = names[:maxRecords], true
		}
		err = sideBySide(ctx, names, func(ctx context.Context, name string) error { return t.collect(ctx, name, &c, i) })
		if err != nil {
			return nil, false, err
		}
		days = append(days, c.day(i))
	}
	return days, c.more, nil
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

// collect adds a record of the i-th day to c.
func (t *Tally) collect(ctx context.Context, name string, c *collection, i int) error {
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
	c.add(i, h)
	return nil
}

// A collection is the sum of records.
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
	working, ctx := errgroup.WithContext(ctx)
	working.SetLimit(getsAtOnce)
	for _, name := range names {
		working.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return do(ctx, name)
		})
	}
	return working.Wait()
}
