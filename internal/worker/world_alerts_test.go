package worker_test

import (
	"slices"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// What receivers hear about readings, judged by what the logs say, by when they heard it, and by what is kept as a dead
// letter.

// A told is a reading that a receiver has to be told about.
type told struct {
	device   string
	log      *hubLog // nil: it came by HTTP
	sequence int64
	at       time.Time
	sure     bool
	state
}

// tells returns what a receiver has to be told of s, by what it is about.
func (w *world) tells(in *inbox, s subject) map[matter][]told {
	all := map[matter][]told{}
	rule, _ := w.ever(s)
	for _, log := range w.logs {
		for _, device := range w.devices {
			states := w.follow(log, s, device)
			for i, m := range log.readings {
				some, always := in.wants(s, m)
				if f := states[i+1]; m.device == device && f.tells != "" && some {
					of := matterOf(rule, m)
					sure := f.tells == "yes" && always
					all[of] = append(all[of], told{device, log, int64(i + 1), log.events[i].Enqueued, sure, f})
				}
			}
		}
	}
	for _, m := range w.posted {
		r, l := w.in(m.version, s)
		if _, always := in.wants(s, m.reading); r == nil || !always || w.speaks(r, m.device, m.reading, m.at) != "yes" {
			continue
		}
		value, looks := looksAt(r, m.reading)
		if up, ok := w.above(s); ok {
			if _, critical := w.in(m.version, up); critical != nil && value >= critical.Limit {
				continue
			}
		}
		if looks && value >= l.Limit {
			of := matterOf(rule, m.reading)
			all[of] = append(all[of], told{device: m.device, at: m.at, sure: true})
		}
	}
	return all
}

// heard returns what a receiver got of s, by what it is about.
func (in *inbox) heard(s subject) map[matter][]arrival {
	all := map[matter][]arrival{}
	for _, a := range in.all {
		if a.Rule == s.rule && a.Level == s.level {
			all[a.matter()] = append(all[a.matter()], a)
		}
	}
	return all
}

// judgeAlerts checks what a receiver heard about the readings of s.
func (w *world) judgeAlerts(in *inbox, s subject) {
	tells, heard := w.tells(in, s), in.heard(s)
	matters := map[matter]bool{}
	for of := range tells {
		matters[of] = true
	}
	for of := range heard {
		matters[of] = true
	}
	for of := range matters {
		w.onceInAWindow(in, s, of, heard[of])
		w.seldomAboutOneAlarm(in, s, of, heard[of])
		w.nothingInvented(in, s, of, heard[of])
		w.nothingLost(in, s, of, tells[of], heard[of])
		w.replaysAreSilent(in, s, of, heard[of])
		if r, _ := w.ever(s); of.shared {
			w.devicesAreCounted(in, s, of, tells[of], heard[of])
		} else if r.Resolved {
			w.lastWordIsTrue(in, s, of, tells[of], heard[of])
			w.timesDecide(in, s, of, heard[of])
		}
	}
}

// onceInAWindow: a receiver gets at most one alert per device within the window. No recovery comes within the window,
// and none comes twice.
func (w *world) onceInAWindow(in *inbox, s subject, of matter, heard []arrival) {
	rule, _ := w.ever(s)
	var alert, last *arrival
	for i := range heard {
		a := &heard[i]
		if a.dropped {
			continue
		}
		late := alert != nil && alert.at.After(alert.Expires) // exception d
		if alert != nil && a.at.Before(alert.at.Add(rule.Window)) && !late {
			w.violated("P1: %s hears of %s %s again %v after an alert (recovery: %v, replay: %v)", in.name, of.name, s,
				a.at.Sub(alert.at), a.Resolved, a.replayed)
		}
		if a.Resolved && last != nil && last.Resolved && !w.interrupted(in, s, of, last.at, a.at) {
			w.violated("P3: %s hears two recoveries of %s %s, of %d and %d, without an alert between them", in.name, of.name,
				s, last.Sequence, a.Sequence)
		}
		if last = a; !a.Resolved {
			alert = a
		}
	}
}

// seldomAboutOneAlarm: an alarm of a rule with a repeat that is still open is not sent again earlier.
func (w *world) seldomAboutOneAlarm(in *inbox, s subject, of matter, heard []arrival) {
	rule, _ := w.ever(s)
	if rule.Repeat == 0 || !w.steady(s) || w.mayMissRecords() {
		return
	}
	for i := range heard[:max(0, len(heard)-1)] {
		a, b := heard[i], heard[i+1]
		log := slices.IndexFunc(w.logs, func(l *hubLog) bool { return l.id == b.Partition })
		odd := a.Resolved || b.Resolved || a.replayed || b.replayed || a.Ambiguous || !a.answered || a.Partition != b.Partition
		if odd || log < 0 || !w.isClear(b.Device, b.at) {
			continue
		}
		opened := w.follow(w.logs[log], s, b.Device)[b.Sequence].opened
		claimed := a.Expires.Add(-throttle.ClaimTTL(sendTimeout))
		if opened > 0 && opened <= a.Sequence && b.Enqueued.Before(claimed.Add(rule.Repeat)) {
			w.violated("P5: %s hears of %d at %s %s, %v after %d, and its alarm has been open since %d", in.name, b.Sequence,
				of.name, s, b.at.Sub(a.at), a.Sequence, opened)
		}
	}
}

// tellsOf reports whether a, one of those that a receiver heard, has told it of the alarm that t is about, so lately that t
// need not. One that came again because it may not have been accepted counts, although the receiver dropped it: the time
// counts from the send that is recorded.
func (t told) tellsOf(a arrival, heard []arrival, repeat time.Duration) bool {
	took := slices.ContainsFunc(heard, func(b arrival) bool { return !b.dropped && b.ID == a.ID && b.Sequence == a.Sequence })
	same := t.log != nil && a.Partition == t.log.id && took && !a.replayed && a.Sequence >= t.opened
	return repeat > 0 && same && t.at.Before(a.heard.Add(repeat))
}

// readAt returns when t, which came from the hub, was read, by who has decided about it.
func (t told) readAt() time.Time {
	at := t.at
	if taken := t.log.reigns[t.log.reignAt(t.sequence)].at; taken.After(at) {
		at = taken
	}
	if read := t.log.read; int(t.sequence) <= len(read) && read[t.sequence-1].After(at) { // reading may have paused
		at = read[t.sequence-1]
	}
	return at
}

// isReadAtOnce reports whether an event was read when it came: while too much is not settled a partition does not read on.
func (log *hubLog) isReadAtOnce(sequence int64) bool {
	return int(sequence) <= len(log.read) && log.read[sequence-1].Before(log.events[sequence-1].Enqueued.Add(5*second))
}

// interrupted reports whether an alert that nobody heard may have come between two recoveries: its key was claimed,
// and then it was given up, or the device was heard before the silence was sent again.
func (w *world) interrupted(in *inbox, s subject, of matter, from, to time.Time) bool {
	if rule, _ := w.ever(s); rule.Silence() && !w.orderly() {
		return true
	}
	return to.Sub(from) >= w.giveUp || slices.ContainsFunc(w.dead, func(d keptLetter) bool {
		return d.isOf(in, s, of) && !d.Alert.Resolved
	})
}

// nothingInvented: every alert is about a reading that people are to be told of, and every recovery about one that
// ended an alarm.
func (w *world) nothingInvented(in *inbox, s subject, of matter, heard []arrival) {
	for _, a := range heard {
		i := slices.IndexFunc(w.logs, func(l *hubLog) bool { return l.id == a.Partition })
		if i < 0 || a.Removed || !w.steady(s) || !w.isClear(a.Device, a.at) {
			continue
		}
		f := w.follow(w.logs[i], s, a.Device)[a.Sequence]
		switch {
		case a.Resolved && (f.owed != a.Sequence || !f.over.Equal(a.Since)):
			w.violated("P4: %s hears a recovery of %s %s of %d since %v, the log has none: %+v", in.name, of.name, s,
				a.Sequence, a.Since, f)
		case !a.Resolved && (f.tells == "" || !f.shown.Equal(a.Since)):
			w.violated("P4: %s hears an alert of %s %s of %d since %v, the log has none: %+v", in.name, of.name, s,
				a.Sequence, a.Since, f)
		case a.Damaged != (w.logs[i].readings[a.Sequence-1].damage != ""):
			w.violated("P4: %s hears an alert of %s %s of %d, and whether that is damaged is wrong: %v", in.name, of.name, s,
				a.Sequence, a.Damaged)
		}
	}
}

// nothingLost: every reading that people are to be told of is covered by a delivery, or kept as a dead letter.
func (w *world) nothingLost(in *inbox, s subject, of matter, tells []told, heard []arrival) {
	rule, _ := w.ever(s)
	for _, t := range tells {
		settled := !t.sure || w.ruleWent(in, s, of, t)
		fails := in.chokes == t.device || of.shared && slices.ContainsFunc(tells, func(first told) bool { // which it may have joined
			return in.chokes == first.device && !first.at.After(t.at) && t.at.Before(first.at.Add(w.giveUp+time.Minute))
		})
		for _, a := range heard {
			switch {
			case a.Resolved:
				settled = settled || t.log != nil && a.Partition == t.log.id && a.Sequence >= t.sequence
			case w.orderly() && !fails && t.log != nil && a.Enqueued.After(t.readAt().Add(5*second)): // it came too late for that reading
			default:
				settled = settled || t.at.Before(a.heard.Add(rule.Window+w.slack())) || t.tellsOf(a, heard, rule.Repeat)
			}
		}
		for _, d := range w.dead {
			if d.isOf(in, s, of) && !d.Alert.Resolved {
				settled = settled || !t.at.After(d.Alert.Enqueued) || d.refused() && t.at.Before(d.at.Add(rule.Window))
			}
		}
		if !settled {
			w.violated("G2: nothing settles the reading %d of %s at %v for %s: %s %s", t.sequence, t.device,
				t.at.Sub(w.start), in.name, of.name, s)
		}
	}
}

// ruleWent reports whether a later reading of t's device was decided by somebody without the rule, and an alert of the
// same matter that t had joined became a dead letter: its delivery goes on with the latest reading, and goes with that.
func (w *world) ruleWent(in *inbox, s subject, of matter, t told) bool {
	died := slices.ContainsFunc(w.dead, func(d keptLetter) bool {
		return d.isOf(in, s, of) && !d.Alert.Resolved && !d.Alert.Enqueued.After(t.at) && !d.at.Before(t.at)
	})
	if t.log == nil || !died {
		return false
	}
	for i, m := range t.log.readings {
		r, _ := w.in(t.log.reigns[t.log.reignAt(int64(i+1))].version, s)
		if r == nil && m.device == t.device && int64(i+1) > t.sequence {
			return true
		}
	}
	return false
}

// slack is by how much a window may end late: one that is recorded late still counts until its claim, and a
// window, would be over.
func (w *world) slack() time.Duration {
	for _, f := range w.faults {
		if f.call == callExtend || f.what == frozenBefore || f.what == frozenAfter {
			return throttle.ClaimTTL(sendTimeout)
		}
	}
	return 0
}

// replaysAreSilent: a reading that the hub took before the end of the last recorded window is settled, however late
// it is read.
func (w *world) replaysAreSilent(in *inbox, s subject, of matter, heard []arrival) {
	rule, _ := w.ever(s)
	if w.mayMissRecords() {
		return
	}
	for i, b := range heard {
		if b.Resolved || !b.answered || b.Partition == "http" {
			continue
		}
		for _, a := range heard[i+1:] {
			if a.Resolved || a.replayed || a.Partition == "http" {
				break
			}
			if a.ID != b.ID && a.Enqueued.Before(b.heard.Add(rule.Window)) {
				w.violated("R3: %s hears of %s %s of %d, which was taken within the window of the alert of %d", in.name, of.name,
					s, a.Sequence, b.Sequence)
			}
		}
	}
}

// mayMissRecords reports whether a window may not have been recorded.
func (w *world) mayMissRecords() bool {
	return len(w.faults) > 0 || slices.ContainsFunc(w.moves, func(m move) bool { return m.what == storeDown })
}

// devicesAreCounted: the next alert of a site counts the devices whose readings were suppressed.
func (w *world) devicesAreCounted(in *inbox, s subject, of matter, tells []told, heard []arrival) {
	if !w.orderly() || w.compacted || len(w.moves) > 0 || len(w.logs) > 1 || len(w.posted) > 0 || in.refuses != "" ||
		in.limits.Rate.Every > 0 {
		return
	}
	slices.SortFunc(tells, func(a, b told) int { return int(a.sequence - b.sequence) })
	for i, a := range heard {
		// What had joined a dead letter goes on in another alert, and its devices are counted with the one after that.
		since := w.start
		if i > 1 {
			since = heard[i-2].at
		}
		died := slices.ContainsFunc(w.dead, func(d keptLetter) bool { return d.isOf(in, s, of) && !d.at.Before(since) && !d.at.After(a.at) })
		if i == 0 || a.Resolved || died {
			continue
		}
		var devices []string
		for _, t := range tells {
			device := w.id(t.device).Device // of which sensors are one
			if t.sequence > heard[i-1].Sequence && t.sequence < a.Sequence && !slices.Contains(devices, device) {
				devices = append(devices, device)
			}
		}
		if a.Suppressed < int64(len(devices)) {
			w.violated("C: %s hears of %d at %s, which counts %d devices; %v were suppressed", in.name, a.Sequence, of.name,
				a.Suppressed, devices)
		}
	}
}

// timesDecide: a recovery comes after an alert of another partition only if its reading is the later one.
func (w *world) timesDecide(in *inbox, s subject, of matter, heard []arrival) {
	var alerts []arrival // since the last recovery
	for _, a := range heard {
		switch {
		case a.dropped || a.replayed || a.Partition == "http":
		case !a.Resolved:
			alerts = append(alerts, a)
		default:
			for _, b := range alerts {
				certain := b.Partition == a.Partition || b.Enqueued.Before(a.Enqueued) || a.Removed || a.Forgotten
				if !certain && !b.at.After(b.Expires) {
					w.violated("P6: %s hears a recovery of %s %s of %d in %s, and was alerted of %d in %s, which is later", in.name,
						of.name, s, a.Sequence, a.Partition, b.Sequence, b.Partition)
				}
			}
			alerts = nil
		}
	}
}

// lastWordIsTrue: who was alerted hears once that a device is normal again, and what people heard last is true.
func (w *world) lastWordIsTrue(in *inbox, s subject, of matter, tells []told, heard []arrival) {
	replayed := slices.ContainsFunc(heard, func(a arrival) bool { return a.replayed }) // the alarm may have ended
	if replayed || w.scattered(of.name) {
		return
	}
	last := lastWord(heard)
	log := w.logs[w.home(of.name)]
	states := w.follow(log, s, of.name)
	end := w.removed(log, of.name, len(states)-1, states[len(states)-1])
	if r, _ := w.in(len(w.versions)-1, s); r == nil {
		end = state{phase: "normal"}
	}
	due := end.phase == "open" && w.exposed(in, log, s, of.name)
	for _, t := range tells {
		if t.log == log && t.sure && end.phase == "open" && w.openSince(t.log, t.device, states, t.sequence) && !w.deadAt(in, s, of, t) {
			due = true
		}
	}
	// An owner with other rules may have sent it, and not recorded it: see docs/promise.md, When two alerts can still come.
	others := last != nil && !w.steady(s) && states[last.Sequence].tells != "yes"
	// The hub has compacted away what opened the alarm before it was settled, and its owner died: see there as well.
	gone := last != nil && log.id == last.Partition && log.readings[last.Sequence-1].fate == superseded &&
		log.reigns[log.reignAt(last.Sequence)].owner.name != last.Replica
	recoveryDied := slices.ContainsFunc(w.dead, func(d keptLetter) bool { return d.isOf(in, s, of) && d.Alert.Resolved })
	switch {
	case end.phase == "open" && due && (last == nil || last.Resolved):
		w.violated("P2: %s %s is open, and that is not what %s heard last", of.name, s, in.name)
	case end.phase == "normal" && last != nil && !last.Resolved && !recoveryDied && !others && !gone:
		w.violated("P2: %s %s is not open, and %s heard an alert last", of.name, s, in.name)
	}
}

// exposed reports whether a milder level is open to the end, a higher one that inhibited it was removed, and the
// device has sent a reading since.
func (w *world) exposed(in *inbox, log *hubLog, s subject, device string) bool {
	up, ok := w.above(s)
	if !ok || in.changes || len(in.filters) > 0 || len(w.operations) > 0 || len(w.muteTimes) > 0 || slices.ContainsFunc(w.readings,
		func(r reading) bool { return r.quiet > 0 }) {
		return false
	}
	first := len(log.reigns) // from which on the higher one is missing
	for ; first > 0; first-- {
		if _, l := w.in(log.reigns[first-1].version, up); l != nil {
			break
		}
	}
	if first == len(log.reigns) || first == 0 {
		return false
	}
	after := log.reigns[len(log.reigns)-1].at.Add(removedAfter + removing)
	rule, _ := w.ever(s)
	read := slices.ContainsFunc(log.events, func(e telemetry.Event) bool {
		m := log.readings[e.Sequence-1]
		_, looks := looksAt(rule, m)
		return e.Device == device && looks && m.damage == "" && m.fate == readable && m.mode == "run" && e.Enqueued.After(after)
	})
	last := 0 // event that somebody decided about who had it
	for last < len(log.events) && log.reignAt(int64(last+1)) < first {
		last++
	}
	return read && w.follow(log, up, device)[last].phase == "open" && w.openSince(log, device, w.follow(log, s, device), int64(last)) &&
		len(w.dead) == 0
}

// openSince reports whether an alarm of a device has been open from an event to the end.
func (w *world) openSince(log *hubLog, device string, states []state, sequence int64) bool {
	ended := slices.ContainsFunc(w.operations, func(o operation) bool {
		last, is := o.last[log]
		return is && o.device == device && last >= sequence
	})
	return !ended && !slices.ContainsFunc(states[sequence:], func(f state) bool { return f.phase != "open" })
}

// deadAt reports whether a dead letter stands for a reading.
func (w *world) deadAt(in *inbox, s subject, of matter, t told) bool {
	rule, _ := w.ever(s)
	return slices.ContainsFunc(w.dead, func(d keptLetter) bool {
		return d.isOf(in, s, of) && !d.Alert.Resolved && (!t.at.After(d.Alert.Enqueued) || d.refused() &&
			t.at.Before(d.at.Add(rule.Window)))
	})
}

// scattered reports whether a device has sent to two places: what it is in one says nothing about the other.
func (w *world) scattered(device string) bool {
	return slices.ContainsFunc(w.readings, func(r reading) bool {
		return r.device == device && (r.fate == byHTTP || r.partition != w.home(device))
	})
}

// judgeRecovery checks that a recovery which is being sent is not about a device that is hot again by what the hub
// held when the owner took over.
func (p *process) judgeRecovery(a notify.Alert) {
	i := slices.IndexFunc(p.logs, func(l *hubLog) bool { return l.id == a.Partition })
	s := subject{a.Rule, a.Level}
	if i < 0 || p.owners[i] == nil || !a.Resolved || a.Silent > 0 || a.Removed || !p.steady(s) ||
		!p.isClear(a.Device, time.Now()) {
		return
	}
	o := p.owners[i]
	if int64(o.held) <= a.Sequence || time.Since(o.began) > 50*second {
		return
	}
	if p.follow(o.log, s, a.Device)[o.held].phase == "open" {
		p.violated("P2: the recovery of %s %s of %d is sent, and it is open after what the hub held at the take-over, %d",
			a.Device, s, a.Sequence, o.held)
	}
}

// judgeOwner checks that a notice which was due is not sent under a claim that was made after another owner had taken
// the partition over: that one may know better.
func (p *process) judgeOwner(a notify.Alert) {
	i := slices.IndexFunc(p.logs, func(l *hubLog) bool { return l.id == a.Partition })
	if i < 0 || p.owners[i] == nil || !a.Resolved && a.Silent == 0 {
		return
	}
	claimed := a.Expires.Add(-throttle.ClaimTTL(sendTimeout))
	reigns := p.logs[i].reigns
	mine := slices.IndexFunc(reigns, func(r reign) bool { return r.owner == p.owners[i] })
	for _, r := range reigns[mine+1:] {
		if mine >= 0 && r.owner.stateful() && r.at.Before(claimed) {
			p.violated("P2: %s sends %s under a claim of %v, and %s has taken the partition over at %v", p.name, tell(a),
				claimed.Sub(p.start), r.owner.name, r.at.Sub(p.start))
			return
		}
	}
}

// judgeChoking checks that an alert because of which a receiver fails goes alone, once it has failed a message for many
// again after the receiver had taken another one.
func (p *process) judgeChoking(in *inbox, alerts []notify.Alert) {
	if !p.orderly() || !slices.ContainsFunc(alerts, func(a notify.Alert) bool { return a.Device != in.chokes }) {
		return
	}
	taken := len(in.all)
	for _, a := range alerts {
		key := a.Replica + " " + a.Source + " " + a.ID
		was, again := in.choked[key]
		if a.Device != in.chokes || again && was.taken == taken {
			continue
		}
		if was.times == 2 {
			p.violated("D4: %s fails messages for many again and again because of %s", in.name, tell(a))
		}
		in.choked[key] = choking{was.times + 1, taken}
	}
}
