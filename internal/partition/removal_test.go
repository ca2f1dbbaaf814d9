package partition

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"pgregory.net/rapid"

	"alertworker/internal/absence"
	"alertworker/internal/delivery"
	"alertworker/internal/ledger"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// An unsent is told of alerts, and delivers none.
type unsent struct{ alerts []string } // the number of the reading, its device, and its level

func (u *unsent) Alert(a *delivery.Alert) {
	u.alerts = append(u.alerts, fmt.Sprintf("%06d %s %s", a.Reading.Sequence, a.Device, a.Key.Topic.Message.Level))
}
func (*unsent) Give(delivery.Key, *delivery.Notice)     {}
func (*unsent) Withdraw(delivery.Key, *delivery.Notice) {}

// An exactReader reads a partition whose ledger a test writes. Events are numbered from 1.
type exactReader struct {
	register *register
	out      unsent
}

// exactEvaluator has two levels: between clear and limit, a reading alerts only if it ends the higher one.
func exactEvaluator(t *testing.T) *Evaluator {
	set := rules.Threshold("temperature", 30, time.Minute)
	set.Rules[0].Resolved = true
	set.Rules[0].Levels = []rules.Level{{Name: "warning", Limit: 30, Clear: 25}, {Name: "critical", Limit: 80, Clear: 75}}
	set.Rules = append(set.Rules, rules.Rule{Name: "offline", Silent: time.Hour, Forget: rules.DefaultForget, Resolved: true, Levels: []rules.Level{{}}})
	return benchRules(t, set).config.Evaluator
}

// newExactReader returns a reader that calls meanwhile before each malformed event, with the position before it, and its
// own.
func newExactReader(ev *Evaluator, meanwhile func(before, at telemetry.Position)) *exactReader {
	r := &exactReader{}
	reg := newRegister(ev, "0", "log", 20)
	reg.out = &r.out
	reg.last.until, reg.last.untilStore = time.Now(), time.Now()
	reg.last.mayHaveRead = math.MaxInt64 // everybody may have been alerted, as the next owner will take it
	reg.watch(nil, zap.NewNop())
	reg.unread = func(before telemetry.Position, e *telemetry.Event, _ telemetry.Reason) {
		meanwhile(before, e.Position)
	}
	r.register = reg
	return r
}

func exactPosition(sequence int64) telemetry.Position {
	if sequence == 0 { // nothing comes before the first event
		return telemetry.Position{}
	}
	return telemetry.Position{Generation: "g", Sequence: sequence, Offset: "x", Time: time.Unix(1_800_000_000+sequence, 0)}
}

func exactEvent(sequence int64, device, value string) telemetry.Event {
	p := exactPosition(sequence)
	return telemetry.Event{Position: p, Enqueued: p.Time, Device: device, Body: []byte(`{"temperature":` + value + `}`)}
}

// decided returns the alarms of devices that nobody removes, and their alerts about readings after one.
func (r *exactReader) decided(after int64) (all []string) {
	for key, k := range r.register.alarms.byKey {
		if key.about.Device != "gone" {
			all = append(all, fmt.Sprint(key.about.Device, " ", key.level.Name, " ", k.Phase, " since ", k.Since.Hub, " due ", k.due != nil))
		}
	}
	for _, alert := range r.out.alerts {
		if alert > fmt.Sprintf("%06d", after+1) && alert[7:11] != "gone" {
			all = append(all, alert)
		}
	}
	slices.Sort(all)
	return all
}

// overtaken returns an alert about the removed device that was about a later reading than the recovery that is due now.
func (r *exactReader) overtaken() string {
	for key, k := range r.register.alarms.byKey {
		if key.about.Device != "gone" || k.due == nil || k.due.Part != throttle.Event {
			continue
		}
		for _, alert := range r.out.alerts {
			if alert > fmt.Sprintf("%06d", k.due.Reading.Sequence+1) && strings.HasSuffix(alert, " gone "+key.level.Name) {
				return fmt.Sprintf("the recovery of %s is about event %d, and the alert was %q", key.level.Name, k.due.Reading.Sequence, alert)
			}
		}
	}
	return ""
}

