package throttle_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/throttle/throttletest"
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
			if _, err := throttletest.Do(t.Context(), gate, r, func(context.Context, throttle.Grant) throttle.Answer { during(); return answer }); err != nil {
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
		do(request(95, false), throttle.NotTaken, func() { proves("in the window before a claim", request(30, false), throttle.Proven) })
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

// An alert proves that later readings of its alarm were covered for as long as the rule's repeat, and says so in Do. A
// reading of the next alarm was not.
func TestProveRepeat(t *testing.T) {
	for _, repeat := range []time.Duration{4 * time.Hour, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			gate := throttle.New(throttle.Config{
				Store: memlease.New(), Scope: "s", Receiver: "r", Window: time.Minute, SendTimeout: time.Second,
			})
			start := time.Now()
			request := func(sequence, opened int64) throttle.Request {
				return throttle.Request{
					Device: "oven", ID: fmt.Sprint(sequence), Log: "log", Sequence: sequence,
					Enqueued: start.Add(time.Duration(sequence) * time.Second), OpenedBy: opened, Repeat: repeat,
				}
			}
			take := func(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken }
			sent, err := throttletest.Do(t.Context(), gate, request(100, 90), take)
			if err != nil || sent.Outcome != throttle.Sent {
				t.Fatal(sent.Outcome, err)
			}
			if repeat < math.MaxInt64 && !sent.NextReminder(request(100, 90)).Equal(start.Add(repeat)) {
				t.Errorf("due at %v, want %v", sent.NextReminder(request(100, 90)), start.Add(repeat))
			}
			time.Sleep(2 * time.Hour)
			for _, tt := range []struct {
				name string
				of   throttle.Request
				want throttle.Proof
			}{
				{"the same alarm", request(7200, 90), throttle.Proven},
				{"it opened with the reading", request(7200, 100), throttle.Proven},
				{"the next alarm", request(7200, 101), throttle.Unproven},
			} {
				covered := tt.want == throttle.Proven
				if got, err := gate.Prove(t.Context(), tt.of); err != nil || got != tt.want {
					t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
				}
				got, _, err := gate.Predict(t.Context(), tt.of)
				if is := got.Outcome == throttle.Throttled; err != nil || is != covered || got.NextReminder(tt.of).IsZero() == covered {
					t.Errorf("%s: %v, due at %v, %v", tt.name, got.Outcome, got.NextReminder(tt.of), err)
				}
			}
			other := request(7200, 90)
			other.Log = "another hub"
			if got, err := gate.Prove(t.Context(), other); err != nil || got != throttle.Unproven {
				t.Errorf("another hub: %v, %v", got, err)
			}
			time.Sleep(2*time.Hour + time.Second)
			for sequence, want := range map[int64]throttle.Proof{14_400: throttle.Proven, 14_401: throttle.Unproven} {
				if repeat == math.MaxInt64 {
					want = throttle.Proven
				}
				if got, err := gate.Prove(t.Context(), request(sequence, 90)); err != nil || got != want {
					t.Errorf("a reading %d s after the alert: %v, %v, want %v", sequence, got, err, want)
				}
			}
			again, err := throttletest.Do(t.Context(), gate, request(4*3600+2, 90), take)
			want := throttle.Sent
			if repeat == math.MaxInt64 {
				want = throttle.Throttled
			}
			if err != nil || again.Outcome != want {
				t.Errorf("after %v: %v, %v, want %v", repeat, again.Outcome, err, want)
			}
		})
	}
}

// Whatever a window has covered is proven by its record, also if the store counts in seconds, by which the record ends a little earlier
// than this replica lets the window last.
func TestProveWhatAWindowCovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := recent.New(throttle.Config{
			Store: new(seconds).store(), Scope: "s", Receiver: "r", Window: time.Minute, SendTimeout: time.Second,
		}, recent.NewWindows())
		request := func() throttle.Request {
			return throttle.Request{Device: "oven", ID: "id", Log: "log", Sequence: time.Now().Unix(), Enqueued: time.Now()}
		}
		time.Sleep(900 * time.Millisecond)
		taken := func(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken }
		if result, err := throttletest.Do(t.Context(), gate, request(), taken); err != nil || result.Outcome != throttle.Sent {
			t.Fatal(result, err)
		}
		var covered []throttle.Request
		for gate.Recent(sensor.Of("oven")) {
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
