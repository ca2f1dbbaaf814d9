package delivery_test

import (
	"alertworker/internal/delivery"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/sensor"
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// hotAt reads one more reading, of a device that reaches the limit and shares its alerts with others at a site.
func (o *owner) hotAt(device, site string) {
	bySite := o.replica.topic("by-site", func(topic *delivery.Topic) { topic.Shared, topic.Message.Per = true, "site" })
	a := o.reading(device, bySite)
	a.Key.About = sensor.Of(site)
	o.take(a)
}

// A hundred devices of one site that several owners of several replicas read are one message in a window.
func TestOneMessagePerSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := &receiver{answer: wait(300 * time.Millisecond)}, memlease.New()
		var owners []*owner
		for n := range 4 {
			s := newReplicaOn(t, store, r)
			owners = append(owners, s.open(fmt.Sprint(n)))
			defer s.end()
		}
		const rounds = 10
		owners[0].hotAt("freezer-100", "paris")
		for range rounds {
			for n := range 100 {
				owners[n%4].hotAt(fmt.Sprint("freezer-", n), "berlin")
			}
			time.Sleep(window / 4)
		}
		time.Sleep(window)
		var last *notify.Alert
		suppressed, times := int64(0), 0
		for _, a := range r.alerts("") {
			if a.PerValue == "paris" && a.Device == "freezer-100" {
				continue
			}
			if a.PerValue != "berlin" || a.Per != "site" || a.About() != "berlin" {
				t.Errorf("%+v", a)
			}
			if last != nil && (a.Enqueued.Before(last.Enqueued.Add(window)) || a.Token <= last.Token) {
				t.Errorf("%v after %v, token %d after %d", a.Enqueued, last.Enqueued, a.Token, last.Token)
			}
			suppressed += a.Suppressed
			times++
			last = &a
		}
		if times != 3 && times != 2 || suppressed == 0 {
			t.Errorf("%d messages, which count %d", times, suppressed)
		}
		for _, p := range owners {
			wantWatermark(t, p, p.last)
		}
	})
}

// A message says how many devices of the site were suppressed since the last one, however often each was.
func TestSuppressedDevicesOfASite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newReplica(t, r)
		p := s.open("0")
		for _, devices := range []int{5, 3, 1} {
			for range 4 {
				for n := range devices {
					p.hotAt(fmt.Sprint("freezer-", n), "berlin")
				}
				time.Sleep(window / 5)
			}
			time.Sleep(window / 4)
		}
		s.end()
		var counts []int64
		for _, a := range r.alerts("") {
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
		var owners []*owner
		for _, name := range []string{"0", "1"} {
			s := newReplicaOn(t, store, r)
			owners = append(owners, s.open(name))
			defer s.end()
		}
		owners[0].hotAt("freezer-9", "berlin")
		for range 4 {
			time.Sleep(window / 5)
			for n := range 3 {
				owners[1].hotAt(fmt.Sprint("freezer-", n), "berlin")
			}
		}
		time.Sleep(window / 2)
		owners[1].hotAt("freezer-0", "berlin")
		time.Sleep(time.Second)
		var counts []int64
		for _, a := range r.alerts("") {
			counts = append(counts, a.Suppressed)
		}
		if want := []int64{0, 3}; !slices.Equal(counts, want) {
			t.Errorf("messages count %v devices, want %v", counts, want)
		}
	})
}

// A message that is refused is a dead letter of its device, and settles nothing for the others of the site.
func TestDeadLetterOfASite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		r.answer = func(_ context.Context, a notify.Alert) error {
			time.Sleep(100 * time.Millisecond)
			if a.Device == "a" {
				return &notify.Error{Refused: true, Untaken: true, Err: fmt.Errorf("refused")}
			}
			return nil
		}
		s := newReplica(t, r)
		p := s.open("0")
		for _, device := range []string{"a", "b", "c"} {
			p.hotAt(device, "berlin")
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		s.end()
		if dead := s.dead.all(); len(dead) != 1 || dead[0].Alert.Device != "a" || dead[0].Alert.PerValue != "berlin" {
			t.Errorf("dead letters %+v", dead)
		}
		if all := r.alerts(""); len(all) != 1 || all[0].PerValue != "berlin" {
			t.Errorf("messages %+v", all)
		}
		if p.watermark() != 3 {
			t.Errorf("checkpoint %d of 3", p.watermark())
		}
	})
}

// A device that moves to another site while its alert waits is told about at both.
func TestDeviceMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(context.Context, notify.Alert) error { time.Sleep(time.Second); return nil }}
		s := newReplica(t, r)
		p := s.open("0")
		p.hotAt("truck", "berlin")
		time.Sleep(100 * time.Millisecond)
		p.hotAt("truck", "paris")
		time.Sleep(5 * time.Second)
		s.end()
		if all := r.alerts(""); len(all) != 2 || all[0].PerValue != "berlin" || all[1].PerValue != "paris" {
			t.Errorf("messages %+v", all)
		}
	})
}

