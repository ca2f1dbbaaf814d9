package partition

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/delivery"
	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// Whatever the watermark does, what goes into the ledger is what the log gives at
// the ledger's position, the checkpoint passes no change that the ledger lacks, and the ledger
// moves however much changes while the watermark does.
func TestHistoryIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := watermark{}
		h := history{alarms: map[alarmKey]alarm{}, bound: rapid.IntRange(2, 20).Draw(t, "bound")}
		levels := []*level{{}, {}}
		truth := []map[alarmKey]alarm{{}} // by sequence number
		at := func(sequence int64) telemetry.Position {
			if sequence == 0 { // nothing comes before the first event
				return telemetry.Position{}
			}
			return telemetry.Position{Generation: "g", Sequence: sequence, Offset: "x"}
		}
		var open []*delivery.Hold
		store := map[alarmKey]alarm{} // the ledger's content
		check := func(p telemetry.Position, kept map[alarmKey]alarm) {
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
						e := &delivery.Hold{}
						w.held.Add(e, placeOf(at(before)), 0)
						open = append(open, e)
					}
					for range rapid.IntRange(0, 2).Draw(t, "changes") {
						key := alarmKey{sensor.Of(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "device")), rapid.SampledFrom(levels).Draw(t, "level")}
						k := alarm{State: rules.State{Phase: rules.Phase(rapid.IntRange(0, 2).Draw(t, "phase"))}}
						if k.Phase != rules.Normal {
							k.Since.Hub = before
						}
						if k == (alarm{}) {
							delete(now, key)
						} else {
							now[key] = k
						}
						h.change(key, k, at(before), at(before+1))
					}
					truth = append(truth, now)
				}
				w.last = at(int64(len(truth) - 1))
			},
			"settle": func(t *rapid.T) {
				if len(open) == 0 {
					return
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				w.held.Release(open[i])
				open = append(open[:i], open[i+1:]...)
			},
			"tick": func(t *rapid.T) {
				p, behind := h.reach(w.position())
				if p.Sequence > max(w.position().Sequence, h.position.Sequence) {
					t.Fatalf("the ledger's position %d is after the watermark %d", p.Sequence, w.position().Sequence)
				}
				check(p, h.alarms)
				if behind && rapid.Bool().Draw(t, "succeeds") {
					store = maps.Clone(h.alarms)
					h.wrote(p)
				}
			},
			"": func(t *rapid.T) {
				c := h.safe(w.position())
				if c.Sequence > w.position().Sequence {
					t.Fatalf("the checkpoint may be at %d, after the watermark %d", c.Sequence, w.position().Sequence)
				}
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
			},
		})
		for _, e := range open {
			w.held.Release(e)
		}
		p, behind := h.reach(w.position())
		if check(p, h.alarms); !maps.Equal(h.alarms, truth[len(truth)-1]) || len(h.segments) > 1 || h.changes != 0 || behind && len(h.segments) == 0 {
			t.Fatalf("all is settled, and the ledger would be at %d of %d with %d segments", p.Sequence, w.position().Sequence, len(h.segments))
		}
	})
}

// However much changes, the ledger moves once the watermark passes where it could have stood; and with as
// many changes as may be nothing more is read.
func TestLedgerMovesHoweverMuchChanges(t *testing.T) {
	at := func(sequence int64) telemetry.Position { return telemetry.Position{Sequence: sequence, Offset: "x"} }
	h := history{alarms: map[alarmKey]alarm{}, bound: 1000}
	sequence, writes := int64(0), 0
	for tick := range 100 {
		for i := range 100 { // each device changes in every seventh tick
			sequence++
			key := alarmKey{sensor.Of(fmt.Sprint(tick%7, "-", i)), nil}
			h.change(key, alarm{State: rules.State{Phase: rules.Open, Since: rules.Moment{Hub: sequence}}}, at(sequence-1), at(sequence))
		}
		watermark := max(0, sequence-250) // alerts take two ticks and a half
		if tick < 50 {
			watermark = 0 // the first one has waited for long
		}
		p, behind := h.reach(at(watermark))
		if h.full() {
			t.Fatalf("%d changes after %d ticks of 700 devices", h.changes, tick)
		}
		if behind {
			h.wrote(p)
			writes++
		}
		if tick > 60 && p.Sequence < watermark-700 {
			t.Fatalf("the ledger is at %d, the watermark at %d", p.Sequence, watermark)
		}
	}
	if writes < 10 {
		t.Errorf("the ledger was written %d times", writes)
	}
	for i := 0; !h.full(); i++ {
		sequence++
		h.change(alarmKey{sensor.Of(fmt.Sprint(i)), nil}, alarm{}, at(sequence-1), at(sequence))
		if h.seal(); i > h.bound {
			t.Fatalf("%d changes and no end", h.changes)
		}
	}
}

