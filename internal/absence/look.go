package absence

import (
	"math"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/roster"
	"alertworker/internal/sensor"
)

// Questions are what a Watch has to know before it can go on. Each is asked again if there is no answer.
type Questions struct {
	Hub    bool      // what the partition's last event is, and the newest one of the hub: see Prove
	Enough time.Time // an event of the hub that is no older says enough about that
	Others bool      // and also what is expected in the other partitions
}

// Look reports to the alarms which devices have fallen silent by now, and forgets devices that have been silent for too
// long. waiting says that notices of silences wait to be proven again.
func (w *Watch) Look(now time.Time, waiting bool) (q Questions) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if len(w.rules) == 0 {
		return q
	}

	w.excuse()
	w.followHub(now)

	// The hub is asked, although no deadline is over, whether events come again, and if this partition reports outages,
	// whether there is one.
	unproven := waiting || w.roster.Outage != 0 || w.hub != "" && w.mayBeCutOff(now)
	w.waits = false
	clear(w.owed)
	for rule := range w.rules {
		w.waits = w.look(rule, now) || w.waits
		w.waits = w.forgetSilent(rule, now) || w.waits
	}

	if (unproven || w.waits) && !w.asking && !now.Before(w.next) {
		q.Hub = true
		q.Enough = now.Add(-w.shortest() / 2)
		// It matters whether one device is all that the hub has, and to the partition that reports outages, how many there are.
		q.Others = w.mayBeCutOff(now) && (w.hub != "" || w.here.Devices == 1)
		w.asking = true
		w.next = now.Add(askEvery)
	}

	return q
}

// A look is one at the devices of the partition by one rule.
type look struct {
	rule    int
	proven  int64           // up to when everything was read, in Unix ms: see Watch.provenUntil
	expects map[string]bool // see expectsAny; nil until it is needed
}

// look reports the devices and sensors whose deadlines by a rule are proven to be over, and returns whether others are
// over but not proven to be.
func (w *Watch) look(rule int, now time.Time) (unproven bool) {
	l := look{rule: rule, proven: w.provenUntil(now, Freshness(w.rules[rule].Limit))}
	waits := w.hubIsQuiet(rule, l.proven) // nothing is said of devices

	for device := range w.roster.Len() {
		of := w.roster.Name(device)
		h := w.roster.Heard(device, rule)
		since, deadline := w.roster.Silence(rule, h)
		place, open := w.open[key{rule, of}]
		switch {
		case h.Time == 0 || l.proven >= w.forgetAt(rule, h): // it has sent nothing, or is forgotten
		case max(l.proven, now.UnixMilli()) < deadline: // what is proven may be ahead of our clock
		case open && place.Time >= since.Time: // an open one whose floor has risen is told anew, unless it was told
		case l.proven < deadline:
			unproven = unproven || now.UnixMilli() >= deadline+clockMargin.Milliseconds() // else no answer proves it
		case !open && w.alarms.Muted(rule, of, w.roster.Shared(device, rule), l.proven):
			// It was allowed to be silent, as if it had said so, and is not forgotten. One with an alarm is.
			w.roster.Excuse(device, rule, l.proven)
			w.changed = w.changed || now.Sub(w.written) >= keepExcuses
		case of.Name == "" && !w.expectsAny(&l, of.Device):
		case of.Name != "" && !w.heardAfter(rule, of, deadline):
			w.owed[of.Device] = true
		case waits:
			unproven = true
		case w.isUnreached(&l, deadline): // every device has its time once more
			w.roster.Restart(rule, roster.Place{Sequence: w.read.Sequence, Time: w.unheard.to})
		default:
			w.tell(rule, Silence{
				Of:       of,
				Since:    since,
				Heard:    h.Time,
				Deadline: deadline,
				Proven:   l.proven,
				Shared:   w.roster.Shared(device, rule),
			})
		}
	}

	return unproven
}

// excuse gives the sensors of devices that have come back as long again: see Hear.
func (w *Watch) excuse() {
	if len(w.back) == 0 {
		return
	}

	for device := range w.roster.Len() {
		of := w.roster.Name(device)
		for rule := range w.rules {
			if at, is := w.back[key{rule, sensor.Of(of.Device)}]; is && of.Name != "" {
				//planted:sensors-not-excused skip
				w.roster.Excuse(device, rule, at+w.rules[rule].Limit.Milliseconds())
			}
		}
	}

	clear(w.back)
}

// heardAfter reports whether something came of a sensor's device at a time or after it, in Unix ms: else the device may
// be silent, and not the sensor alone.
func (w *Watch) heardAfter(rule int, of sensor.ID, at int64) bool {
	//planted:silent-device-is-each-sensor return true
	//planted:sensors-never-silent return false
	device := w.roster.Device(sensor.Of(of.Device))
	return device >= 0 && w.roster.Heard(device, rule).Time >= at
}

// expectsAny reports whether a rule expects something of a device: of any of its sensors, if the rule knows some.
func (w *Watch) expectsAny(l *look, device string) bool {
	if l.expects == nil {
		l.expects = map[string]bool{}
		for i := range w.roster.Len() {
			of, h := w.roster.Name(i), w.roster.Heard(i, l.rule)
			if of.Name != "" && h.Time != 0 {
				l.expects[of.Device] = l.expects[of.Device] || h.Expected()
			}
		}
	}

	expects, has := l.expects[device]

	return expects || !has
}

