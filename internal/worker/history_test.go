package worker

import (
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/ledger"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// Whatever the watermark does, what goes into the ledger is what the log gives at
// the ledger's position, and the checkpoint passes no change that the ledger lacks.
func TestHistoryIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := watermark{}
		h := history{kept: map[alarmKey]kept{}, bound: rapid.IntRange(2, 20).Draw(t, "bound")}
		levels := []*level{{}, {}}
		truth := []map[alarmKey]kept{{}} // by sequence number
		at := func(sequence int64) telemetry.Position { return telemetry.Position{Sequence: sequence, Offset: "x"} }
		var open []*entry
		var batch int64
		store := map[alarmKey]kept{} // the ledger's content
		check := func(p telemetry.Position, kept map[alarmKey]kept) {
			if p.Sequence < h.position.Sequence {
				t.Fatalf("the ledger moves back from %d to %d", h.position.Sequence, p.Sequence)
			}
			if !maps.Equal(kept, truth[p.Sequence]) {
				t.Fatalf("the ledger at %d has %v, the log gives %v", p.Sequence, kept, truth[p.Sequence])
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"batch": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "events") {
					before := int64(len(truth) - 1)
					now := maps.Clone(truth[before])
					if rapid.IntRange(0, 2).Draw(t, "unsettled") == 0 {
						e := w.admit(at(before), 0)
						e.pending = 1
						open = append(open, e)
					}
					for range rapid.IntRange(0, 2).Draw(t, "changes") {
						key := alarmKey{rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "device"), rapid.SampledFrom(levels).Draw(t, "level")}
						k := kept{State: rules.State{Phase: rules.Phase(rapid.IntRange(0, 2).Draw(t, "phase"))}}
						if k.Phase != rules.Normal {
							k.Since = before
						}
						if k == (kept{}) {
							delete(now, key)
						} else {
							now[key] = k
						}
						h.change(key, k, at(before), before+1, w.newest(), batch)
					}
					truth = append(truth, now)
				}
				w.read(at(int64(len(truth) - 1)))
				batch++
			},
			"settle": func(t *rapid.T) {
				if len(open) == 0 {
					return
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				w.settle(open[i])
				open = append(open[:i], open[i+1:]...)
			},
			"write": func(t *rapid.T) {
				p := h.reach(w.position())
				if p.Sequence > w.position().Sequence {
					t.Fatalf("the ledger's position %d is after the watermark %d", p.Sequence, w.position().Sequence)
				}
				check(p, h.kept)
				if h.behind() && rapid.Bool().Draw(t, "succeeds") {
					store = maps.Clone(h.kept)
					h.wrote(p, h.edits)
				}
			},
			"": func(t *rapid.T) {
				c := h.safe(w.position())
				for p := h.position.Sequence; p <= c.Sequence; p++ {
					if !maps.Equal(store, truth[p]) {
						t.Fatalf("the checkpoint may be at %d, where the log gives %v, but the ledger has %v", c.Sequence, truth[p], store)
					}
				}
				changes := 0
				for _, s := range h.segments {
					changes += len(s.changes)
				}
				if changes != h.changes {
					t.Fatalf("%d changes, counted %d", changes, h.changes)
				}
				if h.changes > h.bound+12 && len(h.segments) > 1 {
					t.Fatalf("%d changes in %d segments", h.changes, len(h.segments))
				}
			},
		})
		for _, e := range open {
			w.settle(e)
		}
		if p := h.reach(w.position()); p != w.position() || len(h.segments) != 0 || h.changes != 0 {
			t.Fatalf("all is settled, and the ledger would be at %d of %d with %d segments", p.Sequence, w.position().Sequence, len(h.segments))
		}
	})
}