// The first event that an owner reads has no position before it. While it is unsettled, the
// ledger stays where it was.
func TestFirstEventHoldsTheLedger(t *testing.T) {
	key := alarmKey{sensor.Of("oven"), &level{}}
	at := telemetry.Position{Sequence: 6, Offset: "600"}
	h := history{alarms: map[alarmKey]alarm{}, position: at, bound: 10, edited: true} // another alarm's recovery has been settled
	h.change(key, alarm{State: rules.State{Phase: rules.Open, Since: rules.Moment{Hub: 1}}}, telemetry.Position{}, telemetry.Position{Sequence: 7, Offset: "700"})
	if p, _ := h.reach(at); p != at || len(h.alarms) != 0 {
		t.Errorf("the ledger goes back to %+v, with %v", p, h.alarms)
	}
	if p := h.safe(at); p != (telemetry.Position{}) {
		t.Errorf("the checkpoint goes to %+v", p)
	}
}

// A recovery goes from every position at once, when every receiver has settled it.
func TestSettledIsDueNowhere(t *testing.T) {
	key := alarmKey{sensor.Of("oven"), &level{rule: &rule{Rule: &rules.Rule{Name: "hot"}}, Level: &rules.Level{}}}
	at := func(sequence int64) telemetry.Position { return telemetry.Position{Sequence: sequence, Offset: "x"} }
	due := &dueNotice{Notice: delivery.Notice{Reading: delivery.Reading{Sequence: 3}}}
	h := history{alarms: map[alarmKey]alarm{key: {due: due}}, bound: 10}
	opened := alarm{State: rules.State{Phase: rules.Open, Since: rules.Moment{Hub: 1}}}
	h.change(key, opened, at(4), at(5))
	h.seal()
	h.change(key, alarm{due: due}, at(6), at(7))
	h.settle(key, &due.Notice)
	if len(h.alarms) != 0 || !h.edited {
		t.Errorf("%+v", h)
	}
	if h.reach(at(5)); h.alarms[key] != opened {
		t.Errorf("%+v", h)
	}
	if h.reach(at(7)); len(h.alarms) != 0 {
		t.Errorf("%+v", h)
	}
}

