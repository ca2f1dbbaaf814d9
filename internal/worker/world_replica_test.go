package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/incident"
	"alertworker/internal/lease"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	partitions "alertworker/internal/partition"
	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/worker"
)

// Replicas: how they come and go, stand still and die, and what they read.

// A process is one replica. What it does to the world goes through call.
type process struct {
	*world
	name    string
	version int
	worker  *worker.Worker
	intake  *worker.Intake // nil if nothing is sent by HTTP
	kill    context.CancelFunc
	ctx     context.Context
	owners  []*owner // the last one of each partition, which may be lost; nil: none

	// guarded by world.mu
	gone  bool
	wakes time.Time
}

// An owner is a process's hold of a partition.
type owner struct {
	*process
	log      *hubLog
	resumed  telemetry.Checkpoint
	ctx      context.Context
	cancel   context.CancelCauseFunc
	over     chan struct{} // closed when another owner may follow
	once     sync.Once
	returned chan struct{}

	next  int
	held  int // events in the log at the take-over
	began time.Time
	opens time.Duration
	deaf  bool // it reads nothing more

	hasRoster bool // it has written one that holds an event
	lost      bool // and has heard that it has lost the partition
}

func (o *owner) end() { o.once.Do(func() { close(o.over) }) }

var (
	errKilled = errors.New("killed")
	errLost   = errors.New("the answer was lost")
	errDown   = errors.New("no route to host")
)

// die ends the process: nothing that it does has an effect from now on.
func (p *process) die() {
	p.mu.Lock()
	p.gone = true
	p.noteLocked("%s is KILLED", p.name)
	owners := slices.Clone(p.owners)
	p.mu.Unlock()
	p.kill()
	for _, o := range owners {
		if o != nil {
			o.end()
		}
	}
}

// freeze has the process stand still.
func (p *process) freeze(d time.Duration) {
	p.mu.Lock()
	p.wakes = time.Now().Add(d)
	p.noteLocked("%s is FROZEN for %v", p.name, d)
	owners := slices.Clone(p.owners)
	p.mu.Unlock()
	for _, o := range owners {
		if o != nil {
			o.loseIn(d+10*second, true)
		}
	}
}

// thaw waits while the process stands still.
func (p *process) thaw() error {
	for {
		p.mu.Lock()
		gone, left := p.gone, time.Until(p.wakes)
		p.mu.Unlock()
		switch {
		case gone:
			return errKilled
		case left <= 0:
			return nil
		}
		time.Sleep(left)
	}
}