// The first event that an owner reads has no position before it. While it is unsettled, the
// ledger stays where it was.
func TestFirstEventHoldsTheLedger(t *testing.T) {
	key := alarmKey{"oven", &level{}}
	at := telemetry.Position{Sequence: 6, Offset: "600"}
	h := history{kept: map[alarmKey]kept{}, position: at, bound: 10}
	h.edits++ // another alarm's resolved has been settled
	h.change(key, kept{State: rules.State{Phase: rules.Open, Since: 1}}, telemetry.Position{}, 7, &entry{}, 0)
	if p := h.reach(at); p != at || len(h.kept) != 0 {
		t.Errorf("the ledger goes back to %+v, with %v", p, h.kept)
	}
	if p := h.safe(at); p != at {
		t.Errorf("the checkpoint goes back to %+v", p)
	}
}

// What is owed goes from every position at once, when every receiver has settled it.
func TestSettledIsOwedNowhere(t *testing.T) {
	key := alarmKey{"oven", &level{rule: &rule{Rule: &rules.Rule{Name: "hot"}}, Level: &rules.Level{}}}
	o := &owed{reading: reading{sequence: 3}}
	h := history{kept: map[alarmKey]kept{key: {owed: o}}, bound: 10}
	opened := kept{State: rules.State{Phase: rules.Open, Since: 1}}
	h.change(key, opened, telemetry.Position{Sequence: 4}, 5, &entry{}, 0)
	h.change(key, kept{owed: o}, telemetry.Position{Sequence: 6}, 7, &entry{}, 0)
	h.settle(key, o)
	if len(h.kept) != 0 || !h.behind() {
		t.Errorf("%+v", h)
	}
	if h.reach(telemetry.Position{Sequence: 5}); h.kept[key] != opened {
		t.Errorf("%+v", h)
	}
	if h.reach(telemetry.Position{Sequence: 7}); len(h.kept) != 0 {
		t.Errorf("%+v", h)
	}
}

func TestAlarmCounts(t *testing.T) {
	a := newAlarms(maxChanges)
	warning, critical := &level{}, &level{}
	if a.mayHave("oven") {
		t.Error("an alarm of nobody")
	}
	open := kept{State: rules.State{Phase: rules.Open, Since: 1}}
	a.set("oven", warning, open)
	a.set("oven", critical, kept{State: rules.State{Phase: rules.Pending, Since: 2}})
	if !a.mayHave("oven") || a.of("oven", warning) != open || a.of("kiln", warning) != (kept{}) || a.total != [3]int{1, 1, 0} {
		t.Errorf("%+v", a.total)
	}
	a.set("oven", warning, kept{owed: &owed{}})
	a.set("oven", critical, kept{})
	if a.total != [3]int{0, 0, 1} || *a.counts[warning] != [3]int{0, 0, 1} || a.of("oven", critical) != (kept{}) {
		t.Errorf("%+v", a.total)
	}
	a.set("oven", warning, kept{})
	if a.mayHave("oven") || len(a.byDevice) != 0 || a.total != [3]int{} {
		t.Errorf("%+v", a)
	}
	if n := testing.AllocsPerRun(10, func() { a.mayHave("oven"); a.of("oven", warning) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLedgerKeepsWhatIsKnown(t *testing.T) {
	l := &level{rule: &rule{Rule: &rules.Rule{Name: "hot", Resolved: true}}, Level: &rules.Level{Name: "critical"}}
	at := time.UnixMilli(1_767_225_600_123).UTC()
	o := &owed{reading: reading{value: 20, limit: 65, enqueued: at.UnixMicro(), sequence: 9, since: at.Add(-time.Hour).UnixMicro()}}
	h := history{kept: map[alarmKey]kept{{"oven", l}: {State: rules.State{Phase: rules.Pending, Since: at.UnixMicro()}, value: 81, limit: 80, owed: o}}}
	want := ledger.Alarm{
		Device: "oven", Rule: "hot", Level: "critical", Resolved: true, Since: at, Value: 81, Limit: 80,
		Owed: &ledger.Reading{Sequence: 9, Enqueued: at, Value: 20, Limit: 65, Since: at.Add(-time.Hour)},
	}
	got := h.content(telemetry.Position{}).Alarms[0]
	if *got.Owed != *want.Owed {
		t.Errorf("owed %+v, want %+v", *got.Owed, *want.Owed)
	}
	if got.Owed = want.Owed; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
