package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/pace"
	"alertworker/internal/records"
	"alertworker/internal/turns"
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

// storm makes n devices hot at once, of four owners, and returns how long it takes until all are told.
func storm(t *testing.T, n int, limit time.Duration, s *service, limits notify.Limits) (lasted time.Duration, dead int) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{limits: limits, answer: s.answer}
		of := newReplica(t, r)
		of.window = time.Hour
		var ps []*owner
		for i := range 4 {
			ps = append(ps, of.open(fmt.Sprint(i)))
		}
		defer of.end()
		start := time.Now()
		for i := range n {
			ps[i%4].hot(fmt.Sprint("oven-", i))
		}
		for len(r.alerts("")) < n && time.Since(start) < limit {
			pass(time.Second / 4)
		}
		lasted, dead = time.Since(start), len(of.dead.all())
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

// 10,000 devices of eight owners get hot at once and every message takes 100 ms: as many go at a time as may.
func TestStormAtManyPlaces(t *testing.T) {
	t.Parallel()
	alerts := 10_000
	if testing.Short() {
		alerts = 1000
	}
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: wait(100 * time.Millisecond)}
		s := newReplica(t, r)
		var ps []*owner
		for i := range 8 {
			ps = append(ps, s.open(fmt.Sprint(i)))
		}
		defer s.end()
		start := time.Now()
		for i := range alerts {
			ps[i%8].hot(fmt.Sprint("device", i))
		}
		for len(r.alerts("")) < alerts && time.Since(start) < time.Minute {
			pass(100 * time.Millisecond)
		}
		least := time.Duration(alerts) * 100 * time.Millisecond / 64
		if took := time.Since(start); r.most != 64 || took < least || took > least+time.Second {
			t.Errorf("%d alerts in %v, %d at a time; want about %v, 64 at a time", len(r.alerts("")), took, r.most, least)
		}
	})
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
		r := &receiver{limits: forPeople, answer: s.answer}
		of := newReplica(t, r)
		p := of.open("0")
		defer of.end()

		start, told := time.Now(), 0
		var latest time.Duration // from hot to told
		const apart = over / devices
		for step := 0; told < devices && time.Since(start) < 5*time.Minute; step++ {
			if step < devices {
				p.hot(fmt.Sprint("truck-", step))
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

// unreachable is a store of turns that answers nothing.
type unreachable struct{}

func (unreachable) Take(ctx context.Context) (time.Duration, error) {
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

// Three replicas send people no more messages than one would: 200 devices get hot within 32 s, or 30 within 10 s. If they
// know nothing of one another, each still tells of everything.
func TestStormForPeopleOfThreeReplicas(t *testing.T) {
	for _, tt := range []struct {
		name    string
		devices int
		over    time.Duration
		alone   bool
		most    int // messages
		within  time.Duration
	}{
		{"200 devices", 200, 32 * time.Second, false, 8, time.Minute},
		{"a gateway of 30", 30, 10 * time.Second, false, 5, time.Minute},
		{"30, and nobody knows of the others", 30, 20 * time.Second, true, 6, 45 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &service{latency: 100 * time.Millisecond}
				r := &receiver{limits: forPeople, answer: s.answer}
				store, shared := memlease.New(), &records.Memory{}
				var owners []*owner
				for i := range 3 {
					of := newReplicaOn(t, store, r)
					of.turns = &turns.Turns{Store: shared, Name: "turns/r", Nearest: pace.Nearest, Farthest: pace.Farthest}
					if tt.alone {
						of.turns = unreachable{}
					}
					owners = append(owners, of.open(fmt.Sprint(i)))
					defer of.end()
				}
				var latest time.Duration // from hot to told
				told := map[string]bool{}
				start := time.Now()
				for step, n := 0, 0; time.Since(start) < 3*time.Minute; {
					for ; step < tt.devices && time.Since(start) >= tt.over*time.Duration(step)/time.Duration(tt.devices); step++ {
						owners[step%3].hot(fmt.Sprint("truck-", step))
					}
					pass(100 * time.Millisecond)
					for _, a := range r.alerts("")[n:] {
						told[a.Device] = true
						latest = max(latest, time.Since(a.Enqueued))
						n++
					}
				}
				t.Logf("%d of %d devices in %d messages, the latest after %v", len(told), tt.devices, s.messages, latest)
				if len(told) != tt.devices || s.messages > tt.most || latest > tt.within {
					t.Errorf("%d of %d devices in %d messages, the latest after %v", len(told), tt.devices, s.messages, latest)
				}
				if first := s.times[0].Sub(start); !tt.alone && first > time.Second {
					t.Errorf("the first message comes after %v", first)
				}
			})
		})
	}
}

