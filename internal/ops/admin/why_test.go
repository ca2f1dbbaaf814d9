package admin

import (
	"errors"
	"testing"
	"time"

	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

func TestWhy(t *testing.T) {
	now := time.Date(2026, 3, 2, 3, 14, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	heard := func(h worker.Heard) worker.DeviceState { return worker.DeviceState{Heard: &h} }
	reading := func(value float64, at time.Time) worker.DeviceState {
		return heard(worker.Heard{Partition: "3", At: at, Reading: &worker.Reading{Value: value, Enqueued: at, Sequence: 17}})
	}
	open := gateState{receiver: "hook", State: throttle.State{Now: now}}
	down := gateState{receiver: "hook", err: errors.New("connection refused")}
	window := gateState{receiver: "hook", State: throttle.State{Phase: throttle.Closed, Until: now.Add(41 * time.Second), Quiet: now.Add(41 * time.Second), Claimed: ago(19 * time.Second), Now: now}}
	over := gateState{receiver: "hook", State: throttle.State{Quiet: ago(time.Hour), Claimed: ago(time.Hour + time.Minute), Now: now}}
	failed := gateState{receiver: "hook", State: throttle.State{Quiet: ago(time.Hour), Claimed: ago(time.Minute), Now: now}}
	claim := gateState{receiver: "hook", State: throttle.State{Phase: throttle.Sending, Until: now.Add(12 * time.Second), Claimed: ago(8 * time.Second), Now: now}}
	taken := ended{receiver: "hook", at: ago(19 * time.Second)}
	letter := ended{receiver: "hook", at: ago(2 * time.Minute), temperature: 91.5, enqueued: ago(3 * time.Minute), reason: "refused for good: answered 400", letter: "20260302T031100.000Z-0123456789abcdef"}
	logged := letter
	logged.letter = ""

	for name, test := range map[string]struct {
		state        worker.DeviceState
		ended        []ended
		gate         gateState
		status, want string
	}{
		"not heard": {worker.DeviceState{Since: ago(time.Hour), Partitions: []string{"0", "2"}}, nil, open, whyNotHeard,
			"This replica has not heard of the device since 02:14:00 UTC; it reads partitions 0 and 2, and another replica may know more"},
		"not heard in the only partition": {worker.DeviceState{Since: ago(24 * time.Hour), Partitions: []string{"0"}}, nil, open, whyNotHeard,
			"This replica has not heard of the device since 2026-03-01 03:14:00 UTC; it reads partition 0, and another replica may know more"},
		"not heard, but another replica has": {worker.DeviceState{}, nil, window, whyNotHeard,
			"This replica reads no partition, so it has not heard of the device: ask another replica; its last alert was delivered at 03:13:41 UTC (19 s ago), and its window is in force until 03:14:41 UTC (another 41 s)"},
		"below": {reading(21.5, ago(5*time.Second)), nil, open, whyBelow,
			"Its last reading, 21.5 at 03:13:55 UTC (5 s ago), is below the threshold of 80"},
		"below, after an alert": {reading(21.5, ago(5*time.Second)), []ended{taken}, window, whyBelow,
			"Its last reading, 21.5 at 03:13:55 UTC (5 s ago), is below the threshold of 80; its last alert was delivered at 03:13:41 UTC (19 s ago), and its window is in force until 03:14:41 UTC (another 41 s)"},
		"below, while another replica has a claim": {reading(21.5, now), nil, claim, whyBelow,
			"Its last reading, 21.5 at 03:14:00 UTC (just now), is below the threshold of 80; a replica has a claim until 03:14:12 UTC (another 12 s): it is sending an alert, or it has died"},
		"below, long after an alert": {reading(21.5, now), nil, over, whyBelow,
			"Its last reading, 21.5 at 03:14:00 UTC (just now), is below the threshold of 80; its last alert was delivered at 02:13:00 UTC (61 min ago)"},
		"below, after an attempt that failed": {reading(21.5, now), nil, failed, whyBelow,
			"Its last reading, 21.5 at 03:14:00 UTC (just now), is below the threshold of 80; its last alert was delivered at 02:13:00 UTC (61 min ago)"},
		"undecodable": {heard(worker.Heard{Partition: "3", Undecodable: &worker.Undecodable{Reason: telemetry.ReasonMissing, Enqueued: ago(time.Minute), Sequence: 9}}), nil, open, whyUndecodable,
			"Its last event, at 03:13:00 UTC (60 s ago) in partition 3 (sequence 9), has no reading: none of the fields in TEMPERATURE_FIELD is in it"},
		"undecodable after a reading": {heard(worker.Heard{
			Partition: "3", Reading: &worker.Reading{Value: 99, Enqueued: ago(time.Minute), Sequence: 8},
			Undecodable: &worker.Undecodable{Reason: telemetry.ReasonNull, Enqueued: ago(time.Minute), Sequence: 9},
		}), nil, open, whyUndecodable,
			"Its last event, at 03:13:00 UTC (60 s ago) in partition 3 (sequence 9), has no reading: its temperature is null"},
		"undecodable before a reading": {heard(worker.Heard{
			Partition: "3", Reading: &worker.Reading{Value: 79.9, Enqueued: now, Sequence: 10},
			Undecodable: &worker.Undecodable{Reason: telemetry.ReasonNull, Enqueued: ago(time.Minute), Sequence: 9},
		}), nil, down, whyBelow,
			"Its last reading, 79.9 at 03:14:00 UTC (just now), is below the threshold of 80"},
		"a window": {reading(91.5, ago(2*time.Second)), []ended{taken}, window, whyWindow,
			"Its last reading over the threshold, 91.5 at 03:13:58 UTC (2 s ago), is suppressed: an alert was delivered at 03:13:41 UTC (19 s ago), and its window is in force until 03:14:41 UTC (another 41 s)"},
		"a window that only memory knows": {reading(91.5, now), []ended{taken}, down, whyWindow,
			"Its last reading over the threshold, 91.5 at 03:14:00 UTC (just now), is suppressed: an alert was delivered at 03:13:41 UTC (19 s ago), and its window is in force until 03:14:41 UTC (another 41 s)"},
		"another's claim": {reading(91.5, now), nil, claim, whySending,
			"Its last reading over the threshold, 91.5 at 03:14:00 UTC (just now), is settled here, and another replica has a claim until 03:14:12 UTC (another 12 s): it is sending an alert, or it has died"},
		"the store is down": {reading(91.5, now), nil, down, whyUnknown,
			"Its last reading over the threshold, 91.5 at 03:14:00 UTC (just now), is settled; more is not known, because the throttle store is not responding"},
		"delivered": {reading(80, ago(61*time.Minute)), nil, over, whyDelivered,
			"Its last reading over the threshold, 80 at 02:13:00 UTC (61 min ago), is covered by the alert that was delivered at 02:13:00 UTC (61 min ago); no window is in force, so the next one causes an alert"},
		"settled": {reading(80, now), nil, open, whyDelivered,
			"Its last reading over the threshold, 80 at 03:14:00 UTC (just now), is settled; no window is in force, so the next one causes an alert"},
		"a dead letter": {reading(21.5, now), []ended{letter}, failed, whyDeadLetter,
			"The alert about 91.5 at 03:11:00 UTC (3 min ago) became a dead letter of receiver hook at 03:12:00 UTC (2 min ago): refused for good: answered 400; `alertworker deadletters replay 20260302T031100.000Z-0123456789abcdef` sends it again"},
		"a dead letter in the log": {reading(21.5, now), []ended{logged}, failed, whyDeadLetter,
			"The alert about 91.5 at 03:11:00 UTC (3 min ago) became a dead letter of receiver hook at 03:12:00 UTC (2 min ago): refused for good: answered 400; it is only in the log"},
		"a dead letter before an alert": {reading(21.5, now), []ended{taken, letter}, down, whyBelow,
			"Its last reading, 21.5 at 03:14:00 UTC (just now), is below the threshold of 80; its last alert was delivered at 03:13:41 UTC (19 s ago), and its window is in force until 03:14:41 UTC (another 41 s)"},
		"a dead letter that was replayed": {reading(21.5, now), []ended{letter}, window, whyBelow,
			"Its last reading, 21.5 at 03:14:00 UTC (just now), is below the threshold of 80; its last alert was delivered at 03:13:41 UTC (19 s ago), and its window is in force until 03:14:41 UTC (another 41 s)"},
		"waiting comes first": {worker.DeviceState{Heard: reading(21.5, now).Heard, Deliveries: []worker.DeliveryState{
			{Receiver: "hook", Since: ago(3 * time.Minute), Value: 91.5, For: worker.WaitReceiver, Until: now.Add(20 * time.Second), Failure: errors.New("connection refused")},
			{Receiver: "pager", Since: ago(2 * time.Minute), Value: 95, For: worker.WaitAttempt},
		}}, []ended{letter}, window, whyWaiting,
			"An alert about 91.5 has been waiting since 03:11:00 UTC: receiver hook is down (connection refused); the next attempt is due in 20 s; an attempt to alert receiver pager is under way"},
		"another's claim is in the way": {worker.DeviceState{Deliveries: []worker.DeliveryState{
			{Receiver: "hook", Since: ago(time.Minute), Value: 91.5, For: worker.WaitClaim, Until: now.Add(time.Second)},
		}}, nil, claim, whyWaiting,
			"An alert about 91.5 has been waiting since 03:13:00 UTC: the device's key at receiver hook is not free: another replica is sending an alert or has died, or a window has only just ended; the claim ends at the latest at 03:14:12 UTC (another 12 s); the next attempt is due in 1 s"},
	} {
		t.Run(name, func(t *testing.T) {
			f := findings{now: now, threshold: 80, window: time.Minute, partitions: test.state.Partitions, state: test.state, ended: test.ended, gates: []gateState{test.gate}}
			if status, got := f.why(); status != test.status || got != test.want {
				t.Errorf("got %s\n%s\nwant %s\n%s", status, got, test.status, test.want)
			}
		})
	}
}
