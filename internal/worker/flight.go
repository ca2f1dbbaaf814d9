package worker

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

// A flight brings one device's alert to one receiver.
type flight struct {
	stream *stream
	to     *receiver
	among  map[string]*flight // where admit finds it; guarded by stream.mu
	entry  *entry             // holds the watermark before the first head
	head   reading            // what the alert is about

	// Readings that came while this one was in flight, guarded by stream.mu. The
	// latest stands for all: what settles it settles those before it.
	latest reading
	joined int64
	quiet  int64 // readings before head that no alert has told of

	ended  chan struct{} // closed when fly returns
	buried bool          // an alert became a dead letter; read it once ended

	alert    notify.Alert  // as last sent
	failure  *notify.Error // why it was not taken
	attempts int           // in a row that failed
	refusals int           // of these, while the receiver took others
	seen     int64         // taken by the receiver at the last failure; -1 if there was none
}

// join adds a reading of the same device. The caller holds stream.mu.
func (f *flight) join(r reading) {
	if f.joined == 0 || !r.enqueued.Before(f.latest.enqueued) {
		f.latest = r
	}
	f.joined++
}

// fly tries until head and all that joined are settled. It ends early with ctx; what
// is unsettled then is read again by the partition's next owner.
func (f *flight) fly(ctx context.Context) {
	defer close(f.ended)
	s := f.stream
	if s.Trace == nil {
		f.deliver(ctx, s.send)
		return
	}
	trace := s.Trace(Departure{
		AlertID: s.alertID(s.id, f.head), Device: f.head.device, Receiver: f.to.Name,
		Partition: s.id, FromHub: s.partition != nil, Sequence: f.head.sequence, Enqueued: f.head.enqueued,
	})
	l := f.deliver(trace.Under(ctx), trace.Under(s.send))
	s.mu.Lock()
	l.Suppressed = f.quiet + f.joined
	s.mu.Unlock()
	trace.End(l)
}

// deliver is fly, with a context for sends. It does not say how many were suppressed.
func (f *flight) deliver(ctx, send context.Context) (l Landing) {
	s, gate := f.stream, f.to.Gate
	for !l.Settled {
		probe, ok := f.board(ctx)
		if !ok {
			return l
		}
		request := throttle.Request{Device: f.head.device, ID: s.alertID(s.id, f.head), Enqueued: f.head.enqueued}
		result, err := gate.Do(send, request, func(ctx context.Context, g throttle.Grant) throttle.Answer {
			return f.notify(ctx, g, probe)
		})
		f.leave(probe)
		s.stats.Outcomes[result.Outcome].Add(1)
		l.Outcome, l.Err = result.Outcome, err

		switch result.Outcome {
		case throttle.Sent:
			l.Settled = f.land(func(reading) bool { return true })
		case throttle.Throttled:
			s.stats.Suppressed.Add(1)
			l.Settled = f.land(func(r reading) bool { return r.enqueued.Before(result.Quiet) })
		case throttle.Unconfirmed:
			s.warn("an alert was taken but its window is not recorded yet; a second one within the window has the same id", err)
			_ = gate.Confirm(ctx, result) // delivered is delivered, recorded or not
			l.Settled = f.land(func(reading) bool { return false })
		case throttle.SentLate:
			l.Settled = f.land(func(reading) bool { return false })
		case throttle.Busy:
			sleep(ctx, time.Until(result.Retry))
		case throttle.Unavailable:
			s.warn("the throttle store does not answer; alerts wait", err)
			f.attempts++
			sleep(ctx, backoff(f.attempts))
		case throttle.Failed:
			l.Err = f.failure
			reason := f.giveUp(result.Now)
			if reason == "" {
				sleep(ctx, backoff(f.attempts))
			} else if f.bury(ctx, reason) {
				l.Settled = f.land(func(reading) bool { return false })
			}
		}
	}
	return l
}

