package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/notify"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
)

var errOwner = errors.New("the ledger did not answer")

// may sets what o answers about notices from now on.
func (o *owner) may(claim error, send func(*delivery.Notice) error, pause time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mayClaim, o.maySend, o.pause = claim, send, pause
}

// done returns the notices that every receiver has settled.
func (o *owner) done() []*delivery.Notice {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.settled)
}

// told returns what a receiver took of a device, in its order, by the numbers of the events.
func (r *receiver) told(device string) string {
	var all []string
	for _, a := range r.alerts(device) {
		what := "alert"
		if a.Resolved {
			what = "recovery"
		}
		all = append(all, fmt.Sprint(what, " ", a.Sequence))
	}
	return strings.Join(all, ", ")
}

// A recovery waits until the window is over, and holds the watermark no more than its alert. When every receiver has
// settled it, its owner hears so once.
func TestRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &receiver{}, &receiver{}
		s := newReplica(t, first, second)
		p := s.open("0")
		defer s.end()
		p.hot("oven")
		pass(10 * time.Second)
		n := p.well("oven")
		synctest.Wait()
		wantWatermark(t, p, 2)
		if w := p.waits("oven"); w.For != delivery.WaitWindow || w.Next.IsZero() {
			t.Errorf("it waits for %+v", w)
		}
		if p.box.MostWaiting() != 0 {
			t.Error("it waits for its turn, it is said")
		}
		pass(45 * time.Second)
		second.set(failing(errBusy))
		pass(10 * time.Second)
		if first.told("oven") != "alert 1, recovery 2" || len(p.done()) > 0 || n.Settled() {
			t.Errorf("told: %s; settled: %v", first.told("oven"), p.done())
		}
		second.set(nil)
		pass(time.Minute)
		if second.told("oven") != "alert 1, recovery 2" || !slices.Equal(p.done(), []*delivery.Notice{n}) || !n.Settled() {
			t.Errorf("told: %s; settled: %v", second.told("oven"), p.done())
		}
		a := first.alerts("oven")[1]
		if a.ID != first.alerts("oven")[0].ID[:len("ns/hub/0/")]+fmt.Sprintf("2/%d/resolved", a.Enqueued.UnixMilli()) || a.Temperature != 20 || a.WillResolve || a.Remember != window+s.config.GiveUp {
			t.Errorf("%+v", a)
		}
		if alert := first.alerts("oven")[0]; alert.Remember != window {
			t.Errorf("%+v", alert)
		}
		topic := s.topic("", nil)
		if topic.Sent.Load() != 2 || topic.Recovered.Load() != 2 {
			t.Errorf("counted %d alerts and %d recoveries", topic.Sent.Load(), topic.Recovered.Load())
		}
	})
}

// Of a device that nobody was alerted about no recovery comes: it is settled all the same.
func TestUnneededRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		n := p.well("oven")
		pass(time.Second)
		if len(r.attempts("")) != 0 || !slices.Equal(p.done(), []*delivery.Notice{n}) || s.stats.Outcomes[throttle.Unneeded].Load() != 1 {
			t.Errorf("sent %v, settled %v", r.tried, p.done())
		}
	})
}

// A recovery goes only to the receivers to which it is due.
func TestRecoveryOfSomeReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &receiver{}, &receiver{}
		s := newReplica(t, first, second)
		p := s.open("0")
		defer s.end()
		p.hot("oven")
		pass(2 * window)
		n := &delivery.Notice{Reading: delivery.Reading{Enqueued: time.Now().UnixMicro(), Sequence: 2}, Log: "log/0"}
		n.SetReceivers(1 << 1)
		p.box.Give(p.key("oven"), n)
		pass(time.Second)
		if first.told("oven") != "alert 1" || second.told("oven") != "alert 1, recovery 2" || len(p.done()) != 1 {
			t.Errorf("told: %s; %s; settled %v", first.told("oven"), second.told("oven"), p.done())
		}
	})
}

