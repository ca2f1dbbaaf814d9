package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"alertworker/internal/notify"
)

const (
	storeCalls = 16              // of a group's deliveries at a time, to the throttle store
	gathering  = 2 * time.Second // after the first claim, no further one is made for a group
)

// A group is the deliveries whose notices go in one message; often there is only one. Each claims, and records,
// by itself: the group waits for the claims, sends once, and each gets the answer.
type group struct {
	to    *receiver
	size  int
	began time.Duration // by the worker's clock
	calls chan struct{} // one for each store call at a time; nil if there is one delivery

	// Guarded by receiver.mu.
	left     int  // deliveries that have not been attempted
	reported bool // whether the receiver's answer has been recorded

	mu      sync.Mutex
	open    int       // deliveries that may still have a notice
	first   time.Time // when the first of them had one
	members []*member
	sent    chan struct{} // closed when the receiver has answered
	going   bool          // the message is on its way, or has been
	err     error
}

// A member is one notice of a group.
type member struct {
	alert notify.Alert
	ctx   context.Context
	gone  bool // its time was over before the message went
}

func newGroup(to *receiver, size int, began time.Duration) *group {
	g := &group{to: to, size: size, began: began, left: size, open: size, sent: make(chan struct{})}
	if size > 1 {
		g.calls = make(chan struct{}, storeCalls)
	}
	return g
}

// admit waits until one more delivery may ask the store. It reports false if it is too late for that.
func (g *group) admit() bool {
	if g.calls == nil {
		return true
	}
	g.calls <- struct{}{}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.first.IsZero() || time.Since(g.first) < gathering
}

// skip says that a delivery that was not admitted has no notice.
func (g *group) skip() {
	if g.calls != nil {
		g.close()
	}
}

// leave says that a delivery for which admit was called needs nothing more, and has had a notice or has none.
func (g *group) leave(hasNotice bool) {
	if g.calls == nil {
		return
	}
	<-g.calls
	if !hasNotice {
		g.close()
	}
}

// close says that one delivery less may have a notice. The last one sends the message.
func (g *group) close() {
	g.mu.Lock()
	g.open--
	if g.open > 0 || len(g.members) == 0 {
		g.mu.Unlock()
		return
	}
	g.going = true
	var alerts []notify.Alert
	ctx := context.WithoutCancel(g.members[0].ctx) // what ends one of the partitions must not end all
	var deadline time.Time
	for _, m := range g.members {
		if m.gone {
			continue
		}
		alerts = append(alerts, m.alert)
		if at, ok := m.ctx.Deadline(); ok && (deadline.IsZero() || at.Before(deadline)) {
			deadline = at
		}
	}
	g.mu.Unlock()
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, deadline, errors.New("the receiver did not answer before the first of the claims would have ended (NOTIFY_TIMEOUT)"))
		defer cancel()
	}
	switch len(alerts) {
	case 0:
	case 1:
		g.err = g.to.Notifier.Notify(ctx, alerts[0])
	default:
		g.err = g.to.batcher.NotifyMany(ctx, alerts)
	}
	close(g.sent)
}

// notify sends alert, with those of the group's other deliveries, and returns the receiver's answer.
func (g *group) notify(ctx context.Context, alert notify.Alert) error {
	if g.calls == nil {
		return g.to.Notifier.Notify(ctx, alert)
	}
	m := &member{alert: alert, ctx: ctx}
	g.mu.Lock()
	if g.first.IsZero() {
		g.first = time.Now()
	}
	g.members = append(g.members, m)
	g.mu.Unlock()
	<-g.calls // its claim is made
	g.close()
	defer func() { g.calls <- struct{}{} }() // for recording what came of it
	select {
	case <-g.sent:
		return g.err
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m.gone = !g.going
	return &notify.Error{Untaken: m.gone, Err: context.Cause(ctx)}
}
