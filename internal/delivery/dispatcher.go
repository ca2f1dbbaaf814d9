package delivery

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/notify/pace"
	"alertworker/internal/throttle"
)

const (
	maxWaiting = 65_536           // alerts of an owner that wait for one receiver; beyond it the oldest become dead letters
	maxGivenUp = 4096             // dead letters of an owner for one receiver that are not written; with so many its Outbox is full
	lookEvery  = 10 * time.Second // while something waits, whether it has waited for too long
)

// Config holds what a Dispatcher needs. All fields but Trace are required.
type Config struct {
	Receivers   []Receiver // at least one
	Concurrency int        // attempts at a time, for each receiver, over all owners
	// age at which an alert becomes a dead letter
	GiveUp      time.Duration
	DeadLetters DeadLetters
	Trace       func(Start) Trace // called when a delivery starts; nil: deliveries are not traced
	Stats       *Stats
}

// A Receiver gets notices.
type Receiver struct {
	ID       string        // for dead letters
	Name     string        // for people; no secrets
	Limits   notify.Limits // how it wants to be used
	Notifier notify.Notifier
	Turns    Turns // that replicas take, if people read its messages; nil: each goes by its own pace
}

// Turns has replicas take turns at a receiver whose messages people read. See package turns.
type Turns interface {
	// Take returns 0 if this replica may send a message now, or else after which time it may ask again. It is called
	// concurrently.
	Take(ctx context.Context) (wait time.Duration, err error)
}

// DeadLetters keeps alerts that could not be delivered.
type DeadLetters interface {
	// Keep returns nil once d is kept durably. Safe for concurrent use.
	Keep(ctx context.Context, d notify.DeadLetter) error
}

// Stats counts what deliveries have done. Its fields may be read at any time.
type Stats struct {
	Suppressed  atomic.Int64 // readings settled without an alert of their own
	Outcomes    [throttle.Unneeded + 1]atomic.Int64
	Ambiguous   atomic.Int64 // attempts that may have delivered an alert twice
	DeadLetters atomic.Int64
}

// A Dispatcher delivers the notices of all owners of a replica. It is safe for concurrent use.
type Dispatcher struct {
	config     Config
	MaxWaiting int // alerts of an owner that wait for one receiver. It is changed by tests alone
	receivers  []*receiver
	started    time.Time
	warned     atomic.Int64 // when Warn last logged, in Unix ns
}

// New returns a Dispatcher, which does nothing until something is given to one of its outboxes.
func New(c Config) *Dispatcher {
	dp := &Dispatcher{config: c, MaxWaiting: maxWaiting, started: time.Now()}
	for i, r := range c.Receivers {
		dp.receivers = append(dp.receivers, &receiver{to: r, dispatcher: dp, index: i, pace: pace.New(r.Limits)})
	}
	return dp
}

// now is the time since dp was created, by the monotonic clock.
func (dp *Dispatcher) now() time.Duration { return time.Since(dp.started) }

// Warn logs what may affect every delivery at the same time, at most every 10 s.
func (dp *Dispatcher) Warn(log *zap.Logger, msg string, err error) {
	now := time.Now().UnixNano()
	if last := dp.warned.Load(); now-last > int64(10*time.Second) && dp.warned.CompareAndSwap(last, now) {
		log.Warn(msg, zap.Error(err))
	}
}
