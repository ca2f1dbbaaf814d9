package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

var (
	// errNotDue says that a device has been hot again since a recovery became due, or heard since a silence.
	errNotDue = errors.New("the notice is no longer due")
	// errUnanswered says that the ledger has not answered the last question in time.
	errUnanswered = errors.New("the ledger did not answer a moment ago")
	// errUnproven says that events of a silent device may have come that were not read yet.
	errUnproven = errors.New("it is not certain that the device is still silent")
	// errRefreshing says that a former owner may be posting the alarm again.
	errRefreshing = errors.New("the partition's former owner may still be posting open alarms again")
)

// MayClaim implements delivery.Owner. The key must not be claimed for a due notice while the ledger does not
// answer, while it is not proven, or not any more, that the device is silent, or before the record of an incident has what
// its alert is about.
func (s *Stream) MayClaim(key delivery.Key, n *delivery.Notice) error {
	if n == nil {
		return nil
	}

	isAlert := n.Silent() || n.Incident != nil && !n.Incident.Over
	switch {
	case s.owner.pause() > 0:
		return errUnanswered
	//planted:recovery-while-former-posts case false
	case !isAlert && s.refreshing() > 0:
		return errRefreshing
	case isAlert && key.Topic.Silence && !s.proven(key, n):
		return errUnproven
	case !isAlert, n.Incident == nil:
		return nil
	}

	s.register.mu.Lock()
	defer s.register.mu.Unlock()
	switch g := s.register.groups[key]; {
	case g == nil || g.queued:
		return errNotWritten
	case key.Topic.Silence && time.Since(g.opened) < gathering:
		return errGathering
	}

	return nil
}

// MaySend implements delivery.Owner. A due notice must not be sent under the claim that was just made if
// it is not due any more, or it is not known that this replica still owns the partition. Neither the claim nor an
// answer from before it says so: another owner may have read on, and a reading that opened an alarm
// may have been covered by the window that has just ended, which leaves no trace in the gate's record.
func (s *Stream) MaySend(ctx context.Context, key delivery.Key, n *delivery.Notice, g throttle.Grant) (*notify.Incident, error) {
	if g.Before != "" {
		s.compareLogs(key.About.Device, g.Before)
	}

	if n == nil {
		return nil, nil
	}
	//planted:not-due-sent if false
	if !s.register.isDue(key, n) {
		return nil, errNotDue
	}

	if n.Silent() && !s.proven(key, n) { // the claim may have taken longer than a proof is good for
		return nil, errUnproven
	}

	//planted:owner-not-asked return nil, nil
	if err := s.owner.owns(ctx); err != nil {
		return nil, err
	}

	if n.Incident != nil {
		return s.maySendIncident(ctx, key, n)
	}

	return nil, nil
}

// Pause implements delivery.Owner. After the ledger did not answer, whatever waits for it waits for as
// long as it is not asked, and is woken by its answer.
func (s *Stream) Pause() time.Duration { return max(s.owner.pause(), s.refreshing()) }

// Settled implements delivery.Owner.
func (s *Stream) Settled(key delivery.Key, n *delivery.Notice) {
	signal(s.room)
	if n != nil {
		//planted:settled-stays-due skip
		s.register.settle(key, n)
	}
}

// proven reports whether it is still certain that nothing came until the deadline of the silence n. Of one of the whole
// hub, it must be certain that nothing has come since. It never is for a rule that is not configured any more: nobody
// hears for it, unless another rule has an alarm about the same outage of the hub.
func (s *Stream) proven(key delivery.Key, n *delivery.Notice) bool {
	removed := key.Topic.Message.Removed
	limit := time.Duration(n.Reading.Limit * float64(time.Second))
	if n.Outage != nil {
		return (!removed || s.register.hubIsCutOff(n.Reading.Since)) && s.register.unheard.HubIsCutOff(limit)
	}

	//planted:renamed-rule-silence-sent if false
	if removed {
		return false
	}

	rule, deadline := key.Topic.Message.Rule, n.Reading.Enqueued/1000
	//planted:missed-is-silent rule = ""
	switch {
	case key.Topic.Incidents: // who was heard since the floor is no member any more
		deadline = max(deadline, s.register.unheard.Floor(rule)+limit.Milliseconds())
	case n.Anew != nil:
		deadline = n.Anew.Deadline / 1000
	}

	//planted:silence-not-proven return true
	return s.register.unheard.Proven(rule, limit, deadline)
}