// What an owner does not let go waits for as long as the owner says, or longer each time if it does not know, and asks at
// once when it is woken. Nothing is claimed meanwhile if that was refused, nor is anything sent.
func TestOwnerThatRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		claim    error
		send     func(*delivery.Notice) error
		pause    time.Duration
		asked    [2]int // whether it may be sent, within 10 min, about
		outcomes int64  // claims
	}{
		"to claim, for as long as it knows": {claim: errOwner, pause: time.Minute},
		"to claim":                          {claim: errOwner},
		"to send, for as long as it knows":  {send: func(*delivery.Notice) error { return errOwner }, pause: time.Minute, asked: [2]int{9, 11}, outcomes: 10},
		"to send":                           {send: func(*delivery.Notice) error { return errOwner }, asked: [2]int{10, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{}
				s := newReplica(t, r)
				p := s.open("0")
				defer s.end()
				devices := []string{"oven", "a", "b", "c"} // as many as take a store for down
				for _, device := range devices {
					p.hot(device)
				}
				pass(2 * window)
				p.asked = 0
				p.may(tt.claim, tt.send, tt.pause)
				for _, device := range devices {
					p.well(device)
				}
				p.hot("kiln") // which it lets go
				pass(10 * time.Minute)
				wantAlerts(t, r, "kiln", 1)
				if w := p.waits("oven"); r.told("oven") != "alert 1" || w.For != delivery.WaitOwner {
					t.Errorf("told: %s; it waits for %+v", r.told("oven"), w)
				}
				if asked := (p.asked - 1) / len(devices); asked < tt.asked[0] || asked > tt.asked[1] {
					t.Errorf("asked %d times whether it may be sent", asked)
				}
				if failed := s.stats.Outcomes[throttle.Failed].Load(); (failed > 0) != (tt.send != nil) {
					t.Errorf("claimed %d times in vain", failed)
				}
				if s.dispatcher.Receivers()[0].Down {
					t.Error("the receiver is down, it is said")
				}
				p.may(nil, nil, 0)
				p.box.Ask()
				synctest.Wait()
				if r.told("oven") != "alert 1, recovery 5" || len(p.done()) != len(devices) {
					t.Errorf("told: %s; settled %v", r.told("oven"), p.done())
				}
			})
		})
	}
}

// A recovery that is withdrawn is not sent, unless it is being sent.
func TestWithdraw(t *testing.T) {
	for name, tt := range map[string]struct {
		when func(*owner) // before it is withdrawn
		want string
		gone bool // at once
	}{
		"while it waits for the window": {func(*owner) { pass(time.Second) }, "alert 1", true},
		"while it waits for its owner": {func(p *owner) {
			p.may(errOwner, nil, time.Hour)
			pass(window)
		}, "alert 1", true},
		"while it is asked whether it may be sent": {func(p *owner) {
			p.may(nil, func(*delivery.Notice) error {
				time.Sleep(time.Second)
				return errOwner
			}, time.Hour)
			pass(window - 10*time.Second + 500*time.Millisecond)
		}, "alert 1", false},
		"while it is sent": {func(p *owner) {
			p.replica.receivers[0].set(wait(2 * time.Second))
			pass(window - 10*time.Second + 500*time.Millisecond)
		}, "alert 1, recovery 2", false},
		"while the receiver is down": {func(p *owner) {
			p.replica.receivers[0].set(failing(errBusy))
			pass(window)
			p.replica.receivers[0].set(nil)
		}, "alert 1", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{}
				s := newReplica(t, r)
				p := s.open("0")
				defer s.end()
				p.hot("oven")
				pass(10 * time.Second)
				n := p.well("oven")
				tt.when(p)
				p.box.Withdraw(p.key("oven"), n)
				if gone := p.box.Len() == 0; gone != tt.gone {
					t.Errorf("it is gone at once: %v", gone)
				}
				pass(10 * time.Minute)
				if r.told("oven") != tt.want || p.box.Len() != 0 {
					t.Errorf("told: %s, want %s; %d deliveries are left", r.told("oven"), tt.want, p.box.Len())
				}
			})
		})
	}
}

