package delivery

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/notify/pace"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
)

const (
	maxWaiting = 65_536           // alerts of an owner that wait for one receiver; beyond it the oldest become dead letters
	maxGivenUp = 4096             // dead letters of an owner for one receiver that are not written; with so many its Outbox is full
	lookEvery  = 10 * time.Second // while something waits, whether it has waited for too long
)

// Config holds what a Dispatcher needs. All fields are required.
type Config struct {
	Receivers   []Receiver // at least one
	Concurrency int        // attempts at a time, for each receiver, over all owners
	// age at which an alert becomes a dead letter
	GiveUp      time.Duration
	DeadLetters DeadLetters
	Stats       *Stats
}

// A Receiver gets notices.
type Receiver struct {
	ID       string        // for dead letters
	Name     string        // for people; no secrets
	Limits   notify.Limits // how it wants to be used
	Notifier notify.Notifier
	Turns    Turns // that replicas take, if people read its messages; nil: each goes by its own pace
}

// Turns has replicas take turns at a receiver whose messages people read. See package turns.
type Turns interface {
	// Take returns 0 if this replica may send a message now, or else after which time it may ask again. It is called
	// concurrently.
	Take(ctx context.Context) (wait time.Duration, err error)
}

// DeadLetters keeps alerts that could not be delivered.
type DeadLetters interface {
	// Keep returns nil once d is kept durably. Safe for concurrent use.
	Keep(ctx context.Context, d notify.DeadLetter) error
}

// Stats counts what deliveries have done. Its fields may be read at any time.
type Stats struct {
	Suppressed  atomic.Int64 // readings settled without an alert of their own
	Outcomes    [throttle.Unneeded + 1]atomic.Int64
	Ambiguous   atomic.Int64 // attempts that may have delivered an alert twice
	DeadLetters atomic.Int64
}

// A Dispatcher delivers the notices of all owners of a replica. It is safe for concurrent use.
type Dispatcher struct {
	config     Config
	MaxWaiting int // alerts of an owner that wait for one receiver. It is changed by tests alone
	receivers  []*receiver
	started    time.Time
	warned     atomic.Int64 // when Warn last logged, in Unix ns
}

// New returns a Dispatcher, which does nothing until something is given to one of its outboxes.
func New(c Config) *Dispatcher {
	dp := &Dispatcher{config: c, MaxWaiting: maxWaiting, started: time.Now()}
	for i, to := range c.Receivers {
		r := &receiver{
			to:         to,
			dispatcher: dp,
			index:      i,
			places:     min(c.Concurrency, cmp.Or(to.Limits.Places, c.Concurrency)),
			pace:       pace.New(to.Limits.Rate),
			answers:    1,
			turn:       turn{used: -pace.Farthest},
		}
		if to.Limits.Batch > 1 { // what becomes ready while a message is under way goes together
			r.places = 1
		}
		r.timer = time.AfterFunc(time.Hour, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.wake = 0
			r.dispatch()
		})
		r.timer.Stop() // until dispatch sets it
		dp.receivers = append(dp.receivers, r)
	}

	return dp
}

// now is the time since dp was created, by the monotonic clock.
func (dp *Dispatcher) now() time.Duration { return time.Since(dp.started) }

// Warn logs what may affect every delivery at the same time, at most every 10 s.
func (dp *Dispatcher) Warn(log *zap.Logger, msg string, err error) {
	now := time.Now().UnixNano()
	if last := dp.warned.Load(); now-last > int64(10*time.Second) && dp.warned.CompareAndSwap(last, now) {
		log.Warn(msg, zap.Error(err))
	}
}

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
	Owner  Owner
	Name   string // of the partition, or of the trigger
	IDs    string // how the ids of its notices begin
	Log    string // names what numbers its readings; empty if nothing does
	Logger *zap.Logger
}

// An Outbox brings the notices of one owner to every receiver. At any time there is at most one delivery for each key
// and receiver.
//
// Its lock is taken before that of a receiver. An owner may hold one of its own when it gives or withdraws something.
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
		q := &queue{
			box:        o,
			to:         r,
			deliveries: map[Key]*delivery{},
			later:      map[Key]*Notice{},
			taken:      map[Key]notify.Alert{},
		}
		o.queues = append(o.queues, q)
		r.mu.Lock()
		r.queues = append(r.queues, q)
		r.mu.Unlock()
	}

	return o
}

// Close drops the deliveries that wait. Those of attempts under way are dropped unless they are settled: see Wait.
func (o *Outbox) Close() {
	for _, q := range o.queues {
		r := q.to
		r.mu.Lock()
		r.queues = slices.DeleteFunc(r.queues, func(other *queue) bool { return other == q })
		for s := range states {
			for _, d := range slices.Clone(q.lines[s].all) {
				d.move(attempting, WaitAttempt, 0)
				d.end(OutcomeUnsettled)
			}
		}
		q.closed = true // last: move ends what it is given of a closed queue
		r.dispatch()
		r.mu.Unlock()
	}
}

// Wait waits for the attempts under way, after Close.
func (o *Outbox) Wait() { o.work.Wait() }

// Alert takes a reading to each of its receivers: it joins the delivery of its key if there is one; else the window
// suppresses it if that is known to be in force. Otherwise it starts a delivery.
func (o *Outbox) Alert(a *Alert) {
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
		//planted:lingering-joins-nothing if a.Lingers && (d != nil || a.Alarm.Quiet(i))
		if a.Lingers && a.Alarm.Quiet(i) {
			continue
		}

		if d == nil && a.covered(i) {
			o.dispatcher.config.Stats.Suppressed.Add(1)
			continue
		}

		if !detailed {
			a.Reading.More = a.More()
			detailed = true
		}

		if d == nil {
			q.begin(&delivery{subject: a.Key, head: a.Reading, reminder: a.Reminder}, a.Before)
			continue
		}

		d.join(a)
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
			q.begin(&delivery{subject: key, head: n.Reading, notice: n}, Place{})
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
		q.to.mu.Lock()
		waits := d != nil && d.notice == n && d.state != attempting
		if waits {
			d.move(attempting, WaitAttempt, 0)
			q.to.dispatch()
		}
		q.to.mu.Unlock()

		if waits {
			d.replace(nil, throttle.Unneeded.String())
		}
	}
}

// Ask has the notices that wait for their owner ask it again.
func (o *Outbox) Ask() {
	for _, q := range o.queues {
		q.to.mu.Lock()
		for _, d := range slices.Clone(q.lines[pausing].all) {
			if d.wait == WaitOwner {
				d.move(ready, WaitTurn, 0)
			}
		}
		q.to.dispatch()
		q.to.mu.Unlock()
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

// Full reports whether so many dead letters of alerts to one receiver are not written that nothing more should come.
// While they cannot be, what the receiver is about to be asked about counts too, because it may refuse that as it did the
// others.
func (o *Outbox) Full() bool {
	return slices.ContainsFunc(o.queues, func(q *queue) bool {
		q.to.mu.Lock()
		defer q.to.mu.Unlock()
		letters := q.lines[givenUp].Len() + q.writing
		//planted:full-too-late if false
		if q.unwritable && !q.to.probed() {
			letters += q.waiting() + q.to.trying
		}
		return letters >= maxGivenUp
	})
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
				all = append(all, d.report())
			}
		}
	}

	return all
}
