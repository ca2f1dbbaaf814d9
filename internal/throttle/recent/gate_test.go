package recent_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/lease/observe"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/throttle/throttletest"
)

const window = 5 * time.Minute

// A counter counts the calls of a store.
type counter struct{ atomic.Int64 }

func (c *counter) observe(ctx context.Context, _ observe.Operation) (context.Context, func(observe.Call)) {
	c.Add(1)
	return ctx, func(observe.Call) {}
}

func newGate(s lease.Store) *recent.Gate {
	return recent.New(throttle.Config{
		Store: s, Scope: "ns/hub/group", Receiver: "r", Window: window, SendTimeout: 10 * time.Second,
	}, recent.NewWindows())
}

// alert has a gate alert about a reading of oven#7 that comes now.
func alert(tb testing.TB, g *recent.Gate, id string, send sender, want throttle.Outcome) {
	tb.Helper()
	result, err := throttletest.Do(tb.Context(), g, throttle.Request{Device: "oven#7", ID: id, Enqueued: time.Now()}, send)
	if err != nil || result.Outcome != want {
		tb.Fatalf("%v, %v; want %v", result.Outcome, err, want)
	}
}

// A sender is what a gate calls to send.
type sender = func(context.Context, throttle.Grant) throttle.Answer

func taken(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken }

func TestRecentAsksNobodyAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		var calls counter
		g, other := newGate(observe.Store(store, calls.observe)), newGate(store)
		alert(t, g, "1", taken, throttle.Sent)
		before := calls.Load()
		time.Sleep(window - time.Nanosecond)
		for range 2 {
			if !g.Recent(sensor.Of("oven#7")) || g.Recent(sensor.Of("OVEN#7")) {
				t.Fatal("want oven#7 alone to be remembered")
			}
		}
		if calls.Load() != before {
			t.Fatal("Recent asked the store")
		}
		if other.Recent(sensor.Of("oven#7")) {
			t.Fatal("another replica cannot know yet")
		}
		alert(t, other, "2", taken, throttle.Throttled)
		if !other.Recent(sensor.Of("oven#7")) {
			t.Fatal("a refusal was not remembered")
		}
		time.Sleep(time.Nanosecond)
		if g.Recent(sensor.Of("oven#7")) || other.Recent(sensor.Of("oven#7")) {
			t.Fatal("remembered past the window")
		}
		alert(t, g, "3", func(context.Context, throttle.Grant) throttle.Answer {
			if n := g.Count(sensor.Of("oven#7")); n != 2 {
				t.Errorf("the alert tells of %d suppressed, want 2", n)
			}
			return throttle.Taken
		}, throttle.Sent)
		if n := g.Count(sensor.Of("oven#7")); n != 0 {
			t.Errorf("%d are suppressed just after the alert", n)
		}
	})
}

// While a key is known to be held, the store is not asked, unless a window in force may cover the alert.
func TestDoDoesNotAskAboutAHeldKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls counter
		g := newGate(observe.Store(memlease.New(), calls.observe))
		alert(t, g, "1", taken, throttle.Sent)
		end := time.Now().Add(window)
		before := calls.Load()
		recovery := throttle.Request{Device: "oven#7", ID: "2", Enqueued: time.Now(), Log: "l", Sequence: 2, Recovery: true}
		result, err := throttletest.Do(t.Context(), g, recovery, taken)
		late := result.Retry.Sub(end)
		if err != nil || result.Outcome != throttle.Busy || late < 0 || late > 10*time.Millisecond {
			t.Errorf("a recovery within the window: %v at %v, %v; want busy until %v", result.Outcome, result.Retry, err, end)
		}
		if calls.Load() != before {
			t.Error("the store was asked")
		}
		alert(t, g, "3", taken, throttle.Throttled)
		if calls.Load() == before {
			t.Error("the store was not asked whether the window covers an alert")
		}
	})
}

// A window begins here alone once an alert is refused for what it says.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlease.New()
		g, other := newGate(store), newGate(store)
		g.Refused(sensor.Of("oven#7"), time.Now())
		time.Sleep(window - time.Second)
		if !g.Recent(sensor.Of("oven#7")) || other.Recent(sensor.Of("oven#7")) {
			t.Error("want it to be remembered here alone")
		}
		time.Sleep(time.Second)
		if g.Recent(sensor.Of("oven#7")) {
			t.Error("it is not over")
		}
	})
}

func BenchmarkRecent(b *testing.B) {
	g := newGate(memlease.New())
	alert(b, g, "1", taken, throttle.Sent)
	b.ReportAllocs()
	for b.Loop() {
		g.Recent(sensor.Of("oven#7"))
	}
}

// However long ago a partition was taken over, a window counts that began since, and none that began before.
func TestRecentSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(memlease.New())
		start := time.Now()
		for _, days := range []int{0, 1, 24, 25, 40, 49, 50, 60, 75, 400} {
			time.Sleep(time.Until(start.AddDate(0, 0, days).Add(time.Hour)))
			alert(t, g, "id", taken, throttle.Sent)
			time.Sleep(time.Second)
			if !g.RecentSince(sensor.Of("oven#7"), start) {
				t.Errorf("after %d days a window that began a second ago does not count as one since then", days)
			}
			if g.RecentSince(sensor.Of("oven#7"), time.Now()) {
				t.Errorf("after %d days a window that began a second ago counts as one since now", days)
			}
		}
	})
}

// The window of one sensor says nothing of another one, of its device, or of a device with both of their names.
func TestSensorsHaveWindowsOfTheirOwn(t *testing.T) {
	all := []sensor.ID{
		{Device: "gw-12", Name: "return"}, {Device: "gw-12", Name: "flow"}, {Device: "gw-12"}, {Device: "gw-12/return"},
		{Device: "gw-12return"}, {Device: "gw-1", Name: "2return"}, {Name: "gw-12"}, {Device: "return", Name: "gw-12"},
	}
	for _, of := range all {
		synctest.Test(t, func(t *testing.T) {
			store := memlease.New()
			config := throttle.Config{Store: store, Scope: "s", Receiver: "r", Window: time.Minute, SendTimeout: time.Second}
			g := recent.New(config, recent.NewWindows())
			send := func(of sensor.ID) throttle.Outcome {
				r := throttle.Request{Device: of.Device, Sensor: of.Name, ID: "id", Enqueued: time.Now()}
				result, err := throttletest.Do(t.Context(), g, r, func(context.Context, throttle.Grant) throttle.Answer { return throttle.Taken })
				if err != nil {
					t.Fatal(err)
				}
				return result.Outcome
			}
			if got := send(of); got != throttle.Sent || !g.Recent(of) {
				t.Fatalf("%v: %v", of, got)
			}
			g.Suppressed(of, 3)
			for _, other := range all {
				if other == of {
					continue
				}
				if g.Recent(other) || g.Count(other) != 0 {
					t.Errorf("the window of %v is in force for %v", of, other)
				}
				if got := send(other); got != throttle.Sent {
					t.Errorf("after an alert of %v one of %v is %v", of, other, got)
				}
			}
			if n := g.Count(of); n != 4 {
				t.Errorf("%d readings of %v are suppressed, want 4", n, of)
			}
		})
	}
}
