package partition_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/rules"
)

func bySite(r *rules.Rule) { r.Per, r.Resolved = "site", false }

// publishOf publishes a reading of a device that has a site.
func (p *partition) publishOf(device, site string, value float64) {
	p.publishProperties(device, fmt.Sprintf(`{"temperature":%v}`, value), map[string]any{"site": site})
}

// all returns everything that the receiver has taken.
func (r *receiver) all() []notify.Alert {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]notify.Alert(nil), r.taken...)
}

// A hundred devices of one site in several partitions, which several replicas read, are one message per window.
func TestOneMessagePerSite(t *testing.T) {
	for _, sustained := range []time.Duration{0, time.Second} {
		t.Run(fmt.Sprint(sustained), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, store := &receiver{answer: func(context.Context, notify.Alert) error { time.Sleep(300 * time.Millisecond); return nil }}, memlease.New()
				var partitions []*partition
				for n := range 4 {
					p := newPartition(fmt.Sprint(n))
					s := newReplica(t, store, r)
					bySite(&s.config.Rules.Rules[0])
					s.config.Rules.Rules[0].Levels[0].For = sustained
					s.config.Replica = fmt.Sprint(n)
					partitions = append(partitions, p)
					s.start(p)
					defer s.end()
				}
				const rounds = 10
				start := time.Now()
				for round := range rounds {
					for n := range 100 {
						partitions[n%4].publishOf(fmt.Sprint("freezer-", n), "berlin", hot)
					}
					if round == 0 {
						partitions[0].publishOf("freezer-100", "paris", hot)
					}
					time.Sleep(window / 4)
				}
				time.Sleep(window)
				var last *notify.Alert
				suppressed, times := int64(0), 0
				for _, a := range r.all() {
					if a.PerValue == "paris" && a.Device == "freezer-100" {
						continue
					}
					if a.PerValue != "berlin" || a.Per != "site" || a.About() != "berlin" || a.Source != "/ns/hub/temperature/by-site" {
						t.Errorf("%+v", a)
					}
					if last != nil && (a.Enqueued.Before(last.Enqueued.Add(window)) || a.Token <= last.Token) {
						t.Errorf("%v after %v, token %d after %d", a.Enqueued.Sub(start), last.Enqueued.Sub(start), a.Token, last.Token)
					}
					suppressed += a.Suppressed
					times++
					last = &a
				}
				if times != 3 && times != 2 {
					t.Errorf("%d messages", times)
				}
				if suppressed == 0 {
					t.Error("no message counts the others")
				}
				for n, p := range partitions {
					if want := int64(rounds * 25); p.checkpoint() != want && p.checkpoint() != want+1 {
						t.Errorf("partition %d: checkpoint %d of %d", n, p.checkpoint(), want)
					}
				}
			})
		})
	}
}

// A message says how many devices of the site were suppressed since the last one, however often each was.
func TestSuppressedDevicesOfASite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, bySite, r)
		s.start(p)
		for _, devices := range []int{5, 3, 1} {
			for range 4 {
				for n := range devices {
					p.publishOf(fmt.Sprint("freezer-", n), "berlin", hot)
				}
				time.Sleep(window / 5)
			}
			time.Sleep(window / 4)
		}
		s.end()
		var counts []int64
		for _, a := range r.all() {
			counts = append(counts, a.Suppressed)
		}
		if want := []int64{0, 5, 3}; !slices.Equal(counts, want) {
			t.Errorf("messages count %v devices, want %v", counts, want)
		}
	})
}

