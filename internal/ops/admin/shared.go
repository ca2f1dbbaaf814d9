package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"alertworker/internal/ledger"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/records"
	"alertworker/internal/rules"
	"alertworker/internal/worker"
)

const (
	sharedTimeout = 10 * time.Second // for what replicas share about a device
	ledgersAtOnce = 4                // each may be some MB
	letterAge     = 48 * time.Hour   // of the readings of the dead letters that are looked through
	maxLetters    = 2000             // of them
)

// Shared is where replicas keep what any of them knows of a device.
type Shared struct {
	Ledgers     records.Store          // nil: rules keep no alarms
	Folder      string                 // of the ledgers, with the slash at its end
	DeadLetters *deadletter.Store      // nil: they are only in the log
	Name        func(id string) string // of a receiver
}

// look adds to f what is shared about the device: alarms of partitions that are not read here, and dead letters.
func (s Shared) look(ctx context.Context, device string, f *findings) {
	ctx, cancel := context.WithTimeoutCause(ctx, sharedTimeout, fmt.Errorf("no answer within %v", sharedTimeout))
	defer cancel()
	if s.Ledgers != nil {
		alarms, err := s.alarms(ctx, device, f.partitions)
		f.state.Alarms, f.searched, f.ledgerErr = append(f.state.Alarms, alarms...), err == nil, err
	}
	if s.DeadLetters != nil {
		f.letterErr = s.letters(ctx, device, f)
	}
}

// alarms returns the device's alarms, and due recoveries, in the ledgers of other partitions than these.
func (s Shared) alarms(ctx context.Context, device string, except []string) (all []worker.AlarmState, err error) {
	list, err := records.All(ctx, s.Ledgers, s.Folder)
	if err != nil {
		return nil, fmt.Errorf("list ledgers: %w", err)
	}
	var mu sync.Mutex
	var failed []error
	var reading sync.WaitGroup
	turns := make(chan struct{}, ledgersAtOnce)
	for _, r := range list {
		partition := strings.TrimPrefix(r.Name, s.Folder)
		if slices.Contains(except, partition) {
			continue
		}
		turns <- struct{}{}
		reading.Go(func() {
			defer func() { <-turns }()
			c, err := ledger.Look(ctx, s.Ledgers, r.Name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err)
			}
			for _, a := range c.Alarms {
				if a.Device == device {
					all = append(all, stateOf(a, partition))
				}
			}
		})
	}
	reading.Wait()
	return all, errors.Join(failed...)
}

// stateOf returns an alarm of a ledger as a worker would.
func stateOf(a ledger.Alarm, partition string) worker.AlarmState {
	state := worker.AlarmState{Partition: partition, Device: a.Device, Rule: a.Rule, Level: a.Level, Since: a.Since, Value: a.Value, Limit: a.Limit, Silence: a.Silence}
	switch {
	case a.Since.IsZero():
	case a.Open:
		state.Phase = rules.Open
	default:
		state.Phase = rules.Pending
	}
	if a.Due != nil && !(a.Silence && a.Open) { // else it is the silence that is due
		state.Due = a.Due.Enqueued
	}
	return state
}

// letters adds the device's dead letters that this replica did not keep.
func (s Shared) letters(ctx context.Context, device string, f *findings) error {
	n := 0
	for page, err := range s.DeadLetters.List(ctx, deadletter.Undelivered, f.now.Add(-letterAge)) {
		if err != nil {
			return fmt.Errorf("list dead letters: %w", err)
		}
		for _, l := range page {
			if l.Alert.Device != device || slices.ContainsFunc(f.ended, func(e ended) bool { return e.letter == l.ID }) {
				continue
			}
			e := endedOf(l.Alert, s.Name(l.Receiver))
			e.at, e.reason, e.letter = l.Kept, l.Reason, l.ID
			f.ended = append(f.ended, e)
		}
		if n += len(page); n >= maxLetters {
			return fmt.Errorf("there are more than %d dead letters: see alertworker deadletters list", maxLetters)
		}
	}
	slices.SortStableFunc(f.ended, func(a, b ended) int { return b.at.Compare(a.at) })
	return nil
}
