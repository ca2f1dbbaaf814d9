package delivery

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
)

// nobody takes alerts and notifies nobody, and owns what is given to nobody.
type nobody struct{}

func (nobody) Notify(context.Context, ...notify.Alert) error { return nil }

func (nobody) Keep(context.Context, notify.DeadLetter) error { return errors.New("not kept") }

func (nobody) MayClaim(Key, *Notice) error { return nil }

func (nobody) MaySend(context.Context, Key, *Notice, throttle.Grant) (*notify.Incident, error) {
	return nil, nil
}

func (nobody) Pause() time.Duration { return 0 }

func (nobody) Settled(Key, *Notice) {}

// downOutbox returns an Outbox to one receiver, which is down, and a topic.
func downOutbox(t *testing.T) (*Outbox, *Topic) {
	dp := New(Config{
		Receivers:   []Receiver{{Name: "r", Notifier: nobody{}}},
		Concurrency: 64,
		GiveUp:      time.Hour,
		DeadLetters: nobody{},
		Stats:       &Stats{},
	})
	dp.receivers[0].breaker = breaker{failures: streak{n: failuresToGoDown}, suspects: 2, next: math.MaxInt64, nextNew: math.MaxInt64}
	o := dp.Open(t.Context(), t.Context(), Account{
		Owner: nobody{}, Name: "0", IDs: "ns/hub/0/", Log: "log", Logger: zap.NewNop(),
	})
	gate := recent.New(throttle.Config{
		Store: memlease.New(), Scope: "s", Receiver: "r", Window: time.Hour, SendTimeout: time.Second,
	}, recent.NewWindows())
	return o, &Topic{Gates: []Gate{gate}, Sent: &atomic.Int64{}, Recovered: &atomic.Int64{}}
}

func due() *Notice {
	n := &Notice{}
	n.SetReceivers(1)
	return n
}

// While a partition ends, the notice of a delivery that was dropped may become another: it is left alone.
func TestNoticeChangesAfterItsDeliveryIsDropped(t *testing.T) {
	o, topic := downOutbox(t)
	key := Key{sensor.Of("oven"), topic}
	was, is := due(), due()
	o.Give(key, was)
	if n := o.queues[0].waiting(); n != 1 {
		t.Fatalf("%d wait, want 1", n)
	}
	o.Close()
	o.Withdraw(key, was)
	o.Give(key, is)
	if n := o.queues[0].waiting(); n != 0 {
		t.Errorf("%d wait after the end", n)
	}
	if n := len(o.queues[0].to.queues); n != 0 {
		t.Errorf("the receiver has %d queues after the end", n)
	}
}

// A notice that becomes due while its key has a delivery follows it, unless it is withdrawn before.
func TestWhatIsDueLater(t *testing.T) {
	o, topic := downOutbox(t)
	key := Key{sensor.Of("oven"), topic}
	alert := &Alert{Key: key, Reading: Reading{Value: 99, Sequence: 1}, Receivers: 1}
	o.Alert(alert)
	never, then := due(), due()
	o.Give(key, never)
	o.Withdraw(key, never)
	o.Give(key, then)

	q := o.queues[0]
	d := q.deliveries[key]
	if d.notice != nil || o.Len() != 1 {
		t.Fatalf("%d deliveries, the first about %+v", o.Len(), d.notice)
	}
	d.move(attempting, WaitAttempt, 0)
	d.follow(verdict{outcome: "sent", covers: coversAll})
	if d = q.deliveries[key]; d == nil || d.notice != then {
		t.Errorf("after the alert comes %+v", d)
	}
	if n, _, _ := o.Unsettled(); n != 0 {
		t.Errorf("%d readings are not settled", n)
	}
}

// What a receiver took that forgets is forgotten here with the alarm that it was about.
func TestTakenIsForgottenWithItsAlarm(t *testing.T) {
	o, topic := downOutbox(t)
	q := o.queues[0]
	q.to.to.Limits.Forgets = true
	open, over := Key{sensor.Of("oven"), topic}, Key{sensor.Of("kiln"), topic}
	took := func(key Key, a notify.Alert) {
		d := &delivery{q: q, subject: key}
		claim, _, err := d.gate().Claim(t.Context(), d.request(&d.head))
		if err != nil {
			t.Fatal(err)
		}
		(&attempt{d: d, claim: claim, alert: a}).settle(nil)
	}
	took(open, notify.Alert{Since: time.Now()})
	took(over, notify.Alert{Since: time.Now()})
	took(Key{sensor.Of("press"), topic}, notify.Alert{}) // which has no alarm
	if len(q.taken) != 2 {
		t.Errorf("%d are known, of two with an alarm", len(q.taken))
	}
	o.Refresh(t.Context(), []OpenAlarm{{Key: open, Wanted: 1}}, func(context.Context, Key) error { return errors.New("not now") })
	if _, known := q.taken[open]; len(q.taken) != 1 || !known {
		t.Errorf("%d are known", len(q.taken))
	}
}