// forgetAt returns when a device, whose last event is h, is forgotten, in Unix ms. One that would be forgotten
// before it was silent, because it is allowed to be for so long, has as much time after that. A gap may double the time
// that a device has: it is forgotten later than that, so that its silence is told before.
func (w *Watch) forgetAt(rule int, h roster.Heard) int64 {
	forget := max(w.rules[rule].Forget, 2*w.rules[rule].Limit+untold).Milliseconds()
	//planted:longest-forget for _, other := range w.rules { forget = max(forget, other.Forget.Milliseconds()) }
	at := h.Time + forget
	_, deadline := w.roster.Silence(rule, h)
	hasTime := max(h.Quiet+w.rules[rule].Limit.Milliseconds(), deadline+untold.Milliseconds()) <= at
	if hasTime || h.Quiet-h.Time > forEver.Milliseconds() {
		return at
	}

	return max(at, h.Quiet+forget)
}

// untold is how long a device is known at least after its silence could be told at the latest.
const untold = 10 * time.Minute

// forEver is so long that nobody waits for its end.
const forEver = 10 * 365 * 24 * time.Hour

// keepExcuses is how often a roster is written because of devices that are excused, if of nothing else. It is less than
// any Forget.
const keepExcuses = time.Hour

// tell reports a silence, which has an alarm from now on unless the alarms decline it.
func (w *Watch) tell(rule int, s Silence) {
	if w.alarms.FellSilent(rule, s) {
		w.open[key{rule, s.Of}] = s.Since
	}
}

// forgetSilent forgets devices that have been silent for too long by a rule, and ends their silences. It reports
// whether others may have been, too.
func (w *Watch) forgetSilent(rule int, now time.Time) (unproven bool) {
	until := w.provenUntil(now, maxFresh)

	for device := w.roster.Len() - 1; device >= 0; device-- {
		h := w.roster.Heard(device, rule)

		switch {
		case h.Time == 0:
		case until >= w.forgetAt(rule, h):
			of := w.roster.Name(device)
			w.log.Info(
				"device silent longer than forget: no longer monitored",
				zap.Stringer("device", of),
				zap.String("rule", w.rules[rule].Rule),
				zap.Time("heard", time.UnixMilli(h.Time).UTC()),
			)
			w.forgotten(rule, of, until)
			if w.roster.Forget(device, rule) {
				w.alarms.Unwatched(of)
			}
		default:
			unproven = unproven || now.UnixMilli() >= w.forgetAt(rule, h)
		}
	}

	return unproven
}

// forgotten ends the silence of a device or sensor at a time, in Unix ms, if it has one.
func (w *Watch) forgotten(rule int, of sensor.ID, at int64) {
	k := key{rule, of}
	if !w.isOpen(k) {
		return
	}

	delete(w.open, k)
	w.found, w.changed = false, true // the next owner, who knows less, may call it silent again by the roster in the store
	w.alarms.Ended(rule, of, at, true)
}

// Forget has w expect nothing more of a sensor, or of a device with all of its sensors, until it is heard again, and the
// roster be written soon. It reports whether w knew any. Before Begin nothing is known.
func (w *Watch) Forget(of sensor.ID) (known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if !w.begun {
		return false
	}

	for _, each := range w.roster.Covered(of) {
		for rule := range w.rules {
			w.forgotten(rule, each, time.Now().UnixMilli())
		}

		w.roster.Remove(each)
		w.alarms.Unwatched(each)
		known = true
	}

	w.written = time.Time{}
	if known {
		w.changed = true
		w.log.Info("an operator removed a device: it is no longer watched", zap.Stringer("device", of))
	}

	return known
}

// Next returns when a known device may next be silent or forgotten, or the hub be cut off or reached again, in Unix ms,
// and that be proven. What was so at now the last look has seen, unless it waits.
func (w *Watch) Next(now int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()

	margin := clockMargin.Milliseconds()
	next := never
	if w.roster.Outage != 0 || w.waits {
		next = now
	}

	for device := range w.roster.Len() {
		for rule := range w.rules {
			h := w.roster.Heard(device, rule)
			_, deadline := w.roster.Silence(rule, h)
			if w.isOpen(key{rule, w.roster.Name(device)}) {
				deadline = never
			}
			cutOff := w.newest + w.rules[rule].Limit.Milliseconds()
			for _, at := range [...]int64{deadline, w.forgetAt(rule, h), cutOff} {
				if at >= now-margin {
					next = min(next, at)
				}
			}
		}
	}

	return max(next, now) + margin
}

// Owed reports whether the last look has left the silence of one of a device's sensors to when the device is heard.
func (w *Watch) Owed(device string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.owed[device]
}

// never is later than any time, in Unix ms, and clockMargin may be added to it.
const never = math.MaxInt64/1000 - int64(clockMargin/time.Millisecond)

// Settling is how long after the last event a silence can be proven without the hub.
const Settling = clockMargin - eventMargin
