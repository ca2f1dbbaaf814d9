package worker_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/notify"
	partitions "alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// A recorded reading is one of a recording.
type recorded struct {
	device     string
	gap        time.Duration // since the one before
	body       string
	properties map[string]any
}

// bubble is when time begins in one: see testing/synctest.
var bubble = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// play has a real worker take a recording, each reading at its time, and returns what its receivers took. Then it has
// a Backtest take the same events, and returns what it says that they get. Both are in the order of each receiver's device and level.
func play(
	t *testing.T,
	set rules.Set,
	mutes rules.Mutes,
	recording []recorded,
	receivers ...*receiver,
) (real, virtual []string) {
	var events []telemetry.Event
	var to []partitions.Receiver
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		s := newSetup(t, receivers...)
		decoder, err := set.Decoder()
		if err != nil {
			t.Fatal(err)
		}
		s.config.Rulebook.Rules, s.config.Rulebook.Decoder = set, decoder
		s.config.Rulebook.Mutes = func() rules.Mutes { return mutes }
		s.start(p)
		to = s.config.Rulebook.Receivers
		for _, r := range recording {
			pass(r.gap)
			p.publishBody(r.device, r.body, r.properties)
			synctest.Wait()
		}
		p.mu.Lock()
		p.ended = errors.New("the recording has ended")
		p.mu.Unlock()
		pass(2 * time.Hour) // longer than any window
		s.end()
		events = p.log
	})
	for i, r := range receivers {
		for _, a := range r.alerts("") {
			real = append(real, noticeText(i, a.Device, a.Rule, a.Level, a.Resolved, a.Sequence, a.Temperature, a.Threshold+a.Silent.Seconds()))
		}
	}
	b, err := partitions.NewBacktest(set, to, partitions.Observer{Mutes: mutes, Notice: func(n partitions.BacktestNotice) {
		virtual = append(virtual, noticeText(n.Receiver, n.Device, n.Rule, n.Level, n.Recovery, n.Sequence, n.Value, n.Limit))
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.Take("0", events)
	b.Finish()
	byKey := func(a, b string) int {
		keyA, _, _ := strings.Cut(a, ":")
		keyB, _, _ := strings.Cut(b, ":")
		return strings.Compare(keyA, keyB)
	}
	slices.SortStableFunc(real, byKey)
	slices.SortStableFunc(virtual, byKey)
	return real, virtual
}

func noticeText(receiver int, device, rule, level string, recovery bool, sequence int64, value, limit float64) string {
	if device == notify.Hub { // it has numbers of its own
		sequence = 0
	}
	return fmt.Sprintf("%d %s %s %s: recovery %t, reading %d, %v, limit %v", receiver, device, rule, level, recovery, sequence, value, limit)
}

// A Backtest says, alert by alert, what the worker does with the same readings in the same time. Readings come every
// five seconds and windows end in between, because a recovery may take two seconds more than its window. Where there are rules about
// silence readings come every minute, deadlines are 20 s after that, and windows end between seconds 33 and 53, because the worker may take
// twenty seconds to prove a silence. Mutes end at second 30, because silences open then that were muted, and
// devices are forgotten at second 38, after others have fallen silent, because a silence opens once the ledger has it, and an end at once.
func TestBacktestIsTheWorker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var set rules.Set
		for i := range rapid.IntRange(1, 2).Draw(rt, "rules") {
			r := rules.Rule{
				Name: fmt.Sprint("rule", i), Field: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "field"), Below: rapid.Bool().Draw(rt, "below"),
				Resolved: rapid.Bool().Draw(rt, "resolved"),
				Window:   rapid.SampledFrom([]time.Duration{2, 12, 62, 3602}).Draw(rt, "window")*time.Second + 500*time.Millisecond,
			}
			repeat := rapid.SampledFrom([]time.Duration{0, 0, 32500 * time.Millisecond, 602500 * time.Millisecond, rules.Never})
			if after := repeat.Draw(rt, "repeat"); after > r.Window {
				r.Repeat = after
			}
			if rapid.IntRange(0, 2).Draw(rt, "per") == 2 && r.Resolved {
				r.Per = "site"
			}
			sign := 1.0
			if r.Below {
				sign = -1
			}
			apart := rapid.SampledFrom([]float64{0, 2}).Draw(rt, "clear")
			r.Levels = []rules.Level{{Limit: sign * 10, Clear: sign * (10 - apart)}}
			if rapid.Bool().Draw(rt, "levels") {
				r.Levels = []rules.Level{{Name: "mild", Limit: sign * 10, Clear: sign * (10 - apart)}, {Name: "severe", Limit: sign * 20, Clear: sign * 20}}
			}
			for j := range r.Levels {
				r.Levels[j].For = rapid.SampledFrom([]time.Duration{0, 0, 10 * time.Second, time.Minute}).Draw(rt, "for")
			}
			if rapid.Bool().Draw(rt, "override") {
				r.Levels[0].LimitAt.Name = "limit"
			}
			if rapid.IntRange(0, 3).Draw(rt, "only") == 3 {
				r.Only = []rules.Condition{{Name: "mode", Values: []string{"on"}}}
			}
			set.Rules = append(set.Rules, r)
		}
		unit, long, readings, devices := 5*time.Second, time.Duration(800), 40, []string{"oven", "kiln"}
		if rapid.Bool().Draw(rt, "silence") {
			unit, long, readings, devices = time.Minute, 30, 15, append(devices, "all") // of a partition that may be dark
			r := rules.Rule{
				Name: "offline", Resolved: rapid.Bool().Draw(rt, "recovery"), Silent: 80 * time.Second, Levels: []rules.Level{{}},
				Window: rapid.SampledFrom([]time.Duration{2, 10, 70, 3610}).Draw(rt, "silence's window")*time.Second + 500*time.Millisecond,
				Forget: rapid.SampledFrom([]time.Duration{20*time.Minute + 38*time.Second, rules.DefaultForget}).Draw(rt, "forget"),
				Field:  rapid.SampledFrom([]string{"", "a"}).Draw(rt, "hears"),
				Per:    rapid.SampledFrom([]string{"", "site"}).Draw(rt, "silence's per"),
			}
			set.Rules = append(set.Rules, r)
			if rapid.Bool().Draw(rt, "two rules about silence") {
				r.Name, r.Silent = "gone", 200*time.Second
				set.Rules = append(set.Rules, r)
			}
		}
		if rapid.Bool().Draw(rt, "quiet") {
			set.Mutes = rules.Mutes{{Property: "quiet", Value: "true"}}
		}
		recording := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) recorded {
			value := rapid.SampledFrom([]float64{0, 9, 10, 15, 25, -9, -10, -15, -25})
			r := recorded{
				device: rapid.SampledFrom(devices).Draw(t, "device"),
				gap:    rapid.SampledFrom([]time.Duration{1, 1, 2, 3, 15, long}).Draw(t, "gap") * unit,
				body:   fmt.Sprintf(`{"a":%v,"b":%v}`, value.Draw(t, "a"), value.Draw(t, "b")),
			}
			switch rapid.IntRange(0, 7).Draw(t, "other") {
			case 0:
				r.body = fmt.Sprintf(`{"b":%v}`, value.Draw(t, "b alone"))
			case 1:
				r.body = "?"
			case 2:
				r.properties = map[string]any{"limit": "9", "mode": "on"}
			case 3:
				r.properties = map[string]any{"quiet": "true", "mode": "on"}
			case 4:
				r.properties = map[string]any{"mode": "on", "site": "berlin"}
			case 5:
				r.properties = map[string]any{"site": "berlin"}
			}
			return r
		}), readings, 2*readings).Draw(rt, "readings")
		recording = slices.Collect(func(yield func(recorded) bool) {
			for _, r := range recording {
				more := 0
				if r.device == "all" {
					r.device, more = "d0", 23
				}
				yield(r)
				for n := range more {
					yield(recorded{fmt.Sprint("d", n+1), 0, r.body, r.properties})
				}
			}
		})
		receivers := []*receiver{{}, {level: "severe"}}
		receivers[1].only = notify.Filter{Property: "site", Values: []string{"berlin"}}
		var mutes rules.Mutes
		mute := rules.Mute{
			Device: rapid.SampledFrom([]string{"", "oven"}).Draw(rt, "muted device"),
			Rule:   rapid.SampledFrom([]string{"", "rule0"}).Draw(rt, "muted rule"),
		}
		begin, lasts := rapid.IntRange(0, 10).Draw(rt, "mute begins"), rapid.IntRange(1, 20).Draw(rt, "mute lasts") // minutes
		switch rapid.SampledFrom([]string{"", "", "mute time", "silence"}).Draw(rt, "muted") {
		case "mute time":
			mute.Times = &rules.Times{Days: rules.EveryDay, From: begin, To: begin + lasts, Zone: time.FixedZone("", -30)}
			set.Mutes = rules.Mutes{mute}
		case "silence":
			mute.From = bubble.Add(time.Duration(begin)*time.Minute + 30*time.Second)
			mute.Until = mute.From.Add(time.Duration(lasts) * time.Minute)
			mutes = rules.Mutes{mute}
		}
		real, virtual := play(t, set, mutes, recording, receivers...)
		if !slices.Equal(real, virtual) {
			rt.Fatalf("the worker:\n%s\nthe backtest:\n%s", strings.Join(real, "\n"), strings.Join(virtual, "\n"))
		}
	})
}

// A Backtest ends with what the recording's last event proves, which is also an incident of silences.
func TestBacktestEndsWithIncident(t *testing.T) {
	for _, end := range []time.Duration{83 * time.Second, 84 * time.Second, 90 * time.Second} {
		r := rules.Rule{
			Name: "offline", Resolved: true, Silent: 80 * time.Second, Levels: []rules.Level{{}}, Window: time.Minute,
			Forget: rules.DefaultForget, Per: "site",
		}
		berlin := map[string]any{"site": "berlin"}
		recording := []recorded{
			{"oven", time.Minute, `{"a":1}`, berlin}, {"kiln", 40 * time.Second, `{"a":1}`, nil}, {"kiln", end - 40*time.Second, `{"a":1}`, nil},
		}
		real, virtual := play(t, rules.Set{Rules: []rules.Rule{r}}, nil, recording, &receiver{})
		if len(real) == 0 || !slices.Equal(real, virtual) {
			t.Errorf("after %v the worker: %q, the backtest: %q", end, real, virtual)
		}
	}
}
