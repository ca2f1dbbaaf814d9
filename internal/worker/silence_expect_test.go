package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/rules"
)

// expecting makes a rule about silence expect devices that nobody may have heard.
func expecting(devices ...string) func(*rules.Rule) {
	return func(r *rules.Rule) { r.Expect = devices }
}

// twoPartitions returns those of one hub.
func twoPartitions() (zero, one *partition) {
	zero, one = newPartition("0"), newPartition("1")
	zero.others, one.others = []string{"1"}, []string{"0"}
	return zero, one
}

// Of a device that is expected and never heard there is one alert, and a recovery when any partition hears it. Neither a
// restart nor a take-over has its time begin anew.
func TestSilenceOfDevicesNeverHeard(t *testing.T) {
	const m = time.Minute
	for _, events := range []bool{true, false} { // else partition 1 has none
		synctest.Test(t, func(t *testing.T) {
			zero, one := twoPartitions()
			first := map[string]time.Duration{}
			start := time.Now()
			r := &receiver{}
			r.set(func(_ context.Context, a notify.Alert) error {
				if _, known := first[a.Device]; !known {
					first[a.Device] = time.Since(start)
				}
				return nil
			})
			change := expecting("ghost", "here", "there", "late")
			s := silence(t, change, r)
			s.start(zero, one)
			everyMinute := func(n int) {
				for range n {
					time.Sleep(m)
					zero.publishBody("here", "{}")
					if events {
						one.publishBody("there", "{}")
					}
				}
			}
			everyMinute(8)
			s.end()
			next := silence(t, change, r)
			next.store, next.ledgers = s.store, s.ledgers
			zero, one = zero.reopen(), one.reopen()
			zero.others, one.others = []string{"1"}, []string{"0"}
			next.start(zero, one)
			everyMinute(30)
			one.publishBody("late", "{}")
			everyMinute(12)
			if !events {
				one.publishBody("there", "{}")
			}
			everyMinute(3)
			heard := next.worker.Device("ghost").Heard
			next.end()

			for _, device := range []string{"ghost", "late"} {
				if at := first[device]; at < silent || at > silent+4*m && events || at > 25*m {
					t.Errorf("events %t: of %s people are notified after %v", events, device, at)
				}
			}
			for device, want := range map[string]string{"here": "", "ghost": "alert -1", "late": "alert -1, recovery "} {
				if got := r.notified(device); len(got) < len(want) || got[:len(want)] != want || want == "" && got != "" {
					t.Errorf("events %t: notified of %s: %q; want %q", events, device, got, want)
				}
			}
			if got := r.notified("there"); events && got != "" {
				t.Errorf("notified of there: %s", got)
			}
			if len(heard) != 1 || !heard[0].Awaited || heard[0].Partition != "0" {
				t.Errorf("known of the ghost: %+v", heard)
			}
		})
	}
}

// While a partition is read late, or by nobody, no device is said never to have been heard.
func TestSilenceOfDevicesHeardLate(t *testing.T) {
	const m = time.Minute
	synctest.Test(t, func(t *testing.T) {
		zero, one := twoPartitions()
		r := &receiver{}
		s := silence(t, expecting("there"), r)
		s.start(zero)
		one.publishBody("there", "{}")
		for range 60 {
			time.Sleep(m)
			zero.publishBody("here", "{}")
			one.publishBody("there", "{}")
		}
		if got := r.notified("there"); got != "" {
			t.Errorf("nobody reads partition 1; notified of %s", got)
		}
		ctx, stop := context.WithCancel(t.Context())
		s.work.Go(func() { _ = s.worker.Consume(ctx, one) })
		for range 60 {
			time.Sleep(m)
			zero.publishBody("here", "{}")
			one.publishBody("there", "{}")
		}
		stop()
		s.end()
		if got := r.notified("there"); got != "" {
			t.Errorf("notified of %s", got)
		}
	})
}

// A device that is expected no more is not watched.
func TestSilenceOfDevicesExpectedNoMore(t *testing.T) {
	const m = time.Minute
	synctest.Test(t, func(t *testing.T) {
		zero, r := newPartition("0"), &receiver{}
		s := silence(t, expecting("ghost", "soon"), r)
		s.start(zero)
		zero.publishBody("here", "{}")
		time.Sleep(20 * m)
		s.end()
		next := silence(t, expecting("soon"), r)
		next.store, next.ledgers = s.store, s.ledgers
		next.start(zero.reopen())
		time.Sleep(20 * m)
		next.end()
		if got, want := r.notified("ghost"), "alert -1, recovery -1"; got != want {
			t.Errorf("notified of %s; want %s", got, want)
		}
		if got := r.notified("soon"); got != "alert -1" {
			t.Errorf("notified of %s", got)
		}
		for _, a := range r.alerts("ghost") {
			if a.Resolved != a.Forgotten || !a.Resolved && !a.LastHeard.IsZero() {
				t.Errorf("%+v", a)
			}
		}
	})
}
