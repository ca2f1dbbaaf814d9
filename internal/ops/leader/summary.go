package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/ops/tally"
)

const (
	topDevices     = 10
	maxDeadLetters = 10_000 // counted per day
	gatherTimeout  = time.Minute
)

// SummaryConfig configures the daily summary. All fields but DeadLetters are
// required.
type SummaryConfig struct {
	Tally     *tally.Tally // of this replica
	Scope     string       // of the gates
	Source    string       // see notify.Summary
	Receivers map[string]notify.Reporter
	Timeout   time.Duration // for one receiver
	// DeadLetters counts the dead letters of a UTC day, at most limit. Nil if none are stored.
	DeadLetters func(ctx context.Context, day time.Time, limit int) (int, error)
}

// Summary reports alerts per device, suppressed readings and dead letters to all
// receivers concurrently. Figures that are not available within a minute are left out, and the run's
// report says why. Until every receiver has taken the summary or refused it for good, the run fails and is retried, with
// the same ID, also by the next leader: a receiver can drop repetitions by it. The Duty is for
// one Roster.
//
// The figures are from all replicas' tallies, whose days are by the replicas' clocks.
func Summary(schedule Schedule, c SummaryConfig) Duty {
	s := &summary{SummaryConfig: c}
	return Duty{Name: "summary", Schedule: schedule, Do: s.do}
}

type summary struct {
	SummaryConfig
	due     time.Time         // of the last call
	settled map[string]string // by receiver, of that call: why it refused the summary; empty if it has taken it
}

func (s *summary) do(ctx context.Context, c *Call) (string, error) {
	if !c.Due.Equal(s.due) {
		s.due, s.settled = c.Due, map[string]string{}
	}
	sum, missing := s.gather(ctx, c.Due)
	if err := s.reportAll(ctx, sum); err != nil {
		return "", fmt.Errorf("summary not delivered: %w", err)
	}
	report := fmt.Sprintf("%d and %d alerts", sum.Days[0].Alerts, sum.Days[1].Alerts)
	if sum.Days[0].Unknown {
		report = "alerts unknown"
	}
	for _, err := range missing {
		report += fmt.Sprintf("; %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(s.settled)) {
		if why := s.settled[name]; why != "" {
			report += "; " + why
		}
	}
	return report, nil
}

// reportAll reports to all receivers that are not settled.
func (s *summary) reportAll(ctx context.Context, sum notify.Summary) error {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(s.Receivers)), func(name string) bool { _, done := s.settled[name]; return done })
	errs := make([]error, len(names))
	var reporting sync.WaitGroup
	for i, name := range names {
		reporting.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("the receiver did not answer within %v", s.Timeout))
			defer cancel()
			if err := s.Receivers[name].Report(ctx, sum); err != nil {
				errs[i] = fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	reporting.Wait()
	for i, name := range names {
		switch err := errs[i]; {
		case err == nil:
			s.settled[name] = ""
		case notify.AsError(err).Refused:
			s.settled[name], errs[i] = err.Error(), nil
		}
	}
	return errors.Join(errs...)
}

// gather computes the figures; missing has an error for each that is unknown.
func (s *summary) gather(ctx context.Context, due time.Time) (sum notify.Summary, missing []error) {
	ctx, cancel := context.WithTimeoutCause(ctx, gatherTimeout, fmt.Errorf("not counted within %v", gatherTimeout))
	defer cancel()
	now := time.Now().UTC()
	today := now.Truncate(24 * time.Hour)
	sum = notify.Summary{
		ID:     s.Scope + "/summary/" + due.UTC().Format(time.RFC3339),
		Source: s.Source,
		Scope:  s.Scope,
		Due:    due,
		Made:   now,
		Days:   [2]notify.Day{{Date: today.AddDate(0, 0, -1)}, {Date: today}},
	}
	tallies, more, err := s.Tally.Days(ctx, sum.Days[0].Date, len(sum.Days))
	if err != nil {
		missing = append(missing, fmt.Errorf("alerts not counted: %w", err))
	}
	sum.More = more
	for i := range sum.Days {
		d := &sum.Days[i]
		if d.Unknown = err != nil; !d.Unknown {
			addUp(d, tallies[i])
		}
		if s.DeadLetters == nil {
			continue
		}
		n, err := s.DeadLetters(ctx, d.Date, maxDeadLetters)
		if err != nil {
			missing = append(missing, fmt.Errorf("dead letters of %s not counted: %w", d.Date.Format(time.DateOnly), err))
			continue
		}
		d.DeadLetters = &n
	}
	return sum, missing
}

// addUp sets the figures of d to those of t.
func addUp(d *notify.Day, t tally.Day) {
	d.Alerts, d.Suppressed = t.Others.Alerts, t.Others.Suppressed
	for name, n := range t.Devices {
		c := notify.DeviceCount{Device: name, Alerts: n.Alerts, Suppressed: n.Suppressed}
		d.Alerts += c.Alerts
		d.Suppressed += c.Suppressed
		if c.Alerts > 0 {
			d.Devices++
			d.MostAlerts = top(d.MostAlerts, c, byAlerts)
		}
		if c.Suppressed > 0 {
			d.MostSuppressed = top(d.MostSuppressed, c, bySuppressed)
		}
	}
}

func byAlerts(a, b notify.DeviceCount) int {
	return cmp.Or(cmp.Compare(b.Alerts, a.Alerts), cmp.Compare(b.Suppressed, a.Suppressed), cmp.Compare(a.Device, b.Device))
}

func bySuppressed(a, b notify.DeviceCount) int {
	return cmp.Or(cmp.Compare(b.Suppressed, a.Suppressed), cmp.Compare(b.Alerts, a.Alerts), cmp.Compare(a.Device, b.Device))
}

// top inserts c into list, which is in order, and returns the first ten.
func top(list []notify.DeviceCount, c notify.DeviceCount, order func(a, b notify.DeviceCount) int) []notify.DeviceCount {
	at, _ := slices.BinarySearchFunc(list, c, order)
	if at == topDevices {
		return list
	}
	list = slices.Insert(list, at, c)
	return list[:min(len(list), topDevices)]
}
