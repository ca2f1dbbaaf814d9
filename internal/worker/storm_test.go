package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/rules"
)

// A service takes one message every so often, and refuses what comes sooner.
type service struct {
	every, retryAfter, latency time.Duration
	hides                      bool // it takes what comes sooner too, and shows it to nobody

	mu                sync.Mutex
	last              time.Time
	messages, refused int
	hidden            int
	times             []time.Time
}

func (s *service) answer(ctx context.Context, a notify.Alert) error {
	if err := wait(s.latency)(ctx, a); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hides && !s.last.IsZero() && time.Since(s.last) < s.every {
		s.hidden++
	} else if !s.last.IsZero() && time.Since(s.last) < s.every {
		s.refused++
		return &notify.Error{Untaken: true, Limited: true, RetryAfter: s.retryAfter, Status: 429, Err: errors.New("429")}
	}
	s.last = time.Now()
	s.messages++
	s.times = append(s.times, s.last)
	return nil
}

// storm makes n devices hot at once, in four partitions, and returns how long it takes until all are told.
func storm(t *testing.T, n int, limit time.Duration, s *service, limits notify.Limits) (lasted time.Duration, dead int) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{limits: limits, answer: s.answer}
		var ps []*partition
		for i := range 4 {
			ps = append(ps, newPartition(fmt.Sprint(i)))
		}
		for i := range n {
			ps[i%4].publish(fmt.Sprint("oven-", i), 99)
		}
		setup := newSetup(t, r)
		setup.config.Rules.Rules[0].Window = time.Hour
		setup.start(ps...)
		defer setup.end()
		start := time.Now()
		for len(r.alerts("")) < n && time.Since(start) < limit {
			pass(time.Second / 4)
		}
		lasted, dead = time.Since(start), len(setup.dead.all())
		told := map[string]int{}
		for _, a := range r.alerts("") {
			told[a.Device]++
		}
		if len(told) != n || len(r.alerts("")) != n {
			t.Errorf("%d alerts of %d devices in %v, want one of each of %d", len(r.alerts("")), len(told), lasted, n)
		}
		if r.limits.Batch > 1 && r.most > 1 {
			t.Errorf("%d messages at a time", r.most)
		}
	})
	return lasted, dead
}

// A storm of 5,000 devices at a Slack that takes a message a second.
func TestStormAtSlack(t *testing.T) {
	t.Parallel()
	s := &service{every: time.Second, retryAfter: 30 * time.Second, latency: 100 * time.Millisecond}
	lasted, dead := storm(t, 5000, 2*time.Minute, s, forPeople)
	t.Logf("%d messages in %v, %d refused, %d dead letters", s.messages, lasted, s.refused, dead)
	if s.messages > 150 || s.refused > 5 || dead > 0 || lasted > 2*time.Minute {
		t.Errorf("%d messages in %v, %d refused, %d dead letters", s.messages, lasted, s.refused, dead)
	}
}

// A Slack that hides what comes faster, without an error, hides nothing, because it gets no more than a message a second.
func TestStormAtSlackThatHides(t *testing.T) {
	s := &service{every: time.Second, latency: 100 * time.Millisecond, hides: true}
	storm(t, 1000, time.Minute, s, forPeople)
	if s.hidden > 0 || s.messages == 0 {
		t.Errorf("%d of %d messages hidden", s.hidden, s.messages)
	}
}

