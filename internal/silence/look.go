package silence

import (
	"math"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/roster"
	"alertworker/internal/telemetry"
)

// Questions are what a Watch has to know before it can go on. Each is asked again if there is no answer.
type Questions struct {
	Hub       bool    // what the partition's last event is: see Prove
	Elsewhere []Asked // when other partitions have heard devices: see Answer
}

// Look tells the alarms which devices have fallen silent by now, and forgets devices that have been silent for too
// long. waiting says that notices of silences wait to be proven again.
func (w *Watch) Look(now time.Time, waiting bool) (q Questions) {
	w.mu.Lock()
	defer w.mu.Unlock()
	unproven := waiting
	clear(w.elsewhere.suspects)
	w.elsewhere.unknown = false
	unproven = w.owesProof(now) || unproven
	for rule := range w.rules {
		unproven = w.look(rule, now) || unproven
		unproven = w.lookAwaited(rule, now) || unproven
		unproven = w.forgetSilent(rule, now) || unproven
	}
	if unproven && !w.asking && !now.Before(w.next) {
		w.asking, q.Hub = true, true
		w.next = now.Add(askEvery)
	}
	q.Elsewhere = w.elsewhere.questions(now)
	return q
}

// A count is how many devices of the partition are not silent by a rule.
type count struct {
	all     int // with those that are overdue
	overdue int
	recent  int // of those that are not overdue, those that were heard lately
	again   int // likewise, since the partition is dark
}

// look tells of the devices whose deadlines by a rule are proven to be over, and reports whether others are over but
// not proven to be. If most of the partition is not heard it tells of that instead.
func (w *Watch) look(rule int, now time.Time) (unproven bool) {
	r := &w.rules[rule]
	until := w.provenUntil(now, Freshness(r.Limit))
	dark := w.open[key{rule, w.whole}]
	var n count
	var overdue []Silence
	// backwards, because one that is forgotten has the last one in its place
	for device := w.roster.Len() - 1; device >= 0; device-- {
		h := w.roster.Heard(device, rule)
		name := w.roster.Name(device)
		since, deadline := w.roster.Silence(rule, h)
		suspected := suspect{Asked{Hears: r.Hears, Device: name}, h.Time, deadline}
		_, open := w.open[key{rule, name}]
		over := max(until, now.UnixMilli()) >= deadline && !open
		switch {
		case h.Time == 0, h.Sequence == roster.Awaited, until >= h.Time+r.Forget.Milliseconds():
		case until < deadline && now.UnixMilli() < deadline && h.Quiet > until: // nothing is expected of it
		case over && w.elsewhere.moved(key{rule, name}, suspected, now):
			w.log.Info("a device is heard in another partition now", zap.String("device", name))
			w.roster.Forget(device, rule)
		case until < deadline:
			n.all++
			if h.Time >= until-r.Limit.Milliseconds()/2 {
				n.recent++
			}
			if h.Time > dark.Time {
				n.again++
			}
			unproven = unproven || over
		case open:
		case w.elsewhere.answered(key{rule, name}, suspected, now):
			overdue = append(overdue, Silence{name, since, h.Time, deadline, until})
		default: // it may be heard in another partition
			n.all++
			unproven = true
		}
	}
	n.overdue = len(overdue)
	n.all += n.overdue
	if w.lookAtAll(rule, n, until) {
		return unproven
	}
	for i := range overdue {
		w.tell(rule, overdue[len(overdue)-1-i])
	}
	return unproven
}

func (w *Watch) tell(rule int, s Silence) {
	if w.alarms.Fell(rule, s) {
		w.open[key{rule, s.Device}] = s.Since
	}
}

const (
	darkDevices = 20 // of fewer others nothing follows
	darkLimit   = 24 * time.Hour
)

// lookAtAll reports whether the partition is dark: a device is overdue, and of the others that are not silent fewer
// than a quarter were heard lately. That is an outage before the hub, and one alert, until half of all are heard
// again, or for a day. When it is over, deadlines start anew: not everybody comes back at once.
func (w *Watch) lookAtAll(rule int, n count, until int64) bool {
	whole := key{rule, w.whole}
	dark, is := w.open[whole]
	switch {
	case !is:
		if n.overdue == 0 || n.all-1 < darkDevices || n.recent*4 >= n.all-1 {
			return false
		}
		last := roster.Place{Sequence: w.read.Sequence, Time: millis(w.read.Time)}
		deadline := min(last.Time+w.rules[rule].Limit.Milliseconds(), until)
		w.tell(rule, Silence{w.whole, last, last.Time, deadline, until})
		return true
	case until == 0:
		return true
	case n.again > 0 && n.again*2 >= n.all:
		delete(w.open, whole)
		w.alarms.Over(rule, w.whole, w.read)
		w.roster.Restart(rule, roster.Place{Sequence: w.read.Sequence, Time: millis(w.read.Time)})
		return true
	case n.all == 0, until >= dark.Time+darkLimit.Milliseconds(): // there is no device that could be heard again
		delete(w.open, whole)
		w.alarms.Forgotten(rule, w.whole, until)
	default:
		return true
	}
	return false
}

