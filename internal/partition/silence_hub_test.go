package partition_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/notify"
	"alertworker/internal/records"
	"alertworker/internal/rules"
)

// manyPartitions returns those of one hub.
func manyPartitions(n int) (all []*partition) {
	for i := range n {
		all = append(all, newPartition(fmt.Sprint(i)))
	}
	for _, p := range all {
		for _, other := range all {
			if other != p {
				p.others = append(p.others, other)
			}
		}
	}
	return all
}

// A hub that is cut off from its devices is one alert and one recovery, whatever partitions, replicas and devices it has.
// Nothing is said of a device. If a part of the hub is reached, it is the devices that are silent.
func TestHubIsCutOff(t *testing.T) {
	const m = time.Minute
	for _, tt := range []struct {
		name    string
		devices []int // in each partition
		alive   []int // partitions to which events come all the time
		back    []int // the first partitions to which they come again, after 95 min; to all others they do after 106
		want    int   // devices, of which the alert says that there are so many; 0: there is none
	}{
		{"all partitions", []int{25, 25, 25, 25}, nil, nil, 100},
		{"two devices", []int{0, 1, 0, 1}, nil, nil, 2},
		{"one device", []int{0, 1, 0, 0}, nil, nil, 0},
		{"the partition that tells has no device", []int{0, 30, 1, 0}, nil, nil, 31},
		{"a part of the hub", []int{3, 3, 3, 3}, []int{2}, nil, 0},
		{"all but the partition that tells", []int{3, 3, 3, 3}, []int{0}, nil, 0},
		{"another partition comes back first", []int{3, 3, 3, 3}, nil, []int{2}, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, r := manyPartitions(4), &receiver{}
				one, two := silence(t, nil, r), silence(t, nil, r)
				two.store, two.ledgers = one.store, one.ledgers
				one.start(all[0], all[1])
				two.start(all[2], all[3])

				start := time.Now()
				comes := func(partition int) bool {
					after := time.Since(start)
					again := 106 * m
					if tt.back == nil || slices.Contains(tt.back, partition) {
						again = 95 * m
					}
					return slices.Contains(tt.alive, partition) || after < 5*m || after >= again
				}
				var told, ended time.Duration
				for time.Since(start) < 180*m {
					for i, p := range all {
						for device := range tt.devices[i] {
							if comes(i) {
								p.publishBody(fmt.Sprint(i, "-", device), "{}")
							}
						}
					}
					time.Sleep(20 * time.Second)
					n := r.alerts(notify.Hub)
					if len(n) > 0 && told == 0 {
						told = time.Since(start)
					}
					if len(n) > 0 && n[len(n)-1].Resolved && ended == 0 {
						ended = time.Since(start)
					}
				}
				one.end()
				two.end()

				if tt.want == 0 {
					silent := 0
					for i, n := range tt.devices {
						if !slices.Contains(tt.alive, i) {
							silent += n
						}
					}
					if hub := r.notified(notify.Hub); hub != "" || len(r.alerts("")) != 2*silent {
						t.Errorf("%d messages about %d silent devices, and of the hub: %s", len(r.alerts("")), silent, hub)
					}
					return
				}
				got := r.alerts(notify.Hub)
				if len(r.alerts("")) != 2 || len(got) != 2 || got[0].Resolved || !got[1].Resolved {
					t.Fatalf("notified of %+v", r.alerts(""))
				}
				if told < 20*m || told > 21*m || ended < 95*m || ended > 96*m {
					t.Errorf("told after %v, and that it is over after %v", told, ended)
				}
				if o := got[0].Outage; o == nil || o.Devices != tt.want {
					t.Errorf("the alert is about %+v; want %d devices", o, tt.want)
				}
			})
		})
	}
}