// A device that is hot again while its recovery is being sent joins it, and its alert comes after that.
func TestHotAgainWhileItsRecoveryIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("oven")
		pass(2 * window)
		r.set(wait(5 * time.Second))
		p.well("oven")
		synctest.Wait()
		for range 3 {
			p.hot("oven")
			pass(time.Second)
		}
		wantWatermark(t, p, 2)
		pass(10 * time.Second)
		if r.told("oven") != "alert 1, recovery 2, alert 5" || len(p.done()) != 1 {
			t.Errorf("told: %s; settled %v", r.told("oven"), p.done())
		}
		if a := r.alerts("oven")[2]; a.Suppressed != 2 {
			t.Errorf("it counts %d, want 2", a.Suppressed)
		}
		wantWatermark(t, p, 5)
	})
}

// What is due while an alert of the same key is on its way follows it.
func TestDueWhileAnAlertIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: wait(5 * time.Second)}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("oven")
		synctest.Wait()
		n := p.well("oven")
		never := p.well("oven")
		p.box.Withdraw(p.key("oven"), never)
		p.box.Give(p.key("oven"), n)
		p.box.Withdraw(p.key("oven"), never) // which says nothing about n
		if p.box.Len() != 1 {
			t.Errorf("%d deliveries of one key", p.box.Len())
		}
		pass(2 * window)
		if r.told("oven") != "alert 1, recovery 2" {
			t.Errorf("told: %s", r.told("oven"))
		}
	})
}

// A recovery whose fate is not known is sent again with its id, until somebody answers; it is no dead letter before it
// could have been sent for as long as NOTIFY_GIVE_UP.
func TestRecoveryInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newReplica(t, r)
		s.config.GiveUp = 10 * time.Minute
		p := s.open("0")
		defer s.end()
		p.hot("oven")
		pass(2 * window)
		r.set(failing(errLost))
		p.well("oven")
		pass(9 * time.Minute)
		if n := len(s.dead.all()); n != 0 || len(r.attempts("oven")) < 5 {
			t.Errorf("%d dead letters after %d attempts", n, len(r.attempts("oven")))
		}
		r.mu.Lock()
		for _, one := range r.tried[1:] {
			if one.id != r.tried[1].id {
				t.Errorf("ids %s and %s of one recovery", r.tried[1].id, one.id)
			}
		}
		r.mu.Unlock()
		pass(3 * time.Minute)
		if dead := s.dead.all(); len(dead) != 1 || !dead[0].Alert.Resolved || len(p.done()) != 1 {
			t.Errorf("dead letters %+v, settled %v", dead, p.done())
		}
	})
}

// The recovery of an alarm whose rule was removed is about the last event that was read. It could have been sent since it
// became due, whenever that event came, and each device's has an id of its own.
func TestRecoveryOfARemovedRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("oven")
		p.hot("kiln")
		pass(13 * time.Hour)
		r.set(failing(errBusy))
		for _, device := range []string{"oven", "kiln"} {
			n := &delivery.Notice{Reading: p.read[1].Reading, Log: "log/0", RaisedAt: time.Now().UnixMicro()}
			n.SetReceivers(1)
			p.box.Give(p.key(device), n)
		}
		pass(time.Minute)
		if dead := s.dead.all(); len(dead) > 0 {
			t.Errorf("given up after a minute: %+v", dead)
		}
		r.set(nil)
		pass(2 * time.Minute)
		if r.told("oven") != "alert 1, recovery 2" || r.told("kiln") != "alert 2, recovery 2" || len(p.done()) != 2 {
			t.Errorf("told: %s; %s; settled %v", r.told("oven"), r.told("kiln"), p.done())
		}
		if a, b := wantAlerts(t, r, "oven", 2)[1].ID, wantAlerts(t, r, "kiln", 2)[1].ID; a == b {
			t.Errorf("both have the id %s", a)
		}
	})
}