// forgetSilent forgets devices that have been silent for too long by a rule, and ends their silences. It reports
// whether others may have been, too.
func (w *Watch) forgetSilent(rule int, now time.Time) (unproven bool) {
	until := w.provenUntil(now, maxFresh)
	forget := w.rules[rule].Forget.Milliseconds()
	for device := w.roster.Len() - 1; device >= 0; device-- {
		h := w.roster.Heard(device, rule)
		switch {
		case h.Time == 0, h.Sequence == roster.Awaited:
		case until >= h.Time+forget:
			name := w.roster.Name(device)
			w.log.Info("a device has been silent for so long that it is no longer watched",
				zap.String("device", name), zap.String("rule", w.rules[rule].Rule), zap.Time("heard", time.UnixMilli(h.Time).UTC()))
			w.forgotten(rule, name, until)
			if w.roster.Forget(device, rule) {
				w.alarms.Unwatched(name, false)
			}
		default:
			unproven = unproven || now.UnixMilli() >= h.Time+forget
		}
	}
	return unproven
}

// forgotten ends the silence of a device, if it has one.
func (w *Watch) forgotten(rule int, device string, proven int64) {
	if _, open := w.open[key{rule, device}]; open {
		delete(w.open, key{rule, device})
		w.alarms.Forgotten(rule, device, proven)
	}
}

// Forget has w expect nothing more of a device, until it is heard again. It reports whether w knew the device, and the
// number of the last event that was read. Before Begin no device is known.
func (w *Watch) Forget(name string) (read int64, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.begun || w.roster.Device(name) < 0 {
		return 0, false
	}
	for rule := range w.rules {
		w.forgotten(rule, name, time.Now().UnixMilli())
	}
	w.roster.Remove(name)
	w.alarms.Unwatched(name, true)
	w.written = time.Time{} // the roster is written soon
	w.changed = true
	w.log.Info("an operator removed a device: it is no longer watched", zap.String("device", name))
	return w.read.Sequence, true
}

// forgetAgain has the roster, which a former owner may have written late, know nothing of devices that were removed and
// not heard since.
func (w *Watch) forgetAgain(removed map[string]int64) {
	w.removed, w.removedUpTo = removed, 0
	for name, sequence := range removed {
		w.removedUpTo = max(w.removedUpTo, sequence)
		if device := w.roster.Device(name); device >= 0 && w.last(device) <= sequence {
			w.roster.Remove(name)
			w.alarms.Unwatched(name, true)
		}
	}
}

// last returns the number of a device's last event that counts for a rule.
func (w *Watch) last(device int) int64 {
	last := int64(-1)
	for rule := range w.rules {
		last = max(last, w.roster.Heard(device, rule).Sequence)
	}
	return last
}

// wasRemoved reports whether the device of e was removed after an owner had read e.
func (w *Watch) wasRemoved(e *telemetry.Event) bool {
	if e.Sequence > w.removedUpTo {
		return false
	}
	sequence, removed := w.removed[e.Device]
	return removed && e.Sequence <= sequence
}

// Next returns when a known device may be silent or forgotten, in Unix ms, and that be proven: not before now and a
// tick of a worker.
func (w *Watch) Next(now int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := int64(math.MaxInt64/1000) - clockMargin.Milliseconds()
	for device := range w.roster.Len() {
		for rule := range w.rules {
			h := w.roster.Heard(device, rule)
			if h.Time == 0 {
				continue
			}
			if h.Sequence != roster.Awaited {
				next = min(next, h.Time+w.rules[rule].Forget.Milliseconds())
			}
			if _, open := w.open[key{rule, w.roster.Name(device)}]; !open {
				_, deadline := w.roster.Silence(rule, h)
				next = min(next, deadline)
			}
		}
	}
	return max(next, now) + clockMargin.Milliseconds()
}

// Settling is how long after the last event a silence can be proven without the hub.
const Settling = clockMargin - eventMargin
