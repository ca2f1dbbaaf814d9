package partition_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/records"
	"alertworker/internal/rules"
)

// A compacted hub always has gaps. It keeps the last event of each device, so a device that is dead is reported.
func TestSilenceOnACompactedHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.start(p)
		time.Sleep(records.Resolution) // a roster may have begun so much later
		p.publishBody("oven", "{}")
		heard := time.Now()
		for range 60 {
			p.skip(1)
			p.publishBody("other", "{}")
			pass(time.Minute)
		}
		s.end()
		if got := r.notified("oven"); got != "alert 1" {
			t.Fatalf("notified of %s", got)
		}
		if a := r.alerts("oven")[0]; !a.Since.Equal(heard) || !a.LastHeard.Equal(heard) {
			t.Errorf("silent since %v, and heard at %v; want %v", a.Since, a.LastHeard, heard)
		}
		if got := r.notified("other"); got != "" {
			t.Errorf("notified of %s about a device that was heard", got)
		}
	})
}

// A gap is one, whatever comes first after it.
func TestSilenceAfterAGapBeforeAnUndecodableMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const m = time.Minute
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.start(p)
		p.talk("oven", 0)
		p.talk("other", 10*m)
		p.skip(5) // events that nobody has read: the oven may have sent them
		p.publishBody("other", `{}`)
		p.mu.Lock()
		p.log[len(p.log)-1].Undecodable = "broken"
		p.mu.Unlock()
		p.talk("other", m)
		gap := time.Now()
		time.Sleep(13 * m)
		if got := r.notified("oven"); got != "" {
			t.Errorf("notified of %s %v after the gap", got, time.Since(gap))
		}
		s.end()
	})
}

// The last events of a partition have expired unread, and nothing comes any more: reading begins at its end, as of which
// its devices can be silent.
func TestSilenceAfterTheLastEventsHaveExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.start(p)
		p.talk("oven", 0, time.Minute)
		pass(time.Minute)
		s.end()
		last := p.publishBody("oven", "{}") // while nobody reads
		pass(30 * time.Hour)                // it expires
		next := silence(t, nil, r)
		next.store, next.ledgers = s.store, s.ledgers
		q := p.reopen()
		q.next = len(q.log)
		q.resumed.Position = last.Position // as the reader of an empty partition has it
		next.start(q)
		pass(time.Hour)
		next.end()
		if got := r.notified("oven"); got != "alert 3" {
			t.Errorf("a device is dead, and people were notified of %q", got)
		}
	})
}

// One event has expired unread, which may have been the device's, and nothing comes any more: the device is not silent before its
// time is over since then.
func TestSilenceAfterOneEventHasExpired(t *testing.T) {
	const m = time.Minute
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.start(p)
		p.publishBody("oven", "{}")
		pass(5 * m)
		p.mu.Lock()
		p.expires = true
		p.mu.Unlock()
		p.publishBody("", "")
		pass(12 * m)
		if got := r.notified("oven"); got != "" {
			t.Errorf("notified of %s 12 min after an event that may have been the device's", got)
		}
		pass(5 * m)
		s.end()
		if got := r.notified("oven"); got != "alert 2" {
			t.Errorf("a device is dead, and people were notified of %q", got)
		}
	})
}

// A device that is in another partition from now on, because the hub got more of them, is reported once by the former one.
func TestDeviceThatHasMovedIsSilentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := silence(t, nil, r)
		former, now := newPartition("0"), newPartition("1")
		former.reached, now.reached = true, true
		s.start(former, now)
		for range 10 {
			former.publishBody("oven", "{}")
			former.publishBody("kiln", "{}")
			pass(time.Minute)
		}
		for range 60 {
			now.publishBody("oven", "{}")
			former.publishBody("kiln", "{}")
			pass(time.Minute)
		}
		if got := r.alerts("oven"); len(got) != 1 || got[0].Partition != "0" {
			t.Errorf("notified of %s of a device that has moved", r.notified("oven"))
		}
		pass(30 * time.Minute)
		s.end()
		if got := r.alerts("oven"); len(got) != 2 || got[1].Partition != "1" {
			t.Errorf("the device is dead, and people were notified of %s", r.notified("oven"))
		}
	})
}

// One of two rules about silence is missing for a minute, as during a rollout that is taken back: a probe that died before is
// reported.
func TestSilenceAfterARolloutThatIsTakenBack(t *testing.T) {
	const m = time.Minute
	for _, without := range []time.Duration{0, m} {
		t.Run(fmt.Sprint(without), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				configure := func(both bool, r *receiver) *setup {
					s := silence(t, func(r *rules.Rule) { r.Name, r.Silent = "offline", 2*time.Hour }, r)
					if both {
						s.config.Rules.Rules = append(s.config.Rules.Rules, rules.Rule{
							Name: "probe-dead", Field: "probe.temp", Window: window, Resolved: true, Forget: rules.DefaultForget, Silent: silent, Levels: []rules.Level{{}},
						})
					}
					return s
				}
				hello := func(p *partition, d time.Duration) {
					for range d / m {
						p.publishBody("oven", `{"hello":1}`)
						pass(m)
					}
				}
				p, r := newPartition("0"), &receiver{}
				s := configure(true, r)
				s.start(p)
				p.publishBody("oven", `{"probe":{"temp":4}}`) // the last of the probe
				hello(p, 5*m)
				s.end()
				if without > 0 {
					other := configure(false, r)
					other.store, other.ledgers = s.store, s.ledgers
					p = p.reopen()
					other.start(p)
					hello(p, without)
					other.end()
				}
				back := configure(true, r)
				back.store, back.ledgers = s.store, s.ledgers
				p = p.reopen()
				back.start(p)
				hello(p, time.Hour)
				back.end()
				if got := len(r.alerts("oven")); got != 1 {
					t.Errorf("%d alerts about a probe that is dead for an hour, want 1", got)
				}
			})
		})
	}
}

// Each rule forgets a device by its own time, although both hear the same.
func TestEachRuleForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, func(r *rules.Rule) { r.Forget = time.Hour }, r)
		gone := s.config.Rules.Rules[0]
		gone.Name, gone.Forget = "gone", rules.DefaultForget
		s.config.Rules.Rules = append(s.config.Rules.Rules, gone)
		s.start(p)
		p.talk("oven", 0)
		pass(2 * time.Hour)
		s.end()
		var told []string
		for _, a := range r.alerts("oven") {
			told = append(told, fmt.Sprint(a.Rule, " ", a.Resolved, " ", a.Forgotten))
		}
		slices.Sort(told)
		if want := "[gone false false offline false false offline true true]"; fmt.Sprint(told) != want {
			t.Errorf("notified of %v, want %s", told, want)
		}
	})
}
