package deadletters_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/ops/deadletters"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/throttletest"
)

// A recovery is not sent if an alert was claimed since it was due: nor if that alert's reading came through another
// partition, or the hub has failed over or was recreated meanwhile.
func TestRecoveryBeforeAnAlertOfAnotherLog(t *testing.T) {
	for _, log := range []string{"hub/0", "hub/1", "recreated/0"} {
		t.Run(log, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, leases := &service{alerts: map[string]int{}}, memlease.New()
				gate := throttle.New(throttle.Config{Store: leases, Scope: config.Config{}.Scope(), Receiver: "r", Rule: "hot", Window: time.Minute, SendTimeout: 10 * time.Second})
				taken := func(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken }
				alert := func(log string, sequence int64) {
					t.Helper()
					if result, err := throttletest.Do(t.Context(), gate, throttle.Request{Device: "oven", ID: "alert" + log, Enqueued: time.Now(), Log: log, Sequence: sequence}, taken); err != nil || result.Outcome != throttle.Sent {
						t.Fatal(result.Outcome, err)
					}
				}
				alert("hub/0", 7)
				time.Sleep(time.Hour)
				recovery := notify.Alert{ID: "recovery", Device: "oven", Rule: "hot", Resolved: true, Sequence: 8, Log: "hub/0", Enqueued: time.Now()} // a dead letter
				time.Sleep(time.Hour)
				alert(log, 9) // the device is hot again
				time.Sleep(time.Hour)
				store, _ := kept(t)
				var out bytes.Buffer
				r := &deadletters.Replay{
					Store: store, Receivers: []receivers.Receiver{{ID: "r", Name: "r", Notifier: s}}, Leases: leases, Out: &out,
					Config: config.Config{ThrottleWindow: time.Minute, NotifyTimeout: 10 * time.Second},
				}
				r.Send(t.Context(), []deadletter.Letter{letter(recovery)})
				if s.messages > 0 {
					t.Errorf("sent an hour after an alert about a later reading: %s", out.String())
				}
			})
		})
	}
}
