package worker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"alertworker/internal/delivery"
	"alertworker/internal/partition"
	"alertworker/internal/sensor"
)

// Device returns what w knows of a sensor, or of a device with all of its sensors. Of a device it looks through all
// alarms and deliveries, which takes milliseconds.
func (w *Worker) Device(of sensor.ID) partition.DeviceState {
	w.mu.Lock()
	defer w.mu.Unlock()
	var state partition.DeviceState
	for s := range w.streams {
		s.Describe(of, &state)
	}

	return state
}

// AlarmCounts returns the number of alarms of each level, in the order of the rules.
func (w *Worker) AlarmCounts() []partition.AlarmCounts {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, groups := w.evaluator.NoAlarms(), map[delivery.Key]bool{}
	for s := range w.streams {
		s.Count(all, groups)
	}

	return all
}

// maxNamed is how many devices that cannot be read have their names shown.
const maxNamed = 16

// Unreadable returns the devices that send, but have sent nothing that can be read for an hour.
func (w *Worker) Unreadable() (all partition.Unreadables) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.streams {
		s.Unreadable(&all)
	}

	all.Sort(maxNamed)

	return all
}

// Alarms returns open alarms, those that have been open for the longest first, at most limit.
func (w *Worker) Alarms(limit int) []partition.AlarmState {
	w.mu.Lock()
	defer w.mu.Unlock()
	var open []partition.AlarmState
	for s := range w.streams {
		open = s.Open(open)
		slices.SortFunc(open, func(a, b partition.AlarmState) int {
			return cmp.Or(
				a.Since.Compare(b.Since),
				cmp.Compare(a.Device, b.Device),
				cmp.Compare(a.Sensor, b.Sensor),
				cmp.Compare(a.Rule, b.Rule),
				cmp.Compare(a.Level, b.Level),
			)
		})
		open = open[:min(len(open), limit)]
	}

	return open
}

// Partitions returns the state of each partition being consumed, in no particular
// order.
func (w *Worker) Partitions() []partition.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []partition.State
	for s := range w.streams {
		all = append(all, s.State())
	}

	return all
}

// Accepted says that a receiver has just accepted an alert from another replica: if it is down here it is asked at once.
func (w *Worker) Accepted(receiver string) { w.dispatcher.Accepted(receiver) }

// Receivers returns the state of each receiver, in the order of the Rulebook.
func (w *Worker) Receivers() []delivery.ReceiverState { return w.dispatcher.Receivers() }

// Forget ends the alarms of a sensor, or of a device with all of its sensors, and has w expect nothing more of it until
// it is heard again. It reports whether w knew it, and returns once ledgers and rosters say so, and everything that was read
// is settled: then no crash brings the device or an alarm back. After an error they may come back; repeating the call is
// safe.
func (w *Worker) Forget(ctx context.Context, of sensor.ID) (known bool, err error) {
	var saved []<-chan struct{}
	w.mu.Lock()
	streams := slices.Collect(maps.Keys(w.streams))
	w.mu.Unlock()

	for _, s := range streams {
		if c := s.Forget(of); c != nil {
			saved = append(saved, c)
		}
	}

	for _, c := range saved {
		select {
		case <-c:
		case <-ctx.Done():
			return true, fmt.Errorf("remove device %q: its alarms have ended, but would be open again after a crash before alerts that wait are settled: %w", of, context.Cause(ctx))
		}
	}

	return len(saved) > 0, nil
}
