package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/ledger"
	"alertworker/internal/records"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
)

// A fact is what the log alone says about one level of one device after an event: the table of
// What doc.go says of alarms once more, written down without package rules.
type fact struct {
	phase string    // normal, pending or open
	since time.Time // unless normal
	own   time.Time // since, by the device's clock; zero if it has none
	shown time.Time // since, by the clock that the event is compared by
	tells bool      // at this event
	owed  int64     // the event that cleared the last alarm, if it has not opened again since
	over  time.Time // since, of the alarm that owed cleared
}

// facts returns the fact after each event, by its number; the first is that of no event.
func (w *world) facts(device string, level int) []fact {
	l := w.rule.Levels[level]
	all := []fact{{phase: "normal"}}
	var higher []fact
	if level+1 < len(w.rule.Levels) {
		higher = w.facts(device, level+1)
	}
	values := w.values()
	for i, e := range w.log {
		f := all[i]
		f.tells = false
		if w.wasUnseen(e.Sequence) {
			if f.phase == "pending" {
				f.phase, f.since, f.own = "normal", time.Time{}, time.Time{}
			}
		} else if e.Device == device {
			hot, cool := values[i] >= l.Limit, values[i] < l.Clear
			if f.phase == "open" && cool {
				f = fact{phase: "normal", owed: e.Sequence, over: f.at(i, w)[1]}
			}
			if f.phase == "pending" && !hot {
				f.phase, f.since, f.own = "normal", time.Time{}, time.Time{}
			}
			if f.phase == "normal" && hot {
				f.phase, f.since, f.own = "pending", e.Enqueued, w.deviceTime(i)
			}
			at := f.at(i, w)
			f.shown = at[1]
			if f.phase == "pending" && !at[0].Before(at[1].Add(l.For)) {
				f.phase, f.owed, f.over = "open", 0, time.Time{}
			}
			f.tells = f.phase == "open" && (hot || higher != nil && higher[i].phase == "open") && (higher == nil || higher[i+1].phase != "open")
		}
		if !w.rule.Resolved {
			f.owed, f.over = 0, time.Time{}
		}
		all = append(all, f)
	}
	return all
}

// at returns when event i was, and the beginning of the alarm, by one clock.
func (f *fact) at(i int, w *world) [2]time.Time {
	if own := w.deviceTime(i); !own.IsZero() && !f.own.IsZero() && !own.Before(f.own) {
		return [2]time.Time{own, f.own}
	}
	return [2]time.Time{w.log[i].Enqueued, f.since}
}

// deviceTime returns the time that the device of event i gives it, zero if none.
func (w *world) deviceTime(i int) time.Time {
	if late := w.readings[i].late; late >= 0 {
		return w.log[i].Enqueued.Add(-late)
	}
	return time.Time{}
}

