package partition_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/notify"
	partitions "alertworker/internal/partition"
	"alertworker/internal/records"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

func TestDeviceThatIsNotHot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("7")
		s := newSetup(t).start(p)
		defer s.end()
		start := time.Now().UTC()
		time.Sleep(time.Second)
		cold := p.publish("cold", 21.5)
		broken := p.publishBody("broken", "{")
		both := p.publish("both", 20)
		bothBroken := p.publishBody("both", `{"temperature":null}`)
		pass(time.Second)
		at := time.Now().Add(-time.Second).UTC()
		reading := func(e telemetry.Event, value float64) *partitions.Reading {
			return &partitions.Reading{Value: value, Enqueued: e.Enqueued.UTC(), Sequence: e.Sequence}
		}
		undecodable := func(e telemetry.Event, reason telemetry.Reason) *partitions.Undecodable {
			return &partitions.Undecodable{Reason: reason, Enqueued: e.Enqueued.UTC(), Sequence: e.Sequence, Since: e.Enqueued.UTC()}
		}
		malformed := undecodable(broken, telemetry.ReasonMalformed)
		malformed.Damage = "not JSON at byte 1 of a message of broken: found the end where a name in double quotes must begin"
		for device, want := range map[string]*partitions.LastSeen{
			"cold":   {Partition: "7", At: at, Reading: reading(cold, 21.5)},
			"broken": {Partition: "7", At: at, Undecodable: malformed},
			"both":   {Partition: "7", At: at, Reading: reading(both, 20), Undecodable: undecodable(bothBroken, telemetry.ReasonNull)},
			"other":  nil,
		} {
			got := s.device(device)
			if text(got.Last) != text(want) || !got.Since.Equal(start) || got.Deliveries != nil {
				t.Errorf("%s: got %s and %+v, want %s since %v", device, text(got.Last), got, text(want), start)
			}
		}
	})
}

func text(h *partitions.LastSeen) string {
	if h == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s %v %+v %+v", h.Partition, h.At, h.Reading, h.Undecodable)
}

// Of several readings people are shown the one that reached a limit, and whether its message
// kept it quiet.
func TestDeviceThatIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		s := with(t, func(r *rules.Rule) { r.Levels[0].For = time.Hour })
		set := &s.config.Rules
		set.Mutes = rules.Mutes{{Property: "quiet", Value: "true"}}
		set.Rules = append(set.Rules, rules.Rule{Name: "wet", Field: "humidity", Window: window, Levels: []rules.Level{{Limit: 60, Clear: 60}}}, rules.Rule{
			Name: "frozen", Field: "cargo", Window: window, Levels: []rules.Level{{Limit: -17, Clear: -17}},
			Only: []rules.Condition{{Name: "kind", Values: []string{"frozen"}}},
		})
		s.start(p)
		defer s.end()
		p.publishBody("cold", `{"temperature":20,"humidity":50}`)
		p.publishBody("damp", `{"temperature":20,"humidity":65}`)
		p.publishBody("both", `{"temperature":90,"humidity":65}`)
		p.publishProperties("damp, quiet", `{"humidity":66}`, map[string]any{"quiet": "true"})
		p.publishBody("chilled", `{"temperature":20,"cargo":5,"kind":"chilled"}`)
		p.publishBody("chilled, cold", `{"temperature":20,"cargo":-18,"kind":"chilled"}`)
		p.publishBody("chilled, damp", `{"cargo":5,"kind":"chilled","humidity":65}`)
		pass(time.Second)
		for device, want := range map[string]partitions.Reading{
			"cold": {Value: 20}, "damp": {Value: 65, Field: 1, Decision: partitions.Notified}, "both": {Value: 65, Field: 1, Decision: partitions.Notified}, "damp, quiet": {Value: 66, Field: 1, Decision: partitions.Muted},
			"chilled": {Value: 5, Field: 2, Decision: partitions.Excluded}, "chilled, cold": {Value: 20}, "chilled, damp": {Value: 65, Field: 1, Decision: partitions.Notified},
		} {
			h := s.device(device).Last
			if h == nil || h.Reading == nil || h.Reading.Value != want.Value || h.Reading.Field != want.Field || h.Reading.Decision != want.Decision {
				t.Errorf("%s: %s, want %+v", device, text(h), want)
			}
		}
		alarms := s.device("both").Alarms
		if len(alarms) != 1 || alarms[0].Phase != rules.Pending || alarms[0].Value != 90 || alarms[0].Limit != threshold {
			t.Errorf("got %+v, want a pending alarm of 90 at %v", alarms, threshold)
		}
	})
}

// A device whose limit is its own is shown with that, also below it: what is said of a reading follows from what was
// decided about it.
func TestDeviceWithItsOwnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		s := newSetup(t)
		l := &s.config.Rules.Rules[0].Levels[0]
		l.Limit, l.Clear, l.LimitAt.Name = -15, -15, "maxTemp"
		s.start(p)
		defer s.end()
		for i, maxTemp := range []any{"8", "8", "none"} {
			body := fmt.Sprintf(`{"temperature":%v}`, []float64{4, 9, -20}[i])
			p.publishProperties("fridge", body, map[string]any{"maxTemp": maxTemp})
			synctest.Wait()
			got := *s.device("fridge").Last.Reading
			want := []partitions.Reading{
				{Value: 4, Decision: partitions.NoLimit, Rule: "temperature", Limit: 8, Own: true},
				{Value: 9, Decision: partitions.Notified, Rule: "temperature", Limit: 8, Own: true},
				{Value: -20, Decision: partitions.NoLimit},
			}[i]
			want.Enqueued, want.Sequence = got.Enqueued, got.Sequence
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
	})
}

