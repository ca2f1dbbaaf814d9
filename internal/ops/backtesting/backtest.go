// Package backtesting asks what rules would have done with readings of the past: for `alertworker backtest`. Every
// decision is the worker's own, by a partition.Backtest for each candidate.
package backtesting

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// A Source has readings of the past. It is for one goroutine.
type Source interface {
	// Next returns the next events of a partition, valid until the next call, and io.EOF after the last. Over all
	// partitions none is enqueued before the one before it.
	Next(ctx context.Context) (partition string, events []telemetry.Event, err error)
	// Progress returns the share that has been read, 0 to 1.
	Progress() float64
}

// A Candidate is a set of rules, and what it would have done.
type Candidate struct {
	Name  string
	Set   rules.Set
	To    []partition.Receiver // only names and filters count
	Mutes rules.Mutes          // what people had silenced
	// Notice, unless it is nil, is called with every alert and recovery.
	Notice func(partition.BacktestNotice)

	test    *partition.Backtest
	last    partition.BacktestNotice // the last alert: to count one of several receivers once
	devices map[string]*device       // that have had an alarm
	open    map[alarm]time.Time
	told    map[string]bool // incidents
	result
}

// A result is what a candidate would have done, as PrintJSON prints it. From devices on it is known once the run is
// finished.
type result struct {
	Alarms         int              `json:"alarms"`
	Alerts         int              `json:"alerts"` // different ones
	Incidents      int              `json:"incidents,omitempty"`
	Receivers      []sent           `json:"receivers"`
	Days           map[string]int   `json:"alertsByDay"`
	Longest        *longest         `json:"longestAlarm,omitempty"` // nil: there was no alarm
	Devices        int              `json:"devices"`                // with an alert
	Noisiest       []*device        `json:"noisiest"`
	NewlyReported  []string         `json:"newlyReported,omitempty"` // devices, by the first candidate
	NoLonger       []string         `json:"noLongerReported,omitempty"`
	WithoutReading map[string]int64 `json:"withoutReading,omitempty"` // events
}

// sent is what a receiver would have got.
type sent struct {
	Name       string `json:"name"`
	Alerts     int    `json:"alerts"`
	Recoveries int    `json:"recoveries"`
}

type device struct {
	Name   string `json:"device"`
	Alerts int    `json:"alerts"`
	Alarms int    `json:"alarms"`
}

type alarm struct {
	Device string `json:"device"`
	Sensor string `json:"sensor,omitempty"`
	Rule   string `json:"rule"`
	Level  string `json:"level,omitempty"`
}

// longest is an alarm.
type longest struct {
	alarm
	Since   time.Time `json:"since"`
	Seconds float64   `json:"seconds"` // from the first reading that reached the limit
	Open    bool      `json:"open"`    // it had not cleared by the end
}

// A Run is what became of a source.
type Run struct {
	Candidates []*Candidate
	Readings   int // events, with a reading or not
	From, To   time.Time
	Complete   bool // false: it was stopped
	zone       *time.Location
}

// Start prepares the candidates. Days are those of zone.
func Start(candidates []*Candidate, zone *time.Location) (*Run, error) {
	for _, c := range candidates {
		c.devices = map[string]*device{}
		c.Days = map[string]int{}
		c.open = map[alarm]time.Time{}
		c.told = map[string]bool{}
		for _, to := range c.To {
			c.Receivers = append(c.Receivers, sent{Name: to.To.Name})
		}

		var err error
		if c.test, err = partition.NewBacktest(c.Set, c.To, partition.Observer{
			Mutes:  c.Mutes,
			Notice: func(n partition.BacktestNotice) { c.notice(n, zone) },
			Alarm:  c.alarm,
		}); err != nil {
			return nil, err
		}
	}

	return &Run{Candidates: candidates, zone: zone}, nil
}

// Take has every candidate take what the source has, until ctx ends, which is no error.
func (r *Run) Take(ctx context.Context, s Source) error {
	for {
		partition, events, err := s.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			r.Complete = true
			return nil
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}

		for _, c := range r.Candidates {
			c.test.Take(partition, events)
		}

		if r.Readings == 0 {
			r.From = events[0].Enqueued
		}

		r.Readings += len(events)
		r.To = events[len(events)-1].Enqueued
	}
}

// Finish sends the recoveries that are due, and concludes.
func (r *Run) Finish() {
	for _, c := range r.Candidates {
		c.test.Finish()
		for a, since := range c.open {
			c.longer(a, since, r.To, true)
		}

		reported := []*device{} // those with an alert, the noisiest first
		for _, d := range c.devices {
			if d.Alerts > 0 {
				reported = append(reported, d)
			}
		}

		slices.SortFunc(reported, func(a, b *device) int {
			return cmp.Or(cmp.Compare(b.Alerts, a.Alerts), cmp.Compare(b.Alarms, a.Alarms), cmp.Compare(a.Name, b.Name))
		})
		c.Devices, c.Noisiest = len(reported), reported[:min(shownDevices, len(reported))]
		c.NewlyReported, c.NoLonger = c.without(r.Candidates[0]), r.Candidates[0].without(c)
		c.WithoutReading = map[string]int64{} // by reason
		for reason := range telemetry.Reason(telemetry.ReasonCount) {
			if n := c.test.Counters().Events[reason].Load(); n > 0 && !reason.HasReading() {
				c.WithoutReading[reason.String()] = n
			}
		}
	}
}

// notice counts an alert or a recovery to one receiver.
func (c *Candidate) notice(n partition.BacktestNotice, zone *time.Location) {
	if c.Notice != nil {
		c.Notice(n)
	}

	if n.Recovery {
		c.Receivers[n.Receiver].Recoveries++
		return
	}

	c.Receivers[n.Receiver].Alerts++
	n.Receiver = 0
	if n == c.last {
		return
	}

	c.last = n
	c.Alerts++
	if n.Incident != "" {
		c.told[n.Incident] = true
		c.Incidents = len(c.told)
	}
	c.of(n.Device).Alerts++
	c.Days[n.At.In(zone).Format(time.DateOnly)]++
}

// of returns what is counted of a device.
func (c *Candidate) of(name string) *device {
	d := c.devices[name]
	if d == nil {
		d = &device{Name: name}
		c.devices[name] = d
	}

	return d
}

// alarm counts an alarm that opens, and measures one that has ended.
func (c *Candidate) alarm(a partition.BacktestAlarm) {
	key := alarm{a.Device, a.Sensor, a.Rule, a.Level}

	if a.Open {
		c.Alarms++
		c.of(a.Device).Alarms++
		c.open[key] = a.Since
		return
	}

	delete(c.open, key)
	c.longer(key, a.Since, a.At, false)
}

// longer keeps an alarm if none was longer.
func (c *Candidate) longer(a alarm, since, until time.Time, open bool) {
	next := &longest{a, since, until.Sub(since).Seconds(), open}
	if c.Longest == nil || cmp.Or( // of those that are as long the first
		cmp.Compare(c.Longest.Seconds, next.Seconds),
		cmp.Compare(next.Device, c.Longest.Device),
		cmp.Compare(next.Sensor, c.Longest.Sensor),
	) < 0 {
		c.Longest = next
	}
}

// without returns the devices that c reports and other does not, in order.
func (c *Candidate) without(other *Candidate) (names []string) {
	for name, d := range c.devices {
		if d.Alerts > 0 && other.of(name).Alerts == 0 {
			names = append(names, name)
		}
	}

	slices.Sort(names)

	return names
}
