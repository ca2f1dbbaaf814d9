package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"alertworker/internal/ledger"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/partition"
	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
)

const (
	sharedTimeout = 10 * time.Second // for what replicas share about a device
	recordsAtOnce = 4                // each may be some MB
	letterAge     = 48 * time.Hour   // of the readings of the dead letters that are looked through
	maxLetters    = 2000             // of them
)

// Shared is where replicas keep what any of them knows of a device.
type Shared struct {
	Records     records.Store          // of ledgers and rosters; nil: rules keep no alarms
	Ledgers     string                 // their folder, with the slash at its end
	Rosters     string                 // likewise; empty: no rule is about silence
	DeadLetters *deadletter.Store      // nil: they are only in the log
	Name        func(id string) string // of a receiver
}

// look adds to f what is shared about the device: alarms of partitions that are not read here, when it was heard if
// that is not known here, and dead letters. Its error has a line for each that is not known in full.
func (s Shared) look(ctx context.Context, of sensor.ID, f *findings) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sharedTimeout, fmt.Errorf("no answer within %v", sharedTimeout))
	defer cancel()

	var missing []error
	known := func(what string, err error) {
		if err != nil {
			missing = append(missing, fmt.Errorf("not all %s are known: %w", what, err))
		}
	}

	if s.Records != nil {
		known("alarms", s.alarms(ctx, of, f))
	}

	if s.Rosters != "" && len(f.state.Heard) == 0 {
		known("times when it was heard", s.heard(ctx, of, f))
	}

	if s.DeadLetters != nil {
		known("dead letters", s.letters(ctx, of, f))
	}

	return errors.Join(missing...)
}

// alarms adds the device's alarms in the partitions that are not read here.
func (s Shared) alarms(ctx context.Context, of sensor.ID, f *findings) error {
	var mu sync.Mutex
	return s.each(ctx, s.Ledgers, f.state.Partitions, func(name, id string) error {
		c, err := ledger.Look(ctx, s.Records, name)
		mu.Lock()
		defer mu.Unlock()

		for _, a := range c.Alarms {
			if of.Covers(a.Of()) {
				f.state.Alarms = append(f.state.Alarms, stateOf(a, id))
				if _, known := f.shared[a.Rule]; !known && a.Group != "" {
					f.shared[a.Rule] = string(a.Group)
				}
			}
			f.resembles(string(a.Device))
		}

		return err
	})
}

// heard adds when the device was heard in the partitions that are not read here.
func (s Shared) heard(ctx context.Context, of sensor.ID, f *findings) error {
	var mu sync.Mutex
	return s.each(ctx, s.Rosters, f.state.Partitions, func(name, id string) error {
		r, _, why, err := (&roster.File{Store: s.Records, Name: name}).Read(ctx)
		if err = errors.Join(err, why); err != nil || r == nil { // it was deleted just now
			return err
		}

		mu.Lock()
		defer mu.Unlock()
		f.known += r.Len()
		for i := range r.Len() {
			f.resembles(r.Name(i).Device)
		}
		for _, h := range partition.HeardIn(r, id, of, f.set) {
			h.AsOf = r.Position.Time
			f.state.Heard = append(f.state.Heard, h)
		}

		return nil
	})
}

// each calls read with every record in a folder, but those of some partitions, a few at a time.
func (s Shared) each(
	ctx context.Context,
	folder string,
	except []string,
	read func(name, partition string) error,
) error {
	list, err := records.All(ctx, s.Records, folder)
	if err != nil {
		return fmt.Errorf("list %s: %w", folder, err)
	}

	var reading errgroup.Group
	reading.SetLimit(recordsAtOnce)
	for _, r := range list {
		if partition := strings.TrimPrefix(r.Name, folder); !slices.Contains(except, partition) {
			reading.Go(func() error { return read(r.Name, partition) })
		}
	}

	return reading.Wait()
}

// stateOf returns an alarm of a ledger as a worker would.
func stateOf(a ledger.Alarm, name string) partition.AlarmState {
	state := partition.AlarmState{
		Partition: name,
		Device:    string(a.Device),
		Sensor:    string(a.Sensor),
		Rule:      a.Rule,
		Level:     a.Level,
		Phase:     rules.Pending,
		Since:     a.Since,
		Value:     float64(a.Value),
		Limit:     float64(a.Limit),
		Silence:   a.Silence,
		Group:     string(a.Group),
	}

	switch {
	case a.Since.IsZero():
		state.Phase = rules.Normal
	case a.Open:
		state.Phase = rules.Open
	}

	if !a.DeviceSince.IsZero() {
		state.Since, state.Arrived = a.DeviceSince, a.Since
	}

	isSilent := a.Silence && a.Open // then it is the silence that is due
	if a.Due != nil && !isSilent {
		state.Due = a.Due.Enqueued
	}

	return state
}

// letters adds the device's dead letters that this replica did not keep.
func (s Shared) letters(ctx context.Context, of sensor.ID, f *findings) error {
	n := 0
	for page, err := range s.DeadLetters.List(ctx, deadletter.Undelivered, f.now.Add(-letterAge)) {
		if err != nil {
			return fmt.Errorf("list dead letters: %w", err)
		}

		for _, l := range page {
			isKnown := slices.ContainsFunc(f.ended, func(e pastDelivery) bool { return e.Letter == l.ID })
			f.resembles(l.Alert.Device)
			if of.Covers(sensor.ID{Device: l.Alert.Device, Name: l.Alert.Sensor}) && !isKnown {
				letter := deliveryOf(l.Alert, s.Name(l.Receiver), f.now.Location())
				letter.At, letter.Reason, letter.Letter = l.Kept, l.Reason, l.ID
				f.ended = append(f.ended, letter)
			}
		}

		n += len(page)
		if n >= maxLetters {
			return fmt.Errorf("there are more than %d dead letters: see alertworker deadletters list", maxLetters)
		}
	}

	slices.SortStableFunc(f.ended, func(a, b pastDelivery) int { return b.At.Compare(a.At) })

	return nil
}