// wasUnseen reports whether an event was read while rules with state were turned off.
func (w *world) wasUnseen(sequence int64) bool {
	for _, u := range w.unseen {
		if sequence > u[0] && sequence <= u[1] {
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

// everOff reports whether an owner had no rules with state.
func (w *world) everOff() bool {
	return slices.ContainsFunc(w.takeovers, func(t takeover) bool { return t.off })
}

func (w *world) values() (values []float64) {
	for _, r := range w.readings {
		values = append(values, r.value)
	}
	return values
}

// each calls do for every device and level.
func (w *world) each(do func(device string, level int, facts []fact)) {
	for _, device := range devices[:w.devices] {
		for level := range w.rule.Levels {
			do(device, level, w.facts(device, level))
		}
	}
}

// alarmOf returns what a ledger has of a device's level.
func (w *world) alarmOf(c ledger.Content, device string, level int) (f fact) {
	f.phase = "normal"
	for _, a := range c.Alarms {
		if string(a.Device) != device || a.Level != w.rule.Levels[level].Name {
			continue
		}
		switch {
		case a.Open:
			f.phase = "open"
		case !a.Since.IsZero():
			f.phase = "pending"
		}
		f.since, f.own = a.Since, a.DeviceSince
		if a.Due != nil {
			f.owed, f.over = a.Due.Sequence, a.Due.Since
		}
	}
	return f
}

// wrote records a ledger that was written, and checks that it is what the log says. The
// caller holds w.mu.
func (w *world) wrote(r records.Record) ledger.Content {
	c, err := unpack(r)
	if err != nil {
		w.violated("unreadable ledger: %v", err)
		return c
	}
	w.kept = c
	if w.rule.Silence() {
		return c
	}
	w.each(func(device string, level int, facts []fact) {
		got, want := w.alarmOf(c, device, level), facts[c.Position.Sequence]
		if got.phase != want.phase || !got.since.Equal(want.since) || !got.own.Equal(want.own) || !got.own.Equal(want.own) {
			w.violated("P4: the ledger at %d has %s level %d %s since %v, the log says %s since %v", c.Position.Sequence, device, level, got.phase, got.since, want.phase, want.since)
		}
		if got.owed != 0 && (got.owed != want.owed || !got.over.Equal(want.over)) {
			w.violated("P4: the ledger at %d owes %s level %d the resolved of %d, the log says %d", c.Position.Sequence, device, level, got.owed, want.owed)
		}
	})
	if w.checkpoint.Ledger != "" {
		w.checkpointed()
	}
	return c
}

// checkpointed checks that whoever starts now, from the later of the two positions, starts with what the log
// says. The caller holds w.mu.
func (w *world) checkpointed() {
	if w.rule.Silence() {
		return
	}
	p, at := w.kept.Position.Sequence, w.checkpoint.Sequence
	w.each(func(device string, level int, facts []fact) {
		if at <= p {
			return
		}
		got, want := w.alarmOf(w.kept, device, level), facts[at]
		if got.phase != want.phase || !got.since.Equal(want.since) || !got.own.Equal(want.own) || want.owed > p && got.owed != want.owed {
			w.violated("P4: the checkpoint at %d passes a change of %s level %d that the ledger at %d does not hold", at, device, level, p)
		}
	})
}

// check checks the end, after its last owner. The caller holds w.mu.
func (w *world) check(last *owner) {
	n := int64(len(w.log))
	if w.checkpoint.Sequence != n {
		w.violated("G2: the checkpoint ends at %d of %d", w.checkpoint.Sequence, n)
	}
	if w.rule.Silence() {
		w.checkSilences()
		return
	}
	w.each(func(device string, level int, facts []fact) {
		got, want := w.alarmOf(w.kept, device, level), facts[n]
		if !last.off && (got.phase != want.phase || !got.since.Equal(want.since) || !got.own.Equal(want.own) || got.owed != 0) {
			w.violated("P4: the last ledger has %s level %d %s, owed %d, the log says %s", device, level, got.phase, got.owed, want.phase)
		}
		for i := range w.inboxes {
			w.checkReceiver(i, device, level, facts)
		}
	})
}

// checkReceiver checks what one receiver heard of a device's level.
func (w *world) checkReceiver(receiver int, device string, level int, facts []fact) {
	in, name := w.inboxes[receiver], w.rule.Levels[level].Name
	who := strings.TrimSpace(device + " " + name)
	reopened := func(from, to time.Time) bool {
		for _, r := range w.reopened {
			if r.receiver == receiver && r.device == device && r.level == name && !r.at.Before(from) && !r.at.After(to) {
				return true
			}
		}
		return false
	}
	deadResolved := map[int64]bool{}
	lastDead := int64(0)
	var quiet time.Time // the end of the window that the dead letter of a refused alert began
	for _, d := range w.dead {
		switch {
		case d.Receiver != in.name || d.Alert.Device != device || d.Alert.Level != name:
		case d.Alert.Resolved:
			deadResolved[d.Alert.Sequence] = true
		default:
			lastDead = max(lastDead, d.Alert.Sequence)
			if strings.HasPrefix(d.Reason, "refused") {
				quiet = d.at.Add(w.rule.Window)
			}
		}
	}

	var last, lastAlert *arrival // that were not dropped
	var lastTaken time.Time      // the last alert that arrived, dropped or not
	lastResolved := int64(0)     // the greatest reading whose resolved arrived
	for i := range in.all {
		a := &in.all[i]
		if string(a.Device) != device || a.Level != name {
			continue
		}
		f := facts[a.Sequence]
		switch {
		case w.everOff(): // then some alerts were told without state
		case a.Resolved && (f.owed != a.Sequence || !f.over.Equal(a.Since)):
			w.violated("P4: receiver %d hears a resolved of %s of %d since %v, the log has none: %+v", receiver, who, a.Sequence, a.Since, f)
		case !a.Resolved && (!f.tells || !f.shown.Equal(a.Since)):
			w.violated("P4: receiver %d hears an alert of %s of %d since %v, the log has none: %+v", receiver, who, a.Sequence, a.Since, f)
		}
		if a.Resolved {
			lastResolved = max(lastResolved, a.Sequence)
		} else {
			lastTaken = a.heard
		}
		if a.dropped {
			continue
		}
		// An alert that arrives when its claim is over is a documented exception.
		if lastAlert != nil && a.at.Before(lastAlert.at.Add(w.rule.Window)) && !lastAlert.at.After(lastAlert.Expires) && !reopened(lastAlert.at, a.at) {
			if a.Resolved {
				w.violated("P3: receiver %d hears the resolved of %s %v after the alert", receiver, who, a.at.Sub(lastAlert.at))
			} else {
				w.violated("P1: receiver %d hears two alerts of %s within %v", receiver, who, a.at.Sub(lastAlert.at))
			}
		}
		if a.Resolved && last != nil && last.Resolved && (last.ID == a.ID && a.at.Before(last.at.Add(w.giveUp)) || last.ID != a.ID && lastDead == 0) {
			w.violated("P3: receiver %d hears two resolved of %s, of %d and %d, without an alert between them", receiver, who, last.Sequence, a.Sequence)
		}
		last = a
		if !a.Resolved {
			lastAlert = a
		}
	}

	if w.everOff() {
		return
	}
	// dead reports whether a dead letter stands for the reading at.
	dead := func(at int64) bool { return at <= lastDead || w.log[at-1].Enqueued.Before(quiet) }
	due := false
	for i, f := range facts {
		at := int64(i)
		if f.phase != "open" {
			due = false
		} else if f.tells && !dead(at) {
			due = true
		}
		if f.tells && !dead(at) && !w.log[at-1].Enqueued.Before(lastTaken.Add(w.rule.Window+w.slack())) && lastResolved < at {
			w.violated("G2: nothing settles the reading %d of %s for receiver %d", at, who, receiver)
		}
	}
	end := facts[len(facts)-1]
	switch {
	case end.phase == "open" && due && (last == nil || last.Resolved):
		w.violated("P2: %s is open, but that is not what receiver %d heard last", who, receiver)
	case end.phase != "open" && w.rule.Resolved && last != nil && !last.Resolved && !deadResolved[end.owed]:
		w.violated("P2: %s is not open, but receiver %d heard an alert last", who, receiver)
	}
}

const second = time.Second

// draw draws a plan. sends, others and moved are what may go wrong in it: sends to receivers, other calls, and what
// happens besides. off says that some owners have no rules with state.
func draw(t *rapid.T, sends, others, off bool, moved []int) plan {
	pick := func(name string, of ...time.Duration) time.Duration { return rapid.SampledFrom(of).Draw(t, name) }
	number := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
	p := plan{
		devices: max(1, number("devices", -1, 2)), receivers: max(1, number("receivers", -1, 2)), giveUp: pick("give up", 12*time.Hour, 12*time.Hour, 90*second),
		largest: number("batch", 1, 4), changes: number("changes", 1, 5),
	}
	p.rule = rules.Rule{Name: rules.DefaultName, Field: "temperature", Window: window, Resolved: number("resolved", 0, 9) < 9}
	values := []float64{35, 20, 35, 20, 27}
	p.rule.Levels = []rules.Level{{Limit: 30, Clear: 25}}
	if number("levels", 1, 4) == 4 {
		p.rule.Levels = []rules.Level{{Name: "warning", Limit: 30, Clear: 25}, {Name: "critical", Limit: 80, Clear: 75}}
		values = append(values, 90, 77)
	}
	for i := range p.rule.Levels {
		if p.rule.Levels[i].For = pick("for", 0, 0, 20*second); off {
			p.rule.Levels[i].For = 20 * second
		}
	}
	p.readings = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) planned {
		return planned{
			device: rapid.IntRange(0, p.devices-1).Draw(t, "device"), value: rapid.SampledFrom(values).Draw(t, "value"),
			gap:  rapid.SampledFrom([]time.Duration{0, second, 7 * second, 20 * second, 40 * second, 61 * second, 90 * second}).Draw(t, "gap"),
			late: rapid.SampledFrom([]time.Duration{-1, -1, 0, second, 21 * second, 10 * time.Minute}).Draw(t, "late"),
			lag:  rapid.SampledFrom([]time.Duration{0, 0, 0, second, 30 * second, 100 * second}).Draw(t, "lag"),
		}
	}), 1, 8).Draw(t, "readings")
	p.takeovers = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) takeover {
		return takeover{
			after: rapid.SampledFrom([]time.Duration{0, second, 15 * second, 40 * second, 3 * window}).Draw(t, "after"),
			slot:  rapid.IntRange(0, 1).Draw(t, "replica"),
			back:  rapid.SampledFrom([]int{0, 0, 0, 1, 3, 9}).Draw(t, "back"),
			opens: rapid.SampledFrom([]time.Duration{0, 700 * time.Millisecond}).Draw(t, "opens"),
		}
	}), 5, 5).Draw(t, "takeovers")
	for i := range p.takeovers {
		if off { // what was read without state must not be read again
			p.takeovers[i].off, p.takeovers[i].back = rapid.Bool().Draw(t, "off"), 0
		}
	}
	var kinds [][2]int // call and what happens to it
	for call := range calls {
		for what := range faultsOfSend {
			if what >= faultsOfAny && call != callSend {
				continue
			}
			if call == callSend && sends || call != callSend && others {
				kinds = append(kinds, [2]int{call, what})
			}
		}
	}
	if len(kinds) > 0 {
		p.faults = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fault {
			k := rapid.SampledFrom(kinds).Draw(t, "fault")
			return fault{
				call: k[0], what: k[1], nth: rapid.IntRange(0, 4).Draw(t, "nth"),
				for_: rapid.SampledFrom([]time.Duration{second, 6 * second, 15 * second, 30 * second, 55 * second, 100 * second}).Draw(t, "for"),
			}
		}), 0, 3).Draw(t, "faults")
		for i, f := range p.faults {
			if f.what == delayed {
				p.faults[i].for_ = min(f.for_, 55*second)
			}
		}
	}
	if len(moved) > 0 {
		p.moves = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) move {
			return move{
				at: time.Duration(rapid.IntRange(1, 60).Draw(t, "at")) * 3 * second, what: rapid.SampledFrom(moved).Draw(t, "move"),
				for_:   rapid.SampledFrom([]time.Duration{second, 15 * second, 50 * second, 100 * second, 5 * time.Minute}).Draw(t, "for"),
				device: rapid.IntRange(0, p.devices-1).Draw(t, "device"), level: rapid.IntRange(0, len(p.rule.Levels)-1).Draw(t, "level"),
				receiver: rapid.IntRange(0, p.receivers-1).Draw(t, "receiver"),
			}
		}), 0, 4).Draw(t, "moves")
	}
	return p
}

