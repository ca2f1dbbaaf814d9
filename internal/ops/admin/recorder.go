package admin

import (
	"context"
	"slices"
	"sync"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/worker"
)

const (
	maxAlerts = 100  // that a Recorder keeps for the status page
	maxEnded  = 4096 // deliveries that a Recorder keeps for who asks about a device
)

// A Recorder keeps the last 100 alerts that this replica's receivers took, how its last 4,096
// deliveries ended, and the durations of the last calls to its store. The zero Recorder is ready for use. It is safe for concurrent use.
type Recorder struct {
	mu    sync.Mutex
	taken ring[taken]
	ended ring[ended]
	calls map[lease.Operation]*ring[call] // nil if there is no store
}

// An alert, or that a device is normal again, that a receiver took.
type taken struct {
	notify.Alert
	receiver string
	at       time.Time
}

// An ended is a delivery that has ended: a receiver took its alert, or it became a dead letter.
type ended struct {
	device, receiver, partition, alertID string
	rule, level                          string
	shared                               string        // what the device shares the rule's alerts by; empty if nothing
	resolved                             bool          // it said that the device is normal again
	window                               time.Duration // after it
	temperature                          float64
	enqueued                             time.Time
	sequence, token                      int64
	at                                   time.Time // when it ended

	reason string // why it is a dead letter; empty if it is none
	letter string // the dead letter's id; empty if it is only in the log
}

func endedOf(a notify.Alert, receiver string) ended {
	return ended{
		device: a.Device, receiver: receiver, partition: a.Partition, alertID: a.ID, temperature: a.Temperature,
		rule: a.RuleName(), level: a.Level, shared: a.PerValue, resolved: a.Resolved, window: a.Window,
		enqueued: a.Enqueued, sequence: a.Sequence, token: a.Token, at: time.Now(),
	}
}

// DeadLetters returns next, whose letters r records. id returns the id of a letter; nil: letters have none.
func (r *Recorder) DeadLetters(next worker.DeadLetters, id func(notify.DeadLetter) string) worker.DeadLetters {
	return &deadLetters{next, id, r}
}

type deadLetters struct {
	next     worker.DeadLetters
	id       func(notify.DeadLetter) string
	recorder *Recorder
}

func (l *deadLetters) Keep(ctx context.Context, d notify.DeadLetter) error {
	if err := l.next.Keep(ctx, d); err != nil {
		return err
	}
	e := endedOf(d.Alert, d.Name)
	e.reason = d.Reason
	if l.id != nil {
		e.letter = l.id(d)
	}
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	l.recorder.ended.add(e, maxEnded)
	return nil
}

// of returns how the deliveries of a device ended, as far as they are among the last ones, the
// latest first.
func (r *Recorder) of(device string) (all []ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.ended.values {
		if e := r.ended.values[(r.ended.oldest+i)%len(r.ended.values)]; e.device == device {
			all = append(all, e)
		}
	}
	slices.Reverse(all)
	return all
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
	r.ended.add(endedOf(t.Alert, t.receiver), maxEnded)
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