// A device's alarm ends beyond its own clear, unless that is beyond its own limit.
func TestDeviceWithItsOwnClear(t *testing.T) {
	for clear, want := range map[any]string{"5": "alert 1, recovery 4", "9": "alert 1, recovery 3", "$twin.tags.clear": "alert 1, recovery 3"} {
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("0"), &receiver{}
			s := with(t, func(r *rules.Rule) {
				r.Levels = []rules.Level{{Limit: -15, Clear: -17, LimitAt: rules.Reference{Name: "maxTemp"}, ClearAt: rules.Reference{Name: "clear"}}}
			}, r)
			s.start(p)
			for _, temperature := range []int{9, 6, 5, 4} {
				p.publishProperties("fridge", fmt.Sprintf(`{"temperature":%d}`, temperature), map[string]any{"maxTemp": 8, "clear": clear})
				time.Sleep(2 * window)
			}
			s.end()
			if got := r.notified("fridge"); got != want {
				t.Errorf("clear %v: notified of %s; want %s", clear, got, want)
			}
			if n, beyond := s.stats.Override[rules.OverrideBeyond].Load(), clear == "9"; n > 0 != beyond {
				t.Errorf("clear %v: %d readings are counted whose clear is beyond their limit", clear, n)
			}
		})
	}
}

// At debug the log tells of every delivery and undecodable event, and of no other.
func TestDebugLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("7"), &receiver{}
		s := newSetup(t, r)
		core, logged := observer.New(zapcore.DebugLevel)
		s.config.Log = zap.New(core)
		s.start(p)
		p.publish("cold", 1)
		p.publishBody("broken", `{"secret":`)
		p.publish("hot", 99)
		p.publish("hot", 99)
		pass(time.Second)
		r.set(failing(&notify.Error{Refused: true, Untaken: true, Err: errors.New("answered 400")}))
		p.publish("refused", 99)
		pass(time.Second)
		s.end()
		var got []string
		for _, e := range logged.All() {
			m := e.ContextMap()
			got = append(got, fmt.Sprintf("%s: %v %v %v, outcome %v, reason %v", e.Message, m["partition"], m["sequence"], m["device"], m["outcome"], m["reason"]))
			if strings.Contains(fmt.Sprint(m), "secret") {
				t.Errorf("a body is in the log: %v", m)
			}
		}
		want := []string{
			"event without a reading: 7 2 broken, outcome <nil>, reason malformed",
			"asked the gate about an alert: 7 3 hot, outcome sent, reason <nil>",
			"alert not taken: 7 5 refused, outcome <nil>, reason <nil>",
			"alert kept as a dead letter: 7 5 refused, outcome <nil>, reason refused for good: answered 400",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A worker knows by which site a hot device shares its alerts, and when it was heard.
func TestDeviceOfASiteIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.config.Rules.Mutes = rules.Mutes{{Property: "quiet", Value: "true"}}
		s.config.Rules.Rules = append(s.config.Rules.Rules, rules.Rule{Name: "hot", Field: "temperature", Per: "site", Window: window, Levels: []rules.Level{{Limit: 30, Clear: 30}}})
		s.start(p)
		defer s.end()
		time.Sleep(records.Resolution) // a roster may have begun so much later
		at := time.Now().UTC()
		p.publishOf("first", "berlin", hot)
		p.publishOf("second", "berlin", hot)
		p.publishProperties("quiet", `{}`, map[string]any{"quiet": "true"})
		time.Sleep(time.Second)
		synctest.Wait()
		for _, device := range []string{"first", "second"} {
			got := s.device(device)
			want := []partitions.HeardState{{Partition: "0", Rule: "offline", At: at, Deadline: at.Add(silent)}}
			if got.Last == nil || got.Last.Reading == nil || got.Last.Reading.Shared != "berlin" || !reflect.DeepEqual(got.Heard, want) {
				t.Errorf("of %s it knows %+v and %+v, want %+v", device, got.Last.Reading, got.Heard, want)
			}
		}
		if got := s.device("quiet").Heard; len(got) != 1 || !got[0].Deadline.IsZero() {
			t.Errorf("of a quiet device it expects something: %+v", got)
		}
		if got := s.device("unheard").Heard; got != nil {
			t.Errorf("an unknown device was heard: %+v", got)
		}
	})
}

// A reading that a milder level would alert about, were a higher one not open, is shown so.
func TestDeviceUnderAHigherLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		s := with(t, func(r *rules.Rule) {
			r.Levels = []rules.Level{{Name: "warning", Limit: 30, Clear: 25}, {Name: "critical", Limit: 80, Clear: 75}}
		})
		s.start(p)
		defer s.end()
		p.feed("oven", time.Second, 90, 77) // critical is open still, and not reached
		got := s.device("oven").Last.Reading
		if got.Decision != partitions.Inhibited || got.Level != "warning" {
			t.Errorf("%+v", got)
		}
	})
}
