package worker_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/ledger"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
)

// shortSilence is how long devices of the world may be silent.
const shortSilence = 60 * second

// checkSilences checks what must hold of silences, at an end at which every device has been silent for a long time: S1 none
// false, S2 none lost, S3 what a receiver heard last is what is, S4 the alarms are what the log says. The
// caller holds w.mu.
func (w *world) checkSilences() {
	for _, device := range devices[:w.devices] {
		if w.alive {
			w.checkAlive(device)
			continue
		}
		heard := w.lastOf(device, int64(len(w.log)))
		if heard == 0 {
			continue
		}
		i := slices.IndexFunc(w.kept.Alarms, func(a ledger.Alarm) bool { return string(a.Device) == device })
		if i < 0 || !w.kept.Alarms[i].Open || w.kept.Alarms[i].Sequence < heard || w.kept.Alarms[i].Due != nil {
			w.violated("S4: %s is silent since %d, and the last ledger has %+v", device, heard, w.kept.Alarms)
			continue
		}
		for receiver := range w.inboxes {
			w.checkSilence(receiver, device, w.kept.Alarms[i])
		}
	}
}

// checkAlive checks that nobody takes a device for silent that was heard for longer than any window lasts. The caller
// holds w.mu.
func (w *world) checkAlive(device string) {
	for _, a := range w.kept.Alarms {
		if string(a.Device) == device {
			w.violated("S4: %s is heard, and the last ledger has %+v", device, a)
		}
	}
	for _, in := range w.inboxes {
		dead := slices.ContainsFunc(w.dead, func(d keptLetter) bool {
			return d.Receiver == in.name && d.Alert.Device == device && d.Alert.Resolved
		})
		var last *arrival
		for i := range in.all {
			a := &in.all[i]
			if a.Device != device {
				continue
			}
			if !a.Resolved {
				w.checkFalse(a)
			}
			if !a.dropped {
				last = a
			}
		}
		if w.rule.Resolved && !dead && last != nil && !last.Resolved {
			w.violated("S3: %s is heard, and %s heard last that it is silent since %d", device, in.name, last.Sequence)
		}
	}
}

// lastOf returns the last event of a device up to the nth, 0 if there is none.
func (w *world) lastOf(device string, n int64) int64 {
	for ; n > 0; n-- {
		if w.log[n-1].Device == device {
			return n
		}
	}
	return 0
}

// checkSilence checks what one receiver heard of a device, which is silent at the end.
func (w *world) checkSilence(receiver int, device string, alarm ledger.Alarm) {
	in := w.inboxes[receiver]
	reopened := func(from, to time.Time) bool {
		return slices.ContainsFunc(w.reopened, func(r reopening) bool {
			return r.receiver == receiver && r.device == device && !r.at.Before(from) && !r.at.After(to)
		})
	}
	dead := int64(0)
	for _, d := range w.dead {
		if d.Receiver == in.name && d.Alert.Device == device && !d.Alert.Resolved {
			dead = max(dead, d.Alert.Sequence)
		}
	}
	undisturbed := len(w.faults) == 0 && !slices.ContainsFunc(w.moves, func(m move) bool { return m.what != handOver })
	var last, silence *arrival // that were not dropped
	var taken time.Time        // the last silence that arrived, dropped or not
	for i := range in.all {
		a := &in.all[i]
		if a.Device != device {
			continue
		}
		if a.Resolved {
			if c := w.lastOf(device, a.Sequence); c != a.Sequence {
				w.violated("S4: receiver %d hears that %s is heard again by %d, which is not its event", receiver, device, a.Sequence)
			}
		} else {
			w.checkFalse(a)
			taken = a.heard
		}
		if a.dropped {
			continue
		}
		if silence != nil && a.at.Before(silence.at.Add(w.rule.Window)) && !silence.at.After(silence.Expires) && !reopened(silence.at, a.at) {
			w.violated("S3: receiver %d hears of %s again %v after a silence (recovery: %v)", receiver, device, a.at.Sub(silence.at), a.Resolved)
		}
		switch {
		case a.Resolved && last != nil && last.Resolved && last.ID != a.ID && undisturbed: // else a silence between them may have been claimed, and its fate not known
			w.violated("S3: receiver %d hears two recoveries of %s, by %d and %d, without a silence between them", receiver, device, last.Sequence, a.Sequence)
		case a.Resolved && last == nil && undisturbed:
			w.violated("S3: receiver %d hears a recovery of %s by %d, and heard of no silence", receiver, device, a.Sequence)
		case !a.Resolved && silence != nil && a.Sequence <= silence.Sequence && undisturbed:
			w.violated("S3: receiver %d hears of %s, silent since %d, after it was silent since %d", receiver, device, a.Sequence, silence.Sequence)
		}
		if last = a; !a.Resolved {
			silence = a
		}
	}
	if alarm.Sequence <= dead {
		return
	}
	deadline := alarm.Since.Add(shortSilence)
	switch {
	case last == nil || last.Resolved:
		w.violated("S2: %s is silent since %d, and receiver %d did not hear that last", device, alarm.Sequence, receiver)
	case silence.Sequence < alarm.Sequence && !deadline.Before(taken.Add(w.rule.Window+w.slack())):
		w.violated("S2: %s is silent since %d, and receiver %d heard of %d only, in a window that was over", device, alarm.Sequence, receiver, silence.Sequence)
	}
}