// restart returns what decided is of the next owner, which begins with a ledger and reads the log on from there.
func restart(ev *Evaluator, c ledger.Content, log []telemetry.Event) []string {
	next := newExactReader(ev, func(telemetry.Position, telemetry.Position) {})
	next.register.last.settled, next.register.mark.last = c.Position, c.Position
	for _, a := range c.Alarms {
		next.register.restore(a, false)
	}
	for _, e := range log[c.Position.Sequence:] {
		next.register.take([]telemetry.Event{e})
	}
	return next.decided(c.Position.Sequence)
}

// A device is forgotten by the goroutine that commits just when the reader has decided about another one: the ledger
// must not say of an earlier position what that decision has changed.
func TestAlertIsNotLostIfADeviceIsForgottenMeanwhile(t *testing.T) {
	ev := exactEvaluator(t)
	for name, forget := range map[string]func(r *exactReader){
		"nobody":                 func(*exactReader) {},
		"it was silent too long": func(r *exactReader) { r.register.Unwatched(sensor.Of("gone")) },
		"an operator removed it": func(r *exactReader) { r.register.remove(sensor.Of("gone"), true) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newExactReader(ev, func(telemetry.Position, telemetry.Position) {})
			log := []telemetry.Event{exactEvent(1, "gone", "90"), exactEvent(2, "oven", "90"), exactEvent(3, "oven", "27")}
			r.register.take(log[:2])
			r.register.alarms.history.seal() // a tick, whose write fails
			r.register.message.Read(&log[2])
			r.register.message.evaluate(r.register, log[1].Position) // the critical level ends, and the warning alerts
			r.register.mark.last = log[2].Position
			forget(r)

			p, _ := r.register.alarms.history.reach(exactPosition(2)) // that alert is not settled
			if got, want := restart(ev, r.register.alarms.history.content(p), log), r.decided(p.Sequence); !slices.Equal(got, want) {
				t.Errorf("who begins with the ledger of %d has %q, want %q", p.Sequence, got, want)
			}
		})
	}
}

// A silence ends by an event that the ledger has passed, because its owner did not hear it: the ledger does not go back for
// that. By a later event it ends once the watermark is there.
func TestSilenceEndsBehindTheLedger(t *testing.T) {
	ev := exactEvaluator(t)
	gone, passed := sensor.Of("gone"), exactPosition(5)
	for name, tt := range map[string]struct {
		last lastOwner
		at   int64
		ends bool
	}{
		"that is settled":    {lastOwner{settled: passed}, 3, true},
		"that is read again": {lastOwner{replayed: passed}, 3, true},
		"that is new":        {lastOwner{settled: passed, replayed: passed}, 6, false},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newExactReader(ev, func(telemetry.Position, telemetry.Position) {}).register
			reg.last, reg.mark.last = tt.last, passed
			h := &reg.alarms.history
			h.position = passed
			key := alarmKey{gone, ev.silences[0].levels[0]}
			k := alarm{State: rules.State{Phase: rules.Open}, alerted: everybody, sequence: 1}
			reg.alarms.set(key, k)
			h.keep(key, k)
			reg.Heard(0, gone, exactPosition(tt.at-1), exactPosition(tt.at))
			p, behind := h.reach(passed)
			c := h.content(p)
			if p != passed || behind != tt.ends || len(c.Alarms) != 1 || c.Alarms[0].Open == tt.ends || (c.Alarms[0].Due != nil) != tt.ends {
				t.Errorf("the ledger at %d is to be written: %v; it has %+v", p.Sequence, behind, c.Alarms)
			}
		})
	}
}

// Without room for one more alarm a silence opens none, unless its device has one whose recovery is due.
func TestNoRoomForASilence(t *testing.T) {
	ev := exactEvaluator(t)
	reg := newExactReader(ev, func(telemetry.Position, telemetry.Position) {}).register
	l := ev.silences[0].levels[0]
	for i := range maxAlarms - 1 {
		reg.alarms.byKey[alarmKey{sensor.Of(strconv.Itoa(i)), l}] = alarm{due: &dueNotice{}}
	}
	if !reg.FellSilent(0, absence.Silence{Of: sensor.Of("last")}) || reg.FellSilent(0, absence.Silence{Of: sensor.Of("one more")}) {
		t.Error("the last one has no room, or another one has")
	}
	for range 2 { // which says so again
		if !reg.FellSilent(0, absence.Silence{Of: sensor.Of("0")}) {
			t.Error("a device that had an alarm has no room")
		}
	}
	if n := ev.book.Counters.Untracked.Load(); n != 1 {
		t.Errorf("%d are counted that have no room", n)
	}
}