// Whatever fails, wherever an owner of the partition dies, and however long one that was
// replaced goes on: what receivers hear is what the log says. It runs the worker, the gates and the ledger as they are, on stores
// in memory whose calls fail in every way, in virtual time. -rapid.checks=10000 searches for longer.
func TestProtocol(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name               string
		sends, others, off bool
		moves              []int
	}{
		{"nothing fails", false, false, false, []int{handOver}},
		{"owners", false, false, false, []int{handOver, kill, steal, reopen}},
		{"windows", false, false, false, []int{handOver, reopen}},
		{"calls", false, true, false, nil},
		{"receivers", true, false, false, []int{kill, receiverDown}},
		{"replaced owners", true, true, false, []int{steal}},
		{"outages", false, false, false, []int{storeDown, ledgerDown, receiverDown, kill}},
		{"rules turned off", false, false, true, []int{handOver, kill}},
		{"anything", true, true, false, []int{handOver, kill, steal, reopen, storeDown, ledgerDown, receiverDown}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tries := 1 // pauses have jitter: what has failed once may need several
			rapid.Check(t, func(rt *rapid.T) {
				p := draw(rt, tt.sends, tt.others, tt.off, tt.moves)
				for range tries {
					if wrong := p.run(t); wrong != "" {
						tries = 5
						rt.Fatal(wrong)
					}
				}
			})
		})
	}
}

