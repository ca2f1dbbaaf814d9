package partition

import (
	"context"
	"errors"
	"strings"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
)

var (
	// errNotDue says that a device has been hot again since a recovery became due, or heard since a silence.
	errNotDue = errors.New("the notice is no longer due")
	// errUnanswered says that the ledger has not answered the last question in time.
	errUnanswered = errors.New("the ledger did not answer a moment ago")
	// errUnproven says that events of a silent device may have come that were not read yet.
	errUnproven = errors.New("it is not certain that the device is still silent")
)

const (
	ownerTimeout = 4 * time.Second  // of a notice that waits for the ledger's answer, and holds a claim
	askAgain     = 10 * time.Second // how long the ledger is not asked after it did not answer
)

// MayClaim implements delivery.Owner. The key must not be claimed for a due notice while the ledger does not
// answer, or while it is not proven, or not any more, that the device is silent.
func (s *Stream) MayClaim(key delivery.Key, n *delivery.Notice) error {
	switch {
	case n == nil:
		return nil
	case s.unanswered():
		return errUnanswered
	case n.Silent() && !s.proven(key, n):
		return errUnproven
	}

	return nil
}

// MaySend implements delivery.Owner. A due notice must not be sent under the claim that was just made if
// it is not due any more, or it is not known that this replica still owns the partition. Neither the claim nor an
// answer from before it says so: another owner may have read on, and a reading that opened an alarm
// may have been covered by the window that has just ended, which leaves no trace in the gate's record.
func (s *Stream) MaySend(ctx context.Context, key delivery.Key, n *delivery.Notice, before string) error {
	if before != "" {
		s.compareLogs(key.About, before)
	}

	if n == nil {
		return nil
	}
	if !s.isDue(key, n) {
		return errNotDue
	}

	return s.owns(ctx)
}

// Pause implements delivery.Owner. After the ledger did not answer, whatever waits for it waits for as
// long as it is not asked, and is woken by its answer.
func (s *Stream) Pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.askOwnerAt == 0 {
		return 0
	}

	return max(s.askOwnerAt-s.now(), minBackoff)
}

// Settled implements delivery.Owner.
func (s *Stream) Settled(key delivery.Key, n *delivery.Notice) {
	signal(s.room)
	if n == nil {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	about := s.alarmOf(key)
	if k := s.alarms.byKey[about]; k.due.is(n) {
		k.due = nil
		s.alarms.set(about, k)
	}

	s.alarms.history.settle(about, n)
}

// alarmOf returns the key of the alarm that a notice which was due says something of. The caller holds s.mu.
func (s *Stream) alarmOf(key delivery.Key) alarmKey {
	for _, all := range [][]*level{s.levels, s.removed} {
		for _, l := range all {
			if l.own == key.Topic {
				return alarmKey{key.About, l}
			}
		}
	}

	return alarmKey{}
}

// isDue reports whether n is what is due of key.
func (s *Stream) isDue(key delivery.Key, n *delivery.Notice) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alarms.byKey[s.alarmOf(key)].due.is(n)
}

// An ownerCheck is a question to the ledger, whether this replica owns it. One answer serves all that wait for it.
type ownerCheck struct {
	answered chan struct{} // closed then
	err      error
}

// askOwner returns a question to the ledger that has not been asked yet, and sees to it that it is. The caller holds
// s.mu.
func (s *Stream) askOwner() *ownerCheck {
	if s.question == nil {
		s.question = &ownerCheck{answered: make(chan struct{})}
		if !s.asking {
			s.asking = true
			s.work.Go(s.checkOwner)
		}
	}

	return s.question
}

// checkOwner asks the ledger for as long as there is a question.
func (s *Stream) checkOwner() {
	s.mu.Lock()
	defer s.mu.Unlock()

	for s.question != nil {
		c := s.question
		s.question = nil
		s.mu.Unlock()
		c.err = s.ledger.Check(s.send)
		s.mu.Lock()
		close(c.answered)
		switch {
		case c.err == nil:
			if s.askOwnerAt > 0 {
				s.askOwnerAt = 0
				s.mu.Unlock()
				s.box.Ask()
				s.mu.Lock()
			}

		case errors.Is(c.err, ledger.ErrLost):
			s.lose()

		default:
			s.askOwnerAt = s.now() + askAgain
		}
	}

	s.asking = false
}

// unanswered reports whether the ledger has not answered the last question, which it is asked again in time. Then
// nothing that is due is claimed: it could not be sent.
func (s *Stream) unanswered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.askOwnerAt > 0 && s.now() >= s.askOwnerAt {
		s.askOwner()
	}

	return s.askOwnerAt > 0
}

// owns returns nil once the ledger has said, to a question that was asked after the call, that this replica owns it.
func (s *Stream) owns(ctx context.Context) error {
	s.mu.Lock()
	c := s.askOwner()
	s.mu.Unlock()
	late := time.NewTimer(ownerTimeout)
	defer late.Stop()

	select {
	case <-c.answered:
		return c.err

	case <-ctx.Done():
		return context.Cause(ctx)

	case <-late.C:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.askOwnerAt = max(s.askOwnerAt, s.now()+askAgain)
		return errUnanswered
	}
}

// compareLogs notices that the log named before, of the device's last alert, is another partition of the same hub.
func (s *Stream) compareLogs(device, before string) {
	hub, partition, _ := strings.Cut(before, "/")
	if ours, _, _ := strings.Cut(s.logName, "/"); hub != ours || partition == s.id {
		return
	}

	scattered := &Scattered{device, [2]string{partition, s.id}}
	s.Counters.Scattered.Add(1)
	s.Counters.LastScattered.Store(scattered)
	s.warn(scattered.String(), nil)
}
