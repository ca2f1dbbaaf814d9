package partition_test

import (
	"context"
	"fmt"
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

// What a device waits for is the alert about the incident that its alarm is part of.
func TestWaitingForAnIncident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: wait(5 * time.Second)}
		s := with(t, func(r *rules.Rule) { bySite(r); r.Resolved = true }, r)
		s.start(p)
		p.publishOf("freezer-1", "berlin", hot)
		p.publishOf("freezer-2", "berlin", hot)
		time.Sleep(time.Second)
		for _, device := range []string{"freezer-1", "freezer-2"} {
			all := s.device(device).Deliveries
			if len(all) != 1 || all[0].Waits.For != delivery.WaitAttempt {
				t.Errorf("%s: %+v", device, all)
			}
		}
		s.end()
	})
}
