package duty

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

const (
	topDevices     = 10
	maxDevices     = 100_000 // in one summary, for the sake of memory: some 30 MB
	maxDeadLetters = 10_000  // counted a day
)

// SummaryConfig says what a summary is about and whom it is for. All fields but DeadLetters are
// required.
type SummaryConfig struct {
	Store     lease.Store // that the gates use; it has to be a lease.Lister
	Scope     string      // of the gates
	Source    string      // see notify.Summary
	Receivers map[string]notify.Reporter
	Timeout   time.Duration // for one receiver
	// DeadLetters counts the dead letters of a UTC day, at most limit. Nil if none are kept.
	DeadLetters func(ctx context.Context, day time.Time, limit int) (int, error)
}

// Summary reports alerts per device, what was suppressed, and dead letters, to each
// receiver. Until all have taken the summary, or refused it for good, it fails and is tried again, with
// the same ID, which the next leader uses too: by it a receiver can drop what it has. For
// one Roster.
//
// It lists the whole store. The figures are the gates' own, counted by the store's clock, and the
// days are the leader's.
func Summary(schedule Schedule, c SummaryConfig) Duty {
	s := &summary{SummaryConfig: c}
	return Duty{Name: "summary", Schedule: schedule, Do: s.do}
}

type summary struct {
	SummaryConfig
	due     time.Time         // of the last call
	settled map[string]string // of that, by receiver: why not to report again; empty if it has taken it
}

func (s *summary) do(ctx context.Context, c *Call) (string, error) {
	if !c.Due.Equal(s.due) {
		s.due, s.settled = c.Due, map[string]string{}
	}
	sum, err := s.gather(ctx, c.Due)
	if err != nil {
		return "", err
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.Receivers)) {
		if _, done := s.settled[name]; done {
			continue
		}
		err := s.report(ctx, name, sum)
		switch e := notify.AsError(err); {
		case err == nil:
			s.settled[name] = ""
		case e.Refused:
			s.settled[name] = fmt.Sprintf("%s: %v", name, err)
		default:
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if len(errs) > 0 {
		return "", fmt.Errorf("summary not delivered: %w", errors.Join(errs...))
	}
	report := fmt.Sprintf("%d and %d alerts", sum.Days[0].Alerts, sum.Days[1].Alerts)
	for _, name := range slices.Sorted(maps.Keys(s.settled)) {
		if why := s.settled[name]; why != "" {
			report += "; " + why
		}
	}
	return report, nil
}

func (s *summary) report(ctx context.Context, name string, sum notify.Summary) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("the receiver did not answer within %v", s.Timeout))
	defer cancel()
	return s.Receivers[name].Report(ctx, sum)
}

// gather counts.
func (s *summary) gather(ctx context.Context, due time.Time) (notify.Summary, error) {
	now := time.Now().UTC()
	today := now.Truncate(24 * time.Hour)
	dates := [2]time.Time{today.AddDate(0, 0, -1), today}
	sum := notify.Summary{
		ID:     s.Scope + "/summary/" + due.UTC().Format(time.RFC3339),
		Source: s.Source,
		Scope:  s.Scope,
		Due:    due,
		Made:   now,
	}

	devices := map[string]*[2]throttle.Tally{}
	for c, err := range throttle.Counted(ctx, s.Store, s.Scope) {
		if err != nil {
			return sum, fmt.Errorf("count alerts: %w", err)
		}
		tallies := [2]throttle.Tally{c.On(dates[0]), c.On(dates[1])}
		if tallies == [2]throttle.Tally{} {
			continue
		}
		d := devices[c.Device]
		if d == nil {
			if len(devices) == maxDevices {
				sum.More = true
				continue
			}
			d = &[2]throttle.Tally{}
			devices[strings.Clone(c.Device)] = d // not with its key
		}
		for i, t := range tallies {
			d[i].Alerts, d[i].Suppressed = max(d[i].Alerts, t.Alerts), max(d[i].Suppressed, t.Suppressed)
		}
	}
	for i, date := range dates {
		sum.Days[i] = day(date, devices, i)
		if s.DeadLetters == nil {
			continue
		}
		n, err := s.DeadLetters(ctx, date, maxDeadLetters)
		if err != nil {
			return sum, fmt.Errorf("count dead letters: %w", err)
		}
		sum.Days[i].DeadLetters = &n
	}
	return sum, nil
}

// day adds up what devices had on the i-th day.
func day(date time.Time, devices map[string]*[2]throttle.Tally, i int) notify.Day {
	d := notify.Day{Date: date}
	for name, tallies := range devices {
		c := notify.DeviceCount{Device: name, Alerts: tallies[i].Alerts, Suppressed: tallies[i].Suppressed}
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
	return d
}

func byAlerts(a, b notify.DeviceCount) int {
	return cmp.Or(cmp.Compare(b.Alerts, a.Alerts), cmp.Compare(b.Suppressed, a.Suppressed), cmp.Compare(a.Device, b.Device))
}

func bySuppressed(a, b notify.DeviceCount) int {
	return cmp.Or(cmp.Compare(b.Suppressed, a.Suppressed), cmp.Compare(b.Alerts, a.Alerts), cmp.Compare(a.Device, b.Device))
}

// top returns the first ten of list, which is in order, and c.
func top(list []notify.DeviceCount, c notify.DeviceCount, order func(a, b notify.DeviceCount) int) []notify.DeviceCount {
	at, _ := slices.BinarySearchFunc(list, c, order)
	if at == topDevices {
		return list
	}
	list = slices.Insert(list, at, c)
	return list[:min(len(list), topDevices)]
}