// 200 devices that get hot within 32 s are a few messages at a receiver that people read, and nobody waits a minute.
func TestStormForPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const devices, over = 200, 32 * time.Second
		s := &service{latency: 100 * time.Millisecond}
		p, r := newPartition("0"), &receiver{limits: forPeople, answer: s.answer}
		setup := newSetup(t, r).start(p)
		defer setup.end()

		start, told := time.Now(), 0
		var latest time.Duration // from hot to told
		const apart = over / devices
		for step := 0; told < devices && time.Since(start) < 5*time.Minute; step++ {
			if step < devices {
				p.publish(fmt.Sprint("truck-", step), 99)
			}
			pass(apart)
			for _, a := range r.alerts("")[told:] {
				latest = max(latest, time.Since(a.Enqueued))
				told++
			}
		}

		t.Logf("%d of %d devices in %d messages, the latest after %v", told, devices, s.messages, latest)
		if told != devices || s.messages > 8 || latest > time.Minute {
			t.Errorf("%d of %d devices in %d messages, the latest after %v", told, devices, s.messages, latest)
		}
		if first := s.times[0].Sub(start); first > s.latency {
			t.Errorf("the first message comes after %v", first)
		}
	})
}

// A lone alert goes at once, and so does the next one after a quiet time.
func TestLoneAlertForPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{limits: forPeople}
		setup := newSetup(t, r).start(p)
		defer setup.end()

		for i, quiet := range []time.Duration{2 * time.Second, 2 * time.Second, 40 * time.Second, time.Hour} {
			device := fmt.Sprint("truck-", i)
			p.publish(device, 99)
			synctest.Wait()
			wantAlerts(t, r, device, 1)
			pass(quiet)
		}
	})
}

// forPeople is how Slack, Teams, ntfy and mail are used.
var forPeople = notify.Limits{People: true, Batch: 100, Rate: notify.Rate{Every: time.Second}}

// Without batches, and without knowing the rate: it takes long, but nothing is lost, and most attempts are taken.
func TestStormAtUnknownRate(t *testing.T) {
	s := &service{every: time.Second, retryAfter: 30 * time.Second, latency: 100 * time.Millisecond}
	lasted, dead := storm(t, 200, time.Hour, s, notify.Limits{})
	t.Logf("%d messages in %v, %d refused, %d dead letters", s.messages, lasted, s.refused, dead)
	if s.refused > 64+20 || dead > 0 || lasted > 15*time.Minute {
		t.Errorf("%d messages in %v, %d refused, %d dead letters", s.messages, lasted, s.refused, dead)
	}
}

// A receiver that takes an array as fast as it comes is not held back.
func TestStormAtItsOwnSpeed(t *testing.T) {
	s := &service{latency: 10 * time.Millisecond}
	lasted, dead := storm(t, 5000, time.Minute, s, notify.Limits{Batch: 100})
	if lasted > 2*time.Second || s.refused > 0 || dead > 0 || s.messages > 60 {
		t.Errorf("%d messages in %v, %d refused, %d dead letters", s.messages, lasted, s.refused, dead)
	}
}

// A lone alert goes at once; while the pace holds the next one back, what becomes ready goes in one message.
func TestWhatIsReadyGoesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{every: time.Second}
		p, r := newPartition("0"), &receiver{limits: forPeople, answer: s.answer}
		setup := newSetup(t, r).start(p)
		defer setup.end()
		p.publish("first", 99)
		synctest.Wait()
		wantAlerts(t, r, "first", 1)
		for i := range 20 {
			p.publish(fmt.Sprint("next-", i), 99)
			pass(40 * time.Millisecond)
		}
		if got := len(r.alerts("")); got != 1 {
			t.Errorf("%d alerts within a second, want 1", got)
		}
		pass(time.Second)
		if got := len(r.alerts("")); got != 21 || s.messages != 2 || s.refused != 0 {
			t.Errorf("%d alerts in %d messages, %d refused; want 21 in 2", got, s.messages, s.refused)
		}
		pass(10 * time.Second)
		wantCheckpoint(t, p, 21)
	})
}

