package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry/telemetrytest"
)

// A forgetful receiver keeps what it is told for five minutes.
type forgetful struct {
	mu    sync.Mutex
	fires map[string]time.Time // until when, by device
	calls int
	err   error
}

func (f *forgetful) Notify(_ context.Context, a notify.Alert) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.Resolved {
		delete(f.fires, a.Device)
		return nil
	}
	if !a.Refreshed {
		return fmt.Errorf("%s is not refreshed", a.Device)
	}
	f.fires[a.Device] = time.Now().Add(5 * notify.RefreshEvery)
	return nil
}

func (f *forgetful) Refresh(ctx context.Context, alerts []notify.Alert) error {
	if err := wait(time.Second)(ctx, notify.Alert{}); err != nil {
		return err
	}
	f.mu.Lock()
	f.calls++
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return err
	}
	for _, a := range alerts {
		if a.Since.IsZero() || a.Threshold != threshold || a.Temperature < threshold {
			return fmt.Errorf("%+v", a)
		}
		_ = f.Notify(ctx, a)
	}
	return nil
}

// firing returns the devices whose alerts have not ended, and forgets all if told so.
func (f *forgetful) firing(forget bool) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for device, until := range f.fires {
		if time.Now().Before(until) {
			all = append(all, device)
		}
	}
	if forget {
		clear(f.fires)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// A receiver that forgets knows which alarms are open, however long they last, after a restart of its own and after a
// take-over; not those that nobody was notified of, and not those that have ended.
func TestOpenAlarmsAreRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &forgetful{fires: map[string]time.Time{}}
		r := &receiver{answer: f.Notify, refresh: f.Refresh}
		change := func(r *rules.Rule) { r.Levels[0].Clear = threshold - 5 }
		s := with(t, change, r)
		s.config.Rules.Quiet = "quiet"
		p := newPartition("0")
		for _, device := range []string{"a", "b", "c", "quiet"} {
			p.publish(device, threshold+1)
		}
		p.log[3].Properties = telemetrytest.Properties(map[string]any{"quiet": "true"})
		s.start(p)
		synctest.Wait()
		want := func(now string, forget bool) {
			t.Helper()
			if got := f.firing(forget); got != now {
				t.Errorf("after %v %q fire, want %q", time.Since(p.log[0].Enqueued), got, now)
			}
		}
		want("a b c", false)
		pass(time.Hour) // between the limit and where it clears nothing is sent
		want("a b c", true)
		pass(2 * time.Minute)
		want("a b c", false)
		p.publish("b", threshold-10)
		pass(10 * time.Minute)
		want("a c", false)

		s.end()
		next := with(t, change, r)
		next.store, next.ledgers = s.store, s.ledgers
		f.firing(true)
		next.start(p.reopen())
		pass(2 * time.Minute)
		want("a c", false)
		f.mu.Lock()
		f.err = fmt.Errorf("it is down")
		f.mu.Unlock()
		pass(10 * time.Minute)
		want("", false)
		f.mu.Lock()
		f.err = nil
		f.mu.Unlock()
		pass(2 * time.Minute)
		want("a c", false)
		next.end()
		if n := f.calls; n < 60 || n > 100 {
			t.Errorf("%d calls in 86 minutes, want one a minute", n)
		}
	})
}