// Every device has its time once more when events come to the hub again. Who stays silent is told then, in whatever
// partition, and also by an owner that has taken over meanwhile.
func TestDeadlinesStartAnewAfterAnOutage(t *testing.T) {
	const m = time.Minute
	for _, during := range []time.Duration{0, 50 * m, 91 * m} { // when partition 1 gets another owner; 0: never
		t.Run(fmt.Sprint("take-over after ", during), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, r := manyPartitions(2), &receiver{}
				zero, one := silence(t, nil, r), silence(t, nil, r)
				one.store, one.ledgers = zero.store, zero.ledgers
				zero.start(all[0])
				one.start(all[1])
				for i := range 10 {
					all[i%2].publishBody(fmt.Sprint(i), "{}")
				}
				start := time.Now()
				for time.Since(start) < 150*m {
					time.Sleep(30 * time.Second)
					if after := time.Since(start); after >= 90*m && after%m == 0 {
						all[0].publishBody("0", "{}")
						if after >= 100*m {
							all[1].publishBody("1", "{}")
						}
					}
					if during > 0 && time.Since(start) == during {
						one.end()
						next := silence(t, nil, r)
						next.store, next.ledgers = one.store, one.ledgers
						all[1] = all[1].reopen()
						all[0].mu.Lock()
						all[0].others = []*partition{all[1]}
						all[0].mu.Unlock()
						one = next
						one.start(all[1])
					}
				}
				zero.end()
				one.end()
				if got := r.notified(notify.Hub); !hasPrefixes(got, "alert, recovery") {
					t.Errorf("notified of %s", got)
				}
				for i := range 10 {
					got := r.alerts(fmt.Sprint(i))
					switch {
					case i < 2 && len(got) > 0:
						t.Errorf("device %d is heard again, and people were notified of %s", i, r.notified(fmt.Sprint(i)))
					case i >= 2 && (len(got) != 1 || got[0].Enqueued.Sub(start) < 105*m || got[0].Enqueued.Sub(start) > 116*m):
						t.Errorf("device %d stays silent, and people were notified of %+v", i, got)
					}
				}
			})
		})
	}
}

// A hub that nobody could reach, neither devices nor the worker, makes no device silent: each has its time once more when
// something comes again, whichever partition that comes to. Who does not come back is told.
func TestHubThatCouldNotBeAsked(t *testing.T) {
	const m = time.Minute
	synctest.Test(t, func(t *testing.T) {
		all, r := manyPartitions(2), &receiver{}
		s := silence(t, nil, r)
		s.start(all...)
		answers := func(err error) {
			for _, p := range all {
				p.mu.Lock()
				p.lastErr = err
				p.mu.Unlock()
			}
		}
		start := time.Now()
		for time.Since(start) < 120*m {
			after := time.Since(start)
			for i := range 10 {
				back := 60*m + time.Duration(i%2)*4*m // partition 1 hears nobody before
				if after < 5*m || after >= back && i < 8 {
					all[i%2].publishBody(fmt.Sprint(i), "{}")
				}
			}
			if after == 5*m {
				answers(errors.New("the hub does not answer"))
			}
			if after == 60*m {
				answers(nil)
			}
			pass(m)
		}
		s.end()
		for i := range 10 {
			if got := r.notified(fmt.Sprint(i)); (i < 8) != (got == "") {
				t.Errorf("people were notified of device %d: %q", i, got)
			}
		}
	})
}

// One outage is one message for each receiver, however many rules wait for messages: the rule with the shortest limit of
// those that the receiver wants tells of it.
func TestOutageIsToldByOneRule(t *testing.T) {
	const m = time.Minute
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		all, slow := &receiver{}, &receiver{only: notify.Filter{Rules: []string{"slow"}}, level: "x"}
		s := silence(t, func(r *rules.Rule) { r.Levels[0].Name = "x" }, all, slow)
		another := s.config.Rules.Rules[0]
		another.Name, another.Silent, another.Levels = "slow", time.Hour, slices.Clone(another.Levels)
		s.config.Rules.Rules = append([]rules.Rule{another}, s.config.Rules.Rules...)
		s.start(p)
		for i := range 3 {
			p.publishBody(fmt.Sprint(i), "{}")
		}
		time.Sleep(90 * m)
		p.publishBody("0", "{}")
		time.Sleep(m)
		s.end()
		for r, want := range map[*receiver]string{all: "offline", slow: "slow"} {
			got := r.alerts("")
			if len(got) != 2 || got[0].Rule != want || got[0].Device != notify.Hub || !got[1].Resolved {
				t.Errorf("want one alert by %s and its recovery, got %+v", want, got)
			}
		}
	})
}