// call makes one call: effect is what it does. later, if not nil, replaces it in a call that is
// executed after its answer was given up.
func (p *process) call(ctx context.Context, call, about string, effect func(context.Context) error,
	later func(context.Context) error) error {
	if err := p.thaw(); err != nil {
		return err
	}
	if p.isDown(services[call]) {
		return errDown
	}
	f, ok := p.fault(call)
	if !ok {
		return effect(ctx)
	}
	p.note("%s %s %s: %s %v", p.name, call, about, f.what, f.for_)
	switch f.what {
	case requestLost:
		return errDown
	case answerLost:
		_ = effect(ctx)
		return errLost
	case slow:
		select {
		case <-time.After(f.for_):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := p.thaw(); err != nil {
			return err
		}
		return effect(ctx)
	case delayed:
		if later == nil {
			later = effect
		}
		p.work.Go(func() {
			time.Sleep(f.for_)
			p.note("the delayed %s of %s is executed", call, p.name)
			_ = later(context.WithoutCancel(ctx))
		})
		return errLost
	case killedBefore:
		p.die()
		return errKilled
	case killedAfter:
		_ = effect(ctx)
		p.die()
		return errKilled
	case frozenBefore:
		p.freeze(f.for_)
		if err := p.thaw(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return effect(ctx)
	case frozenAfter:
		err := effect(ctx)
		p.freeze(f.for_)
		if gone := p.thaw(); gone != nil {
			return gone
		}
		return err
	case notTaken:
		return errBusy
	case refused:
		return errRefused
	case tooFast:
		return &notify.Error{Limited: true, Untaken: true, RetryAfter: f.for_, Err: errors.New("429 too many")}
	}
	panic("no such fault")
}

var errRefused = &notify.Error{Refused: true, Untaken: true, Status: 400, Err: errors.New("400 no")}

// newProcess returns a replica that has just started. The caller holds w.mu.
func (w *world) newProcess(version int) *process {
	p := &process{world: w, name: string(rune('A' + len(w.processes)%26)), version: version, owners: make([]*owner,
		len(w.logs))}
	w.processes = append(w.processes, p)
	p.ctx, p.kill = context.WithCancel(w.ctx)
	set := rules.Set{Rules: w.versions[version], Mutes: rules.Mutes{{UntilAt: "quiet"}}}
	for _, m := range w.muteTimes {
		mute := m.mute(w.start)
		if of := w.id(m.device); m.device != "" {
			mute.Device, mute.Sensor = of.Device, of.Name
		}
		set.Mutes = append(set.Mutes, mute)
	}
	c := worker.Config{
		Rulebook: partitions.Rulebook{
			Origin: "ns/hub", Replica: p.name, Rules: set, Decoder: w.decoders[version], Clock: w.clock,
			Mutes: func() rules.Mutes {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.mutes
			},
			Alike: func(since time.Time) bool { return time.Since(since) >= removedAfter },
		},
		Deliveries: delivery.Config{Concurrency: 8, GiveUp: w.giveUp, DeadLetters: p},
		Partitions: partitions.Config{
			CheckpointInterval: interval, DrainTimeout: drain, Log: zap.NewNop(),
			Ledger: func(ctx context.Context, partition string) (*ledger.Ledger, ledger.Content, error) {
				return ledger.Open(ctx, p.ownerOf(partition).faultyRecords(), partition)
			},
			Roster: func(partition string) *roster.File {
				return &roster.File{Store: p.ownerOf(partition).faultyRecords(), Name: "roster/" + partition}
			},
			Incidents: &incident.Book{Store: records.Reliable(p.faultyIncidents()), Prefix: "incidents/", IDs: "ns/hub/incidents/"},
		},
	}
	for _, in := range w.inboxes {
		c.Rulebook.Receivers = append(c.Rulebook.Receivers, partitions.Receiver{
			To:      delivery.Receiver{ID: in.name, Name: in.name, Limits: in.limits, Notifier: faultyReceiver{p, in}},
			Filters: in.filtersIn(p.version),
			Gate: func(r *rules.Rule, l *rules.Level) delivery.Gate {
				return gateOf(faultyLeases{w.leases, p}, in.name, r, l)
			},
		})
	}
	p.worker = worker.New(c)
	p.worker.LimitChanges(w.changes)
	if slices.ContainsFunc(w.readings, func(r reading) bool { return r.fate == byHTTP }) {
		p.intake = p.worker.NewIntake(p.ctx, "http")
	}
	return p
}

func (p *process) ownerOf(partition string) *owner {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owners[slices.IndexFunc(p.logs, func(l *hubLog) bool { return l.id == partition })]
}

// stateful reports whether any rule of p has state.
func (p *process) stateful() bool {
	set := rules.Set{Rules: p.versions[p.version]}
	return set.Stateful()
}

func gateOf(store lease.Store, receiver string, r *rules.Rule, l *rules.Level) *recent.Gate {
	return recent.New(throttle.Config{
		Store: store, Scope: "s", Receiver: receiver, Rule: r.Name, Level: l.Name, Per: r.Per, Silence: r.Silence(),
		Window: r.Window, SendTimeout: sendTimeout,
	}, recent.NewWindows())
}

// consumes reports whether p still consumes a partition, for all it knows.
func (p *process) consumes(index int) bool {
	o := p.owners[index]
	return o != nil && !o.hasReturned()
}

func (o *owner) hasReturned() bool {
	select {
	case <-o.returned:
		return true
	default:
		return false
	}
}

// loseIn gives the partition to another owner at once; o hears of it after d. If deaf it reads
// nothing more.
func (o *owner) loseIn(d time.Duration, deaf bool) {
	o.mu.Lock()
	o.deaf = o.deaf || deaf
	o.mu.Unlock()
	o.end()
	o.work.Go(func() {
		select {
		case <-time.After(d):
		case <-o.returned:
			return
		case <-o.world.ctx.Done():
			return
		}
		o.mu.Lock()
		o.lost = true
		o.noteLocked("%s hears that it has lost %s", o.name, o.log.id)
		o.mu.Unlock()
		o.cancel(telemetry.ErrLost)
	})
}

func (o *owner) ID() string { return o.log.id }

func (o *owner) Last(context.Context) (int64, time.Time, error) {
	if err := o.thaw(); err != nil {
		return 0, time.Time{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.log.events) == 0 {
		return -1, time.Time{}, nil
	}
	last := o.log.events[len(o.log.events)-1]
	return last.Sequence, last.Enqueued, nil
}

func (o *owner) Newest(context.Context, time.Time) (newest, asked time.Time, err error) {
	if err := o.thaw(); err != nil {
		return time.Time{}, time.Time{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.elsewhere {
		newest = time.Now()
	}
	for _, log := range o.logs {
		if n := len(log.events); n > 0 && log.events[n-1].Enqueued.After(newest) {
			newest = log.events[n-1].Enqueued
		}
	}
	return newest, time.Now(), nil
}

func (o *owner) Rewind(at telemetry.Position) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next = int(at.Sequence)
	for i := range o.log.reigns {
		if r := &o.log.reigns[i]; r.owner == o {
			r.hears = at.Sequence
		}
	}
	o.noteLocked("%s begins at %d", o.name, o.next)
}

func (o *owner) Resumed() (telemetry.Checkpoint, bool) { return o.resumed, false }

func (o *owner) Receive(ctx context.Context) ([]telemetry.Event, error) {
	select {
	case <-time.After(o.opens):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	o.opens = 0
	for {
		if err := o.thaw(); err != nil {
			return nil, err
		}
		events, next, more, lost := o.unread()
		if lost {
			return nil, telemetry.ErrLost
		}
		if len(events) == 0 {
			if err := more(ctx); err != nil {
				return nil, err
			}
			continue
		}
		err := o.call(ctx, callReceive, "", func(ctx context.Context) error {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.lost {
				return telemetry.ErrLost
			}
			o.next = next
			for len(o.log.read) < next {
				o.log.read = append(o.log.read, time.Now())
			}
			o.noteLocked("%s reads %s up to %d", o.name, o.log.id, next)
			return nil
		}, func(context.Context) error { return nil })
		if err != nil {
			return nil, err
		}
		return events, nil
	}
}

// unread returns the next events that can be read, and the place after them. more waits until there may be more.
func (o *owner) unread() (events []telemetry.Event, next int, more func(context.Context) error, lost bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var later <-chan time.Time
	for next = o.next; next < len(o.log.events) && len(events) < o.largest && !o.deaf; next++ {
		e, r := o.log.events[next], o.log.readings[next]
		if wait := time.Until(e.Enqueued.Add(r.lag)); wait > 0 {
			if len(events) == 0 {
				later = time.After(wait)
			}
			break
		}
		if r.fate != expired && !o.log.compacted(next) {
			events = append(events, e)
		}
	}
	if end := len(o.log.events); next == end && next > o.next && o.log.readings[end-1].fate == expired {
		if len(events) > 0 {
			return events, int(events[len(events)-1].Sequence), nil, o.lost
		}
		events = append(events, telemetry.Event{ // the partition is empty: see package eventhubs
			Position: o.log.events[end-1].Position, Enqueued: o.log.events[end-1].Enqueued,
			MessageSource: telemetry.SourceExpired,
		})
	}
	grown := o.log.grown
	more = func(ctx context.Context) error {
		select {
		case <-grown:
		case <-later:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	return events, next, more, o.lost
}

// compacted reports whether a message is not there any more, because its device has sent another one.
func (log *hubLog) compacted(i int) bool {
	m := log.readings[i]
	return m.fate == superseded && slices.ContainsFunc(log.readings[i+1:], func(later reading) bool {
		return later.device == m.device && later.fate != expired && later.fate != undecodable
	})
}

func (o *owner) Checkpoint(ctx context.Context, c telemetry.Checkpoint) error {
	return o.call(ctx, callCheckpoint, fmt.Sprint(c.Sequence), func(context.Context) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.lost {
			return telemetry.ErrLost
		}
		known := o.log.checkpoint
		if c.Sequence < known.Sequence || c.Sequence == known.Sequence && c.Ledger == known.Ledger {
			return nil
		}
		o.log.checkpoint = c
		o.noteLocked("%s writes checkpoint %d of %s", o.name, c.Sequence, o.log.id)
		o.judgeCheckpoint(o.log)
		return nil
	}, nil)
}

// Keep implements delivery.DeadLetters.
func (p *process) Keep(ctx context.Context, d notify.DeadLetter) error {
	kept := -1
	err := p.call(ctx, callKeep, "", func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if d.Alert = p.plain(d.Alert); d.Alert.Device == noise {
			return nil
		}
		kept = len(p.dead)
		p.dead = append(p.dead, keptLetter{DeadLetter: d, at: time.Now(), refusedAt: p.refusals[d.Receiver+d.Alert.ID]})
		p.noteLocked("%s keeps the DEAD LETTER of %s for %s: %s", p.name, tell(d.Alert), d.Receiver, d.Reason)
		return nil
	}, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && kept >= 0 {
		p.dead[kept].answered = true
	}
	return err
}