// silent has every receiver get the silence of a device, which is due from a moment on.
func (o *owner) silent(device string) *delivery.Notice {
	heard := time.Now().Add(-15 * time.Minute)
	n := &delivery.Notice{
		Reading: delivery.Reading{
			Limit: (15 * time.Minute).Seconds(), Enqueued: time.Now().UnixMicro(), Sequence: o.last, Since: heard.UnixMicro(),
		},
		Log:      "log/" + o.name,
		Part:     throttle.Silence,
		RaisedAt: time.Now().UnixMicro(),
		Heard:    heard.UnixMicro(),
	}
	n.SetReceivers(1<<len(o.replica.receivers) - 1)
	o.box.Give(delivery.Key{About: sensor.Of(device), Topic: o.silence()}, n)
	return n
}

func (o *owner) silence() *delivery.Topic {
	return o.replica.topic("silence", func(topic *delivery.Topic) { topic.Silence, topic.Message.WillResolve = true, false })
}

// A silence says since when, and has an id of its own beside that of another device of the same place. It is sent if its
// owner lets it be, and its dead letter is noted by the gate: the next owner does not send it once more.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newReplica(t, r)
		p := s.open("0")
		n, _ := p.silent("oven"), p.silent("kiln")
		synctest.Wait()
		a, b := wantAlerts(t, r, "oven", 1)[0], wantAlerts(t, r, "kiln", 1)[0]
		if a.ID == b.ID || a.Silent != 15*time.Minute || a.Threshold != 0 || !a.LastHeard.Equal(time.UnixMicro(n.Heard)) || a.Resolved || a.WillResolve {
			t.Errorf("%+v, and %s", a, b.ID)
		}
		if place := fmt.Sprintf("ns/hub/0/%d/%d/silence/", n.Reading.Sequence, time.UnixMicro(n.Reading.Since).UnixMilli()); !strings.HasPrefix(a.ID, place) {
			t.Errorf("the id %s does not begin with %s", a.ID, place)
		}
		if len(p.done()) != 2 || s.topic("silence", nil).Sent.Load() != 2 {
			t.Errorf("settled %v", p.done())
		}
		wantWatermark(t, p, 0)

		r.set(failing(errRefused))
		again := p.silent("press")
		pass(time.Second)
		s.end()
		next := newReplicaOn(t, s.store, r)
		q := next.open("0")
		defer next.end()
		r.set(nil)
		key := delivery.Key{About: sensor.Of("press"), Topic: q.silence()}
		again.SetReceivers(1)
		q.box.Give(key, again)
		pass(time.Second)
		if len(s.dead.all()) != 1 || len(r.alerts("press")) != 0 || len(q.done()) != 1 {
			t.Errorf("dead letters %+v, told %+v, settled %v", s.dead.all(), r.alerts("press"), q.done())
		}
	})
}

// An alert about an alarm that was given up is not sent again when it is read again, after the recovery.
func TestAlertThatWasGivenUpIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: failing(errRefused)}
		s := newReplica(t, r)
		p := s.open("0")
		p.hot("oven")
		pass(time.Second)
		s.end()
		r.set(nil)
		pass(2 * window)
		next := newReplicaOn(t, s.store, r)
		q := next.open("0")
		defer next.end()
		q.take(p.read...)
		q.well("oven")
		pass(2 * window)
		if r.told("oven") != "" || len(next.dead.all()) > 0 || len(q.done()) != 1 {
			t.Errorf("told: %s; dead letters %+v; settled %v", r.told("oven"), next.dead.all(), q.done())
		}
	})
}