// The rule that tells of an outage is removed while another one, of which the receiver heard nothing for that reason, goes on:
// the receiver hears of the outage, also if it could not be reached before, and that it is over when it is.
func TestOutageOutlivesTheRuleThatTold(t *testing.T) {
	const m = time.Minute
	for _, down := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPartition("0")
			all, slow := &receiver{}, &receiver{only: notify.Filter{Rules: []string{"slow"}}, level: "x"}
			if down {
				all.set(func(context.Context, notify.Alert) error { return errBusy })
			}
			s := silence(t, func(r *rules.Rule) { r.Levels[0].Name = "x" }, all, slow)
			another := s.config.Rules.Rules[0]
			another.Name, another.Silent, another.Levels = "slow", time.Hour, slices.Clone(another.Levels)
			s.config.Rules.Rules = append(s.config.Rules.Rules, another)
			s.start(p)
			for i := range 3 {
				p.publishBody(fmt.Sprint(i), "{}")
			}
			time.Sleep(90 * m)
			s.end()
			all.set(nil)
			next := silence(t, nil, all, slow)
			next.store, next.ledgers = s.store, s.ledgers
			next.config.Rules.Rules = s.config.Rules.Rules[1:]
			p = p.reopen()
			next.start(p)
			time.Sleep(time.Hour)
			if got := all.alerts(""); len(got) != 1 || got[0].Resolved || got[0].Removed {
				t.Errorf("while nothing comes, down before: %v: %+v", down, got)
			}
			p.publishBody("0", "{}")
			time.Sleep(m)
			next.end()
			for r, want := range map[*receiver]string{all: "offline", slow: "slow"} {
				got := r.alerts("")
				if len(got) != 2 || got[0].Rule != want || got[0].Device != notify.Hub || !got[1].Resolved || got[1].Rule != want {
					t.Errorf("down before: %v: want one alert by %s and its recovery, got %+v", down, want, got)
				}
			}
		})
	}
}

// A hub is recreated, and none of its devices can reach the new one: that is an outage as any other.
func TestOutageOfARecreatedHub(t *testing.T) {
	const m = time.Minute
	for _, recreated := range []bool{false, true} {
		t.Run(fmt.Sprint("recreated ", recreated), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				p.generation = "a"
				s := silence(t, nil, r)
				s.start(p)
				for range 5 {
					for i := range 30 {
						p.publishBody(fmt.Sprint("freezer-", i), "{}")
					}
					pass(m)
				}
				s.end()
				next := silence(t, nil, r)
				next.store, next.ledgers = s.store, s.ledgers
				q := p.reopen()
				if recreated {
					q = newPartition("0")
					q.generation = "b"
				}
				next.start(q)
				pass(2 * time.Hour)
				next.end()
				got := r.alerts("")
				if len(got) != 1 || got[0].Device != notify.Hub {
					t.Fatalf("%d messages, and of the hub: %s", len(got), r.notified(notify.Hub))
				}
				if age := time.Since(got[0].Since); age > 3*time.Hour {
					t.Errorf("nothing is said to have come for %v", age)
				}
			})
		})
	}
}