// Without turns, as dead letters are replayed, what is there at once is few messages, also at a service without a rate.
func TestWithoutTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const devices = 250
		s := &service{latency: 100 * time.Millisecond}
		r := &receiver{limits: notify.Limits{Batch: 100}, answer: s.answer}
		of := newReplica(t, r)
		p := of.open("0")
		defer of.end()
		for i := range devices {
			p.hot(fmt.Sprint("truck-", i))
		}
		pass(time.Minute)
		if told := len(r.alerts("")); told != devices || s.messages > 4 || r.most != 1 {
			t.Errorf("%d of %d devices in %d messages, %d at a time", told, devices, s.messages, r.most)
		}
	})
}

// A lone alert goes at once, and so does the next one after a quiet time.
func TestLoneAlertForPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{limits: forPeople}
		of := newReplica(t, r)
		p := of.open("0")
		defer of.end()

		for i, quiet := range []time.Duration{10 * time.Second, 10 * time.Second, 40 * time.Second, time.Hour} {
			device := fmt.Sprint("truck-", i)
			p.hot(device)
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
		r := &receiver{limits: forPeople, answer: s.answer}
		of := newReplica(t, r)
		p := of.open("0")
		defer of.end()
		p.hot("first")
		synctest.Wait()
		wantAlerts(t, r, "first", 1)
		for i := range 20 {
			p.hot(fmt.Sprint("next-", i))
			pass(40 * time.Millisecond)
		}
		if got := len(r.alerts("")); got != 1 {
			t.Errorf("%d alerts within a second, want 1", got)
		}
		pass(10 * time.Second)
		if got := len(r.alerts("")); got != 21 || s.messages != 2 || s.refused != 0 {
			t.Errorf("%d alerts in %d messages, %d refused; want 21 in 2", got, s.messages, s.refused)
		}
		pass(10 * time.Second)
		wantWatermark(t, p, 21)
	})
}

// A message for many that is refused because of one device holds up no other: each is tried by itself.
func TestRefusedMessageForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{limits: notify.Limits{People: true, Batch: 100}}
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
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("first")
		synctest.Wait()
		p.hot("bad") // it is the first of its message, which the receiver decides about
		for i := range 5 {
			p.hot(fmt.Sprint("well", i))
		}
		pass(20 * time.Second)
		for i := range 5 {
			wantAlerts(t, r, fmt.Sprint("well", i), 1)
		}
		if dead := s.dead.all(); len(dead) != 1 || dead[0].Alert.Device != "bad" || many != 2 {
			t.Errorf("dead letters %+v after %d refusals", dead, many)
		}
		wantWatermark(t, p, 7)
	})
}

// First alerts come before reminders, higher levels before lower ones, and within these the oldest first.
func TestNewBeforeOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{every: time.Minute}
		r := &receiver{limits: notify.Limits{Rate: notify.Rate{Every: time.Minute}}, answer: s.answer}
		of := newReplica(t, r)
		of.window = 30 * time.Second
		p := of.open("0")
		defer of.end()
		warning := of.topic("warning", func(topic *delivery.Topic) { topic.Rank = 1 })
		critical := of.topic("critical", nil)
		comes := func(device string, topic *delivery.Topic, reminder bool) {
			a := p.reading(device, topic)
			a.Reminder = reminder
			p.take(a)
			pass(time.Second)
		}
		comes("old", warning, false)
		pass(40 * time.Second)
		comes("old", warning, true)
		comes("a", warning, false)
		comes("b", warning, false)
		comes("c", critical, false)
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