// board waits until the receiver may be tried and there is a slot. A flight
// that waits for anything else holds no slot. False if ctx ended first.
func (f *flight) board(ctx context.Context) (probe, ok bool) {
	s := f.stream
	for f.to.health.await(ctx) {
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return false, false
		}
		select {
		case s.Worker.slots <- struct{}{}:
		case <-ctx.Done():
			<-s.slots
			return false, false
		}
		if probe, ok := f.to.health.enter(); ok {
			return probe, true
		}
		<-s.Worker.slots
		<-s.slots
	}
	return false, false
}

// leave gives back what board took.
func (f *flight) leave(probe bool) {
	f.to.health.leave(probe)
	<-f.stream.Worker.slots
	<-f.stream.slots
}

// notify makes one attempt under g and says what is known of it.
func (f *flight) notify(ctx context.Context, g throttle.Grant, probe bool) throttle.Answer {
	s := f.stream
	if g.Ambiguous {
		s.stats.Ambiguous.Add(1)
	}
	f.alert = s.alert(s.id, f.head, g, g.Suppressed+f.quiet)

	err := f.to.Notifier.Notify(ctx, f.alert)
	if err == nil {
		f.report(nil, probe)
		f.quiet = 0
		if f.head.told != nil {
			f.head.told.Store(true)
		}
		return throttle.Taken
	}
	f.failure = notify.AsError(err)
	f.attempts++
	s.log.Debug("alert not taken", zap.String("device", f.head.device), zap.String("receiver", f.to.Name), zap.Int("attempt", f.attempts), zap.Error(err))
	f.report(f.failure, probe)
	if f.failure.Untaken || f.failure.Refused {
		return throttle.NotTaken
	}
	return throttle.Unknown
}

// report tells the receiver's health of an attempt, and people if that changed it.
func (f *flight) report(failure *notify.Error, probe bool) {
	s := f.stream
	if s.send.Err() != nil {
		return // we cut it short: that says nothing about the receiver
	}
	taken, change := f.to.health.report(failure, probe, f.seen)
	if failure != nil {
		if f.seen >= 0 && taken > f.seen {
			f.refusals++
		}
		f.seen = taken
	}
	switch change {
	case wentDown:
		s.log.Warn("receiver is down; its alerts wait, nothing is lost", zap.String("receiver", f.to.Name), zap.Error(failure))
	case cameUp:
		s.log.Info("receiver is back", zap.String("receiver", f.to.Name))
	}
}

// giveUp says why a failed alert should be tried no more; empty if it should. now is the store's clock.
func (f *flight) giveUp(now time.Time) string {
	switch age := now.Sub(f.head.enqueued); {
	case f.failure.Refused:
		return fmt.Sprintf("refused for good: %v", f.failure)
	case f.refusals >= refusalsToGiveUp:
		return fmt.Sprintf("failed %d times while the receiver took others: %v", f.attempts, f.failure)
	case age >= f.stream.GiveUp:
		return fmt.Sprintf("not taken within %v (NOTIFY_GIVE_UP): %v", f.stream.GiveUp, f.failure)
	}
	return ""
}

// bury keeps the alert as a dead letter. False if ctx ended first.
func (f *flight) bury(ctx context.Context, reason string) bool {
	s := f.stream
	for n := 1; ; n++ {
		err := s.DeadLetters.Keep(ctx, notify.DeadLetter{Alert: f.alert, Receiver: f.to.Name, Reason: reason})
		if err == nil {
			s.stats.DeadLetters.Add(1)
			f.buried = true
			return true
		}
		s.warn("a dead letter cannot be kept; its event stays unsettled", err)
		if !sleep(ctx, backoff(n)) {
			return false
		}
	}
}

// land ends the flight if all of its readings are settled: head is, and those that
// joined are if covers holds for their latest. Otherwise the latest becomes the head
// and the flight goes on; the entry stays where it is, which is safe.
func (f *flight) land(covers func(reading) bool) bool {
	s := f.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.joined > 0 && !covers(f.latest) {
		f.head, f.quiet, f.joined = f.latest, f.quiet+f.joined-1, 0
		f.attempts, f.refusals, f.seen = 0, 0, -1
		return false
	}
	f.to.Gate.Suppressed(f.head.device, f.quiet+f.joined)
	delete(f.among, f.head.device)
	s.settle(f.entry)
	return true
}