// A device that dies in a fleet that reports in step is told, and no outage: devices report every ten minutes, on the
// minute, as cron does. Muted devices and quiet ones change nothing.
func TestDeathInAFleetThatReportsInStep(t *testing.T) {
	const m = time.Minute
	for _, tt := range []struct {
		name         string
		offset       time.Duration // of the device that dies
		muted, quiet bool          // another one, which is silent from the start
	}{
		{name: "at the same minute"},
		{name: "2 min later", offset: 2 * m},
		{name: "4 min later", offset: 4 * m},
		{name: "6 min later", offset: 6 * m},
		{name: "8 min later", offset: 8 * m},
		{name: "another device is muted", offset: m, muted: true},
		{name: "another device was quiet", offset: m, quiet: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				s := silence(t, nil, r)
				s.config.Rules.Mutes = rules.Mutes{{UntilAt: "quietUntil"}}
				start := time.Now()
				if tt.muted {
					mute := rules.Mutes{{Device: "truck", From: start, Until: start.Add(12 * time.Hour)}}
					s.config.Mutes = func() rules.Mutes { return mute }
				}
				s.start(p)
				properties := map[string]any{}
				if tt.quiet {
					properties["quietUntil"] = start.Add(28 * m).UTC().Format(time.RFC3339)
				}
				if tt.muted || tt.quiet {
					p.publishProperties("truck", "{}", properties)
				}
				for n := range 12 {
					for i := range 30 {
						p.publishBody(fmt.Sprint("meter-", i), "{}")
					}
					pass(tt.offset)
					if n <= 2 {
						p.publishBody("dead", "{}")
					}
					pass(10*m - tt.offset)
				}
				s.end()
				if got := r.notified(notify.Hub); got != "" {
					t.Errorf("people were notified of an outage of the hub: %s", got)
				}
				if got := r.alerts("dead"); len(got) != 1 {
					t.Errorf("people were notified of the dead device: %q", r.notified("dead"))
				} else if late := got[0].Enqueued.Sub(start) - (20*m + tt.offset + silent); late != 0 {
					t.Errorf("the deadline of the dead device is %v late", late)
				}
				if got := len(r.alerts("truck")); tt.quiet != (got == 1) {
					t.Errorf("%d alerts about the other device", got)
				}
			})
		})
	}
}

// The alert about a hub that is cut off is not sent any more once events have come again, also if its receiver was down, and
// if the events are not read yet.
func TestOutageThatIsOverIsNotTold(t *testing.T) {
	t.Run("read", func(t *testing.T) { outageIsOver(t, false) })
	t.Run("unread", func(t *testing.T) { outageIsOver(t, true) })
}

func outageIsOver(t *testing.T, unread bool) {
	const m = time.Minute
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		down := true
		r.set(func(context.Context, notify.Alert) error {
			if down {
				return errBusy
			}
			return nil
		})
		s := silence(t, nil, r)
		s.start(p)
		for i := range 3 {
			p.publishBody(fmt.Sprint(i), "{}")
		}
		time.Sleep(30 * m)
		if r.asked() == 0 {
			t.Fatal("nothing was attempted")
		}
		p.hold(unread)
		for range 60 {
			for i := range 3 {
				p.publishBody(fmt.Sprint(i), "{}")
			}
			time.Sleep(m)
			down = false
		}
		s.end()
		if got := r.notified(""); got != "" {
			t.Errorf("notified of %s", got)
		}
	})
}

// So it is if the rule of that alert was removed meanwhile, during a rollout, and the hub is cut off again.
func TestFormerOutageOfARemovedRuleIsNotTold(t *testing.T) {
	const m = time.Minute
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		all, slow := &receiver{answer: failing(errBusy)}, &receiver{only: notify.Filter{Rules: []string{"slow"}}, level: "x"}
		s := silence(t, func(r *rules.Rule) { r.Levels[0].Name = "x" }, all, slow)
		another := s.config.Rules.Rules[0]
		another.Name, another.Levels = "slow", slices.Clone(another.Levels)
		s.config.Rules.Rules = append(s.config.Rules.Rules, another)
		s.start(p)
		p.publishBody("oven", "{}")
		p.publishBody("kiln", "{}")
		pass(30 * m)
		s.end()
		next := silence(t, nil, all, slow)
		next.store, next.ledgers = s.store, s.ledgers
		next.config.Rules.Rules = s.config.Rules.Rules[1:]
		next.config.Alike = func(time.Time) bool { return false }
		p = p.reopen()
		next.start(p)
		pass(m)
		p.publishBody("oven", "{}")
		p.publishBody("kiln", "{}")
		pass(30 * m)
		all.set(nil)
		pass(10 * m)
		next.end()
		for _, a := range all.alerts("") {
			if a.Rule != "slow" {
				t.Errorf("notified of an outage that is over: %+v", a)
			}
		}
		if got := slow.alerts(""); len(got) != 3 || !got[1].Resolved || got[2].Resolved {
			t.Errorf("of two outages the other receiver gets %+v", got)
		}
	})
}

