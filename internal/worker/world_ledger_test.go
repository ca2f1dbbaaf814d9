package worker_test

import (
	"time"

	"alertworker/internal/ledger"
	"alertworker/internal/sensor"
)

// What replicas keep of alarms, judged whenever it is written by what the log says up to there. It knows nothing of
// receivers.

// judgeLedger checks that a ledger which was just written holds what the log says.
func (w *world) judgeLedger(log *hubLog) {
	at := log.kept.Position.Sequence
	w.eachAlarm(func(s subject, device string) {
		got, want := alarmOf(log.kept, s, w.id(device)), w.follow(log, s, device)[at]
		if !got.is(want) {
			w.violated("P4: the ledger of %s at %d has %s %s %s since %v, the log says %s since %v", log.id, at, device, s,
				got.phase, got.since, want.phase, want.since)
		}
		if r, _ := w.ever(s); r.Repeat > 0 && want.opened != 0 && got.opened != want.opened {
			w.violated("P4: the ledger of %s at %d has %s %s open since the event %d, the log says %d", log.id, at, device, s,
				got.opened, want.opened)
		}
		if got.owed != 0 && (got.owed != want.owed || !got.over.Equal(want.over)) {
			w.violated("P4: the ledger of %s at %d owes %s %s the recovery of %d, the log says %d", log.id, at, device, s,
				got.owed, want.owed)
		}
	})
	if log.checkpoint.Ledger != "" {
		w.judgeCheckpoint(log)
	}
}

// judgeCheckpoint checks that whoever starts now, from the later of the ledger and the checkpoint, starts with what
// the log says.
func (w *world) judgeCheckpoint(log *hubLog) {
	from, at := log.kept.Position.Sequence, log.checkpoint.Sequence
	if at <= from {
		return
	}
	w.eachAlarm(func(s subject, device string) {
		got, want := alarmOf(log.kept, s, w.id(device)), w.follow(log, s, device)[at]
		if !got.is(want) || want.owed > from && got.owed != want.owed {
			w.violated("P4: the checkpoint of %s at %d passes a change of %s %s that the ledger at %d does not hold", log.id,
				at, device, s, from)
		}
	})
}

// eachAlarm calls do for every device and level about readings that has been in all versions.
func (w *world) eachAlarm(do func(s subject, device string)) {
	for _, s := range w.subjects() {
		if r, _ := w.ever(s); r.Silence() || !w.steady(s) {
			continue
		}
		for _, device := range w.devices {
			if w.isClear(device, time.Now()) {
				do(s, device)
			}
		}
	}
}

func (now state) is(want state) bool {
	return now.phase == want.phase && now.since.Equal(want.since) && now.own.Equal(want.own) && now.newest.Equal(want.newest) &&
		now.clear.Equal(want.clear) && now.clears.Equal(want.clears)
}

// alarmOf returns what a ledger has of a device's level.
func alarmOf(c ledger.Content, s subject, of sensor.ID) (f state) {
	f.phase = "normal"
	for _, a := range c.Alarms {
		if a.Of() != of || a.Rule != s.rule || a.Level != s.level {
			continue
		}
		switch {
		case a.Open:
			f.phase = "open"
		case !a.Since.IsZero():
			f.phase = "pending"
		}
		f.since, f.own, f.newest = a.Since, a.DeviceSince, a.DeviceNewest
		f.clear, f.clears = a.Cleared, a.DeviceCleared
		f.opened = a.Sequence
		if a.Due != nil {
			f.owed, f.over = a.Due.Sequence, a.Due.Since
		}
	}
	return f
}
