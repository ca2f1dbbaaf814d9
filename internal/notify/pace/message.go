package pace

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"alertworker/internal/notify"
)

const (
	storeCalls = 16              // of a message's notices at a time, to the throttle store
	gathering  = 2 * time.Second // after the first claim, no further one is made for a message
)

// A Message brings one notice, or several that are claimed and recorded one by one, to a receiver: it waits
// for the claims, goes once, and each notice gets the receiver's answer.
//
// Each of its notices has a goroutine, which calls Admit, Notify if it has a claim, and Leave.
type Message struct {
	to    notify.Notifier
	calls chan struct{} // one for each store call at a time; nil if there is one notice

	mu      sync.Mutex
	open    int       // notices that may still come
	first   time.Time // when the first of them came
	members []*member
	sent    chan struct{} // closed when the receiver has answered
	going   bool          // the message is on its way, or has been
	err     error
}

// A member is one notice of a message.
type member struct {
	alert notify.Alert
	ctx   context.Context
	gone  bool // its time was over before the message went
}

// NewMessage returns a message with size notices at most, no more than the Batch of to.
func NewMessage(to notify.Notifier, size int) *Message {
	m := &Message{to: to, open: size, sent: make(chan struct{})}
	if size > 1 {
		m.calls = make(chan struct{}, storeCalls)
	}
	return m
}

// Admit waits until one more notice may be claimed. It reports false if it is too late for that.
func (m *Message) Admit() bool {
	if m.calls == nil {
		return true
	}

	m.calls <- struct{}{}
	m.mu.Lock()
	defer m.mu.Unlock()

	return !m.going && (m.first.IsZero() || time.Since(m.first) < gathering)
}

// Leave says that a notice for which Admit was called needs nothing more; notified, that Notify was called for it.
func (m *Message) Leave(notified bool) {
	if m.calls == nil {
		return
	}

	<-m.calls
	if !notified {
		m.close()
	}
}

// close says that one fewer notice is expected. The last one sends the message.
func (m *Message) close() {
	m.mu.Lock()
	m.open--
	last := m.open == 0
	m.mu.Unlock()

	if last {
		m.send()
	}
}

// send sends the message with the notices that have come, unless it has gone or there are none.
func (m *Message) send() {
	m.mu.Lock()
	left := slices.DeleteFunc(slices.Clone(m.members), func(one *member) bool { return one.gone })
	if m.going || len(left) == 0 {
		m.mu.Unlock()
		return
	}

	m.going = true
	ctx := context.WithoutCancel(left[0].ctx) // what ends one of them must not end all
	m.mu.Unlock()

	if deadline := earliest(left); !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(
			ctx,
			deadline,
			errors.New("the receiver did not answer before the first of the claims would have ended (NOTIFY_TIMEOUT)"),
		)
		defer cancel()
	}

	m.err = m.to.Notify(ctx, alertsOf(left)...)
	close(m.sent)
}

// alertsOf returns the alerts of notices.
func alertsOf(members []*member) []notify.Alert {
	alerts := make([]notify.Alert, len(members))
	for i, one := range members {
		alerts[i] = one.alert
	}

	return alerts
}

// earliest returns the first deadline of notices, zero if none has one.
func earliest(members []*member) (first time.Time) {
	for _, one := range members {
		at, ok := one.ctx.Deadline()
		if ok && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}

	return first
}

// ErrLate says that the message went without a notice, about which the receiver was not asked.
var ErrLate = errors.New("the message went before the notice was claimed")

// Notify sends alert, with the other notices of the message, and returns the receiver's answer, or ErrLate.
//
// The message goes once all of its notices are claimed, but waits no longer than gathering, nor than half the time that
// the claim of any of them leaves, so that a slow store leaves the receiver time to answer.
func (m *Message) Notify(ctx context.Context, alert notify.Alert) error {
	if m.calls == nil {
		return m.to.Notify(ctx, alert)
	}

	one := &member{alert: alert, ctx: ctx}
	patience, late := m.join(one)
	<-m.calls                                // its claim is made
	defer func() { m.calls <- struct{}{} }() // for recording what came of it
	m.close()
	if late {
		return ErrLate
	}

	select {
	case <-m.sent:
		return m.err
	case <-time.After(patience):
		m.send()
	case <-ctx.Done():
	}

	select {
	case <-m.sent:
		return m.err
	case <-ctx.Done():
	}

	m.mu.Lock()
	gone := !m.going
	one.gone = gone
	m.mu.Unlock()
	if gone {
		return ErrLate
	}

	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		<-m.sent // whose deadline is no later, and the answer says more than that it is over
	}

	select {
	case <-m.sent:
		return m.err
	default:
		return &notify.Error{Err: context.Cause(ctx)}
	}
}

// join adds one to the message, and returns for how long that may still wait. late: it has gone.
func (m *Message) join(one *member) (patience time.Duration, late bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.going {
		return 0, true
	}

	now := time.Now()
	if m.first.IsZero() {
		m.first = now
	}

	m.members = append(m.members, one)
	patience = m.first.Add(gathering).Sub(now)
	if deadline, ok := one.ctx.Deadline(); ok {
		patience = min(patience, deadline.Sub(now)/2)
	}

	return patience, false
}