func TestAlarmsAreFound(t *testing.T) {
	a := newAlarms(MaxChanges)
	warning, critical := &level{}, &level{}
	if a.mayHave(roster.Hash("oven")) {
		t.Error("an alarm of nobody")
	}
	open := alarm{State: rules.State{Phase: rules.Open, Since: rules.Moment{Hub: 1}}}
	a.set(alarmKey{sensor.Of("oven"), warning}, open)
	a.set(alarmKey{sensor.Of("oven"), critical}, alarm{State: rules.State{Phase: rules.Pending, Since: rules.Moment{Hub: 2}}})
	if !a.mayHave(roster.Hash("oven")) || a.byKey[alarmKey{sensor.Of("oven"), warning}] != open || a.byKey[alarmKey{sensor.Of("kiln"), warning}] != (alarm{}) || len(a.byKey) != 2 {
		t.Errorf("%+v", a.byKey)
	}
	a.set(alarmKey{sensor.Of("oven"), warning}, alarm{due: &dueNotice{}})
	a.set(alarmKey{sensor.Of("oven"), critical}, alarm{})
	if len(a.byKey) != 1 || a.byKey[alarmKey{sensor.Of("oven"), critical}] != (alarm{}) {
		t.Errorf("%+v", a.byKey)
	}
	for _, name := range []string{"b", "c", "a"} {
		a.set(alarmKey{sensor.ID{Device: "oven", Name: name}, warning}, open)
	}
	var found []string
	for _, key := range a.keysOf(sensor.Of("oven"), []*level{critical, warning}) {
		found = append(found, key.about.Name)
		a.set(key, alarm{})
	}
	if want := []string{"", "a", "b", "c"}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	if a.mayHave(roster.Hash("oven")) || len(a.byKey)+len(a.keys) != 0 {
		t.Errorf("%+v, %+v", a.byKey, a.keys)
	}
	if n := testing.AllocsPerRun(10, func() { a.mayHave(roster.Hash("oven")); _ = a.byKey[alarmKey{sensor.Of("oven"), warning}] }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLedgerKeepsWhatIsKnown(t *testing.T) {
	hot := rules.Rule{Name: "hot", Resolved: true, Below: true, Field: "t", Window: time.Hour, Is: []string{"on"}, Title: "Hot", Unit: "K", Runbook: "https://r"}
	l := &level{rule: &rule{Rule: &hot}, Level: &rules.Level{Name: "critical"}}
	at := time.UnixMilli(1_767_225_600_123).UTC()
	due := &dueNotice{Notice: delivery.Notice{Log: "log", Reading: delivery.Reading{
		Value: 20, Limit: 65, Enqueued: at.UnixMicro(), Sequence: 9,
		Since: at.Add(-time.Hour).UnixMicro(), Taken: at.Add(-time.Second).UnixMicro(),
	}}}
	h := history{alarms: map[alarmKey]alarm{{sensor.Of("oven"), l}: {State: rules.State{Phase: rules.Pending, Since: rules.Moment{Hub: at.UnixMicro(), Device: at.Add(-time.Minute).UnixMicro()}, Newest: at.UnixMicro(), Cleared: rules.Moment{Hub: at.Add(time.Second).UnixMicro(), Device: at.UnixMicro()}}, value: 81, limit: 80, due: due}}}
	want := ledger.Alarm{
		Device: "oven", Rule: "hot", Level: "critical", Since: at, DeviceSince: at.Add(-time.Minute), DeviceNewest: at, Value: 81, Limit: 80,
		Cleared: at.Add(time.Second), DeviceCleared: at,
		Due: &ledger.Reading{Log: "log", Sequence: 9, Enqueued: at, Value: 20, Limit: 65, Since: at.Add(-time.Hour), DeviceTime: at.Add(-time.Second)},
	}
	c := h.content(telemetry.Position{})
	level := ledger.Level{Rule: "hot", Name: "critical", Resolved: true, Below: true, Field: "t", Window: time.Hour, Is: []string{"on"}, Title: "Hot", Unit: "K", Runbook: "https://r"}
	if len(c.Levels) != 1 || !reflect.DeepEqual(c.Levels[0], level) {
		t.Errorf("levels %+v, want %+v", c.Levels, level)
	}
	got := c.Alarms[0]
	if *got.Due != *want.Due {
		t.Errorf("due %+v, want %+v", *got.Due, *want.Due)
	}
	if got.Due = want.Due; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// What a device sends and a rule has, of which a ledger says why it expects nothing more, has room in it.
func TestLedgerShortensWhatIsExcluded(t *testing.T) {
	l := &level{rule: &rule{Rule: &rules.Rule{Name: "offline"}}, Level: &rules.Level{}}
	for _, text := range []string{"", "mode is clean, not run", strings.Repeat("x", ledger.MaxExcluded), strings.Repeat("x", ledger.MaxExcluded+1), strings.Repeat("é", 5000)} {
		h := history{alarms: map[alarmKey]alarm{{sensor.Of("oven"), l}: {due: &dueNotice{Notice: delivery.Notice{Excluded: text}}}}}
		got := string(h.content(telemetry.Position{}).Alarms[0].Due.Excluded)
		whole := len(text) <= ledger.MaxExcluded
		if before, isCut := strings.CutSuffix(got, "…"); len(got) > ledger.MaxExcluded || whole && got != text || !whole && (!isCut || !strings.HasPrefix(text, before) || len(before) < ledger.MaxExcluded-6) {
			t.Errorf("%q has become %q", text, got)
		}
	}
}

// Everything that a notice says is in the ledger, and comes back.
func TestNoticeInALedger(t *testing.T) {
	us := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC).UnixMicro()
	n := &dueNotice{saved: true, Notice: delivery.Notice{
		Log: "log", Part: throttle.Silence, RaisedAt: us + 1, Heard: us + 2, Forgotten: true, Excluded: "mode is clean, not run", Outage: &notify.Outage{Devices: 7},
		Reading: delivery.Reading{Value: 1, Limit: 2, Enqueued: us, Sequence: 3, Element: 4, Taken: us - 1, Since: us - 2},
	}}
	saved := savedReading(&n.Notice)
	if got := rememberedNotice(&saved); !reflect.DeepEqual(got, n) {
		t.Errorf("%+v, want %+v", got, n)
	}
}

// A ledger says which reading has opened an alarm that is sent again as often as its rule says, and of no other; and has each
// level once.
func TestRepeatedAlarmInALedger(t *testing.T) {
	set := rules.Threshold("t", 30, time.Minute)
	set.Rules[0].Each, set.Rules[0].Sensor, set.Rules[0].Repeat = ".", []string{"s"}, time.Hour
	reader := func() *exactReader {
		return newExactReader(benchRules(t, set).config.Evaluator, func(telemetry.Position, telemetry.Position) {})
	}
	e := exactEvent(7, "oven", "0")
	e.Body = []byte(`[{"s":"a","t":20},{"s":"b","t":91},{"s":"c","t":92}]`)
	content := func(r *exactReader) ledger.Content {
		r.register.take([]telemetry.Event{e})
		at, _ := r.register.alarms.history.reach(e.Position)
		return r.register.alarms.history.content(at)
	}
	r := reader()
	c := content(r)
	if len(c.Levels) != 1 || len(c.Alarms) != 2 {
		t.Fatalf("the ledger has %+v", c)
	}
	next := reader()
	next.register.logName = r.register.logName
	for _, a := range c.Alarms {
		element := map[string]int{"b": 1, "c": 2}[string(a.Sensor)]
		if a.Log != r.register.logName || a.Sequence != 7 || a.Element != element {
			t.Errorf("%s was opened by %s %d, element %d", a.Sensor, a.Log, a.Sequence, a.Element)
		}
		next.register.restore(a, false)
		k := next.register.alarms.byKey[alarmKey{a.Of(), next.register.levels[0]}]
		if k.sending == nil || k.sending.OpenedBy != 7 || k.sending.Element != element || k.sequence != 7 || k.element != element {
			t.Errorf("%s goes on as %+v", a.Sensor, k)
		}
	}
	if next.register.alarms.history.edited {
		t.Error("the ledger is to be written, although it has all that there is")
	}

	set.Rules[0].Repeat, set.Rules[0].Resolved = 0, true
	for _, a := range content(reader()).Alarms {
		if !a.Open || a.Log != "" || a.Sequence != 0 || a.Element != 0 {
			t.Errorf("it has %+v of an alarm that is not repeated", a)
		}
	}
}

// What replaces changes that the ledger lacks counts no more, and with so many changes as there may be reading pauses. Between
// two ticks an alarm that changes often counts once.
func TestChangesAreCounted(t *testing.T) {
	h := history{alarms: map[alarmKey]alarm{}, bound: 2}
	l := &level{}
	open := alarm{State: rules.State{Phase: rules.Open}}
	for i, device := range []string{"oven", "kiln"} {
		if h.full() {
			t.Errorf("full with %d changes of 2", h.changes)
		}
		h.change(alarmKey{sensor.Of(device), l}, open, exactPosition(int64(i)), exactPosition(int64(i+1)))
	}
	if !h.full() || h.changes != 2 {
		t.Errorf("not full with %d changes of 2", h.changes)
	}
	h.replace(alarmKey{sensor.Of("oven"), l}, alarm{})
	h.replace(alarmKey{sensor.Of("another"), l}, open)
	if h.full() || h.changes != 1 {
		t.Errorf("full with %d changes of 2", h.changes)
	}
	h.seal()
	for i, k := range []alarm{open, {}, open} {
		h.change(alarmKey{sensor.Of("oven"), l}, k, exactPosition(int64(i+2)), exactPosition(int64(i+3)))
	}
	if h.changes != 2 {
		t.Errorf("%d changes, want one of each alarm since the tick", h.changes)
	}
}

// An alarm is shown as its device's clock has it, with the time at which the hub took its first reading.
func TestAlarmForPeople(t *testing.T) {
	at := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	hot := rules.Rule{Name: "hot", Repeat: time.Hour}
	key := alarmKey{sensor.ID{Device: "gw", Name: "a"}, &level{rule: &rule{Rule: &hot}, Level: &rules.Level{Name: "critical"}}}
	hub, device := at.UnixMicro(), at.Add(-time.Minute).UnixMicro()
	of := AlarmState{Partition: "7", Device: "gw", Sensor: "a", Rule: "hot", Level: "critical", repeat: time.Hour}
	for name, tt := range map[string]struct {
		k    alarm
		want func(*AlarmState)
	}{
		"by the hub's clock": {
			alarm{State: rules.State{Phase: rules.Pending, Since: rules.Moment{Hub: hub}}, value: 81, limit: 80},
			func(s *AlarmState) { s.Phase, s.Since, s.Value, s.Limit = rules.Pending, at, 81, 80 },
		},
		"by the device's clock": {
			alarm{State: rules.State{Phase: rules.Open, Since: rules.Moment{Hub: hub, Device: device}}, value: 81, limit: 80, group: "berlin"},
			func(s *AlarmState) {
				s.Phase, s.Since, s.Arrived, s.Value, s.Limit, s.Group = rules.Open, at.Add(-time.Minute), at, 81, 80, "berlin"
			},
		},
		"over": {
			alarm{value: 81, due: &dueNotice{Notice: delivery.Notice{Reading: delivery.Reading{Enqueued: hub}}}},
			func(s *AlarmState) { s.Due = at },
		},
		"a silence that is due": {
			alarm{due: &dueNotice{Notice: delivery.Notice{Part: throttle.Silence, Reading: delivery.Reading{Enqueued: hub}}}},
			func(*AlarmState) {},
		},
	} {
		want := of
		tt.want(&want)
		if got := tt.k.state("7", key); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// A receiver that forgets is told again of a milder level that a higher one has held back, because it was told of it before, and
// of none that is over.
func TestOpenAlarmsOfTwoLevels(t *testing.T) {
	r := newExactReader(exactEvaluator(t), func(telemetry.Position, telemetry.Position) {})
	s := &Stream{register: r.register}
	s.owner.check, s.owner.work = func() error { return nil }, &s.work
	defer s.work.Wait()
	r.register.take([]telemetry.Event{exactEvent(1, "oven", "40"), exactEvent(2, "oven", "90")})
	all := r.register.openAlarms()
	if len(all) != 2 {
		t.Fatalf("%+v are open", all)
	}
	for _, one := range all {
		if err := s.mayRefresh(t.Context(), one.Key); err != nil {
			t.Errorf("%s: %v", one.Key.Topic.Message.Level, err)
		}
	}
	r.register.take([]telemetry.Event{exactEvent(3, "oven", "20")})
	for _, one := range all {
		if err := s.mayRefresh(t.Context(), one.Key); err != errNotDue {
			t.Errorf("%s is over: %v", one.Key.Topic.Message.Level, err)
		}
	}
	for key, k := range r.register.alarms.byKey {
		if k.due == nil || k != (alarm{due: k.due}) {
			t.Errorf("more than a recovery is left of %s: %+v", key.level.Name, k)
		}
	}
}
