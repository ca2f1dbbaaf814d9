package partition

import (
	"time"

	"go.uber.org/zap"

	"alertworker/internal/absence"
	"alertworker/internal/roster"
	"alertworker/internal/telemetry"
)

// A reader takes the events of one partition, in their order, to its register. It is for one goroutine.
type reader struct {
	register *register
	lastRead telemetry.Position
	seen     *Seen
	unheard  *absence.Watch
	unread   func(before telemetry.Position, e *telemetry.Event, reason telemetry.Reason)
}

// newReader returns a reader of the partition of reg. log names unreadable devices. unread is called
// with each event without a reading that should have one, and with the position before it.
func newReader(
	reg *register,
	watch *absence.Watch,
	log *zap.Logger,
	unread func(before telemetry.Position, e *telemetry.Event, reason telemetry.Reason),
) reader {
	reg.message = reg.evaluator.newMessage()
	return reader{
		register: reg,
		seen:     NewSeen(time.Now(), log),
		unheard:  watch,
		unread:   unread,
	}
}

// take decodes events in order and decides about those that may matter to a rule. This is the hot
// path.
func (r *reader) take(events []telemetry.Event) {
	var n [telemetry.ReasonCount]int64
	over := int64(0)
	at := r.lastRead
	now := time.Now().UnixMicro()
	r.seen.mu.Lock()
	r.unheard.Lock()

	for i := range events {
		e := &events[i]
		hash := roster.Hash(e.Device)
		isNew := !e.NotAfter(r.register.last.replayed)
		r.unheard.Take(e)
		reason, matters := r.register.message.look(e, func(p *part, why telemetry.Reason) bool {
			r.hear(p, hash, why)
			return isNew
		})

		if !isNew {
			at = e.Position
			continue
		}

		n[reason]++
		o := r.seen.add(e, hash, reason, &r.register.message.read, now)
		switch {
		case reason.HasReading() && (matters || r.register.alarms.mayHave(hash)):
			if e.NotAfter(r.register.last.settled) {
				break
			}
			if r.register.evaluate(at, r.register.message) {
				over++
			}
			o.take(&r.register.message.read)

		case reason > telemetry.ReasonNotTelemetry:
			r.unread(at, e, reason)
		}

		at = e.Position
	}

	r.unheard.Unlock()
	//planted:late-mark if over > 0 {
	//planted:late-mark 	r.seen.mu.Unlock()
	//planted:late-mark 	time.Sleep(time.Second)
	//planted:late-mark 	r.seen.mu.Lock()
	//planted:late-mark }
	r.lastRead = at
	r.register.reached(events[0].Sequence, at, events[len(events)-1].Enqueued)
	r.seen.mu.Unlock()
	//planted:watermark-passes-unflushed r.register.mark.flushed = at; skip
	r.register.flush()
	r.register.evaluator.book.Counters.read(&n, over)
}

// hear feeds r.unheard a measurement of the event that it took last. It is called with that locked.
func (r *reader) hear(p *part, hash uint64, reason telemetry.Reason) {
	if len(p.cut.silences) == 0 || !r.register.message.counts(reason) {
		return
	}

	if !r.unheard.Hear(r.register.message.event, hash, p.cut.silences, p.found) {
		r.register.evaluator.book.Counters.Unwatched.Add(1)
	}
}