// A first alert that failed goes in its turn, though a reminder that failed before it waits for its own.
func TestWhatFailedGoesInItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{limits: notify.Limits{Places: 1, Rate: notify.Rate{Every: time.Second}}}
		failed := map[string]bool{"reminder": false, "first": false}
		r.set(func(_ context.Context, a notify.Alert) error {
			if did, fails := failed[a.Device]; fails && !did {
				failed[a.Device] = true
				return errBusy
			}
			return nil
		})
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		reminder := p.reading("reminder", s.topic("", nil))
		reminder.Reminder = true
		p.take(reminder)
		synctest.Wait()
		p.hot("first")
		for i := range 600 {
			p.hot(fmt.Sprint("well", i))
		}
		pass(10 * time.Second)
		if !failed["reminder"] || !failed["first"] {
			t.Fatal("not both have failed")
		}
		wantAlerts(t, r, "first", 1)
	})
}

// A first alert that joins a reminder goes in the turn of a first alert.
func TestFirstAlertJoinsAReminder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{limits: notify.Limits{Rate: notify.Rate{Every: time.Minute}}}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("first")
		synctest.Wait()
		reminder := p.reading("oven", s.topic("", nil))
		reminder.Reminder = true
		p.take(reminder)
		p.hot("press")
		p.hot("kiln")
		p.hot("oven")
		reminder = p.reading("press", s.topic("", nil)) // that joins a first alert changes nothing
		reminder.Reminder = true
		p.take(reminder)
		if n := p.box.MostWaiting(); n != 3 {
			t.Errorf("%d wait, want 3", n)
		}
		pass(10 * time.Minute)
		var got []string
		for _, a := range r.alerts("") {
			got = append(got, a.Device)
		}
		if want := "first, oven, press, kiln"; strings.Join(got, ", ") != want {
			t.Errorf("got %v, want %s", got, want)
		}
	})
}

// An alert that was refused for rate goes after those that waited then, and a few of those that come later.
func TestRefusedForRateGoesBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{limits: notify.Limits{Places: 1}}
		refuse := true
		r.set(func(_ context.Context, a notify.Alert) error {
			time.Sleep(time.Second)
			if a.Device == "busy" && refuse {
				refuse = false
				return &notify.Error{Untaken: true, Limited: true, RetryAfter: time.Second, Status: 429, Err: errors.New("429")}
			}
			return nil
		})
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("busy")
		synctest.Wait()
		const others = 200
		for i := range others {
			p.hot(fmt.Sprint("well", i))
		}
		pass(10 * time.Second) // it was refused
		const later = 30
		for i := range later {
			p.hot(fmt.Sprint("later", i))
		}
		pass(time.Hour)
		all := r.alerts("")
		if len(all) != others+later+1 || all[others+later].Device != "busy" {
			t.Errorf("%d alerts; the last is of %s", len(all), all[len(all)-1].Device)
		}
	})
}

// What a receiver that refuses by number shows: it is not down.
func TestLimitedIsNotDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{every: time.Second, retryAfter: 5 * time.Second}
		r := &receiver{answer: s.answer}
		of := newReplica(t, r)
		p := of.open("0")
		defer of.end()
		for i := range 100 {
			p.hot(fmt.Sprint("oven-", i))
		}
		pass(10 * time.Second)
		got := of.dispatcher.Receivers()[0]
		if got.Down || got.Waiting < 80 {
			t.Errorf("%+v", got)
		}
	})
}

// A receiver that refuses all by number is down: it takes nothing.
func TestLimitedForGoodIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(&notify.Error{Limited: true, RetryAfter: 20 * time.Second, Status: 503, Err: errors.New("503 maintenance")})}
		of := newReplica(t, r)
		p := of.open("0")
		defer of.end()
		p.hot("oven")
		pass(30 * time.Second)
		if got := of.dispatcher.Receivers()[0]; got.Down {
			t.Errorf("down after two refusals: %+v", got)
		}
		pass(time.Minute)
		if got := of.dispatcher.Receivers()[0]; !got.Down || got.Err == nil || time.Since(got.Since) < time.Minute || !got.Retry.After(time.Now()) {
			t.Errorf("not down: %+v", got)
		}
		r.set(nil)
		pass(20 * time.Second)
		if got := of.dispatcher.Receivers()[0]; got.Down || got.Waiting > 0 {
			t.Errorf("down still: %+v", got)
		}
	})
}
