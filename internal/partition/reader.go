package partition

import (
	"time"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/roster"
	"alertworker/internal/silence"
	"alertworker/internal/telemetry"
)

// A reader takes the events of one partition, in their order, to its register. It is for one goroutine.
type reader struct {
	*register
	lastRead telemetry.Position
	found    []telemetry.Found // in the event being taken, reused
	seen     *Seen
	unheard  *silence.Watch
	unread   func(before telemetry.Position, e *telemetry.Event, reason telemetry.Reason)
}

// newReader returns a reader of the partition of reg. log names devices of which nothing can be read. unread is called
// with each event without a reading that should have one, and with the position before it.
func newReader(
	reg *register,
	watch *silence.Watch,
	log *zap.Logger,
	unread func(before telemetry.Position, e *telemetry.Event, reason telemetry.Reason),
) reader {
	return reader{
		register: reg,
		found:    make([]telemetry.Found, reg.fields),
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
		reason, hash := r.Decoder.DecodeAll(e, r.found), roster.Hash(e.Device)

		r.hear(e, hash, reason)
		if e.NotAfter(r.replay) {
			at = e.Position
			continue
		}

		n[reason]++
		o := r.seen.add(e, hash, reason, r.Readings(r.found), now)
		switch {
		case reason.HasReading() && r.mayMatter(e, hash, r.found, o):
			if e.NotAfter(r.skip) {
				break
			}
			if r.evaluate(at, e, r.found, o) {
				over++
			}

		case reason > telemetry.ReasonNotTelemetry:
			r.unread(at, e, reason)
		}

		at = e.Position
	}

	r.unheard.Unlock()
	//planted:late-mark if over > 0 && len(r.silences) > 0 && r.silences[0].Forget < time.Hour {
	//planted:late-mark 	r.seen.mu.Unlock()
	//planted:late-mark 	time.Sleep(time.Second)
	//planted:late-mark 	r.seen.mu.Lock()
	//planted:late-mark }
	r.lastRead = at
	r.reached(events[0].Sequence, at, events[len(events)-1].Enqueued)
	r.seen.mu.Unlock()
	//planted:watermark-passes-unflushed r.mark.flushed = at; skip
	r.flush()
	r.Counters.read(&n, over)
}

// mayMatter reports whether e, whose device has this hash and in which the decoder found found, may matter to a rule:
// a value reaches a limit, or the device has an alarm. It notes limits of the device's own in o, unless that is nil.
// This is the hot path: it takes no lock and allocates nothing.
func (r *reader) mayMatter(e *telemetry.Event, hash uint64, found []telemetry.Found, o *observation) bool {
	return r.reaches(e, found, o) || r.alarms.mayHave(hash)
}

// hear tells r.unheard of e, the next event. It is called between Lock and Unlock of that.
func (r *reader) hear(e *telemetry.Event, hash uint64, reason telemetry.Reason) {
	counts := e.Device != "" && reason != telemetry.ReasonNotTelemetry && !notify.IsTest(e.Device)
	if !r.unheard.Hear(e, hash, r.found, counts) {
		r.Counters.Unwatched.Add(1)
	}
}
