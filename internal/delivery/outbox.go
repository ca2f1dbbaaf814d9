package delivery

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
)

// An Owner is who deliveries are for: a partition. It is called without a lock of this package, by
// any goroutine. Of an alert about a reading the notice is nil.
type Owner interface {
	// MayClaim returns why nothing may be claimed yet for a notice, nil if it may.
	MayClaim(Key, *Notice) error
	// MaySend returns why a notice must not be sent under the claim that was just made, nil if it may, and of an incident
	// what there is to say of it now.
	MaySend(ctx context.Context, key Key, n *Notice, g throttle.Grant) (*notify.Incident, error)
	// Pause returns for how long what may not be claimed or sent need not ask again; 0 if that is not known.
	Pause() time.Duration
	// Settled says that a delivery was settled. The notice is not nil if every receiver has settled it now.
	Settled(Key, *Notice)
}

// An Account says whose the deliveries of an Outbox are.
type Account struct {
	Owner   Owner
	Name    string // of the partition, or of the trigger
	IDs     string // how the ids of its notices begin
	Log     string // names what numbers its readings; empty if nothing does
	FromHub bool   // its readings come from the hub, else through the trigger of this name
	Logger  *zap.Logger
}

// An Outbox brings the notices of one owner to every receiver. At any time there is at most one delivery for each key
// and receiver.
//
// Its lock is taken before that of a receiver, and never under one of an owner.
type Outbox struct {
	account    Account
	dispatcher *Dispatcher
	settling   context.Context // of what settles a delivery
	sending    context.Context // of attempts
	work       sync.WaitGroup  // attempts
	queues     []*queue        // one for each receiver

	mu   sync.Mutex
	held Holds // readings that are not settled
}

// Open returns an Outbox, to be closed. Once settling has ended nothing is retried, and once sending has, attempts
// under way are cancelled.
func (dp *Dispatcher) Open(settling, sending context.Context, a Account) *Outbox {
	o := &Outbox{
		account:    a,
		dispatcher: dp,
		settling:   settling,
		sending:    sending,
	}

	for _, r := range dp.receivers {
		o.queues = append(o.queues, r.open(o))
	}

	return o
}

// warn is Dispatcher.Warn.
func (o *Outbox) warn(msg string, err error) { o.dispatcher.Warn(o.account.Logger, msg, err) }

// Close drops the deliveries that wait. Those of attempts under way are dropped unless they are settled: see Wait.
func (o *Outbox) Close() {
	for _, q := range o.queues {
		q.close()
	}
}

// Wait waits for the attempts under way, after Close.
func (o *Outbox) Wait() { o.work.Wait() }

// Alert takes a reading to each of its receivers: it joins the delivery of its key if there is one; else the window
// suppresses it if that is known to be in force. Otherwise it starts a delivery.
func (o *Outbox) Alert(a *Alert, details Details) {
	o.mu.Lock()
	defer o.mu.Unlock()

	detailed := false
	for i, q := range o.queues {
		if a.Receivers&(1<<i) == 0 {
			continue
		}

		d := q.deliveries[a.Key]
		//planted:joins-another-site for key, other := range q.deliveries {
		//planted:joins-another-site 	same := other.subject.Topic.Shared && a.Key.Topic.Shared && key.Topic == a.Key.Topic
		//planted:joins-another-site 	if d == nil && same && other.of(&other.head).Device == a.Device { d = other }
		//planted:joins-another-site }
		if a.Lingers && (d != nil || a.Alarm.Quiet(i)) {
			continue
		}

		if d == nil && a.covered(i) {
			o.dispatcher.config.Stats.Suppressed.Add(1)
			continue
		}

		if !detailed {
			a.Reading.More = details.More()
			detailed = true
		}

		if d == nil {
			d := q.begin(a.Key, &a.Reading, nil)
			d.reminder = a.Reminder
			q.hold(d, &a.Reading, a.Before)
			q.enqueue(d)
			continue
		}

		q.join(d, a)
		o.dispatcher.config.Stats.Suppressed.Add(1)
	}
}

// Give starts a delivery of n to each receiver to which it is due, once the one of its key that is under way has ended.
func (o *Outbox) Give(key Key, n *Notice) {
	o.mu.Lock()
	defer o.mu.Unlock()

	for i, q := range o.queues {
		switch {
		//planted:recovery-to-everybody case false
		case !n.DueTo(i):
		case q.deliveries[key] != nil:
			q.later[key] = n
		default:
			q.enqueue(q.begin(key, &n.Reading, n))
		}
	}
}

// Withdraw ends the deliveries of n, which is not due any more, unless they are being attempted: these end when the
// attempt has not been one to send.
func (o *Outbox) Withdraw(key Key, n *Notice) {
	o.mu.Lock()
	defer o.mu.Unlock()

	n.withdrawn = true
	for _, q := range o.queues {
		if q.later[key] == n {
			delete(q.later, key)
		}

		d := q.deliveries[key]
		if d != nil && d.notice == n && q.withdraw(d) {
			q.replace(d, throttle.Unneeded.String())
		}
	}
}

// Ask has the notices that wait for their owner ask it again.
func (o *Outbox) Ask() {
	for _, q := range o.queues {
		q.wake(WaitOwner)
	}
}

// Unsettled returns how many readings hold the place up to which everything is settled, and of the first of them the
// place before, and when the hub took it, in Unix µs.
func (o *Outbox) Unsettled() (n int, before Place, enqueued int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, enqueued = o.held.First()
	return o.held.Len(), before, enqueued
}

// Len returns how many deliveries there are.
func (o *Outbox) Len() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range o.queues {
		n += len(q.deliveries)
	}

	return n
}

// MostWaiting returns how many deliveries wait for the receiver for which most do.
func (o *Outbox) MostWaiting() (most int) {
	for _, q := range o.queues {
		q.to.mu.Lock()
		most = max(most, q.waiting())
		q.to.mu.Unlock()
	}

	return most
}

// Full reports whether so many dead letters of alerts to one receiver are not written that nothing more should come.
func (o *Outbox) Full() bool {
	return slices.ContainsFunc(o.queues, (*queue).full)
}

// About returns a sensor, or a device and those of its sensors that deliveries are about, in the order of their names.
func (o *Outbox) About(of sensor.ID) []sensor.ID {
	o.mu.Lock()
	defer o.mu.Unlock()

	all := []sensor.ID{of}
	for _, q := range o.queues {
		for key := range q.deliveries {
			if of.Covers(key.About) && !key.Topic.Shared {
				all = append(all, key.About)
			}
		}
	}

	slices.SortFunc(all, func(a, b sensor.ID) int { return strings.Compare(a.Name, b.Name) })

	return slices.Compact(all)
}

// States returns the state of the deliveries of any of keys, in the order of the receivers and then of keys.
func (o *Outbox) States(keys []Key) (all []State) {
	o.mu.Lock()
	defer o.mu.Unlock()

	for _, q := range o.queues {
		for _, key := range keys {
			if d := q.deliveries[key]; d != nil {
				all = append(all, q.state(d))
			}
		}
	}

	return all
}