// A replica counts each device once also if it learns of the window from the store.
func TestSuppressedDevicesOfAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := &receiver{}, memlease.New()
		var partitions []*partition
		for _, name := range []string{"0", "1"} {
			p, s := newPartition(name), newReplica(t, store, r)
			bySite(&s.config.Rules.Rules[0])
			s.config.Replica = name
			partitions = append(partitions, p)
			s.start(p)
			defer s.end()
		}
		partitions[0].publishOf("freezer-9", "berlin", hot)
		for range 4 {
			time.Sleep(window / 5)
			for n := range 3 {
				partitions[1].publishOf(fmt.Sprint("freezer-", n), "berlin", hot)
			}
		}
		time.Sleep(window / 2)
		partitions[1].publishOf("freezer-0", "berlin", hot)
		time.Sleep(time.Second)
		var counts []int64
		for _, a := range r.all() {
			counts = append(counts, a.Suppressed)
		}
		if want := []int64{0, 3}; !slices.Equal(counts, want) {
			t.Errorf("messages count %v devices, want %v", counts, want)
		}
	})
}

// Without the property, or with what IoT Hub leaves where the twin has none, each device has its own messages.
func TestDevicesWithoutSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, bySite, r)
		s.start(p)
		p.publish("a", hot)
		p.publishOf("b", "$twin.tags.site", hot)
		p.publishOf("c", "  ", hot)
		p.publishOf("d", "berlin", cool)
		time.Sleep(time.Second)
		s.end()
		if all := r.all(); len(all) != 3 {
			t.Errorf("%d messages, want 3", len(all))
		}
		if n := s.stats.Unshared.Load(); n != 3 {
			t.Errorf("%d counted, want 3", n)
		}
	})
}

// A message that is refused is a dead letter of its device, and settles nothing for the others of the site.
func TestDeadLetterOfASite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		r.answer = func(_ context.Context, a notify.Alert) error {
			time.Sleep(100 * time.Millisecond)
			if a.Device == "a" {
				return &notify.Error{Refused: true, Untaken: true, Err: fmt.Errorf("refused")}
			}
			return nil
		}
		s := with(t, bySite, r)
		s.start(p)
		for _, device := range []string{"a", "b", "c"} {
			p.publishOf(device, "berlin", hot)
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		s.end()
		if dead := s.dead.all(); len(dead) != 1 || dead[0].Alert.Device != "a" || dead[0].Alert.PerValue != "berlin" {
			t.Errorf("dead letters %+v", dead)
		}
		if all := r.all(); len(all) != 1 || all[0].PerValue != "berlin" {
			t.Errorf("messages %+v", all)
		}
		if p.checkpoint() != 3 {
			t.Errorf("checkpoint %d of 3", p.checkpoint())
		}
	})
}

// A device that moves to another site while its alert waits is told about at both.
func TestDeviceMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: func(context.Context, notify.Alert) error { time.Sleep(time.Second); return nil }}
		s := with(t, bySite, r)
		s.start(p)
		p.publishOf("truck", "berlin", hot)
		time.Sleep(100 * time.Millisecond)
		p.publishOf("truck", "paris", hot)
		time.Sleep(5 * time.Second)
		s.end()
		if all := r.all(); len(all) != 2 || all[0].PerValue != "berlin" || all[1].PerValue != "paris" {
			t.Errorf("messages %+v", all)
		}
	})
}

// One that is at three sites meanwhile, or a gateway that sends for several, is told about at each of them.
func TestDeviceMovesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: wait(time.Second)}
		s := with(t, bySite, r)
		s.start(p)
		for _, site := range []string{"berlin", "paris", "rome"} {
			p.publishOf("truck", site, hot)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * window)
		s.end()
		var sites []string
		for _, a := range r.all() {
			sites = append(sites, a.PerValue)
		}
		if want := []string{"berlin", "paris", "rome"}; !slices.Equal(sites, want) || p.checkpoint() != 3 {
			t.Errorf("messages about %v, want %v; checkpoint %d of 3", sites, want, p.checkpoint())
		}
	})
}

// The next message counts devices whose only reading waited while the alert about another one was on its way.
func TestDevicesThatWaitedAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: wait(time.Second)}
		s := with(t, bySite, r)
		s.start(p)
		for n := range 10 {
			p.publishOf(fmt.Sprint("freezer-", n), "berlin", hot)
		}
		time.Sleep(window + 10*time.Second)
		p.publishOf("freezer-0", "berlin", hot)
		time.Sleep(5 * time.Second)
		s.end()
		if all := r.all(); len(all) != 2 || all[1].Suppressed != 9 {
			t.Errorf("%d messages, the last one counts %d devices, want 9", len(all), all[len(all)-1].Suppressed)
		}
	})
}

