package worker

import (
	"context"
	"fmt"
	"slices"

	"alertworker/internal/ledger"
)

// A forgetting is a device that an operator has removed.
type forgetting struct {
	device string
	kept   chan struct{} // closed once the ledger in the store says so
}

// Forget has w expect nothing more of a device, until it is heard again. It reports whether w knew the device, and
// returns once the ledgers say so: then neither a crash nor a roster that a former owner writes late brings the device
// back. After an error it may come back; repeating the call is safe.
func (w *Worker) Forget(ctx context.Context, device string) (known bool, err error) {
	var kept []<-chan struct{}
	w.mu.Lock()
	for s := range w.streams {
		if s.unheard == nil {
			continue
		}
		if c := s.forgetDevice(device); c != nil {
			kept = append(kept, c)
		}
	}
	w.mu.Unlock()

	for _, c := range kept {
		select {
		case <-c:
		case <-ctx.Done():
			return true, fmt.Errorf("keep in the ledger that device %q is forgotten: %w", device, context.Cause(ctx))
		}
	}
	return len(kept) > 0, nil
}

// forgetDevice is Forget for one partition. It returns what is closed once the ledger says so, or nil if the device is
// not known. The caller holds w.mu.
func (s *stream) forgetDevice(name string) <-chan struct{} {
	read, known := s.unheard.Forget(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !known {
		return s.beingForgotten(name)
	}

	s.forgotten = slices.DeleteFunc(s.forgotten, func(f ledger.Forgotten) bool { return string(f.Device) == name })
	s.forgotten = append(s.forgotten, ledger.Forgotten{Device: ledger.Text(name), Log: s.logName, Sequence: read})
	s.forgotten = s.forgotten[max(0, len(s.forgotten)-ledger.MaxForgotten):]
	s.alarms.history.edited = true

	kept := make(chan struct{})
	s.forgetting = append(s.forgetting, forgetting{name, kept})
	signal(s.hurry)
	return kept
}

// beingForgotten returns what is closed once the ledger says that a device is forgotten, for which somebody has asked
// before, or nil if it does already, or nobody has. The caller holds s.mu.
func (s *stream) beingForgotten(name string) (kept <-chan struct{}) {
	for _, f := range s.forgetting {
		if f.device == name {
			kept = f.kept
		}
	}
	return kept
}

// removedDevices returns the devices that operators have removed, each with the number of the last event that was read
// then. The caller holds s.mu.
func (s *stream) removedDevices() map[string]int64 {
	removed := make(map[string]int64, len(s.forgotten))
	for _, f := range s.forgotten {
		if f.Log == s.logName {
			removed[string(f.Device)] = f.Sequence
		}
	}
	return removed
}