// compareLogs notices that the log named before, of the device's last alert, is another partition of the same hub.
func (s *Stream) compareLogs(device, before string) {
	hub, partition, _ := strings.Cut(before, "/")
	if ours, _, _ := strings.Cut(s.register.logName, "/"); hub != ours || partition == s.register.id {
		return
	}

	s.config.Evaluator.book.Counters.Scattered.Add(1)
	s.warn(fmt.Sprintf("device %q is in the partitions %s and %s: durations, recoveries and silence need all of its readings in one; "+
		"read the IoT Hub's own endpoint, or have senders use the device as the partition key", device, partition, s.register.id), nil)
}

const (
	ownerTimeout = 4 * time.Second  // of a notice that waits for the ledger's answer, and holds a claim
	slowTimeout  = 8 * time.Second  // the same, of a ledger that was slow to answer
	askAgain     = 10 * time.Second // how long the ledger is not asked after it did not answer
	askAnyway    = time.Second      // until the next question no longer waits for the answer to the last one
)

// ownership asks the ledger whether this replica still owns it. It is safe for concurrent use.
type ownership struct {
	check   func() error    // asks the ledger
	lost    func()          // is called when it is another's
	answers func()          // is called when the ledger answers again
	work    *sync.WaitGroup // of what asks

	mu       sync.Mutex
	question *ownerCheck   // that has not been asked yet
	asked    *ownerCheck   // the last one that was
	took     time.Duration // until the last answer came
	askAt    time.Time     // when the ledger may be asked again; zero unless it did not answer
}

// An ownerCheck is a question to the ledger, whether this replica owns it. One answer serves all that wait for it.
type ownerCheck struct {
	answered chan struct{} // closed then
	err      error
}

// owns returns nil once the ledger has said, to a question that was asked after the call, that this replica owns it.
func (o *ownership) owns(ctx context.Context) error {
	c, limit := o.ask()
	late := time.NewTimer(limit)
	defer late.Stop()

	select {
	case <-c.answered:
		return c.err

	case <-ctx.Done():
		return context.Cause(ctx)

	case <-late.C:
		o.mu.Lock()
		defer o.mu.Unlock()
		o.askAt = time.Now().Add(askAgain)
		return errUnanswered
	}
}

// ask returns a question to the ledger that has not been asked yet, and sees to it that it is; and how long to wait for
// its answer.
func (o *ownership) ask() (c *ownerCheck, limit time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.question == nil {
		c, last := &ownerCheck{answered: make(chan struct{})}, o.asked
		o.question = c
		o.work.Go(func() { o.run(c, last) })
	}

	return o.question, min(max(ownerTimeout, 2*o.took), slowTimeout)
}

// run asks the ledger c, once last, the question before, is answered. A claim has no time for both answers of a slow
// ledger, so c does not wait for long.
func (o *ownership) run(c, last *ownerCheck) {
	if last != nil {
		slow := time.NewTimer(askAnyway)
		defer slow.Stop()
		select {
		case <-last.answered:
		case <-slow.C:
		}
	}

	o.mu.Lock()
	o.question, o.asked = nil, c
	o.mu.Unlock()
	began := time.Now()
	c.err = o.check()
	if errors.Is(c.err, ledger.ErrLost) {
		o.lost()
	}

	o.mu.Lock()
	close(c.answered)
	again := c.err == nil && !o.askAt.IsZero()
	if c.err == nil {
		o.took = time.Since(began)
		o.askAt = time.Time{}
	} else {
		o.askAt = time.Now().Add(askAgain)
	}
	o.mu.Unlock()

	if again {
		o.answers()
	}
}

// pause returns 0 if the ledger has answered the last question. Else nothing that is due is claimed, because it could not be
// sent, before the ledger is asked again: in so much time, a second at least. If it is time to, pause has it asked.
func (o *ownership) pause() time.Duration {
	o.mu.Lock()
	askAt := o.askAt
	o.mu.Unlock()
	if askAt.IsZero() {
		return 0
	}

	left := time.Until(askAt)
	if left <= 0 {
		o.ask()
	}

	return max(left, minBackoff)
}