// run returns what is wrong after p, and how it came, empty if nothing is.
func (p plan) run(t *testing.T) string {
	set := rules.Set{Rules: []rules.Rule{p.rule}}
	decoder, err := set.Decoder()
	if err != nil {
		t.Fatal(err)
	}
	clock, err := rules.NewClock("body:at")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{plan: p, decoder: decoder, clock: clock}
	synctest.Test(t, func(t *testing.T) { w.run(t.Context()) })
	if len(w.wrong) == 0 {
		return ""
	}
	return fmt.Sprintf("%s\nresolved %v, levels %v, give up %v\nfaults %v\n%s", strings.Join(w.wrong, "\n"),
		p.rule.Resolved, p.rule.Levels, p.giveUp, p.faults, strings.Join(w.timeline, "\n"))
}

// Histories that chance finds seldom, each of which broke a rule when a line that it guards was
// taken out.
func TestRareHistories(t *testing.T) {
	one := []rules.Level{{Limit: 30, Clear: 25}}
	two := []rules.Level{{Name: "warning", Limit: 30, Clear: 25}, {Name: "critical", Limit: 80, Clear: 75}}
	for _, tt := range []struct {
		name   string
		for_   time.Duration
		levels []rules.Level
		plan   plan
	}{
		{"an opening reading does not ask the memory of windows", 0, one, plan{
			readings:  []planned{{value: 35}, {value: 20, gap: 20 * second}, {value: 35, gap: 20 * second}},
			takeovers: []takeover{{}, {slot: 1}, {}},
			moves:     []move{{at: 5 * second, what: handOver}, {at: 10 * second, what: reopen}, {at: 30 * second, what: handOver}},
		}},
		{"the ledger is asked under the claim: what opened was covered by the window that had just ended", 0, one, plan{
			readings:  []planned{{value: 35}, {value: 20, gap: 20 * second}, {value: 35, gap: 39 * second, lag: 1500 * time.Millisecond}},
			takeovers: []takeover{{}, {slot: 1, after: second}},
			faults:    []fault{{call: callAcquire, nth: 1, what: slow, for_: 2 * second}},
			moves:     []move{{at: 60_200 * time.Millisecond, what: steal, for_: 50 * second, deaf: true}},
		}},
		{"the claim for a resolved covers the readings before it", 0, one, plan{
			readings:  []planned{{value: 35}, {value: 20, gap: second}},
			takeovers: []takeover{{}, {slot: 1, after: second}},
			faults:    []fault{{call: callAcquire, nth: 0, what: frozenBefore, for_: 100 * second}, {call: callSend, nth: 1, what: slow, for_: 6 * second}},
			moves:     []move{{at: 64 * second, what: storeDown, for_: 30 * second}},
		}},
		{"a resolved of unknown fate keeps its id", 0, two, plan{
			readings: []planned{{value: 35}, {value: 20, gap: 70 * second}, {value: 90, gap: second / 5}, {value: 20, gap: second / 5}},
			faults:   []fault{{call: callSend, nth: 1, what: answerLost}},
		}},
		{"an alert that was given up is not told to somebody who did not hear that it is over", 0, one, plan{
			readings:  []planned{{value: 35}, {value: 20, gap: second}},
			takeovers: []takeover{{}, {slot: 1, after: second}},
			faults:    []fault{{call: callAcquire, nth: 0, what: frozenBefore, for_: 100 * second}, {call: callSend, nth: 0, what: refused}},
		}},
		{"what the ledger has settled is skipped before the first checkpoint", 20 * second, two, plan{
			readings: []planned{{value: 90, lag: 26 * second}, {value: 90, gap: 20 * second, lag: 6 * second}, {value: 27, lag: 6 * second}},
			faults:   []fault{{call: callLedgerWrite, nth: 1, what: killedAfter}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := tt.plan
			p.rule = rules.Rule{Name: rules.DefaultName, Field: "temperature", Window: window, Resolved: true, Levels: slices.Clone(tt.levels)}
			for i := range p.rule.Levels {
				p.rule.Levels[i].For = tt.for_
			}
			p.devices, p.receivers, p.giveUp, p.largest, p.changes = 1, 1, 12*time.Hour, 5, 5
			if wrong := p.run(t); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}
