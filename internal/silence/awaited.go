package silence

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/roster"
)

// What is expected of devices that nobody has heard. To which partition such a device will send nobody knows. So one
// partition of a hub awaits all of them, and asks the rosters of all others: a device is silent if none of them has
// heard it, and each is proven to be complete until its deadline.

// Await has the rules expect to hear from the devices that they await since a time, in Unix ms, unless they did before.
func (w *Watch) Await(since int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.await(since)
}

func (w *Watch) await(since int64) {
	for rule := range w.rules {
		for _, device := range w.rules[rule].Awaits {
			if !w.isAwaited(device, rule) {
				w.changed = true
			}

			w.roster.Await(device, rule, since)
		}
	}
}

// isAwaited reports whether a rule expects to hear from a device already, or has heard it.
func (w *Watch) isAwaited(device string, rule int) bool {
	d := w.roster.Device(device)
	return d >= 0 && w.roster.Heard(d, rule).Time != 0
}

// awaitNoMore forgets the devices that a rule awaited, and awaits no more.
func (w *Watch) awaitNoMore() {
	for rule := range w.rules {
		awaits := map[string]bool{}
		for _, device := range w.rules[rule].Awaits {
			awaits[device] = true
		}

		for device := w.roster.Len() - 1; device >= 0; device-- {
			name := w.roster.Name(device)
			if w.roster.Heard(device, rule).Sequence != roster.Awaited || awaits[name] {
				continue
			}
			w.changed = true
			w.forgotten(rule, name, w.taken)
			w.roster.Forget(device, rule)
		}
	}
}

// owesProof reports whether another partition needs to know what is proven here, and that is old.
func (w *Watch) owesProof(now time.Time) bool {
	return w.shares() && now.UnixMilli()-w.provenUntil(now, maxFresh) > saveEvery.Milliseconds()
}

// shares reports whether a rule has devices that are awaited in this partition or another one.
func (w *Watch) shares() bool {
	return slices.ContainsFunc(w.rules, func(r Rule) bool { return r.Shares })
}

// lookAwaited tells of the devices that a rule has awaited in vain, and of those that are heard. It reports whether
// others are overdue but not proven to be. While the partition is dark nothing is said.
func (w *Watch) lookAwaited(rule int, now time.Time) (unproven bool) {
	r := &w.rules[rule]
	if len(r.Awaits) == 0 || w.roster.Dark(rule).Lasts() {
		return false
	}

	until := w.provenUntil(now, Freshness(r.Limit))
	for device := range w.roster.Len() {
		if w.roster.Heard(device, rule).Sequence != roster.Awaited {
			continue
		}

		unproven = w.lookAtAwaited(rule, device, now, until) || unproven
	}

	return unproven
}

// lookAtAwaited is lookAwaited for one device. Everything until a time was read here, in Unix ms.
func (w *Watch) lookAtAwaited(rule, device int, now time.Time, until int64) (unproven bool) {
	h := w.roster.Heard(device, rule)
	name := w.roster.Name(device)
	k := key{rule, name}
	if h.Quiet == roster.Excluded { // the ledger is older than the roster
		w.heardElsewhere(k)
		return false
	}

	since, deadline := w.roster.Silence(rule, h)
	if now.UnixMilli() < deadline {
		return false
	}

	asked := Asked{
		Hears:  w.rules[rule].Hears,
		Device: name,
		Rule:   w.rules[rule].Rule,
		Since:  h.Time,
	}
	s := suspect{asked: asked, deadline: deadline}

	if w.elsewhere.moved(k, s, now) {
		w.log.Info("a device that was awaited is heard in another partition", zap.String("device", name))
		w.roster.HeardElsewhere(device, rule)
		w.changed = true
		w.heardElsewhere(k)
		return false
	}

	if w.isOpen(k) {
		return false
	}

	if !w.elsewhere.answered(k, s, now) {
		return true
	}

	told := w.elsewhere.told[asked]
	deadline = max(deadline, told.Deadline)
	if min(until, told.Proven) < deadline {
		w.elsewhere.again(now)
		return true
	}

	// its age counts from our own proof: those of others are minutes old
	w.tell(rule, Silence{
		Device:   name,
		Since:    since,
		Deadline: deadline,
		Proven:   until,
	})

	return false
}

// heardElsewhere ends a silence, if there is one, of a device that another partition has heard.
func (w *Watch) heardElsewhere(k key) {
	if !w.isOpen(k) {
		return
	}

	delete(w.open, k)
	w.alarms.Over(k.rule, k.device, w.read)
}