// Whatever ends, also in the middle of a batch: segments, the ledger and the checkpoint never move back, whoever begins
// with the ledger reads the rest again and decides the same, and a recovery comes after the alerts before it.
func TestLedgerIsExactWhateverEndsMeanwhile(t *testing.T) {
	ev := exactEvaluator(t)
	rapid.Check(t, func(t *rapid.T) {
		var r *exactReader
		var log []telemetry.Event
		var kept ledger.Content
		var w telemetry.Position // never moves back
		h := func() *history { return &r.register.alarms.history }
		tick := func() {
			w = exactPosition(rapid.Int64Range(w.Sequence, r.register.mark.last.Sequence).Draw(t, "watermark"))
			p, behind := h().reach(w)
			if p.Sequence < h().position.Sequence || p.Sequence > max(w.Sequence, h().position.Sequence) {
				t.Fatalf("the ledger moves from %d to %d, with the watermark at %d", h().position.Sequence, p.Sequence, w.Sequence)
			}
			if behind && rapid.Bool().Draw(t, "succeeds") {
				kept = h().content(p)
				h().edited = false
				h().wrote(p)
			}
			c := h().safe(w)
			if c.Sequence < r.register.committed.Sequence {
				t.Fatalf("the checkpoint moves back from %d to %d, with the watermark at %d", r.register.committed.Sequence, c.Sequence, w.Sequence)
			}
			r.register.committed = c
		}
		// what other goroutines do, with no lock of the reader's but the register's
		others := map[string]func(){
			"nothing": func() {},
			"tick":    tick,
			"forget":  func() { r.register.Unwatched(sensor.Of("gone")) },
			"remove":  func() { r.register.remove(sensor.Of("gone"), rapid.Bool().Draw(t, "known")) },
		}
		meanwhile := func() {
			others[rapid.SampledFrom([]string{"nothing", "tick", "forget", "remove"}).Draw(t, "meanwhile")]()
		}
		r = newExactReader(ev, func(before, at telemetry.Position) {
			key := alarmKey{sensor.Of("gone"), r.register.evaluator.silences[0].levels[0]}
			if r.register.alarms.byKey[key].Phase == rules.Open { // the watch says so before the event is decided
				r.register.Heard(0, sensor.Of("gone"), before, at)
			}
			meanwhile()
		})

		t.Repeat(map[string]func(*rapid.T){
			"batch": func(t *rapid.T) {
				n := len(log)
				for range rapid.IntRange(1, 5).Draw(t, "events") {
					device := rapid.SampledFrom([]string{"oven", "kiln", "gone"}).Draw(t, "device")
					value := rapid.SampledFrom([]string{"20", "27", "35", "90", `"?"`, `"?"`}).Draw(t, "value")
					log = append(log, exactEvent(int64(len(log)+1), device, value))
				}
				r.register.take(log[n:])
			},
			"silent": func(*rapid.T) {
				at := r.register.mark.last
				r.register.FellSilent(0, absence.Silence{Of: sensor.Of("gone"), Since: roster.Place{Sequence: at.Sequence, Time: at.Time.UnixMilli()}})
			},
			"meanwhile": func(*rapid.T) { meanwhile() },
			"": func(t *rapid.T) {
				for i := 1; i < len(h().segments); i++ {
					was, s := h().segments[i-1], h().segments[i]
					if s.last.Sequence < was.last.Sequence || s.before.Sequence < was.before.Sequence {
						t.Fatalf("a segment from %d to %d follows one from %d to %d", s.before.Sequence, s.last.Sequence, was.before.Sequence, was.last.Sequence)
					}
				}
				if wrong := r.overtaken(); wrong != "" {
					t.Fatal(wrong)
				}
				if got, want := restart(ev, kept, log), r.decided(kept.Position.Sequence); !slices.Equal(got, want) {
					t.Fatalf("who begins with the ledger of %d has %q, want %q", kept.Position.Sequence, got, want)
				}
			},
		})
	})
}
