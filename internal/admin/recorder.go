package admin

import (
	"context"
	"slices"
	"sync"
	"time"

	"alertworker/internal/notify"
)

// maxAlerts is how many alerts are remembered.
const maxAlerts = 100

// A Recorder remembers the last 100 alerts that this replica's receivers took. The zero
// Recorder is ready; it is safe for concurrent use.
type Recorder struct {
	mu    sync.Mutex
	taken []taken // a ring, once it is full
	next  int     // the oldest then
}

// A taken alert.
type taken struct {
	notify.Alert
	receiver string
	at       time.Time
}

// Notifier returns next, recorded under the receiver's name.
func (r *Recorder) Notifier(next notify.Notifier, receiver string) notify.Notifier {
	return &recorded{next: next, receiver: receiver, recorder: r}
}

type recorded struct {
	next     notify.Notifier
	receiver string
	recorder *Recorder
}

func (n *recorded) Notify(ctx context.Context, a notify.Alert) error {
	err := n.next.Notify(ctx, a)
	if err == nil {
		n.recorder.add(taken{Alert: a, receiver: n.receiver, at: time.Now()})
	}
	return err
}

func (r *Recorder) add(t taken) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.taken) < maxAlerts {
		r.taken = append(r.taken, t)
		return
	}
	r.taken[r.next] = t
	r.next = (r.next + 1) % maxAlerts
}

// alerts returns what is remembered, the latest first.
func (r *Recorder) alerts() []taken {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Concat(r.taken[r.next:], r.taken[:r.next])
	slices.Reverse(all)
	return all
}