// What the gate compares notices by.
func TestRequestOfANotice(t *testing.T) {
	topic := newReplica(t, &receiver{}).topic("", nil)
	at := func(second int64) time.Time { return time.Unix(second, 0).UTC() }
	reading := delivery.Reading{Sequence: 7, Enqueued: 50e6, Since: 40e6}
	for name, tt := range map[string]struct {
		notice   *delivery.Notice
		at, asOf time.Time
		recovery bool
	}{
		"a recovery":                          {&delivery.Notice{}, time.Time{}, at(50), true},
		"of a rule that was removed":          {&delivery.Notice{RaisedAt: 60e6}, at(60), at(60), true},
		"of a device that is forgotten":       {&delivery.Notice{RaisedAt: 60e6, Forgotten: true}, at(60), at(40), true},
		"a silence":                           {&delivery.Notice{Part: throttle.Silence, RaisedAt: 60e6}, at(60), time.Time{}, false},
		"the end of a silence without events": {&delivery.Notice{Part: throttle.End, RaisedAt: 60e6}, at(60), at(60), true},
	} {
		n := tt.notice
		n.Reading, n.Log = reading, "log/9"
		r := delivery.Account{Log: "log/0"}.Request(delivery.Key{About: sensor.Of("oven"), Topic: topic}, n, &reading)
		if !r.At.Equal(tt.at) || !r.AsOf.Equal(tt.asOf) || r.Recovery != tt.recovery || r.Log != "log/9" || r.Part != n.Part || r.Sequence != 7 || !r.Enqueued.Equal(at(50)) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A device may be silent again since the same place. The ends of these silences have two ids, and one end has the same for
// every owner that has it from the ledger.
func TestEndsOfSilencesSinceOnePlace(t *testing.T) {
	topic := newReplica(t, &receiver{}).topic("", nil)
	topic.Silence = true
	id := func(raisedAt int64) string {
		n := &delivery.Notice{Part: throttle.End, RaisedAt: raisedAt, Reading: delivery.Reading{Sequence: 7, Since: 40e6}}
		return delivery.Account{}.Request(delivery.Key{About: sensor.Of("oven"), Topic: topic}, n, &n.Reading).ID
	}
	if first := id(60e6); first != id(60e6) || first == id(61e6) || !strings.HasSuffix(first, "/oven/end/60000/resolved") {
		t.Errorf("ids %s and %s", first, id(61e6))
	}
}

// A reading that opened an alarm asks the gate unless the window that is known began since its owner has the partition:
// within an earlier one a former owner may have sent a recovery.
func TestWindowFromBeforeAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		p.hot("oven")
		pass(10 * time.Second)
		asked := func() int64 { return s.stats.Outcomes[throttle.Throttled].Load() }
		for _, tt := range []struct {
			since time.Duration // from now
			asked int64
		}{{-20 * time.Second, 0}, {-5 * time.Second, 1}} {
			a := p.reading("oven", s.topic("", nil))
			a.Opens, a.WindowSince = true, time.Now().Add(tt.since)
			p.take(a)
			pass(time.Second)
			if n := asked(); n != tt.asked {
				t.Errorf("windows count since %v: the gate was asked %d times, want %d", tt.since, n, tt.asked)
			}
		}
	})
}

// What only people see of a reading comes with its alert.
func TestWhatAnAlertSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		words := s.topic("door", func(topic *delivery.Topic) { topic.Words, topic.Message.Unit = []string{"open", "broken"}, "°C" })
		at := time.Now().Add(-time.Minute)
		a := p.reading("door", words)
		a.Reading.Value, a.Reading.Taken, a.Reading.Since = 2, at.UnixMicro(), at.Add(-time.Hour).UnixMicro()
		a.Shown, a.Damaged = notify.Shown("").With("site", "berlin"), true
		p.take(a)
		b := p.reading("test/door", words)
		b.Reading.Value = 0
		p.take(b)
		synctest.Wait()
		got := wantAlerts(t, r, "door", 1)[0]
		if got.Word != "broken" || got.Unit != "°C" || !got.DeviceTime.Equal(at) || !got.Since.Equal(at.Add(-time.Hour)) || !got.Damaged || got.Shown != a.Shown ||
			got.Threshold != 30 || got.Partition != "0" || got.Log != "log/0" || !strings.HasSuffix(got.ID, "/door") || !got.WillResolve || got.Expires.Before(got.Sent) {
			t.Errorf("%+v", got)
		}
		if got := wantAlerts(t, r, "test/door", 1)[0]; got.Word != "open or broken" || got.WillResolve || !got.Since.IsZero() || !got.DeviceTime.IsZero() {
			t.Errorf("%+v", got)
		}
	})
}