// Whoever was told that the hub is cut off is told that it is over, also if the hub's clock is so far behind that it calls
// that earlier.
func TestOutageThatEndsByASlowClock(t *testing.T) {
	const m = time.Minute
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.start(p)
		p.publishBody("oven", "{}")
		p.publishBody("kiln", "{}")
		for began := time.Now(); len(r.alerts("")) == 0 && time.Since(began) < time.Hour; {
			pass(time.Second)
		}
		p.mu.Lock()
		p.ahead = -m
		p.mu.Unlock()
		pass(10 * time.Second)
		p.publishBody("oven", "{}")
		pass(2 * m)
		s.end()
		if got := r.alerts(""); len(got) != 2 || got[0].Device != notify.Hub || !got[1].Resolved {
			t.Errorf("notified of %+v", got)
		}
	})
}

// As long as nobody can read what the other partitions expect nothing is said of the hub, and the log says why.
func TestOutageWhileRostersCannotBeRead(t *testing.T) {
	const m = time.Minute
	synctest.Test(t, func(t *testing.T) {
		all, r := manyPartitions(2), &receiver{}
		s := silence(t, nil, r)
		var down atomic.Bool
		down.Store(true)
		s.ledgers = records.Around(s.ledgers, func(ctx context.Context, op records.Op, name string, call func(context.Context) error) error {
			if down.Load() && op == records.OpList && name == "roster/" {
				return errors.New("503")
			}
			return call(ctx)
		})
		core, logs := observer.New(zap.WarnLevel)
		s.config.Log = zap.New(core)
		s.start(all...)
		all[0].publishBody("oven", "{}")
		all[1].publishBody("kiln", "{}")
		pass(30 * m)
		if got := r.alerts(""); len(got) > 0 {
			t.Errorf("notified of %+v", got)
		}
		if logs.FilterMessageSnippet("cannot read how many devices are expected in other partitions").Len() == 0 {
			t.Errorf("nobody is told why: %v", logs.All())
		}
		down.Store(false)
		pass(m)
		s.end()
		if got := r.alerts(""); len(got) != 1 || got[0].Device != notify.Hub || got[0].Outage.Devices != 2 {
			t.Errorf("notified of %+v", got)
		}
	})
}

// The alert about a hub that is cut off waits while the hub does not say whether it still is.
func TestOutageIsToldWhileItIsCertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{answer: failing(errBusy)}
		s := silence(t, nil, r)
		s.start(p)
		for i := range 3 {
			p.publishBody(fmt.Sprint(i), "{}")
		}
		pass(30 * time.Minute)
		if r.asked() == 0 {
			t.Fatal("nothing was attempted")
		}
		answer := func(err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.lastErr = err
		}
		answer(errors.New("503"))
		pass(10 * time.Minute)
		r.set(nil)
		pass(10 * time.Minute)
		if n := len(r.alerts("")); n != 0 {
			t.Errorf("%d alerts while nobody knows", n)
		}
		answer(nil)
		pass(5 * time.Minute)
		s.end()
		if all := r.alerts(""); len(all) != 1 || all[0].Device != notify.Hub {
			t.Errorf("then these alerts came: %+v", all)
		}
	})
}

// What the hub says of its newest event is as of when it was asked, which another partition may have done before: that is
// no outage if something has come since, a moment before it would have been one.
func TestOutageByAnOlderAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, r := manyPartitions(2), &receiver{}
		for _, p := range all {
			p.stale = time.Minute
		}
		s := silence(t, nil, r)
		s.start(all...)
		all[0].publishBody("oven", "{}")
		all[1].publishBody("kiln", "{}")
		pass(silent - 3*time.Second)
		all[1].publishBody("kiln", "{}")
		pass(5 * time.Minute)
		s.end()
		if got := r.notified(notify.Hub); got != "" {
			t.Errorf("notified of %s", got)
		}
	})
}

// While people mute everything an outage is not told, and once that is over it is, if it lasts.
func TestMutedOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		start := time.Now()
		s.config.Mutes = func() rules.Mutes { return rules.Mutes{{From: start, Until: start.Add(time.Hour)}} }
		s.start(p)
		p.publishBody("oven", "{}")
		p.publishBody("kiln", "{}")
		pass(time.Hour - time.Minute)
		if got := r.alerts(""); len(got) != 0 {
			t.Errorf("notified of %+v", got)
		}
		pass(2 * time.Minute)
		s.end()
		if got := r.alerts(""); len(got) != 1 || got[0].Device != notify.Hub {
			t.Errorf("notified of %+v", got)
		}
	})
}

