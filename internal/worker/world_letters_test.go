package worker_test

import (
	"slices"
	"strings"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

// What is given up, judged by itself: why, how early, and how often.

func (d keptLetter) isOf(in *inbox, s subject, of matter) bool {
	return d.Receiver == in.name && d.Alert.Rule == s.rule && d.Alert.Level == s.level &&
		arrival{Alert: d.Alert}.matter() == of
}

func (d keptLetter) refused() bool { return strings.HasPrefix(d.Reason, "refused") }

// takes reports whether a receiver takes an alert that comes alone, and as fast as alerts may.
func (in *inbox) takes(a notify.Alert) bool {
	return a.Device != in.refuses && in.limits.Rate.Every == 0
}

// judgeLetter checks that an alert was given up for a reason, and not too early: once in a window, as far as a
// replica knows, if the receiver refuses what is said of a device.
func (w *world) judgeLetter(d keptLetter) {
	s, of := subject{d.Alert.Rule, d.Alert.Level}, arrival{Alert: d.Alert}.matter()
	rule, _ := w.ever(s)
	for _, other := range w.dead {
		if w.covers(d, other) {
			w.violated("D1: %s %s is refused again %v after one that was", of.name, s, other.refusedAt.Sub(d.refusedAt))
		}
	}
	old := strings.HasPrefix(d.Reason, "not taken within")
	isOfEvent := d.Alert.Sequence > 0 && d.Alert.Device != notify.Hub
	late := old && isOfEvent && slices.ContainsFunc(w.logs, func(log *hubLog) bool { // it may have been so when it was read
		return log.id == d.Alert.Partition && !log.isReadAtOnce(d.Alert.Sequence)
	})
	for _, in := range w.inboxes {
		if in.name == d.Receiver && in.chokes != "" && in.chokes != d.Alert.Device && in.takes(d.Alert) && w.orderly() && !late {
			w.violated("D3: %s is given up, and %s fails because of %s: %s", tell(d.Alert), in.name, in.chokes, d.Reason)
		}
	}
	if !old {
		return
	}
	since := d.Alert.Enqueued
	// It could be sent only after the rule had been removed, unless the alarm had ended before. A silence that has ended with
	// its rule has the time of that.
	if d.Alert.Removed && !d.Alert.Forgotten && !rule.Silence() && !w.mayHaveEnded(d.Alert) {
		for _, log := range w.logs {
			for _, r := range log.reigns {
				if _, l := w.in(r.version, s); l == nil && log.id == d.Alert.Partition {
					since = r.at.Add(removedAfter)
					break
				}
			}
		}
	}
	if age := d.at.Sub(since); age < w.giveUp-second {
		w.violated("D2: %s was given up after %v as not taken within %v", tell(d.Alert), age, w.giveUp)
	}
}

// covers reports whether no alert may have been refused as other was, because d had been: by the same replica, which knows that
// d was kept, of the same device and matter, and within the window.
func (w *world) covers(d, other keptLetter) bool {
	a, b := d.Alert, other.Alert
	rule, _ := w.ever(subject{a.Rule, a.Level})
	ofBoth := other.Receiver == d.Receiver && b.Rule == a.Rule && b.Level == a.Level && b.Device == a.Device &&
		arrival{Alert: b}.matter() == arrival{Alert: a}.matter() && b.Replica == a.Replica && b.Partition == a.Partition && b.ID != a.ID
	if !ofBoth || rule.Silence() || rule.Resolved || a.Resolved || b.Resolved || !d.refused() || !other.refused() || !d.answered {
		return false
	}
	known := d.refusedAt
	if a.Partition == "http" { // two may be on their way at once, and the second is refused while the first is kept
		known = d.at
	}
	claimed := b.Expires.Add(-throttle.ClaimTTL(sendTimeout))
	if a.Partition == "http" && !w.orderly() && !b.Enqueued.After(known) { // its claim may have been slow, and on its way before
		return false
	}
	// An alarm that opens after a take-over is told whatever was refused before: a former owner may have sent its end.
	opensAnew := rule.Stateful() && w.takenOver(a.Partition, d.refusedAt, claimed)
	return claimed.After(known) && other.refusedAt.Before(d.refusedAt.Add(rule.Window)) && !opensAnew
}

// takenOver reports whether somebody has taken a partition over between two times.
func (w *world) takenOver(partition string, from, to time.Time) bool {
	return slices.ContainsFunc(w.logs, func(log *hubLog) bool {
		return log.id == partition && slices.ContainsFunc(log.reigns, func(r reign) bool { return r.at.After(from) && !r.at.After(to) })
	})
}

// mayHaveEnded reports whether the reading that a recovery is about may have ended the alarm, and not the removal of its rule.
func (w *world) mayHaveEnded(a notify.Alert) bool {
	i := slices.IndexFunc(w.logs, func(l *hubLog) bool { return l.id == a.Partition })
	f := w.follow(w.logs[i], subject{a.Rule, a.Level}, a.Device)[a.Sequence]
	return f.owed == a.Sequence || f.owed == -1
}
