package partition_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
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
)

func TestPendingAlarmOfADevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("7")
		s := with(t, func(r *rules.Rule) { r.Levels[0].For = time.Hour })
		s.start(p)
		defer s.end()
		p.publish("both", 90)
		p.publish("cold", 20)
		pass(time.Second)
		if got := s.device("both").Partitions; !slices.Equal(got, []string{"7"}) {
			t.Errorf("it is in the partitions %v", got)
		}
		alarms := s.device("both").Alarms
		if len(alarms) != 1 || alarms[0].Phase != rules.Pending || alarms[0].Value != 90 || alarms[0].Limit != threshold {
			t.Errorf("got %+v, want a pending alarm of 90 at %v", alarms, threshold)
		}
		if got := s.device("cold"); len(got.Alarms)+len(got.Deliveries) > 0 || got.Unreadable != nil {
			t.Errorf("got %+v, want nothing", got)
		}
	})
}

// Of a device that is known nobody is asked whether they mean one with another case, whatever it is known for.
func TestDevicesThatDifferInCase(t *testing.T) {
	for _, isHeard := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("7"), &receiver{answer: failing(errBusy)}
			s := with(t, nil, r)
			if isHeard { // and its alert is sent
				r.answer = nil
				s.config.Rules.Rules = append(s.config.Rules.Rules, silence(t, nil).config.Rules.Rules...)
			}
			s.start(p)
			defer s.end()
			p.publish("oven", hot)
			p.publish("Oven", hot)
			pass(time.Second)
			for _, asked := range []string{"oven", "Oven"} {
				got := s.device(asked)
				if got.Similar != "" || len(got.Alarms) != 1 || isHeard != (len(got.Heard) == 1) || isHeard != (len(got.Deliveries) == 0) {
					t.Errorf("%s: %+v", asked, got)
				}
			}
		})
	}
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
		pass(time.Second)
		p.hold(true)
		p.publishBody("undecodable", "")
		p.mu.Lock()
		p.log[2].Undecodable = "section 0x7f"
		p.mu.Unlock()
		p.hold(false)
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
			if m["detail"] != nil {
				got[len(got)-1] += fmt.Sprint(", ", m["detail"])
			}
			if strings.Contains(fmt.Sprint(m), "secret") {
				t.Errorf("a body is in the log: %v", m)
			}
		}
		want := []string{
			"event without a reading: 7 2 broken, outcome <nil>, reason malformed",
			"event without a reading: 7 3 undecodable, outcome <nil>, reason undecodable_message, section 0x7f",
			"asked the gate about an alert: 7 4 hot, outcome sent, reason <nil>",
			"alert not taken: 7 6 refused, outcome <nil>, reason <nil>",
			"alert kept as a dead letter: 7 6 refused, outcome <nil>, reason refused for good: answered 400",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A worker knows when a hot device was heard, which shares its alerts with others.
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
		if n := s.states()[0].Known; n != 3 {
			t.Errorf("it knows %d devices, of 3", n)
		}
		for _, device := range []string{"first", "second"} {
			got := s.device(device)
			want := []partitions.HeardState{{Partition: "0", Rule: "offline", At: at, Deadline: at.Add(silent)}}
			if !reflect.DeepEqual(got.Heard, want) {
				t.Errorf("of %s it knows %+v, want %+v", device, got.Heard, want)
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
