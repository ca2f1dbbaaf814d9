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
	heard := func(h partition.LastSeen) partition.DeviceState { return partition.DeviceState{Last: &h} }
	reading := func(value float64, at time.Time) partition.DeviceState {
		r := partition.Reading{Value: value, Enqueued: at, Sequence: 17}
		if value >= 80 {
			r.Decision, r.Rule, r.Limit = partition.Notified, "temperature", 80
		}
		return heard(partition.LastSeen{Partition: "3", At: at, Reading: &r})
	}
	open := gateState{Receiver: "hook", Rule: "temperature", window: time.Minute, State: throttle.State{Now: now}}
	down := gateState{Receiver: "hook", Rule: "temperature", window: time.Minute, State: throttle.State{Phase: throttle.NotKnown}, Error: "connection refused"}
	window := gateState{Receiver: "hook", Rule: "temperature", window: time.Minute, State: throttle.State{Phase: throttle.Closed, Until: now.Add(41 * time.Second), Quiet: now.Add(41 * time.Second), Claimed: ago(19 * time.Second), Now: now}}
	over := gateState{Receiver: "hook", Rule: "temperature", window: time.Minute, State: throttle.State{Quiet: ago(time.Hour), Claimed: ago(time.Hour + time.Minute), Now: now}}
	failed := gateState{Receiver: "hook", Rule: "temperature", window: time.Minute, State: throttle.State{Quiet: ago(time.Hour), Claimed: ago(time.Minute), Now: now}}
	claim := gateState{Receiver: "hook", Rule: "temperature", window: time.Minute, State: throttle.State{Phase: throttle.Sending, Until: now.Add(12 * time.Second), Claimed: ago(8 * time.Second), Now: now}}
	taken := pastDelivery{Receiver: "hook", Rule: "temperature", At: ago(19 * time.Second), Until: now.Add(41 * time.Second)}
	letter := pastDelivery{Receiver: "hook", Rule: "temperature", At: ago(2 * time.Minute), Temperature: 91.5, Enqueued: ago(3 * time.Minute), Reason: "refused for good: answered 400", Letter: "20260302T031100.000Z-0123456789abcdef"}
	logged := letter
	logged.Letter = ""

	threshold := rules.Threshold("temperature", 80, time.Minute)
	for name, test := range map[string]struct {
		state        partition.DeviceState
		ended        []pastDelivery
		gate         gateState
		status, want string
	}{
		"not heard": {partition.DeviceState{Since: ago(time.Hour), Partitions: []string{"0", "2"}}, nil, open, whyNotSeen,
			"This replica has seen nothing of the device since 02:14:00 UTC, and another one may know more"},
		"not heard in the only partition": {partition.DeviceState{Since: ago(24 * time.Hour), Partitions: []string{"0"}}, nil, open, whyNotSeen,
			"This replica has seen nothing of the device since 2026-03-01 03:14:00 UTC, and another one may know more"},
		"not heard, but another replica has": {partition.DeviceState{}, nil, window, whyNotSeen,
			"Its last reading is known only to the replica that reads its partition, and to the hub (`alertworker why --last`); receiver hook: a replica delivered an alert at 03:13:41 UTC (19 s ago); the window is in force until 03:14:41 UTC (another 41 s)"},
		"below": {reading(21.5, ago(5*time.Second)), nil, open, whyBelow,
			"Its last reading, 21.5 at 03:13:55 UTC (5 s ago), reaches no limit"},
		"below, after an alert": {reading(21.5, ago(5*time.Second)), []pastDelivery{taken}, window, whyBelow,
			"Its last reading, 21.5 at 03:13:55 UTC (5 s ago), reaches no limit; receiver hook: a replica delivered an alert at 03:13:41 UTC (19 s ago); the window is in force until 03:14:41 UTC (another 41 s)"},
		"below, while another replica has a claim": {reading(21.5, now), nil, claim, whyBelow,
			"Its last reading, 21.5 at 03:14:00 UTC (just now), reaches no limit; receiver hook: a replica has been sending since 03:13:52 UTC, or has died: it has a claim until 03:14:12 UTC (another 12 s)"},
		"below, long after an alert": {reading(21.5, now), nil, over, whyBelow,
			"Its last reading, 21.5 at 03:14:00 UTC (just now), reaches no limit; receiver hook: an alert was delivered at 02:13:00 UTC (61 min ago); its window is over"},
		"below, after an attempt that failed": {reading(21.5, now), nil, failed, whyBelow,
			"Its last reading, 21.5 at 03:14:00 UTC (just now), reaches no limit; receiver hook: an alert was delivered at 02:13:00 UTC (61 min ago); its window is over"},
		"damaged": {heard(partition.LastSeen{Partition: "3", Reading: &partition.Reading{Value: 21.5, Enqueued: now, Sequence: 9, Damaged: "not JSON at byte 1 of a message of oven-7: found ' where …"}}), nil, open, whyBelow,
			"Its last reading, 21.5 at 03:14:00 UTC (just now), reaches no limit; not JSON at byte 1 of a message of oven-7: found ' where …"},
		"malformed": {heard(partition.LastSeen{Partition: "3", Undecodable: &partition.Undecodable{Reason: telemetry.ReasonMalformed, Damage: "not JSON at byte 1 of a message of oven-7: found ; where …", Enqueued: ago(time.Minute), Sequence: 9}}), nil, open, whyUndecodable,
			"Its last event, at 03:13:00 UTC (60 s ago) in partition 3 (sequence 9), has no reading: not JSON at byte 1 of a message of oven-7: found ; where …"},
		"undecodable": {heard(partition.LastSeen{Partition: "3", Undecodable: &partition.Undecodable{Reason: telemetry.ReasonMissing, Enqueued: ago(time.Minute), Sequence: 9}}), nil, open, whyUndecodable,
			"Its last event, at 03:13:00 UTC (60 s ago) in partition 3 (sequence 9), has no reading: none of the fields in TEMPERATURE_FIELD, or of the rules in RULES or RULES_FILE, is in it"},
		"nothing can be read": {heard(partition.LastSeen{Partition: "3", Undecodable: &partition.Undecodable{Reason: telemetry.ReasonNull, Enqueued: ago(time.Minute), Sequence: 9, Since: ago(3 * time.Hour)}}), nil, open, whyUndecodable,
			"Its last event, at 03:13:00 UTC (60 s ago) in partition 3 (sequence 9), has no reading: its reading is null; nothing could be read of it since 00:14:00 UTC"},
		"undecodable after a reading": {heard(partition.LastSeen{
			Partition: "3", Reading: &partition.Reading{Value: 99, Enqueued: ago(time.Minute), Sequence: 8},
			Undecodable: &partition.Undecodable{Reason: telemetry.ReasonNull, Enqueued: ago(time.Minute), Sequence: 9},
		}), nil, open, whyUndecodable,
			"Its last event, at 03:13:00 UTC (60 s ago) in partition 3 (sequence 9), has no reading: its reading is null"},
		"undecodable before a reading": {heard(partition.LastSeen{
			Partition: "3", Reading: &partition.Reading{Value: 79.9, Enqueued: now, Sequence: 10},
			Undecodable: &partition.Undecodable{Reason: telemetry.ReasonNull, Enqueued: ago(time.Minute), Sequence: 9},
		}), nil, down, whyBelow,
			"Its last reading, 79.9 at 03:14:00 UTC (just now), reaches no limit"},
		"a window": {reading(91.5, ago(2*time.Second)), []pastDelivery{taken}, window, whyWindow,
			"Its last reading, 91.5 at 03:13:58 UTC (2 s ago), reaches the limit of 80, and is settled; receiver hook: a replica delivered an alert at 03:13:41 UTC (19 s ago); the window is in force until 03:14:41 UTC (another 41 s)"},
		"another's claim": {reading(91.5, now), nil, claim, whySending,
			"Its last reading, 91.5 at 03:14:00 UTC (just now), reaches the limit of 80, and is settled; receiver hook: a replica has been sending since 03:13:52 UTC, or has died: it has a claim until 03:14:12 UTC (another 12 s)"},
		"the store is down": {reading(91.5, now), nil, down, whyUnknown,
			"Its last reading, 91.5 at 03:14:00 UTC (just now), reaches the limit of 80, and is settled; receiver hook: not known: connection refused"},
		"delivered": {reading(80, ago(61*time.Minute)), nil, over, whyDelivered,
			"Its last reading, 80 at 02:13:00 UTC (61 min ago), reaches the limit of 80, and is settled; receiver hook: an alert was delivered at 02:13:00 UTC (61 min ago); its window is over"},
		"settled": {reading(80, now), nil, open, whyDelivered,
			"Its last reading, 80 at 03:14:00 UTC (just now), reaches the limit of 80, and is settled"},
		"a dead letter": {reading(21.5, now), []pastDelivery{letter}, failed, whyDeadLetter,
			"The alert about 91.5 at 03:11:00 UTC (3 min ago) became a dead letter of receiver hook at 03:12:00 UTC (2 min ago): refused for good: answered 400; `alertworker deadletters replay 20260302T031100.000Z-0123456789abcdef` sends it again; receiver hook: an alert was delivered at 02:13:00 UTC (61 min ago); its window is over"},
		"a dead letter in the log": {reading(21.5, now), []pastDelivery{logged}, failed, whyDeadLetter,
			"The alert about 91.5 at 03:11:00 UTC (3 min ago) became a dead letter of receiver hook at 03:12:00 UTC (2 min ago): refused for good: answered 400; it is only in the log; receiver hook: an alert was delivered at 02:13:00 UTC (61 min ago); its window is over"},
		"a dead letter before an alert": {reading(21.5, now), []pastDelivery{taken, letter}, down, whyBelow,
			"Its last reading, 21.5 at 03:14:00 UTC (just now), reaches no limit"},
		"a dead letter that was replayed": {reading(21.5, now), []pastDelivery{letter}, window, whyBelow,
			"Its last reading, 21.5 at 03:14:00 UTC (just now), reaches no limit; receiver hook: a replica delivered an alert at 03:13:41 UTC (19 s ago); the window is in force until 03:14:41 UTC (another 41 s)"},
		"waiting comes first": {partition.DeviceState{Last: reading(21.5, now).Last, Deliveries: []delivery.State{
			{Receiver: "hook", Rule: "temperature", Since: ago(3 * time.Minute), Value: 91.5, Waits: delivery.Condition{For: delivery.WaitReceiver, Text: "receiver hook is down (connection refused)", Since: ago(2 * time.Minute), Next: now.Add(20 * time.Second)}},
			{Receiver: "pager", Rule: "temperature", Since: ago(2 * time.Minute), Value: 95, Waits: delivery.Condition{Text: "an attempt to alert receiver pager is under way", Since: ago(5 * time.Second)}},
		}}, []pastDelivery{letter}, window, whyWaiting,
			"An alert about 91.5 has been waiting since 03:11:00 UTC: receiver hook is down (connection refused), for 2 min; the next attempt is due in 20 s. An alert about 95 has been waiting since 03:12:00 UTC: an attempt to alert receiver pager is under way, for 5 s; receiver hook: a replica delivered an alert at 03:13:41 UTC (19 s ago); the window is in force until 03:14:41 UTC (another 41 s)"},
		"another's claim is in the way": {partition.DeviceState{Deliveries: []delivery.State{
			{Receiver: "hook", Rule: "temperature", Since: ago(time.Minute), Value: 91.5, Waits: delivery.Condition{For: delivery.WaitClaim, Text: "the device's key at receiver hook is not free", Since: ago(8 * time.Second), Next: now.Add(time.Second)}},
		}}, nil, claim, whyWaiting,
			"An alert about 91.5 has been waiting since 03:13:00 UTC: the device's key at receiver hook is not free, for 8 s; the next attempt is due in 1 s; receiver hook: a replica has been sending since 03:13:52 UTC, or has died: it has a claim until 03:14:12 UTC (another 12 s)"},
	} {
		t.Run(name, func(t *testing.T) {
			f := findings{now: now, set: &threshold, state: test.state, ended: test.ended, gates: []gateState{test.gate}}
			if status, got := f.why(); status != test.status || got != test.want {
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
	mild := rules.Threshold("temperature", -15, time.Minute)
	mild.Rules[0].Levels[0].LimitAt.Name = "maxTemp"
	below := rules.Set{Rules: []rules.Rule{{Name: "temperature", Field: "temperature", Window: time.Minute, Levels: []rules.Level{{Limit: 80, Clear: 75, For: time.Minute}}}}}
	settling := rules.Set{Rules: slices.Clone(below.Rules)}
	settling.Rules[0].ClearedFor = 5 * time.Minute
	alarm := func(rule, level string, phase rules.Phase, limit float64, since time.Duration) partition.AlarmState {
		return partition.AlarmState{Rule: rule, Level: level, Phase: phase, Value: limit, Limit: limit, Since: ago(since)}
	}
	window := gateState{Receiver: "hook", Rule: "hot", Level: "critical", window: 10 * time.Minute, State: throttle.State{
		Phase: throttle.Closed, Until: now.Add(7 * time.Minute), Quiet: now.Add(7 * time.Minute), Claimed: ago(3 * time.Minute), Now: now,
	}}
	for name, test := range map[string]struct {
		set          *rules.Set
		reading      partition.Reading
		alarms       []partition.AlarmState
		deliveries   []delivery.State
		ended        []pastDelivery
		gates        []gateState
		status, want string
	}{
		"a word": {&set, partition.Reading{Value: 2, Decision: partition.StaysPending, Rule: "door", Limit: 1}, []partition.AlarmState{alarm("door", "", rules.Pending, 1, 30*time.Second)}, nil, nil, nil, whyPending,
			"Its last reading, ajar at 03:13:55 UTC (5 s ago), is open or ajar (rule door), but not for long enough yet: its alarm (rule door) has been pending since 03:13:30 UTC, when it was open; the first reading over it from 03:14:30 UTC on causes an alert"},
		"not looked at": {&set, partition.Reading{Value: 40.4, Decision: partition.Excluded, Rule: "frozen", Limit: -17}, nil, nil, nil, nil, whyExcluded,
			"Its last reading, 40.4 °C at 03:13:55 UTC (5 s ago), reaches the limit of -17 °C (rule frozen), but the rule looks only at messages with kind frozen or deep and load full"},
		"by its own clock": {&set, partition.Reading{Value: 75, Decision: partition.StaysPending, Rule: "hot", Level: "warning", Limit: 70}, []partition.AlarmState{
			{Rule: "hot", Level: "warning", Phase: rules.Pending, Value: 70, Limit: 70, Since: ago(time.Minute), Arrived: ago(time.Second)},
		}, nil, nil, nil, whyPending,
			"Its last reading, 75 at 03:13:55 UTC (5 s ago), reaches the limit of 70 (rule hot, level warning), but not for long enough yet: its alarm (rule hot, level warning) has been pending since 03:13:00 UTC by its own clock (it arrived at 03:13:59 UTC), when 70 reached the limit of 70; the first reading over it from 03:15:00 UTC on causes an alert"},
		"a limit of its own": {&mild, partition.Reading{Value: 4, Rule: "temperature", Limit: 8, Own: true}, nil, nil, nil, nil, whyBelow,
			"Its last reading, 4 at 03:13:55 UTC (5 s ago), does not reach its own limit of 8, by maxTemp instead of -15"},
		"nobody wants it": {&set, partition.Reading{Value: 91, Decision: partition.Unwanted, Rule: "hot", Level: "critical", Limit: 80}, nil, nil, nil, nil, whyUnwanted,
			"Its last reading, 91 at 03:13:55 UTC (5 s ago), reaches the limit of 80 (rule hot, level critical), but no receiver of NOTIFY_URLS gets alerts of this device, rule and level (level=, rule=, where=)"},
		"no limit": {&set, partition.Reading{Value: 20}, nil, nil, nil, nil, whyBelow,
			"Its last reading, 20 at 03:13:55 UTC (5 s ago), reaches no limit"},
		"the only limit of its field": {&set, partition.Reading{Value: 20, Field: 2}, nil, nil, nil, nil, whyBelow,
			"Its last reading, 20 at 03:13:55 UTC (5 s ago), reaches no limit"},
		"pending": {&set, partition.Reading{Value: 75, Decision: partition.StaysPending, Rule: "hot", Level: "warning", Limit: 70}, []partition.AlarmState{alarm("hot", "warning", rules.Pending, 70, time.Minute)}, nil, nil, nil, whyPending,
			"Its last reading, 75 at 03:13:55 UTC (5 s ago), reaches the limit of 70 (rule hot, level warning), but not for long enough yet: its alarm (rule hot, level warning) has been pending since 03:13:00 UTC, when 70 reached the limit of 70; the first reading over it from 03:15:00 UTC on causes an alert"},
		"notified": {&set, partition.Reading{Value: 91, Decision: partition.Notified, Rule: "hot", Level: "critical", Limit: 90, Own: true}, []partition.AlarmState{alarm("hot", "warning", rules.Open, 70, time.Hour), alarm("hot", "critical", rules.Open, 90, time.Hour)}, nil, nil, []gateState{window}, whyWindow,
			"Its last reading, 91 at 03:13:55 UTC (5 s ago), reaches its own limit of 90, by maxTemp instead of 80 (rule hot, level critical), and is settled; receiver hook (rule hot, level critical): a replica delivered an alert at 03:11:00 UTC (3 min ago); the window is in force until 03:21:00 UTC (another 7 min)"},
		"not sent again yet": {&set, partition.Reading{Value: 91, Decision: partition.Notified, Rule: "damp", Limit: 60}, []partition.AlarmState{{Rule: "damp", Phase: rules.Open, Value: 91, Limit: 60, Since: ago(time.Hour), Waits: []delivery.Condition{
			{For: delivery.WaitRepeat, Text: "receiver hook got its alarm, and gets it again if it stays open", Since: ago(time.Hour), Next: now.Add(3 * time.Hour)},
		}}}, nil, nil, []gateState{{Receiver: "hook", Rule: "damp", window: time.Minute, repeat: 4 * time.Hour, State: throttle.State{Quiet: ago(59 * time.Minute), Claimed: ago(time.Hour), Sent: ago(time.Hour), Now: now}}}, whyDelivered,
			"Its last reading, 91 at 03:13:55 UTC (5 s ago), reaches the limit of 60 (rule damp), and is settled; receiver hook got its alarm, and gets it again if it stays open; it was sent at 02:14:00 UTC (60 min ago), and is due again in 3 h; receiver hook (rule damp): an alert was delivered at 02:14:00 UTC (60 min ago); its window is over, and its alarm is sent again, while it is open, from 06:14:00 UTC on"},
		"quiet": {&set, partition.Reading{Value: 91, Decision: partition.Muted, Rule: "hot", Level: "critical", Limit: 80}, []partition.AlarmState{alarm("hot", "critical", rules.Open, 80, time.Hour)}, nil, nil, nil, whyQuiet,
			"Its last reading, 91 at 03:13:55 UTC (5 s ago), reaches the limit of 80 (rule hot, level critical), but was muted: by its message, a mute time of the rules, or a silence"},
		"a higher level": {&set, partition.Reading{Value: 75, Decision: partition.Inhibited, Rule: "hot", Level: "warning", Limit: 70}, []partition.AlarmState{alarm("hot", "warning", rules.Open, 70, time.Hour), alarm("hot", "critical", rules.Open, 90, 14*time.Minute)}, nil, nil, nil, whyInhibited,
			"Its last reading, 75 at 03:13:55 UTC (5 s ago), reaches the limit of 70 (rule hot, level warning), which sends no alert while the alarm of a higher level is open"},
		"between": {&below, partition.Reading{Value: 77, Decision: partition.StaysOpen, Rule: "temperature", Limit: 80}, []partition.AlarmState{alarm("temperature", "", rules.Open, 80, 14*time.Minute)}, nil, nil, nil, whyOpen,
			"Its last reading, 77 at 03:13:55 UTC (5 s ago), does not reach the limit of 80, but is not below 75 either: its alarm has been open since 03:00:00 UTC, when 80 reached the limit of 80"},
		"damaged": {&below, partition.Reading{Value: 20, Decision: partition.StaysOpen, Rule: "temperature", Limit: 80, Damaged: "not JSON at byte 1 …"}, []partition.AlarmState{alarm("temperature", "", rules.Open, 80, 14*time.Minute)}, nil, nil, nil, whyOpen,
			"Its last reading, 20 at 03:13:55 UTC (5 s ago), does not reach the limit of 80, but its message is damaged, which ends no alarm: its alarm has been open since 03:00:00 UTC, when 80 reached the limit of 80; not JSON at byte 1 …"},
		"not clear for long enough": {&settling, partition.Reading{Value: 70, Decision: partition.StaysOpen, Rule: "temperature", Limit: 80}, []partition.AlarmState{alarm("temperature", "", rules.Open, 80, 14*time.Minute)}, nil, nil, nil, whyOpen,
			"Its last reading, 70 at 03:13:55 UTC (5 s ago), does not reach the limit of 80, and is below 75, but has not been for 5 min yet: its alarm has been open since 03:00:00 UTC, when 80 reached the limit of 80"},
		"between, of a rule below": {&set, partition.Reading{Value: 3, Decision: partition.StaysOpen, Rule: "cold", Limit: 2}, []partition.AlarmState{alarm("cold", "", rules.Open, 2, 14*time.Minute)}, nil, nil, []gateState{window}, whyOpen,
			"Its last reading, 3 at 03:13:55 UTC (5 s ago), does not reach the limit of 2 (rule cold), but is not above 4 either: its alarm (rule cold) has been open since 03:00:00 UTC, when 2 reached the limit of 2; receiver hook (rule hot, level critical): a replica delivered an alert at 03:11:00 UTC (3 min ago); the window is in force until 03:21:00 UTC (another 7 min)"},
		"normal again": {&set, partition.Reading{Value: 20}, nil, nil, []pastDelivery{
			{Receiver: "hook", Rule: "hot", Level: "critical", Resolved: true, At: ago(time.Minute)}, {Receiver: "hook", Rule: "hot", Level: "critical", At: ago(14 * time.Minute)},
		}, nil, whyBelow,
			"Its last reading, 20 at 03:13:55 UTC (5 s ago), reaches no limit"},
		"a resolved that waits": {&set, partition.Reading{Value: 20}, nil, []delivery.State{
			{Receiver: "hook", Rule: "hot", Level: "critical", Recovery: true, Since: ago(time.Minute), Value: 64, Waits: delivery.Condition{For: delivery.WaitWindow, Text: "receiver hook gets the recovery when the window of the last alert is over", Since: ago(time.Minute), Next: now.Add(7 * time.Minute)}},
		}, nil, []gateState{window}, whyWaiting,
			"The recovery (rule hot, level critical), at 64, has been waiting since 03:13:00 UTC: receiver hook gets the recovery when the window of the last alert is over, for 60 s; the next attempt is due in 7 min; receiver hook (rule hot, level critical): a replica delivered an alert at 03:11:00 UTC (3 min ago); the window is in force until 03:21:00 UTC (another 7 min)"},
		"an alert comes before a resolved": {&set, partition.Reading{Value: 20}, nil, []delivery.State{
			{Receiver: "hook", Rule: "hot", Level: "critical", Recovery: true, Since: ago(time.Hour), Value: 64, Waits: delivery.Condition{For: delivery.WaitTurn, Text: "other alerts are being sent to receiver hook first", Since: ago(time.Hour)}},
			{Receiver: "hook", Rule: "damp", Since: ago(time.Minute), Value: 61, Waits: delivery.Condition{Text: "an attempt to alert receiver hook is under way", Since: ago(time.Second)}},
		}, nil, nil, whyWaiting,
			"The recovery (rule hot, level critical), at 64, has been waiting since 02:14:00 UTC: other alerts are being sent to receiver hook first, for 60 min. An alert (rule damp) about 61 has been waiting since 03:13:00 UTC: an attempt to alert receiver hook is under way, for 1 s"},
		"a dead letter of another level": {&set, partition.Reading{Value: 20}, nil, nil, []pastDelivery{
			{Receiver: "hook", Rule: "hot", Level: "warning", At: ago(time.Minute)},
			{Receiver: "hook", Rule: "hot", Level: "critical", Resolved: true, At: ago(2 * time.Minute), Temperature: 64, Enqueued: ago(3 * time.Minute), Reason: "refused"},
		}, nil, whyDeadLetter,
			"The recovery (rule hot, level critical), with 64 at 03:11:00 UTC (3 min ago), became a dead letter of receiver hook at 03:12:00 UTC (2 min ago): refused; it is only in the log"},
	} {
		t.Run(name, func(t *testing.T) {
			test.reading.Enqueued = ago(5 * time.Second)
			f := findings{now: now, set: test.set, ended: test.ended, gates: test.gates, state: partition.DeviceState{
				Last: &partition.LastSeen{Reading: &test.reading}, Alarms: test.alarms, Deliveries: test.deliveries,
			}}
			if status, got := f.why(); status != test.status || got != test.want {
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
	f.state.Last = &partition.LastSeen{Partition: "0", Undecodable: &partition.Undecodable{
		Reason: telemetry.ReasonNull, Enqueued: now.Add(-time.Minute), Since: now.Add(-2 * time.Hour), Sequence: 9,
	}}
	f.state.Alarms = []partition.AlarmState{{Rule: "probe-dead", Phase: rules.Open, Silence: true, Limit: 3600, Since: now.Add(-2 * time.Hour)}}
	const want = "Its alarm (rule probe-dead) is open: no probe or temp of the device has been read since 01:14:00 UTC, for longer than 60 min; " +
		"nothing could be read of it since 01:14:00 UTC"
	if status, got := f.why(); status != whySilent || got != want {
		t.Errorf("got %s\n%s\nwant %s\n%s", status, got, whySilent, want)
	}
	for state, f := range map[string]findings{
		"read here":                       {now: now, set: f.set, known: 2, state: partition.DeviceState{Last: f.state.Last}},
		"read by another replica":         {now: now, set: f.set, known: 2},
		"the hub has none of it, of late": {now: now, set: f.set, known: 2, looked: time.Hour},
	} {
		if _, got := f.why(); strings.Contains(got, "heard") {
			t.Errorf("%s: %s", state, got)
		}
	}
}
