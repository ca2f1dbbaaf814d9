package throttle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/throttle"
)

// What a record proves of a notice.
func TestProve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := throttle.New(throttle.Config{Store: memlease.New(), Scope: "s", Receiver: "r", Window: time.Minute, SendTimeout: time.Second})
		start := time.Now()
		request := func(sequence int64, recovery bool) throttle.Request {
			return throttle.Request{Device: "oven", ID: "id", Log: "log", Sequence: sequence, Enqueued: start.Add(time.Duration(sequence) * time.Second), Recovery: recovery}
		}
		proves := func(when string, r throttle.Request, want throttle.Proof) {
			t.Helper()
			if got, err := gate.Prove(t.Context(), r); err != nil || got != want {
				t.Errorf("%s: %v, %v, want %v", when, got, err, want)
			}
		}
		do := func(r throttle.Request, answer throttle.Answer, during func()) {
			t.Helper()
			if _, err := gate.Do(t.Context(), r, func(context.Context, throttle.Grant) throttle.Answer { during(); return answer }); err != nil {
				t.Fatal(err)
			}
		}
		nothing := func() {}
		proves("without a record", request(1, false), throttle.Unproven)
		proves("without a record", request(1, true), throttle.Unproven)
		time.Sleep(time.Second)
		do(request(1, false), throttle.NotTaken, func() { proves("under its claim", request(1, false), throttle.Sends) })
		proves("refused", request(1, false), throttle.Unproven)
		do(request(1, false), throttle.Taken, nothing)
		proves("sent", request(1, false), throttle.Proven)
		proves("within the window", request(30, false), throttle.Proven)
		proves("its recovery is due", request(2, true), throttle.Unproven)
		time.Sleep(2 * time.Minute)
		proves("after the window", request(90, false), throttle.Unproven)
		do(request(100, true), throttle.Taken, nothing)
		proves("recovered", request(100, true), throttle.Proven)
		proves("before the recovery", request(90, false), throttle.Proven)
		proves("after the recovery", request(101, false), throttle.Unproven)
		if err := gate.GiveUp(t.Context(), request(101, false)); err != nil {
			t.Fatal(err)
		}
		proves("given up", request(101, false), throttle.Proven)
		proves("nobody was notified", request(102, true), throttle.Proven)
	})
}

// Whatever a window has covered is proven by its record, also if the store counts in seconds, by which the record ends a little earlier
// than this replica lets the window last.
func TestProveWhatAWindowCovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := throttle.New(throttle.Config{Store: new(seconds).store(), Scope: "s", Receiver: "r", Window: time.Minute, SendTimeout: time.Second})
		request := func() throttle.Request {
			return throttle.Request{Device: "oven", ID: "id", Log: "log", Sequence: time.Now().Unix(), Enqueued: time.Now()}
		}
		time.Sleep(900 * time.Millisecond)
		taken := func(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken }
		if result, err := gate.Do(t.Context(), request(), taken); err != nil || result.Outcome != throttle.Sent {
			t.Fatal(result, err)
		}
		var covered []throttle.Request
		for gate.Recent("oven") {
			covered = append(covered, request())
			time.Sleep(100 * time.Millisecond)
		}
		for _, r := range covered {
			if got, err := gate.Prove(t.Context(), r); err != nil || got != throttle.Proven {
				t.Errorf("a reading of %v: %v, %v", r.Enqueued, got, err)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if got, err := gate.Prove(t.Context(), request()); err != nil || got != throttle.Unproven {
			t.Errorf("a reading after the window: %v, %v", got, err)
		}
	})
}
