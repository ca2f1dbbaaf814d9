package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/pace"
	"alertworker/internal/records"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/turns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	window      = 60 * time.Second
	sendTimeout = 10 * time.Second
	drain       = 20 * time.Second

	everybody = math.MaxUint32 // all receivers
)

// A replica is a Dispatcher with all that it works with: the real gates, on a store in memory.
type replica struct {
	t         testing.TB
	config    delivery.Config
	store     lease.Store
	window    time.Duration
	timeout   time.Duration  // of a message
	waiting   int            // how many alerts may wait, if not zero
	turns     delivery.Turns // nil: this replica is alone, and has turns of its own
	receivers []*receiver
	dead      *deadLetters
	stats     *delivery.Stats

	dispatcher *delivery.Dispatcher // from the first open on
	topics     map[string]*delivery.Topic
	owners     []*owner
}

func newReplica(t testing.TB, receivers ...*receiver) *replica {
	return newReplicaOn(t, memlease.New(), receivers...)
}

// newReplicaOn returns one more replica on a store.
func newReplicaOn(t testing.TB, store lease.Store, receivers ...*receiver) *replica {
	s := &replica{
		t: t, store: store, window: window, timeout: sendTimeout, receivers: receivers, dead: &deadLetters{}, stats: &delivery.Stats{},
		topics: map[string]*delivery.Topic{},
	}
	s.config = delivery.Config{Concurrency: 64, GiveUp: 12 * time.Hour, DeadLetters: s.dead, Stats: s.stats}
	return s
}

// topic returns that of a level without a name, or whatever differs from it, which is made once.
func (s *replica) topic(name string, change func(*delivery.Topic)) *delivery.Topic {
	if known := s.topics[name]; known != nil {
		return known
	}
	topic := &delivery.Topic{
		Message: notify.Alert{Rule: "temperature", Level: name, Window: s.window, WillResolve: true},
		Sent:    &atomic.Int64{}, Recovered: &atomic.Int64{},
	}
	if name != "" {
		topic.Suffix = "/" + name
	}
	if change != nil {
		change(topic)
	}
	for i := range s.receivers {
		topic.Gates = append(topic.Gates, recent.New(throttle.Config{
			Store: s.store, Scope: "ns/hub/group", Receiver: fmt.Sprint("receiver", i), Rule: "temperature", Level: name, Per: topic.Message.Per,
			Silence: topic.Silence, Window: s.window, SendTimeout: s.timeout,
		}, recent.NewWindows()))
	}
	s.topics[name] = topic
	return topic
}

// begin makes the Dispatcher, unless there is one.
func (s *replica) begin() *delivery.Dispatcher {
	if s.dispatcher == nil {
		for i, r := range s.receivers {
			taken := s.turns
			if taken == nil && r.limits.People {
				taken = &turns.Turns{Store: &records.Memory{}, Name: fmt.Sprint("turns/", i), Nearest: pace.Nearest, Farthest: pace.Farthest}
			}
			s.config.Receivers = append(s.config.Receivers, delivery.Receiver{
				ID: fmt.Sprint("receiver", i), Name: fmt.Sprintf("receiver%d.example", i), Limits: r.limits, Notifier: r, Turns: taken,
			})
		}
		s.dispatcher = delivery.New(s.config)
		if s.waiting > 0 {
			s.dispatcher.MaxWaiting = s.waiting
		}
	}
	return s.dispatcher
}

// open begins to deliver for one more owner.
func (s *replica) open(name string) *owner {
	o := &owner{replica: s, name: name}
	settling, stop := context.WithCancel(s.t.Context())
	sending, cut := context.WithCancel(s.t.Context())
	o.stop, o.cut = stop, cut
	o.box = s.begin().Open(settling, sending, delivery.Account{
		Owner: o, Name: name, IDs: "ns/hub/" + name + "/", Log: "log/" + name, Logger: zap.NewNop(),
	})
	s.owners = append(s.owners, o)
	return o
}

// end ends all owners, as a replica does that is asked to stop.
func (s *replica) end() {
	for _, o := range s.owners {
		o.end(drain)
	}
}

// An owner is a delivery.Owner by script: one that reads a log of which every reading reaches a limit.
type owner struct {
	replica   *replica
	box       *delivery.Outbox
	name      string
	stop, cut context.CancelFunc

	read []*delivery.Alert // in their order
	last int64             // the number of the last one

	mu       sync.Mutex
	mayClaim error // what it answers; nil: it may
	maySend  func(*delivery.Notice) error
	pause    time.Duration
	settled  []*delivery.Notice
	asked    int // whether it may be sent
}

func (o *owner) MayClaim(_ delivery.Key, n *delivery.Notice) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n == nil {
		return nil
	}
	return o.mayClaim
}

func (o *owner) MaySend(_ context.Context, _ delivery.Key, n *delivery.Notice, _ throttle.Grant) (*notify.Incident, error) {
	o.mu.Lock()
	o.asked++
	may := o.maySend
	o.mu.Unlock()
	if n == nil || may == nil {
		return nil, nil
	}
	return nil, may(n)
}

func (o *owner) Pause() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pause
}

func (o *owner) Settled(_ delivery.Key, n *delivery.Notice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n != nil {
		o.settled = append(o.settled, n)
	}
}

// hot reads one more reading, of a device that reaches the limit.
func (o *owner) hot(device string) { o.take(o.reading(device, o.replica.topic("", nil))) }

// reading returns one that comes now, and reaches the limit of a level.
func (o *owner) reading(device string, topic *delivery.Topic) *delivery.Alert {
	return &delivery.Alert{
		Key:       delivery.Key{About: sensor.Of(device), Topic: topic},
		Reading:   delivery.Reading{Value: 99, Limit: 30, Enqueued: time.Now().UnixMicro(), Sequence: o.last + 1},
		Device:    device,
		Before:    delivery.Place{Sequence: o.last},
		Receivers: everybody,
	}
}