// The alerts of a device's sensors, and of the elements of one message, each have an id of their own, which is short.
func TestIDsOfSensors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		at := time.Now().UnixMilli()
		long := strings.Repeat("x", 1000)
		for _, name := range []string{"return flow", long, long + "y"} {
			a := p.reading("gw", s.topic("", nil))
			a.Key.About = sensor.ID{Device: "gw", Name: name}
			a.Sensor = name
			a.Reading.Sequence = 1
			p.take(a)
		}
		synctest.Wait()
		all := r.alerts("gw")
		if len(all) != 3 || all[0].Sensor == "" {
			t.Fatalf("%+v", all)
		}
		ids := map[string]bool{}
		for _, a := range all {
			ids[a.ID] = true
			if len(a.ID) > 100 {
				t.Errorf("the id %s is long", a.ID)
			}
		}
		if want := fmt.Sprintf("ns/hub/0/1/%d~return%%20flow", at); len(ids) != 3 || !ids[want] {
			t.Errorf("ids %v, want %s among three", ids, want)
		}
	})
}

// alarm returns a reading of an open alarm, of a rule that says how often it is sent again.
func (o *owner) alarm(device string, alarm *delivery.Alarm, repeat time.Duration) *delivery.Alert {
	topic := o.replica.topic("repeating", func(topic *delivery.Topic) { topic.Repeat = repeat })
	a := o.reading(device, topic)
	a.Alarm = alarm
	return a
}

// An open alarm is sent again when its repeat is over. Until then its readings cost the store nothing, hold nothing, and
// count in the next alert. Those that are short of its limit count only if they are sent.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newReplica(t, r)
		store := &outage{Store: s.store}
		s.store = store
		p := s.open("0")
		defer s.end()
		alarm := &delivery.Alarm{OpenedBy: 1}
		const repeat = 10 * time.Minute
		for minute := range 11 {
			store.down.Store(minute > 0 && minute < 10)
			a := p.alarm("oven", alarm, repeat)
			a.Lingers = minute%2 == 1
			p.take(a)
			pass(time.Second)
			wantWatermark(t, p, p.last)
			if due := p.box.NextReminders(alarm, repeat); minute < 10 && (len(due) != 1 || due[0].For != delivery.WaitRepeat || due[0].Next.Sub(due[0].Since) != repeat) {
				t.Errorf("after %d min: %+v", minute, due)
			}
			pass(time.Minute - time.Second)
		}
		if r.told("oven") != "alert 1, alert 11" || store.calls.Load() != 0 {
			t.Errorf("told: %s; %d calls", r.told("oven"), store.calls.Load())
		}
		if a := r.alerts("oven")[1]; a.Suppressed != 4 { // minutes 2, 4, 6, 8
			t.Errorf("it counts %d", a.Suppressed)
		}
		if due := p.box.NextReminders(alarm, math.MaxInt64); len(due) != 1 || !due[0].Next.IsZero() {
			t.Errorf("one that is never due again: %+v", due)
		}
		p.take(p.alarm("oven", &delivery.Alarm{OpenedBy: p.last + 1}, repeat)) // the next alarm
		pass(time.Second)
		if r.told("oven") != "alert 1, alert 11, alert 12" {
			t.Errorf("told: %s", r.told("oven"))
		}
	})
}

// A reading that is short of the limit may be the one with which an alarm is due to be sent again, also if it comes while
// the gate is asked about an earlier one: the next owner reads a burst.
func TestRepeatDuringADelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s := newReplica(t, r)
		p := s.open("0")
		defer s.end()
		const repeat = 10 * time.Minute
		p.take(p.alarm("oven", &delivery.Alarm{OpenedBy: 1}, repeat))
		pass(5 * time.Minute)

		alarm := &delivery.Alarm{OpenedBy: 1} // of the next owner, who does not know when it was sent
		earlier := p.alarm("oven", alarm, repeat)
		pass(6 * time.Minute)
		p.take(earlier)
		for range 2 {
			later := p.alarm("oven", alarm, repeat)
			later.Lingers = true
			p.take(later)
		}
		pass(time.Second)
		if r.told("oven") != "alert 1, alert 4" {
			t.Errorf("told: %s", r.told("oven"))
		}
		if a := r.alerts("oven"); len(a) == 2 && a[1].Suppressed != 1 { // the earlier one
			t.Errorf("it counts %d", a[1].Suppressed)
		}
	})
}

