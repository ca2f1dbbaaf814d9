package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/incident"
	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	partitions "alertworker/internal/partition"
	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/telemetrytest"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	threshold   = 30
	window      = 60 * time.Second
	sendTimeout = 10 * time.Second
	interval    = 5 * time.Second
	drain       = 20 * time.Second
)

// partition is a telemetry.Partition in memory that keeps its events.
type partition struct {
	id    string
	grown chan struct{}

	mu      sync.Mutex
	log     []telemetry.Event
	next    int // what Receive gives next
	settled int64
	ended   error // what Last answers; nil: the last event
}

func newPartition(id string) *partition { return &partition{id: id, grown: make(chan struct{}, 1)} }

func (p *partition) ID() string { return p.id }

func (p *partition) publish(device string, temperature float64) telemetry.Event {
	return p.publishBody(device, fmt.Sprintf(`{"temperature":%v}`, temperature), nil)
}

// publishBody adds an event with any body, and with application properties.
func (p *partition) publishBody(device, body string, properties map[string]any) telemetry.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, now := int64(len(p.log)+1), time.Now()
	e := telemetry.Event{
		Position:   telemetry.Position{Sequence: n, Offset: fmt.Sprint(n), Time: now},
		Device:     device,
		Body:       []byte(body),
		Enqueued:   now,
		Properties: telemetrytest.Properties(properties),
	}
	p.log = append(p.log, e)
	select {
	case p.grown <- struct{}{}:
	default:
	}
	return e
}

func (p *partition) Receive(ctx context.Context) ([]telemetry.Event, error) {
	for {
		p.mu.Lock()
		events := p.log[p.next:]
		p.next = len(p.log)
		p.mu.Unlock()
		if len(events) > 0 {
			return events, nil
		}
		select {
		case <-p.grown:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (p *partition) Last(context.Context) (int64, time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		return 0, time.Time{}, p.ended
	}
	if len(p.log) == 0 {
		return -1, time.Time{}, nil
	}
	last := p.log[len(p.log)-1]
	return last.Sequence, last.Enqueued, nil
}

// Newest is the time of the last event.
func (p *partition) Newest(ctx context.Context, _ time.Time) (newest, asked time.Time, err error) {
	_, newest, err = p.Last(ctx)
	return newest, time.Now(), err
}

func (p *partition) Resumed() (telemetry.Checkpoint, bool) { return telemetry.Checkpoint{}, false }

func (p *partition) Rewind(at telemetry.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = int(at.Sequence)
}

func (p *partition) Checkpoint(_ context.Context, at telemetry.Checkpoint) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settled = at.Sequence
	return nil
}

// receiver is a notify.Notifier that records what it takes.
type receiver struct {
	answer func(context.Context, notify.Alert) error // nil: it takes everything at once
	level  string                                    // the only one whose alerts it gets, if not empty
	only   notify.Filter                             // with a level: what else it asks for

	mu    sync.Mutex
	taken []notify.Alert
}

func (r *receiver) Notify(ctx context.Context, alerts ...notify.Alert) error {
	r.mu.Lock()
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		if err := answer(ctx, alerts[0]); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = append(r.taken, alerts...)
	return nil
}

// filters are those of r's level.
func (r *receiver) filters() notify.Filters {
	if r.level == "" {
		return nil
	}
	only := r.only
	only.Levels = []string{r.level}
	return notify.Filters{only}
}

// alerts returns what was taken, of one device or, with "", of all.
func (r *receiver) alerts(device string) []notify.Alert {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.taken), func(a notify.Alert) bool { return device != "" && a.Device != device })
}

func (r *receiver) set(answer func(context.Context, notify.Alert) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// failing answers every alert with err.
func failing(err error) func(context.Context, notify.Alert) error {
	return func(context.Context, notify.Alert) error { return err }
}

// wait takes an alert after d.
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

var errBusy = &notify.Error{Untaken: true, Err: errors.New("503 busy")}

// deadLetters is a delivery.DeadLetters.
type deadLetters struct {
	mu   sync.Mutex
	kept []notify.DeadLetter
}

func (g *deadLetters) Keep(_ context.Context, d notify.DeadLetter) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kept = append(g.kept, d)
	return nil
}

// setup is a worker on a store in memory and what it works with.
type setup struct {
	t         testing.TB
	config    worker.Config
	store     lease.Store
	receivers []*receiver
	dead      *deadLetters
	worker    *worker.Worker

	work sync.WaitGroup
	stop context.CancelFunc
}

func newSetup(t testing.TB, receivers ...*receiver) *setup {
	return newReplica(t, memlease.New(), receivers...)
}

// newReplica sets up one more worker on a store.
func newReplica(t testing.TB, store lease.Store, receivers ...*receiver) *setup {
	t.Helper()
	set := rules.Threshold("temperature", threshold, window)
	decoder, err := set.Decoder()
	if err != nil {
		t.Fatal(err)
	}
	s := &setup{t: t, store: store, receivers: receivers, dead: &deadLetters{}}
	ledgers := &records.Memory{}
	s.config = worker.Config{
		Rulebook:   partitions.Rulebook{Origin: "ns/hub", Replica: "a", Rules: set, Decoder: decoder, Alike: func(time.Time) bool { return false }},
		Deliveries: delivery.Config{Concurrency: 64, GiveUp: 12 * time.Hour, DeadLetters: s.dead},
		Partitions: partitions.Config{
			CheckpointInterval: interval, DrainTimeout: drain, Log: zap.NewNop(),
			Ledger: func(ctx context.Context, partition string) (*ledger.Ledger, ledger.Content, error) {
				return ledger.Open(ctx, ledgers, partition)
			},
			Roster:    func(partition string) *roster.File { return &roster.File{Store: ledgers, Name: "roster/" + partition} },
			Incidents: &incident.Book{Store: ledgers, Prefix: "incidents/", IDs: "ns/hub/incidents/"},
		},
	}
	return s
}

// start builds the worker from s.config and has it consume these partitions until end.
func (s *setup) start(consumed ...*partition) *setup {
	for i, r := range s.receivers {
		name := fmt.Sprint("receiver", i)
		s.config.Rulebook.Receivers = append(s.config.Rulebook.Receivers, partitions.Receiver{To: delivery.Receiver{ID: name, Name: name + ".example", Notifier: r}, Filters: r.filters(), Gate: func(rule *rules.Rule, level *rules.Level) delivery.Gate {
			return recent.New(throttle.Config{
				Store: s.store, Scope: "ns/hub/group", Receiver: name, Rule: rule.Name, Level: level.Name, Per: rule.Per, Silence: rule.Silence(), Window: rule.Window, SendTimeout: sendTimeout,
			}, recent.NewWindows())
		}})
	}
	s.worker = worker.New(s.config)
	ctx, stop := context.WithCancel(s.t.Context())
	s.stop = stop
	for _, p := range consumed {
		s.work.Go(func() {
			if err := s.worker.Consume(ctx, p); err != nil {
				s.t.Errorf("partition %s: %v", p.id, err)
			}
		})
	}
	return s
}

// end stops the worker and waits for it.
func (s *setup) end() {
	s.stop()
	s.work.Wait()
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