// take reads readings in their order.
func (o *owner) take(readings ...*delivery.Alert) {
	for _, a := range readings {
		o.read = append(o.read, a)
		o.last = a.Reading.Sequence
		now := *a
		now.Key.Topic = o.replica.topic(a.Key.Topic.Message.Level, nil)
		o.box.Alert(&now)
	}
}

// well reads that a device is normal again, of which every receiver gets a recovery.
func (o *owner) well(device string) *delivery.Notice {
	o.last++
	n := &delivery.Notice{
		Reading: delivery.Reading{Value: 20, Limit: 30, Enqueued: time.Now().UnixMicro(), Sequence: o.last},
		Log:     "log/" + o.name,
	}
	n.SetReceivers(1<<len(o.replica.receivers) - 1)
	o.box.Give(o.key(device), n)
	return n
}

// key is that of what hot is about.
func (o *owner) key(device string) delivery.Key {
	return delivery.Key{About: sensor.Of(device), Topic: o.replica.topic("", nil)}
}

// watermark returns the number up to which everything that was read is settled.
func (o *owner) watermark() int64 {
	if n, before, _ := o.box.Unsettled(); n > 0 {
		return before.Sequence
	}
	return o.last
}

// waits returns what the delivery about a device to the first receiver waits for.
func (o *owner) waits(device string) delivery.Condition {
	all := o.box.States([]delivery.Key{o.key(device)})
	if len(all) == 0 {
		return delivery.Condition{}
	}
	return all[0].Waits
}

// end ends o: what waits is dropped, and attempts under way get as long.
func (o *owner) end(drain time.Duration) {
	o.stop()
	o.box.Close()
	late := time.AfterFunc(drain, o.cut)
	o.box.Wait()
	late.Stop()
	o.cut()
}

// receiver is a notify.Notifier that records what it takes.
type receiver struct {
	limits notify.Limits
	// answer says what becomes of a message about an alert, or about several: it is asked about the device that is
	// first in the alphabet. Nil: it is taken at once.
	answer func(context.Context, notify.Alert) error

	mu        sync.Mutex
	taken     []notify.Alert
	tried     []try
	now, most int // messages at a time
}

// A try is one attempt at an alert.
type try struct {
	device, id string // of the alert that is first in the alphabet
	alerts     int    // in the message
	at         time.Time
}

func (r *receiver) Notify(ctx context.Context, alerts ...notify.Alert) error {
	alerts = slices.SortedFunc(slices.Values(alerts), func(a, b notify.Alert) int { return strings.Compare(a.Device, b.Device) })
	r.mu.Lock()
	r.tried = append(r.tried, try{alerts[0].Device, alerts[0].ID, len(alerts), time.Now()})
	r.now++
	r.most = max(r.most, r.now)
	answer := r.answer
	r.mu.Unlock()
	var err error
	if answer != nil {
		err = answer(ctx, alerts[0])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now--
	if err == nil {
		r.taken = append(r.taken, alerts...)
	}
	return err
}

// alerts returns what was taken, of one device or, with "", of all.
func (r *receiver) alerts(device string) []notify.Alert {
	r.mu.Lock()
	defer r.mu.Unlock()
	var of []notify.Alert
	for _, a := range r.taken {
		if device == "" || a.Device == device {
			of = append(of, a)
		}
	}
	return of
}

// attempts returns when messages about a device were sent or, with "", all.
func (r *receiver) attempts(device string) (at []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.tried {
		if device == "" || one.device == device {
			at = append(at, one.at)
		}
	}
	return at
}

func (r *receiver) set(answer func(context.Context, notify.Alert) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// failing answers every message with err.
func failing(err error) func(context.Context, notify.Alert) error {
	return func(context.Context, notify.Alert) error { return err }
}

// wait takes a message after d.
func wait(d time.Duration) func(context.Context, notify.Alert) error {
	return func(ctx context.Context, _ notify.Alert) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// limited answers every message with a status and, if it is not 0, Retry-After.
func limited(status int, retryAfter time.Duration) func(context.Context, notify.Alert) error {
	return failing(&notify.Error{
		Untaken: true, Limited: true, Status: status, RetryAfter: retryAfter, Err: fmt.Errorf("answered %d", status),
	})
}

var (
	errBusy    = &notify.Error{Untaken: true, Err: errors.New("503 busy")}
	errRefused = &notify.Error{Refused: true, Untaken: true, Status: 422, Err: errors.New("answered 422")}
	errLost    = errors.New("connection reset") // after it was taken, for all that is known
)

// deadLetters is a delivery.DeadLetters.
type deadLetters struct {
	mu    sync.Mutex
	kept  []notify.DeadLetter
	err   error
	calls int
}

func (g *deadLetters) Keep(_ context.Context, d notify.DeadLetter) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	if g.err == nil {
		g.kept = append(g.kept, d)
	}
	return g.err
}

// all returns what was kept.
func (g *deadLetters) all() []notify.DeadLetter {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.kept)
}

// fail has nothing be kept from now on, because of err, or everything if that is nil.
func (g *deadLetters) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

// pass lets time pass, and everything happen that is due then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantAlerts(t *testing.T, r *receiver, device string, want int) []notify.Alert {
	t.Helper()
	got := r.alerts(device)
	if len(got) != want {
		t.Fatalf("%d alerts of %q, want %d: %v", len(got), device, want, got)
	}
	return got
}

func wantWatermark(t *testing.T, o *owner, want int64) {
	t.Helper()
	if got := o.watermark(); got != want {
		t.Fatalf("everything is settled up to %d, want %d", got, want)
	}
}
