package absence

import (
	"time"

	"go.uber.org/zap"

	"alertworker/internal/roster"
	"alertworker/internal/sensor"
)

// A silence needs proof that nothing came from its device, and that the hub was reached at all. As long as nothing has
// come to any partition for half of a rule's limit, its silences wait. Once nothing has come for a whole limit, the hub
// is cut off from its devices: all silences wait until something comes, and then every device has its limit again. One
// partition reports that, with an alarm about the hub. Devices are not counted: the hub's newest event decides.

// hubIsQuiet reports whether silences of a rule have to wait at a time up to which all was read, in Unix ms, because
// nothing has come to the hub for half of the rule's limit.
func (w *Watch) hubIsQuiet(rule int, proven int64) bool {
	//planted:cut-off-is-devices return false
	if w.roster.Outage != 0 {
		return true
	}

	return w.lastSign() < proven-w.rules[rule].Limit.Milliseconds()/2 && !w.isAlone()
}

// isAlone reports whether the hub has one device at most, as far as rosters say. Then it is the device that is silent.
func (w *Watch) isAlone() bool {
	return w.asked.Others != nil && w.inHub().Devices < 2
}

// inHub returns what rules about silence expect in all partitions, as far as is known.
func (w *Watch) inHub() roster.Expected {
	if w.asked.Others == nil {
		return w.here
	}

	return w.asked.Others.And(w.here)
}

// A span is from one time to another, in Unix ms.
type span struct{ from, to int64 }

// sign notes that the hub took an event at a time, in Unix ms.
func (w *Watch) sign(at int64) {
	switch {
	case at > w.newest && w.newest != 0 && at-w.newest >= w.shortest().Milliseconds():
		w.unheard = span{w.newest, at}
	case w.unheard.from < at && at < w.unheard.to: // it was read late
		w.unheard.from = at
	}

	w.newest = max(w.newest, at)
}

// isUnreached reports whether nobody knows that the hub was reached at all when a device fell silent by a rule, at a
// deadline: nothing had come that w knows of, then or for half of the limit before, and for as long nobody could prove
// the silence. So it was the hub that did not answer.
func (w *Watch) isUnreached(l *look, deadline int64) bool {
	limit := w.rules[l.rule].Limit.Milliseconds()
	isLong := w.unheard.to-w.unheard.from >= limit
	isIn := w.unheard.from+limit/2 < deadline && deadline <= w.unheard.to

	return isLong && isIn && l.proven-deadline >= limit/2 && !w.isAlone()
}

// lastSign is newest, but in a hub that has never had an event when it began to be read.
func (w *Watch) lastSign() int64 {
	if w.newest != 0 {
		return w.newest
	}

	return w.roster.Floor()
}

// followHub begins and ends an outage: the hub is cut off from its devices. It reports both to the alarms.
func (w *Watch) followHub(now time.Time) {
	until := int64(0) // up to when the hub has said lately, in Unix ms, that it has had no later event than the newest one
	if w.asked.isYoung(now, Freshness(w.shortest())) {
		until = w.asked.NewestUntil - clockMargin.Milliseconds()
	}

	if w.roster.Outage != 0 || w.mayBeCutOff(now) {
		w.here = w.roster.Expects()
	}

	switch {
	case w.roster.Outage != 0 && w.newest > w.roster.Outage:
		w.log.Info("events come to the hub again: every device has its time once more")
		w.roster.Raise(roster.Place{Sequence: w.read.Sequence, Time: w.newest})
		w.setOutage(0)

	case w.roster.Outage == 0 && w.mayBeCutOff(now):
		last, in := w.lastSign(), w.inHub()
		if in.Devices >= 2 && last+in.Limit.Milliseconds() <= until {
			w.log.Warn(
				"nothing comes to any partition of the hub: nothing is said of single devices until something does",
				zap.Time("since", time.UnixMilli(last).UTC()),
			)
			w.setOutage(last)
		}
	}

	if w.hub == "" {
		return
	}

	for _, rule := range w.order {
		w.tellOfHub(rule, until)
	}
}

// tellOfHub opens and ends the alarm of a rule about the hub, which was cut off up to a time, in Unix ms, or longer.
func (w *Watch) tellOfHub(rule int, until int64) {
	hub := sensor.Of(w.hub)
	k := key{rule, hub}
	since, open := w.open[k]
	limit := w.rules[rule].Limit
	// While any rule expects something the hub is cut off: who hears of that by this rule hears of it by no other.
	forget := int64(0)
	for _, other := range w.rules {
		forget = max(forget, other.Forget.Milliseconds())
	}

	switch {
	//planted:cut-off-ends-unheard case open
	case open && w.newest > since.Time:
		delete(w.open, k)
		w.alarms.Ended(rule, hub, w.newest, false)

	case open && until >= since.Time+forget:
		w.forgotten(rule, hub, until)

	case open, w.roster.Outage == 0:

	case w.asked.Others == nil, w.inHub().Devices < 2, limit < w.inHub().Limit: // it is not known yet, or not by this rule

	case until >= w.roster.Outage+limit.Milliseconds() && until < w.roster.Outage+forget:
		at := w.roster.Outage // partitions have no places in common
		w.tell(rule, Silence{
			Of:       hub,
			Since:    roster.Place{Sequence: at, Time: at},
			Heard:    at,
			Deadline: at + limit.Milliseconds(),
			Proven:   until,
			Outage:   &Outage{Devices: w.inHub().Devices},
		})
	}
}

// setOutage replaces what the next owner knows of the hub.
func (w *Watch) setOutage(since int64) {
	w.roster.Outage = since
	w.written = time.Time{} // the roster is written soon
	w.changed = true
}

// mayBeCutOff reports whether nothing is known to have come to the hub for half of the shortest limit.
func (w *Watch) mayBeCutOff(now time.Time) bool {
	return now.UnixMilli()-w.newest >= w.shortest().Milliseconds()/2
}

// shortest returns the shortest limit.
func (w *Watch) shortest() time.Duration { return w.rules[w.order[0]].Limit }

// HubIsCutOff reports whether it is certain that nothing has come to any partition of the hub since an outage began. limit is
// that of the rule that reports it.
func (w *Watch) HubIsCutOff(limit time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	isYoung := w.asked.isYoung(time.Now(), Freshness(limit))
	return isYoung && w.roster.Outage != 0 && w.newest <= w.roster.Outage
}
