package partition_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/telemetrytest"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
)

const (
	threshold   = 30
	window      = 60 * time.Second
	sendTimeout = 10 * time.Second
	interval    = 5 * time.Second
	drain       = 20 * time.Second
)

// partition is a telemetry.Partition in memory. It keeps its events, as a hub does.
type partition struct {
	id         string
	generation string
	mu         sync.Mutex
	module     string // that sends the next events
	source     string // iothub-message-source of the next events
	log        []telemetry.Event
	// next is what Receive gives next.
	next    int
	grown   chan struct{}
	marks   []int64              // checkpoints
	written telemetry.Checkpoint // the last one
	resumed telemetry.Checkpoint
	refuse  error         // what Checkpoint answers
	opens   time.Duration // how long the first Receive takes
	largest int           // batch
	slow    time.Duration // how long each Receive takes
	dropped int64         // numbers that no event has
	held    bool          // Receive gives nothing
	expires bool          // events stand for those that have expired unread
	lastErr error         // what Last answers
	others  []*partition  // the hub's other partitions
	reached bool          // events come to yet another one all the time
	ahead   time.Duration // of the hub's clock
	stale   time.Duration // Newest says what was so long ago
	over    bool          // there was a checkpoint that says nothing of these events
}

func newPartition(id string) *partition {
	return &partition{id: id, grown: make(chan struct{}, 1), largest: 1 << 20}
}

func (p *partition) ID() string { return p.id }

func (p *partition) publish(device string, temperature float64) telemetry.Event {
	return p.publishBody(device, fmt.Sprintf(`{"temperature":%v}`, temperature))
}

// publishBody adds an event with any body.
func (p *partition) publishBody(device, body string) telemetry.Event {
	return p.publishProperties(device, body, nil)
}

// publishProperties adds an event with application properties.
func (p *partition) publishProperties(device, body string, properties map[string]any) telemetry.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, now := int64(len(p.log)+1)+p.dropped, time.Now().Add(p.ahead)
	e := telemetry.Event{
		Position:   telemetry.Position{Generation: p.generation, Sequence: n, Offset: fmt.Sprint(n * 100), Time: now},
		Device:     device,
		Module:     p.module,
		Body:       []byte(body),
		Enqueued:   now,
		Properties: telemetrytest.Properties(properties),
	}
	e.MessageSource = p.source
	if p.expires {
		e.MessageSource = telemetry.SourceExpired
	}
	p.log = append(p.log, e)
	select {
	case p.grown <- struct{}{}:
	default:
	}
	return e
}

// hold has Receive give nothing.
func (p *partition) hold(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = is
}

func (p *partition) Receive(ctx context.Context) ([]telemetry.Event, error) {
	p.mu.Lock()
	opens := p.opens
	p.opens = 0
	p.mu.Unlock()
	select {
	case <-time.After(opens):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for {
		p.mu.Lock()
		events := p.log[p.next:min(len(p.log), p.next+p.largest)]
		if p.held {
			events = nil
		}
		p.next += len(events)
		slow := p.slow
		p.mu.Unlock()
		time.Sleep(slow)
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

// Last is the last event in the log.
func (p *partition) Last(context.Context) (int64, time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lastErr != nil {
		return 0, time.Time{}, p.lastErr
	}
	if len(p.log) == 0 {
		return -1, time.Time{}, nil
	}
	last := p.log[len(p.log)-1]
	return last.Sequence, last.Enqueued, nil
}

// Newest is the latest of the last events of all partitions.
func (p *partition) Newest(ctx context.Context, _ time.Time) (newest, asked time.Time, err error) {
	p.mu.Lock()
	all, reached := append([]*partition{p}, p.others...), p.reached
	asked = time.Now().Add(-p.stale)
	p.mu.Unlock()
	if reached {
		return asked, asked, nil
	}
	for _, one := range all {
		_, last, err := one.Last(ctx)
		if err != nil {
			return time.Time{}, time.Time{}, err
		}
		one.mu.Lock()
		for i := len(one.log) - 1; i >= 0 && one.stale > 0 && last.After(asked); i-- {
			last = one.log[i].Enqueued
		}
		one.mu.Unlock()
		if last.After(newest) {
			newest = last
		}
	}
	return newest, asked, nil
}

func (p *partition) Resumed() (telemetry.Checkpoint, bool) {
	c := p.resumed
	c.Generation = p.generation
	return c, p.over
}

func (p *partition) Rewind(at telemetry.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = int(at.Sequence)
}

func (p *partition) Checkpoint(_ context.Context, at telemetry.Checkpoint) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != nil {
		return p.refuse
	}
	if was := p.written; was.Offset != "" && at.Sequence < was.Sequence {
		return nil // it never moves back
	}
	p.marks = append(p.marks, at.Sequence)
	p.written = at
	return nil
}

// checkpoint is the last one, 0 if there is none.
func (p *partition) checkpoint() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.marks) == 0 {
		return 0
	}
	return p.marks[len(p.marks)-1]
}

