package admin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

func TestWhy(t *testing.T) {
	now := time.Date(2026, 3, 2, 3, 14, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	unreadable := func(u partition.Unreadable) partition.DeviceState {
		u.Partition = "3"
		return partition.DeviceState{Unreadable: &u}
	}
	open := gateState{Receiver: "hook", Rule: "temperature", rule: &rules.Rule{Window: time.Minute}, State: throttle.State{Now: now}}
	down := gateState{Receiver: "hook", Rule: "temperature", rule: &rules.Rule{Window: time.Minute}, State: throttle.State{Phase: throttle.NotKnown}, Error: "connection refused"}
	window := gateState{Receiver: "hook", Rule: "temperature", rule: &rules.Rule{Window: time.Minute}, State: throttle.State{Phase: throttle.Closed, Until: now.Add(41 * time.Second), Quiet: now.Add(41 * time.Second), Claimed: ago(19 * time.Second), Now: now}}
	over := gateState{Receiver: "hook", Rule: "temperature", rule: &rules.Rule{Window: time.Minute}, State: throttle.State{Quiet: ago(time.Hour), Claimed: ago(time.Hour + time.Minute), Now: now}}
	failed := gateState{Receiver: "hook", Rule: "temperature", rule: &rules.Rule{Window: time.Minute}, State: throttle.State{Quiet: ago(time.Hour), Claimed: ago(time.Minute), Now: now}}
	claim := gateState{Receiver: "hook", Rule: "temperature", rule: &rules.Rule{Window: time.Minute}, State: throttle.State{Phase: throttle.Sending, Until: now.Add(12 * time.Second), Claimed: ago(8 * time.Second), Now: now}}
	taken := pastDelivery{Receiver: "hook", Rule: "temperature", At: ago(19 * time.Second)}
	letter := pastDelivery{Receiver: "hook", Rule: "temperature", At: ago(2 * time.Minute), Text: "oven-7: 91.5, at or above 80", Enqueued: ago(3 * time.Minute), Reason: "refused for good: answered 400", Letter: "20260302T031100.000Z-0123456789abcdef"}
	logged := letter
	logged.Letter = ""

	threshold := rules.Threshold("temperature", 80, time.Minute)
	for name, test := range map[string]struct {
		state        partition.DeviceState
		ended        []pastDelivery
		gate         gateState
		status, want string
	}{
		"nothing is recorded": {partition.DeviceState{Partitions: []string{"0", "2"}}, nil, open, whyNoAlarm,
			"it has no alarm\n" +
				"  window   none is recorded\n" +
				"Run `alertworker why DEVICE --last 2h` to see what it sent, and what that reaches."},
		"a window": {partition.DeviceState{}, []pastDelivery{taken}, window, whyWindow,
			"an alert was sent, and its window is in force\n" +
				"  window   hook: in force until 03:14:41 UTC (another 41 s); an alert was delivered at 03:13:41 UTC (19 s ago) by a replica"},
		"another's claim": {partition.DeviceState{}, nil, claim, whySending,
			"a replica is sending an alert, or died while it did: then another one sends it after its claim\n" +
				"  window   hook: claimed by a replica at 03:13:52 UTC (8 s ago), until 03:14:12 UTC (another 12 s)"},
		"long after an alert": {partition.DeviceState{}, nil, over, whyNoAlarm,
			"it has no alarm\n" +
				"  window   hook: over; an alert was delivered at 02:13:00 UTC (61 min ago) by a replica\n" +
				"Run `alertworker why DEVICE --last 2h` to see what it sent, and what that reaches."},
		"the store is down": {partition.DeviceState{}, nil, down, whyUnknown,
			"the throttle store does not respond\n" +
				"  window   hook: not known: connection refused\n" +
				"Run `alertworker check`."},
		"malformed": {unreadable(partition.Unreadable{Reason: telemetry.ReasonMalformed, Damage: "not JSON at byte 1 of a message of oven-7: found ; where …", Since: ago(time.Minute), Last: ago(time.Minute)}), nil, open, whyUndecodable,
			"its last messages cannot be read\n" +
				"  event    at 03:13:00 UTC (60 s ago), partition 3: not JSON at byte 1 of a message of oven-7: found ; where …; nothing could be read since 03:13:00 UTC\n" +
				"  window   none is recorded\n" +
				"Change what it sends, or the rules: `alertworker check` lists the fields of messages."},
		"nothing can be read": {unreadable(partition.Unreadable{Reason: telemetry.ReasonNull, Since: ago(3 * time.Hour), Last: ago(time.Minute)}), nil, window, whyUndecodable,
			"its last messages cannot be read\n" +
				"  event    at 03:13:00 UTC (60 s ago), partition 3: its reading is null; nothing could be read since 00:14:00 UTC\n" +
				"  window   hook: in force until 03:14:41 UTC (another 41 s); an alert was delivered at 03:13:41 UTC (19 s ago) by a replica\n" +
				"Change what it sends, or the rules: `alertworker check` lists the fields of messages."},
		"a dead letter": {partition.DeviceState{}, []pastDelivery{letter}, failed, whyDeadLetter,
			"a receiver did not accept its last alert\n" +
				"  window   hook: over; an alert was delivered at 02:13:00 UTC (61 min ago) by a replica\n" +
				"  letter   hook: oven-7: 91.5, at or above 80; enqueued at 03:11:00 UTC (3 min ago), became a dead letter at 03:12:00 UTC (2 min ago), 20260302T031100.000Z-0123456789abcdef: refused for good: answered 400\n" +
				"Fix the receiver, then run `alertworker deadletters replay ID`, unless the alert is only in the log."},
		"a dead letter in the log": {partition.DeviceState{}, []pastDelivery{logged}, failed, whyDeadLetter,
			"a receiver did not accept its last alert\n" +
				"  window   hook: over; an alert was delivered at 02:13:00 UTC (61 min ago) by a replica\n" +
				"  letter   hook: oven-7: 91.5, at or above 80; enqueued at 03:11:00 UTC (3 min ago), became a dead letter at 03:12:00 UTC (2 min ago), only in the log: refused for good: answered 400\n" +
				"Fix the receiver, then run `alertworker deadletters replay ID`, unless the alert is only in the log."},
		"a dead letter before an alert": {partition.DeviceState{}, []pastDelivery{taken, letter}, down, whyUnknown,
			"the throttle store does not respond\n" +
				"  window   hook: not known: connection refused\n" +
				"  letter   hook: oven-7: 91.5, at or above 80; enqueued at 03:11:00 UTC (3 min ago), became a dead letter at 03:12:00 UTC (2 min ago), 20260302T031100.000Z-0123456789abcdef: refused for good: answered 400\n" +
				"Run `alertworker check`."},
		"a dead letter that was replayed": {partition.DeviceState{}, []pastDelivery{letter}, window, whyWindow,
			"an alert was sent, and its window is in force\n" +
				"  window   hook: in force until 03:14:41 UTC (another 41 s); an alert was delivered at 03:13:41 UTC (19 s ago) by a replica\n" +
				"  letter   hook: oven-7: 91.5, at or above 80; enqueued at 03:11:00 UTC (3 min ago), became a dead letter at 03:12:00 UTC (2 min ago), 20260302T031100.000Z-0123456789abcdef: refused for good: answered 400"},
		"waiting comes first": {partition.DeviceState{Deliveries: []delivery.State{
			{Receiver: "hook", Rule: "temperature", Since: ago(3 * time.Minute), Value: 91.5, Waits: delivery.Condition{For: delivery.WaitReceiver, Text: "receiver hook is down (connection refused)", Since: ago(2 * time.Minute), Next: now.Add(20 * time.Second)}},
			{Receiver: "pager", Rule: "temperature", Since: ago(2 * time.Minute), Value: 95, Waits: delivery.Condition{Text: "an attempt to alert receiver pager is under way", Since: ago(5 * time.Second)}},
		}}, []pastDelivery{letter}, window, whyWaiting,
			"a message about it waits to be delivered\n" +
				"  waits    hook: alert about 91.5, since 03:11:00 UTC: receiver hook is down (connection refused), for 2 min; the next attempt is due in 20 s\n" +
				"  waits    pager: alert about 95, since 03:12:00 UTC: an attempt to alert receiver pager is under way, for 5 s\n" +
				"  window   hook: in force until 03:14:41 UTC (another 41 s); an alert was delivered at 03:13:41 UTC (19 s ago) by a replica\n" +
				"  letter   hook: oven-7: 91.5, at or above 80; enqueued at 03:11:00 UTC (3 min ago), became a dead letter at 03:12:00 UTC (2 min ago), 20260302T031100.000Z-0123456789abcdef: refused for good: answered 400"},
		"another's claim is in the way": {partition.DeviceState{Deliveries: []delivery.State{
			{Receiver: "hook", Rule: "temperature", Since: ago(time.Minute), Value: 91.5, Waits: delivery.Condition{For: delivery.WaitClaim, Text: "the device's key at receiver hook is not free", Since: ago(8 * time.Second), Next: now.Add(time.Second)}},
		}}, nil, claim, whyWaiting,
			"a message about it waits to be delivered\n" +
				"  waits    hook: alert about 91.5, since 03:13:00 UTC: the device's key at receiver hook is not free, for 8 s; the next attempt is due in 1 s\n" +
				"  window   hook: claimed by a replica at 03:13:52 UTC (8 s ago), until 03:14:12 UTC (another 12 s)"},
	} {
		t.Run(name, func(t *testing.T) {
			f := findings{now: now, set: &threshold, state: test.state, ended: test.ended, gates: []gateState{test.gate}}
			if status, got := answer(f); status != test.status || got != test.want {
				t.Errorf("got %s\n%s\nwant %s\n%s", status, got, test.status, test.want)
			}
		})
	}
}

func TestWhyOfRules(t *testing.T) {
	now := time.Date(2026, 3, 2, 3, 14, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	set := rules.Set{Mutes: rules.Mutes{{Property: "quiet", Value: "true"}}, Rules: []rules.Rule{
		{Name: "hot", Field: "temperature", Window: 10 * time.Minute, Resolved: true, Levels: []rules.Level{
			{Name: "warning", Limit: 70, Clear: 65, For: 2 * time.Minute}, {Name: "critical", Limit: 80, Clear: 65, For: 2 * time.Minute, LimitAt: rules.Reference{Name: "maxTemp"}},
		}},
		{Name: "cold", Field: "temperature", Below: true, Window: time.Minute, Resolved: true, Levels: []rules.Level{{Limit: 2, Clear: 4}}},
		{Name: "damp", Field: "humidity", Window: time.Minute, Levels: []rules.Level{{Limit: 60, Clear: 60}}},
		{Name: "door", Field: "door", Is: []string{"open", "ajar"}, Window: time.Minute, Levels: []rules.Level{{Limit: 1, Clear: 1, For: time.Minute}}},
		{Name: "frozen", Field: "temp", Unit: "°C", Window: time.Minute, Levels: []rules.Level{{Limit: -17, Clear: -17}},
			Only: []rules.Condition{{Name: "kind", Values: []string{"frozen", "deep"}}, {Name: "load", Values: []string{"full"}}}},
	}}
	alarm := func(rule, level string, phase rules.Phase, limit float64, since time.Duration) partition.AlarmState {
		return partition.AlarmState{Partition: "3", Rule: rule, Level: level, Phase: phase, Value: limit, Limit: limit, Since: ago(since)}
	}
	window := gateState{Receiver: "hook", Rule: "hot", Level: "critical", rule: &rules.Rule{Window: 10 * time.Minute}, State: throttle.State{
		Phase: throttle.Closed, Until: now.Add(7 * time.Minute), Quiet: now.Add(7 * time.Minute), Claimed: ago(3 * time.Minute), Now: now,
	}}
	for name, test := range map[string]struct {
		set          *rules.Set
		alarms       []partition.AlarmState
		deliveries   []delivery.State
		ended        []pastDelivery
		gates        []gateState
		status, want string
	}{
		"a word": {&set, []partition.AlarmState{alarm("door", "", rules.Pending, 1, 30*time.Second)}, nil, nil, nil, whyPending,
			"it reaches a limit, but not for long enough yet\n" +
				"  alarm    door: pending since 03:13:30 UTC, by open, limit open or ajar; an alert is due from 03:14:30 UTC (partition 3)"},
		"by its own clock": {&set, []partition.AlarmState{
			{Rule: "hot", Level: "warning", Phase: rules.Pending, Partition: "3", Value: 70, Limit: 70, Since: ago(time.Minute), Arrived: ago(time.Second)},
		}, nil, nil, nil, whyPending,
			"it reaches a limit, but not for long enough yet\n" +
				"  alarm    hot · warning: pending since 03:13:00 UTC, by 70, limit 70; an alert is due from 03:15:00 UTC; it arrived at 03:13:59 UTC (partition 3)"},
		"pending": {&set, []partition.AlarmState{alarm("hot", "warning", rules.Pending, 70, time.Minute)}, nil, nil, nil, whyPending,
			"it reaches a limit, but not for long enough yet\n" +
				"  alarm    hot · warning: pending since 03:13:00 UTC, by 70, limit 70; an alert is due from 03:15:00 UTC (partition 3)"},
		"notified": {&set, []partition.AlarmState{alarm("hot", "warning", rules.Open, 70, time.Hour), alarm("hot", "critical", rules.Open, 90, time.Hour)}, nil, nil, []gateState{window}, whyOpen,
			"its alarm is open\n" +
				"  alarm    hot · warning: open since 02:14:00 UTC, by 70, limit 70 (partition 3)\n" +
				"  alarm    hot · critical: open since 02:14:00 UTC, by 90, limit 90 (partition 3)\n" +
				"  window   hook · hot · critical: in force until 03:21:00 UTC (another 7 min); an alert was delivered at 03:11:00 UTC (3 min ago) by a replica"},
		"not sent again yet": {&set, []partition.AlarmState{{Partition: "3", Rule: "damp", Phase: rules.Open, Value: 91, Limit: 60, Since: ago(time.Hour), Waits: []delivery.Condition{
			{For: delivery.WaitRepeat, Text: "receiver hook got its alarm, and gets it again if it stays open", Since: ago(time.Hour), Next: now.Add(3 * time.Hour)},
		}}}, nil, nil, []gateState{{Receiver: "hook", Rule: "damp", rule: &rules.Rule{Window: time.Minute}, State: throttle.State{Quiet: ago(59 * time.Minute), Claimed: ago(time.Hour), Sent: ago(time.Hour), Now: now}}}, whyOpen,
			"its alarm is open\n" +
				"  alarm    damp: open since 02:14:00 UTC, by 91, limit 60 (partition 3)\n" +
				"  repeat   damp: receiver hook got its alarm, and gets it again if it stays open; sent at 02:14:00 UTC (60 min ago); due again in 3 h\n" +
				"  window   hook · damp: over; an alert was delivered at 02:14:00 UTC (60 min ago) by a replica"},
		"a resolved that waits": {&set, nil, []delivery.State{
			{Receiver: "hook", Rule: "hot", Level: "critical", Recovery: true, Since: ago(time.Minute), Value: 64, Waits: delivery.Condition{For: delivery.WaitWindow, Text: "receiver hook gets the recovery when the window of the last alert is over", Since: ago(time.Minute), Next: now.Add(7 * time.Minute)}},
		}, nil, []gateState{window}, whyWaiting,
			"a message about it waits to be delivered\n" +
				"  waits    hook · hot · critical: recovery at 64, since 03:13:00 UTC: receiver hook gets the recovery when the window of the last alert is over, for 60 s; the next attempt is due in 7 min\n" +
				"  window   hook · hot · critical: in force until 03:21:00 UTC (another 7 min); an alert was delivered at 03:11:00 UTC (3 min ago) by a replica"},
		"an alert comes before a resolved": {&set, nil, []delivery.State{
			{Receiver: "hook", Rule: "hot", Level: "critical", Recovery: true, Since: ago(time.Hour), Value: 64, Waits: delivery.Condition{For: delivery.WaitTurn, Text: "other alerts are being sent to receiver hook first", Since: ago(time.Hour)}},
			{Receiver: "hook", Rule: "damp", Since: ago(time.Minute), Value: 61, Waits: delivery.Condition{Text: "an attempt to alert receiver hook is under way", Since: ago(time.Second)}},
		}, nil, nil, whyWaiting,
			"a message about it waits to be delivered\n" +
				"  waits    hook · hot · critical: recovery at 64, since 02:14:00 UTC: other alerts are being sent to receiver hook first, for 60 min\n" +
				"  waits    hook · damp: alert about 61, since 03:13:00 UTC: an attempt to alert receiver hook is under way, for 1 s"},
		"a dead letter of another level": {&set, nil, nil, []pastDelivery{
			{Receiver: "hook", Rule: "hot", Level: "warning", At: ago(time.Minute)},
			{Receiver: "hook", Rule: "hot", Level: "critical", Resolved: true, At: ago(2 * time.Minute), Text: "oven-7: 64, normal again, below 65 (hot, critical)", Enqueued: ago(3 * time.Minute), Reason: "refused"},
		}, nil, whyDeadLetter,
			"a receiver did not accept its last alert\n" +
				"  letter   hook · hot · critical: oven-7: 64, normal again, below 65 (hot, critical); enqueued at 03:11:00 UTC (3 min ago), became a dead letter at 03:12:00 UTC (2 min ago), only in the log: refused\n" +
				"Fix the receiver, then run `alertworker deadletters replay ID`, unless the alert is only in the log."},
	} {
		t.Run(name, func(t *testing.T) {
			f := findings{now: now, set: test.set, ended: test.ended, gates: test.gates, state: partition.DeviceState{Alarms: test.alarms, Deliveries: test.deliveries}}
			if status, got := answer(f); status != test.status || got != test.want {
				t.Errorf("got %s\n%s\nwant %s\n%s", status, got, test.status, test.want)
			}
		})
	}
}

// A device whose messages cannot be read is silent for a rule with a field, and has been heard all the same: no text says
// that it has not.
func TestWhyOfASilentDeviceThatSends(t *testing.T) {
	now := time.Date(2026, 3, 2, 3, 14, 0, 0, time.UTC)
	silent := rules.Rule{Name: "probe-dead", Field: "probe,temp", Silent: time.Hour, Levels: []rules.Level{{}}}
	f := findings{now: now, set: &rules.Set{Rules: []rules.Rule{silent}}, known: 2}
	f.state.Partitions = []string{"0"}
	f.state.Unreadable = &partition.Unreadable{Partition: "0", Reason: telemetry.ReasonNull, Since: now.Add(-2 * time.Hour), Last: now.Add(-time.Minute)}
	f.state.Alarms = []partition.AlarmState{{Rule: "probe-dead", Phase: rules.Open, Silence: true, Partition: "0", Limit: 3600, Since: now.Add(-2 * time.Hour)}}
	const want = "it is silent\n" +
		"  event    at 03:13:00 UTC (60 s ago), partition 0: its reading is null; nothing could be read since 01:14:00 UTC\n" +
		"  alarm    probe-dead: open since 01:14:00 UTC: no probe or temp counted, limit 60 min (partition 0)\n" +
		"See whether it is on and connected."
	if status, got := answer(f); status != whySilent || got != want {
		t.Errorf("got %s\n%s\nwant %s\n%s", status, got, whySilent, want)
	}
	for state, f := range map[string]findings{
		"read here":                       {now: now, set: f.set, known: 2, state: partition.DeviceState{Unreadable: f.state.Unreadable}},
		"read by another replica":         {now: now, set: f.set, known: 2},
		"the hub has none of it, of late": {now: now, set: f.set, known: 2, hub: Readings{last: time.Hour}},
	} {
		if _, got := answer(f); strings.Contains(got, "heard") {
			t.Errorf("%s: %s", state, got)
		}
	}
}

// A device with very many facts has an answer that can be read all the same.
func TestWhyIsBounded(t *testing.T) {
	set := rules.Threshold("temperature", 80, time.Minute)
	f := findings{now: time.Now(), set: &set, ended: slices.Repeat([]pastDelivery{{Receiver: "hook", Rule: "temperature", Reason: "refused"}}, 5000)}
	_, text := answer(f)
	lines := strings.Split(text, "\n")
	const more = "  more     4940 facts: ask for one sensor, or see `alertworker deadletters list`"
	if len(lines) != 63 || lines[61] != more {
		t.Errorf("%d lines, at the end %q, want %q", len(lines), lines[max(0, len(lines)-2):], more)
	}
}

// answer is what why says of the device d, without its name.
func answer(f findings) (status, text string) {
	f.asked.Device = "d"
	status, lines := f.why()
	return status, strings.TrimPrefix(strings.Join(lines, "\n"), "d: ")
}