// checkFalse checks that a silence is true: S1.
func (w *world) checkFalse(a *arrival) {
	claimed := a.Expires.Add(-throttle.ClaimTTL(sendTimeout))
	for _, e := range w.log {
		if e.Device != a.Device || e.Sequence <= a.Sequence {
			continue
		}
		if !e.Enqueued.After(a.Enqueued) {
			w.violated("S1: %s is silent since %d until %v, and the hub took %d at %v", a.Device, a.Sequence, a.Enqueued.Sub(w.start), e.Sequence, e.Enqueued.Sub(w.start))
		}
		if e.Enqueued.Before(claimed.Add(-30*second - 5*second)) { // as old as a proof may be, and its margin
			w.violated("S1: %s is told to be silent since %d under a claim of %v, and the hub took %d at %v", a.Device, a.Sequence, claimed.Sub(w.start), e.Sequence, e.Enqueued.Sub(w.start))
		}
	}
	if got := a.Enqueued.Sub(w.log[a.Sequence-1].Enqueued); got < shortSilence {
		w.violated("S1: %s is told to be silent since %d after %v", a.Device, a.Sequence, got)
	}
}

// silences makes a plan for readings one for messages, which a rule about silence watches.
func (p *plan) silences(t *rapid.T) {
	p.rule = rules.Rule{
		Name: "offline", Window: rapid.SampledFrom([]time.Duration{60 * second, 120 * second}).Draw(t, "window"), Resolved: p.rule.Resolved,
		Forget: rules.DefaultForget, Silent: shortSilence, Levels: []rules.Level{{}},
	}
	p.alive = rapid.Bool().Draw(t, "alive")
	for i := range p.readings {
		p.readings[i].lag = 0
		p.readings[i].gap = rapid.SampledFrom([]time.Duration{second, 20 * second, 50 * second, 65 * second, 90 * second, 200 * second}).Draw(t, "gap")
	}
	for i := range p.moves {
		p.moves[i].at *= 3
		p.moves[i].level = 0
	}
}

// Whatever fails, silences are never false and never lost: as TestProtocol is for readings.
func TestSilenceProtocol(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		sends, others bool
		moves         []int
	}{
		{"owners", false, false, []int{handOver, kill, steal, reopen}},
		{"calls", true, true, []int{steal}},
		{"anything", true, true, []int{handOver, kill, steal, reopen, storeDown, ledgerDown, receiverDown}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tries := 1 // pauses have jitter: what has failed once may need several
			rapid.Check(t, func(rt *rapid.T) {
				p := draw(rt, tt.sends, tt.others, false, tt.moves)
				p.silences(rt)
				for range tries {
					if wrong := p.run(t); wrong != "" {
						tries = 5
						rt.Fatal(fmt.Sprint(wrong))
					}
				}
			})
		})
	}
}
