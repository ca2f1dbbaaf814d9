package throttle_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/throttletest"
)

// A Playback decides as a gate does whose receiver takes everything at once.
func TestPlaybackIsTheGate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		window := time.Duration(rapid.IntRange(1, 90).Draw(rt, "window")) * time.Second
		steps := rapid.IntRange(1, 30).Draw(rt, "steps")
		type step struct {
			pause   time.Duration
			request throttle.Request
		}
		var all []step
		for i := range steps {
			s := step{pause: time.Duration(rapid.IntRange(0, 60).Draw(rt, "pause")) * time.Second}
			s.request = throttle.Request{
				Device: "oven", ID: fmt.Sprint(i), Log: rapid.SampledFrom([]string{"a", "a", "b"}).Draw(rt, "log"), Sequence: int64(i + 1),
				Recovery: rapid.IntRange(0, 3).Draw(rt, "recovery") == 0,
			}
			if i > 0 && rapid.IntRange(0, 5).Draw(rt, "replay") == 0 {
				s.request.Sequence = int64(rapid.IntRange(1, i).Draw(rt, "of"))
			}
			if !s.request.Recovery && rapid.Bool().Draw(rt, "repeats") {
				s.request.Repeat, s.request.OpenedBy = 2*time.Minute, int64(rapid.IntRange(1, i+1).Draw(rt, "opened"))
			}
			all = append(all, s)
		}
		synctest.Test(t, func(t *testing.T) {
			gate := throttle.New(throttle.Config{Store: memlease.New(), Scope: "s", Receiver: "r", Window: window, SendTimeout: time.Second})
			var playback throttle.Playback
			for i, s := range all {
				time.Sleep(s.pause)
				s.request.Enqueued = time.Now()
				want, err := throttletest.Do(t.Context(), gate, s.request, taken)
				if err != nil {
					rt.Fatal(err)
				}
				if got := playback.Send(s.request, time.Now(), window); got.Outcome != want.Outcome {
					rt.Fatalf("step %d, %+v: %v, want %v", i, s.request, got.Outcome, want.Outcome)
				}
				if ends := playback.Ends(); want.Outcome == throttle.Sent && !s.request.Recovery && time.Until(ends) != window {
					rt.Fatalf("step %d: the window ends at %v", i, ends)
				}
			}
		})
	})
}