// A message for many that is refused because of one device holds up no other: each is tried by itself.
func TestRefusedMessageForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{limits: notify.Limits{People: true, Batch: 100}}
		many := 0
		r.set(func(ctx context.Context, a notify.Alert) error {
			if err := wait(time.Second)(ctx, a); err != nil {
				return err
			}
			if strings.HasPrefix(a.Device, "bad") {
				many++
				return &notify.Error{Refused: true, Untaken: true, Status: 422, Err: errors.New("422")}
			}
			return nil
		})
		s := newSetup(t, r).start(p)
		defer s.end()
		p.publish("first", 99)
		synctest.Wait()
		p.publish("bad", 99) // it is the first of its message, which the receiver decides about
		for i := range 5 {
			p.publish(fmt.Sprint("well", i), 99)
		}
		pass(20 * time.Second)
		for i := range 5 {
			wantAlerts(t, r, fmt.Sprint("well", i), 1)
		}
		if dead := s.dead.all(); len(dead) != 1 || dead[0].Alert.Device != "bad" || many != 2 {
			t.Errorf("dead letters %+v after %d refusals", dead, many)
		}
		wantCheckpoint(t, p, 7)
	})
}

// First alerts come before reminders, higher levels before lower ones, and within these the oldest first.
func TestNewBeforeOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{every: time.Minute}
		p, r := newPartition("0"), &receiver{limits: notify.Limits{Rate: notify.Rate{Every: time.Minute}}, answer: s.answer}
		setup := newSetup(t, r)
		setup.config.Rules = rules.Set{Rules: []rules.Rule{{
			Name: "hot", Field: "temperature", Window: 30 * time.Second,
			Levels: []rules.Level{{Name: "warning", Limit: 70, Clear: 60, For: time.Microsecond}, {Name: "critical", Limit: 90, Clear: 80, For: time.Microsecond}},
		}}}
		setup.start(p)
		defer setup.end()
		publish := func(device string, value float64) {
			p.publish(device, value)
			pass(time.Second)
		}
		publish("old", 75)
		publish("old", 75) // it opens
		pass(40 * time.Second)
		publish("old", 75) // a reminder
		for _, device := range []string{"a", "b"} {
			publish(device, 75)
			publish(device, 75)
		}
		publish("c", 95)
		publish("c", 95)
		pass(10 * time.Minute)
		var got []string
		for _, a := range r.alerts("") {
			got = append(got, a.Device+" "+a.Level)
		}
		if want := "old warning, c critical, a warning, b warning, old warning"; strings.Join(got, ", ") != want {
			t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
		}
	})
}

// What a receiver that refuses by number shows: it is not down.
func TestLimitedIsNotDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{every: time.Second, retryAfter: 5 * time.Second}
		p, r := newPartition("0"), &receiver{answer: s.answer}
		setup := newSetup(t, r).start(p)
		defer setup.end()
		for i := range 100 {
			p.publish(fmt.Sprint("oven-", i), 99)
		}
		pass(10 * time.Second)
		got := setup.worker.Receivers()[0]
		if got.Down || !got.Limited || got.Rate <= 0 || got.Left < time.Minute || got.Waiting < 80 {
			t.Errorf("%+v", got)
		}
	})
}

// A receiver that refuses all by number is down: it takes nothing.
func TestLimitedForGoodIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(&notify.Error{Limited: true, RetryAfter: 20 * time.Second, Status: 503, Err: errors.New("503 maintenance")})}
		p := newPartition("0")
		setup := newSetup(t, r).start(p)
		defer setup.end()
		p.publish("oven", 99)
		pass(30 * time.Second)
		if got := setup.worker.Receivers()[0]; got.Down {
			t.Errorf("down after two refusals: %+v", got)
		}
		pass(time.Minute)
		if got := setup.worker.Receivers()[0]; !got.Down || got.Err == nil || time.Since(got.Since) < time.Minute || !got.Retry.After(time.Now()) {
			t.Errorf("not down: %+v", got)
		}
		r.set(nil)
		pass(20 * time.Second)
		if got := setup.worker.Receivers()[0]; got.Down || got.Waiting > 0 {
			t.Errorf("down still: %+v", got)
		}
	})
}
