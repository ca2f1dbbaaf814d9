package admin

import (
	"context"
	"slices"
	"sync"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/notify"
)

// maxAlerts is how many alerts a Recorder keeps.
const maxAlerts = 100

// A Recorder keeps the last 100 alerts that this replica's receivers took, and the durations of
// the last calls to its store. The zero Recorder is ready for use. It is safe for concurrent use.
type Recorder struct {
	mu    sync.Mutex
	taken ring[taken]
	calls map[lease.Operation]*ring[call] // nil if there is no store
}

// An alert that a receiver took.
type taken struct {
	notify.Alert
	receiver string
	at       time.Time
}

// Receiver returns an observer that records the alerts that the named receiver takes.
func (r *Recorder) Receiver(name string) notify.Observer {
	return func(ctx context.Context, a notify.Attempt) (context.Context, func(error)) {
		if a.Alert == nil {
			return ctx, nil
		}
		return ctx, func(err error) {
			if err == nil {
				r.add(taken{Alert: *a.Alert, receiver: name, at: time.Now()})
			}
		}
	}
}

func (r *Recorder) add(t taken) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken.add(t, maxAlerts)
}

// alerts returns the recorded alerts, the latest first.
func (r *Recorder) alerts() []taken {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken.latest()
}

// A ring keeps the last values added.
type ring[T any] struct {
	values []T
	oldest int // once it is full
}

// add adds v, and drops the oldest value if there are more than most.
func (r *ring[T]) add(v T, most int) {
	if len(r.values) < most {
		r.values = append(r.values, v)
		return
	}
	r.values[r.oldest] = v
	r.oldest = (r.oldest + 1) % most
}

// latest returns a copy, the latest first.
func (r *ring[T]) latest() []T {
	all := slices.Concat(r.values[r.oldest:], r.values[:r.oldest])
	slices.Reverse(all)
	return all
}
