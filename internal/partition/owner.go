package partition

import (
	"context"
	"errors"
	"strings"
	"time"

	"alertworker/internal/delivery"
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
// answer, or while it is not proven, or not any more, that the device is silent.
func (s *Stream) MayClaim(key delivery.Key, n *delivery.Notice) error {
	switch {
	case n == nil:
		return nil
	case s.owner.unanswered():
		return errUnanswered
	case n.Incident != nil:
		return s.mayClaimIncident(key, n)
	case n.Silent() && !s.proven(key, n):
		return errUnproven
	//planted:recovery-while-former-posts case false
	case !n.Silent() && s.refreshing() > 0:
		return errRefreshing
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
	if !s.reader.register.isDue(key, n) {
		return nil, errNotDue
	}

	if n.Incident == nil && n.Silent() && !s.proven(key, n) { // the claim may have taken longer than a proof is good for
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
		s.reader.register.settle(key, n)
		s.reader.register.flush()
	}
}

// proven reports whether it is still certain that nothing came until the deadline of the silence n. Of one of the whole
// hub, it must be certain that nothing has come since. It never is for a rule that is not configured any more: nobody
// hears for it.
func (s *Stream) proven(key delivery.Key, n *delivery.Notice) bool {
	//planted:renamed-rule-silence-sent if false
	if key.Topic.Message.Removed {
		return false
	}

	limit := time.Duration(n.Reading.Limit * float64(time.Second))
	if n.Outage != nil {
		return s.reader.unheard.HubIsCutOff(limit)
	}

	//planted:silence-not-proven return true
	return s.reader.unheard.Proven(limit, n.Reading.Enqueued/1000)
}

// compareLogs notices that the log named before, of the device's last alert, is another partition of the same hub.
func (s *Stream) compareLogs(device, before string) {
	hub, partition, _ := strings.Cut(before, "/")
	if ours, _, _ := strings.Cut(s.reader.register.logName, "/"); hub != ours || partition == s.reader.register.id {
		return
	}

	scattered := &Scattered{device, [2]string{partition, s.reader.register.id}}
	s.config.Evaluator.book.Counters.Scattered.Add(1)
	s.config.Evaluator.book.Counters.LastScattered.Store(scattered)
	s.warn(scattered.String(), nil)
}