// What has joined holds the place of its last reading that reached the limit, where that was read first, however many linger
// after it: they may be no cause to alert for the next owner, whose rule repeats nothing any more.
func TestPlaceOfWhatHasJoined(t *testing.T) {
	for name, tt := range map[string]struct {
		lingers []bool // of each reading that joins, from number 3 on
		again   bool   // the last one is read again, after later events
		want    int64  // everything is settled up to there
	}{
		"one lingers after the alarm has opened": {[]bool{false, true, true}, false, 2},
		"the limit is reached once more":         {[]bool{false, true, false, true}, false, 4},
		"all linger":                             {[]bool{true, true}, false, 3},
		"one that is read again":                 {[]bool{false}, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{}
				s := newReplica(t, r)
				p := s.open("0")
				defer s.end()
				p.hot("oven")
				pass(2 * window)
				r.set(wait(8 * time.Second))
				p.well("oven")
				pass(time.Second)
				for _, lingers := range tt.lingers {
					a := p.reading("oven", s.topic("", nil))
					a.Lingers = lingers
					p.take(a)
				}
				if tt.again {
					last := *p.read[len(p.read)-1]
					last.Before.Sequence = 7
					p.take(&last)
				}
				pass(5 * time.Second)
				r.set(failing(errBusy))
				pass(window)
				if told, want := r.told("oven"), "alert 1, recovery 2"; told != want {
					t.Errorf("told: %s, want %s", told, want)
				}
				wantWatermark(t, p, tt.want)
				r.set(nil)
				pass(2 * window)
				wantWatermark(t, p, p.last)
			})
		})
	}
}

// An alert whose fate is not known is sent again under its id, which a receiver that got it drops. What that says of
// the same alarm is known, and of a later one is not.
func TestRepeatInDoubt(t *testing.T) {
	refused := &notify.Error{Refused: true, Err: errors.New("400")}
	for name, tt := range map[string]struct {
		answers []error // to the first attempts
		opened  []int64 // of each reading's alarm; 0: the device is well
		want    string
	}{
		"the same alarm": {[]error{errLost}, []int64{1, 1, 1, 1, 1, 1}, "alert 1"},
		"the next alarm": {[]error{errLost, refused}, []int64{1, 0, 3, 3, 3, 3}, "alert 1, alert 5"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, heard := &receiver{}, &receiver{}
				answers := tt.answers
				r.set(func(_ context.Context, a notify.Alert) error {
					if known := heard.alerts("oven"); len(known) == 0 || known[len(known)-1].ID != a.ID {
						heard.taken = append(heard.taken, a)
					}
					if len(answers) == 0 {
						return nil
					}
					answer := answers[0]
					answers = answers[1:]
					return answer
				})
				s := newReplica(t, r)
				p := s.open("0")
				defer s.end()
				alarms := map[int64]*delivery.Alarm{}
				for _, opened := range tt.opened {
					if alarms[opened] == nil {
						alarms[opened] = &delivery.Alarm{OpenedBy: opened}
					}
					if opened == 0 {
						p.last++
					} else {
						a := p.alarm("oven", alarms[opened], math.MaxInt64)
						a.Opens = opened == p.last+1
						a.WindowSince = time.Now()
						p.take(a)
					}
					pass(31 * time.Second)
				}
				pass(5 * time.Minute)
				if got := heard.told("oven"); got != tt.want {
					t.Errorf("told: %s; want %s", got, tt.want)
				}
			})
		})
	}
}