// reopen is what a new owner of the partition reads: everything after the checkpoint.
func (p *partition) reopen() *partition {
	q := newPartition(p.id)
	q.generation = p.generation
	q.others, q.reached = p.others, p.reached
	p.mu.Lock()
	q.log, q.marks = slices.Clone(p.log), slices.Clone(p.marks)
	q.written, q.resumed = p.written, p.written
	p.mu.Unlock()
	q.next = max(0, int(q.checkpoint()))
	q.grown <- struct{}{}
	return q
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

// receiver is a notify.Notifier that records what it takes.
type receiver struct {
	limits notify.Limits
	// answer says what becomes of a message about an alert, or about several: it is asked about the device that is
	// first in the alphabet. Nil: it is taken at once.
	answer func(context.Context, notify.Alert) error
	level  string        // the only one whose alerts it gets, if not empty
	only   notify.Filter // with a level: what else it asks for

	mu        sync.Mutex
	taken     []notify.Alert
	attempts  int
	now, most int // at a time
}

func (r *receiver) Notify(ctx context.Context, alerts ...notify.Alert) error {
	alerts = slices.SortedFunc(slices.Values(alerts), func(a, b notify.Alert) int { return strings.Compare(a.Device, b.Device) })
	r.mu.Lock()
	r.attempts++
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

// asked returns how many attempts were made.
func (r *receiver) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attempts
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

func (r *receiver) set(answer func(context.Context, notify.Alert) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
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
	err  error
}

func (g *deadLetters) Keep(_ context.Context, d notify.DeadLetter) error {
	g.mu.Lock()
	defer g.mu.Unlock()
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

// rolledOut says that no replica has other rules any more ten minutes after a take-over.
func rolledOut(since time.Time) bool { return time.Since(since) >= 10*time.Minute }

// A config is what a replica has for its partitions.
type config struct {
	Replica            string
	Rules              rules.Set
	Clock              *rules.Clock
	Mutes              func() rules.Mutes
	Alike              func(since time.Time) bool
	Concurrency        int
	GiveUp             time.Duration
	CheckpointInterval time.Duration
	DrainTimeout       time.Duration
	MaxChanges         int
	DeadLetters        delivery.DeadLetters
	Log                *zap.Logger
}

// setup is a replica's partitions on a store in memory, and what they work with: real deliveries to receivers by script.
type setup struct {
	t         testing.TB
	config    config
	waiting   int    // at most, if not zero
	level     string // of the threshold
	store     lease.Store
	ledgers   records.Store
	receivers []*receiver
	notifier  notify.Notifier // of the first of them, if not nil
	dead      *deadLetters

	// from start on
	dispatcher *delivery.Dispatcher
	partitions partitions.Config
	stats      *stats

	mu      sync.Mutex
	streams map[*partitions.Stream]bool // that are being consumed

	work sync.WaitGroup
	stop context.CancelFunc
}

// stats are what deliveries and partitions count.
type stats struct {
	delivery.Stats
	partitions.Counters
}

func newSetup(t testing.TB, receivers ...*receiver) *setup {
	if len(receivers) == 0 {
		receivers = []*receiver{{}}
	}
	return newReplica(t, memlease.New(), receivers...)
}

// newReplica sets up one more replica on a store.
func newReplica(t testing.TB, store lease.Store, receivers ...*receiver) *setup {
	t.Helper()
	set := rules.Threshold("temperature", threshold, window)
	s := &setup{
		t: t, store: store, ledgers: &records.Memory{}, receivers: receivers, dead: &deadLetters{}, stats: &stats{},
		streams: map[*partitions.Stream]bool{},
	}
	s.config = config{
		Alike:   rolledOut,
		Replica: "a", Rules: set, Concurrency: 64, GiveUp: 12 * time.Hour, CheckpointInterval: interval,
		DrainTimeout: drain, MaxChanges: partitions.MaxChanges, DeadLetters: s.dead, Log: zap.NewNop(),
	}
	return s
}

// start has the replica of s.config consume partitions until stop.
func (s *setup) start(ps ...*partition) *setup {
	ctx, stop := context.WithCancel(s.t.Context())
	s.stop = stop
	return s.consume(ctx, ps...)
}

// consume has the replica of s.config consume partitions until ctx ends.
func (s *setup) consume(ctx context.Context, ps ...*partition) *setup {
	if s.level != "" {
		s.config.Rules.Rules[0].Levels[0].Name = s.level
	}
	var to []delivery.Receiver
	var wants []partitions.Receiver
	for i, r := range s.receivers {
		name := fmt.Sprint("receiver", i)
		var n notify.Notifier = r
		if i == 0 && s.notifier != nil {
			n = s.notifier
		}
		to = append(to, delivery.Receiver{ID: name, Name: name + ".example", Limits: r.limits, Notifier: n})
		wants = append(wants, partitions.Receiver{Filters: r.filters(), Gate: func(rule *rules.Rule, level *rules.Level) delivery.Gate {
			return recent.New(throttle.Config{
				Store: s.store, Scope: "ns/hub/group", Receiver: name, Rule: rule.Name, Level: level.Name, Per: rule.Per, Silence: rule.Silence(), Window: rule.Window, SendTimeout: sendTimeout,
			}, recent.NewWindows())
		}})
	}
	s.dispatcher = delivery.New(delivery.Config{
		Receivers: to, Concurrency: s.config.Concurrency, GiveUp: s.config.GiveUp, DeadLetters: s.config.DeadLetters, Stats: &s.stats.Stats,
	})
	if s.waiting > 0 {
		s.dispatcher.MaxWaiting = s.waiting
	}
	decoder, err := s.config.Rules.Decoder() // which tests may have changed
	if err != nil {
		s.t.Fatal(err)
	}
	s.partitions = partitions.Config{
		Evaluator: partitions.NewEvaluator(partitions.Rulebook{
			Origin: "ns/hub", Replica: s.config.Replica, Rules: s.config.Rules, Decoder: decoder, Clock: s.config.Clock,
			Receivers: wants, Mutes: s.config.Mutes, Alike: s.config.Alike, Counters: &s.stats.Counters,
		}),
		Dispatcher:         s.dispatcher,
		CheckpointInterval: s.config.CheckpointInterval,
		DrainTimeout:       s.config.DrainTimeout,
		MaxChanges:         s.config.MaxChanges,
		Ledger: func(ctx context.Context, partition string) (*ledger.Ledger, ledger.Content, error) {
			return ledger.Open(ctx, s.ledgers, partition)
		},
		Incidents: &incident.Book{Store: s.ledgers, Prefix: "incidents/", IDs: "ns/hub/incidents/"},
		Roster: func(partition string) *roster.File {
			return &roster.File{Store: s.ledgers, Name: "roster/" + partition}
		},
		Log: s.config.Log,
	}
	for _, p := range ps {
		s.work.Go(func() {
			if err := s.run(ctx, p); err != nil {
				s.t.Errorf("partition %s: %v", p.id, err)
			}
		})
	}
	return s
}

// run has the replica, which has begun, consume one more partition until ctx ends.
func (s *setup) run(ctx context.Context, p *partition) error {
	stream := partitions.New(ctx, s.partitions, p)
	s.mu.Lock()
	s.streams[stream] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, stream)
	}()
	return stream.Run()
}

// end stops the replica and waits for it.
func (s *setup) end() {
	s.stop()
	s.work.Wait()
}

// consumed returns the partitions that are being consumed.
func (s *setup) consumed() []*partitions.Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.streams))
}