// One that is at three sites meanwhile, or a gateway that sends for several, is told about at each of them.
func TestDeviceMovesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: wait(time.Second)}
		s := newReplica(t, r)
		p := s.open("0")
		for _, site := range []string{"berlin", "paris", "rome"} {
			p.hotAt("truck", site)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * window)
		s.end()
		var sites []string
		for _, a := range r.alerts("") {
			sites = append(sites, a.PerValue)
		}
		if want := []string{"berlin", "paris", "rome"}; !slices.Equal(sites, want) || p.watermark() != 3 {
			t.Errorf("messages about %v, want %v; checkpoint %d of 3", sites, want, p.watermark())
		}
	})
}

// The next message counts devices whose only reading waited while the alert about another one was on its way.
func TestDevicesThatWaitedAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: wait(time.Second)}
		s := newReplica(t, r)
		p := s.open("0")
		for n := range 10 {
			p.hotAt(fmt.Sprint("freezer-", n), "berlin")
		}
		time.Sleep(window + 10*time.Second)
		p.hotAt("freezer-0", "berlin")
		time.Sleep(5 * time.Second)
		s.end()
		if all := r.alerts(""); len(all) != 2 || all[1].Suppressed != 9 {
			t.Errorf("%d messages, the last one counts %d devices, want 9", len(all), all[len(all)-1].Suppressed)
		}
	})
}

// What is refused is one dead letter in a window, or two if another device was tried.
func TestRefusedSite(t *testing.T) {
	for _, devices := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			r := &receiver{}
			r.answer = func(context.Context, notify.Alert) error {
				time.Sleep(1500 * time.Millisecond)
				return &notify.Error{Refused: true, Untaken: true, Err: fmt.Errorf("400 bad request")}
			}
			s := newReplica(t, r)
			p := s.open("0")
			for n := range 50 {
				p.hotAt(fmt.Sprint("freezer-", n%devices), "berlin")
				time.Sleep(time.Second)
			}
			s.end()
			if n := len(s.dead.all()); n != min(devices, 2) {
				t.Errorf("%d dead letters of %d devices within one window", n, devices)
			}
			if p.watermark() != 50 {
				t.Errorf("checkpoint %d of 50", p.watermark())
			}
		})
	}
}

// The next message of a site counts the devices whose readings were suppressed. The one that was told about in place of
// another, which the receiver had refused, is none of them, unless it was hot again meanwhile.
func TestToldDeviceOfASiteIsNotCounted(t *testing.T) {
	for _, again := range []int64{0, 1} {
		t.Run(fmt.Sprint(again), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{}
				r.set(func(_ context.Context, a notify.Alert) error {
					time.Sleep(2 * time.Second)
					if a.Device == "freezer-1" {
						return errRefused
					}
					return nil
				})
				s := newReplica(t, r)
				p := s.open("0")
				defer s.end()
				p.hotAt("freezer-1", "berlin")
				pass(time.Second)
				p.hotAt("freezer-2", "berlin") // joins
				pass(2 * time.Second)          // the first is refused, and the second tried
				for range again {
					p.hotAt("freezer-2", "berlin")
				}
				pass(2 * window)
				p.hotAt("freezer-3", "berlin")
				pass(2 * window)
				got := r.alerts("")
				if len(got) != 2 || got[0].Device != "freezer-2" || got[1].Device != "freezer-3" || got[1].Suppressed != again {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// What several partitions share is compared by its time alone: their numbers say nothing about each other.
func TestRequestOfWhatIsShared(t *testing.T) {
	s := newReplica(t, &receiver{})
	shared := s.topic("by-site", func(topic *delivery.Topic) { topic.Shared = true })
	about := &delivery.Reading{Sequence: 7, Element: 2, Enqueued: time.Now().UnixMicro()}
	if r := (delivery.Account{Log: "log/0"}.Request(delivery.Key{About: sensor.Of("berlin"), Topic: shared}, nil, about)); r.Log != "" || r.Sequence != 0 || r.Element != 0 {
		t.Errorf("%+v", r)
	}
	if r := (delivery.Account{Log: "log/0"}.Request(delivery.Key{About: sensor.Of("oven"), Topic: s.topic("", nil)}, nil, about)); r.Log != "log/0" || r.Sequence != 7 || r.Element != 2 {
		t.Errorf("%+v", r)
	}
}

// An alert covers its incident for the rule's repeat, and without one for a window.
func TestRequestAboutAnIncident(t *testing.T) {
	for repeat, want := range map[time.Duration]time.Duration{0: time.Minute, time.Hour: time.Hour} {
		topic := &delivery.Topic{Shared: true, Incidents: true, Repeat: repeat, Message: notify.Alert{Window: time.Minute}}
		n := &delivery.Notice{Incident: &delivery.Incident{About: notify.Incident{ID: "a"}}}
		if r := (delivery.Account{Log: "log/0"}.Request(delivery.Key{About: sensor.Of("berlin"), Topic: topic}, n, &delivery.Reading{})); r.Incident != "a" || r.Repeat != want {
			t.Errorf("repeat %v: %q covered for %v, want %v", repeat, r.Incident, r.Repeat, want)
		}
	}
}