// Nobody waits for the end of an outage for longer than a device is remembered.
func TestOutageIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, func(r *rules.Rule) { r.Forget = 40 * time.Minute }, r)
		s.start(p)
		for i := range 30 {
			p.talk(fmt.Sprint(i), 0)
		}
		time.Sleep(2 * time.Hour)
		s.end()
		if got := r.alerts(""); len(got) != 2 || got[0].Device != notify.Hub || !got[1].Resolved || !got[1].Forgotten {
			t.Errorf("notified of %+v", got)
		}
	})
}

// What a receiver asks for changes while the hub is cut off, once the first rule has told of it and before the second does:
// whoever the former owner told of it is not known, and a second message is better than none. Otherwise there is none, also
// if partitions change owners once both rules have opened.
func TestOutageIsToldWhoeverAsksForMore(t *testing.T) {
	const m = time.Minute
	for after, want := range map[time.Duration]int{40 * m: 2, 90 * m: 1} {
		synctest.Test(t, func(t *testing.T) {
			p := newPartition("0")
			all, slow := &receiver{}, &receiver{only: notify.Filter{Rules: []string{"slow"}}, level: "x"}
			start := func(from *setup) *setup {
				s := silence(t, func(r *rules.Rule) { r.Levels[0].Name = "x" }, all, slow)
				another := s.config.Rules.Rules[0]
				another.Name, another.Silent, another.Levels = "slow", time.Hour, slices.Clone(another.Levels)
				s.config.Rules.Rules = append(s.config.Rules.Rules, another)
				if from != nil {
					s.store, s.ledgers = from.store, from.ledgers
				}
				s.start(p)
				return s
			}
			s := start(nil)
			for i := range 3 {
				p.publishBody(fmt.Sprint(i), "{}")
			}
			time.Sleep(after)
			s.end()
			slow.only.Rules = []string{"slow", "offline"}
			p = p.reopen()
			next := start(s)
			time.Sleep(80 * m)
			if got := len(all.alerts("")); got != want {
				t.Errorf("after %v: %d messages to who asks for all rules, want %d", after, got, want)
			}
			if got := slow.alerts(""); len(got) != 1 || got[0].Rule != "slow" {
				t.Errorf("after %v: who asks for more gets %+v", after, got)
			}
			p.publishBody("0", "{}")
			time.Sleep(m)
			next.end()
			if got := len(all.alerts("")); got != 2*want {
				t.Errorf("after %v: %d messages in all, want %d", after, got, 2*want)
			}
			if got := slow.alerts(""); len(got) != 2 || !got[1].Resolved {
				t.Errorf("after %v: who asked for more gets %+v", after, got)
			}
		})
	}
}

// Everybody has heard of an outage by the first rule when the second opens, without a message: partitions that change owners
// later, and one that has the second rule alone, say nothing more until the outage is over.
func TestOutageIsToldOnceAcrossOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		r := &receiver{}
		var last *setup
		for owner := range 3 {
			s := silence(t, func(r *rules.Rule) { r.Levels[0].Name = "x" }, r)
			another := s.config.Rules.Rules[0]
			another.Name, another.Silent, another.Levels = "slow", time.Hour, slices.Clone(another.Levels)
			s.config.Rules.Rules = append(s.config.Rules.Rules, another)
			if owner == 2 {
				s.config.Rules.Rules = s.config.Rules.Rules[1:]
			}
			if last != nil {
				s.store, s.ledgers = last.store, last.ledgers
				p = p.reopen()
			}
			last = s
			s.start(p)
			for i := range 3 {
				if owner == 0 {
					p.publishBody(fmt.Sprint(i), "{}")
				}
			}
			time.Sleep(90 * time.Minute)
			if got := r.alerts(""); len(got) != 1 || got[0].Rule != "offline" || got[0].Resolved {
				t.Errorf("owner %d: %+v", owner, got)
			}
			if owner == 2 {
				p.publishBody("0", "{}")
				time.Sleep(time.Minute)
			}
			s.end()
		}
		if got := r.alerts(""); len(got) != 2 || !got[1].Resolved {
			t.Errorf("when it is over: %+v", got)
		}
	})
}