// A device without the property that is called like a site has windows, tokens and sources of its own.
func TestDeviceCalledLikeASite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: wait(time.Second)}
		s := with(t, bySite, r)
		s.start(p)
		p.publishOf("freezer-1", "berlin", hot)
		time.Sleep(100 * time.Millisecond)
		p.publish("berlin", hot) // such as the site's gateway
		time.Sleep(100 * time.Millisecond)
		if all := s.device("berlin").Deliveries; len(all) != 1 {
			t.Errorf("of the device %+v waits", all)
		}
		time.Sleep(5 * time.Second)
		s.end()
		all := r.all()
		if len(all) != 2 {
			t.Fatalf("%d messages, want one of the site and one of the device", len(all))
		}
		site, device := all[0], all[1]
		if site.About() != "berlin" || site.Device != "freezer-1" || site.Source != "/ns/hub/temperature/by-site" {
			t.Errorf("%+v", site)
		}
		if device.About() != "berlin" || device.Per != "" || device.Source != "/ns/hub" {
			t.Errorf("%+v", device)
		}
	})
}

// What is refused is one dead letter in a window, or two if another device was tried.
func TestRefusedSite(t *testing.T) {
	for _, devices := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("0"), &receiver{}
			r.answer = func(context.Context, notify.Alert) error {
				time.Sleep(1500 * time.Millisecond)
				return &notify.Error{Refused: true, Untaken: true, Err: fmt.Errorf("400 bad request")}
			}
			s := with(t, bySite, r)
			s.start(p)
			for n := range 50 {
				p.publishOf(fmt.Sprint("freezer-", n%devices), "berlin", hot)
				time.Sleep(time.Second)
			}
			s.end()
			if n := len(s.dead.all()); n != min(devices, 2) {
				t.Errorf("%d dead letters of %d devices within one window", n, devices)
			}
			if p.checkpoint() != 50 {
				t.Errorf("checkpoint %d of 50", p.checkpoint())
			}
		})
	}
}

// What a device waits for is that of what it shares alerts by.
func TestWaitingAtASite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: wait(5 * time.Second)}
		s := with(t, bySite, r)
		s.start(p)
		p.publishOf("freezer-1", "berlin", hot)
		p.publishOf("freezer-2", "berlin", hot)
		time.Sleep(time.Second)
		for _, device := range []string{"freezer-1", "freezer-2"} {
			all := s.device(device).Deliveries
			if len(all) != 1 || all[0].Joined != 1 || all[0].Waits.For != delivery.WaitAttempt {
				t.Errorf("%s: %+v", device, all)
			}
		}
		s.end()
	})
}

// The next message of a site counts the devices whose readings were suppressed. The one that was told about in place of
// another, which the receiver had refused, is none of them, unless it was hot again meanwhile.
func TestToldDeviceOfASiteIsNotCounted(t *testing.T) {
	for _, again := range []int64{0, 1} {
		t.Run(fmt.Sprint(again), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				r.set(func(_ context.Context, a notify.Alert) error {
					time.Sleep(2 * time.Second)
					if a.Device == "freezer-1" {
						return errRefused
					}
					return nil
				})
				s := with(t, bySite, r)
				s.start(p)
				defer s.end()
				p.publishOf("freezer-1", "berlin", hot)
				pass(time.Second)
				p.publishOf("freezer-2", "berlin", hot) // joins
				pass(2 * time.Second)                   // the first is refused, and the second tried
				for range again {
					p.publishOf("freezer-2", "berlin", hot)
				}
				pass(2 * window)
				p.publishOf("freezer-3", "berlin", hot)
				pass(2 * window)
				got := r.all()
				if len(got) != 2 || got[0].Device != "freezer-2" || got[1].Device != "freezer-3" || got[1].Suppressed != again {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}