// device returns what the partitions know of a device.
func (s *setup) device(device string) (state partitions.DeviceState) {
	for _, stream := range s.consumed() {
		stream.Describe(sensor.Of(device), &state)
	}
	return state
}

func (s *setup) states() (all []partitions.State) {
	for _, stream := range s.consumed() {
		all = append(all, stream.State())
	}
	return all
}

// open returns the open alarms.
func (s *setup) open() (all []partitions.AlarmState) {
	for _, stream := range s.consumed() {
		all = stream.Open(all)
	}
	return all
}

func (s *setup) counts() []partitions.AlarmCounts {
	all, groups := s.partitions.Evaluator.NoAlarms(), map[delivery.Key]bool{}
	for _, stream := range s.consumed() {
		stream.Count(all, groups)
	}
	return all
}

// forget has the partitions forget a device, and returns once their ledgers say so.
func (s *setup) forget(ctx context.Context, device string) (known bool, err error) {
	for _, stream := range s.consumed() {
		saved := stream.Forget(sensor.Of(device))
		if saved == nil {
			continue
		}
		known = true
		select {
		case <-saved:
		case <-ctx.Done():
			return true, context.Cause(ctx)
		}
	}
	return known, nil
}

// failing answers every alert with err.
func failing(err error) func(context.Context, notify.Alert) error {
	return func(context.Context, notify.Alert) error { return err }
}
