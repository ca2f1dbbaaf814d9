package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// What can happen to one call that a replica makes.
const (
	requestLost  = iota // it is not executed, and fails
	answerLost          // it is executed, and fails
	slow                // it takes long
	delayed             // it fails at once, and is executed later
	killedBefore        // the replica dies before it
	killedAfter         // the replica dies after it
	frozenBefore        // the replica stands still for so long that another one takes over, and then goes on
	frozenAfter
	notTaken     // of a receiver: it is busy
	refused      // of a receiver: it will never take it
	faultsOfAny  = notTaken
	faultsOfSend = refused + 1
)

var faultNames = [...]string{"REQUEST LOST", "ANSWER LOST", "SLOW", "DELAYED", "KILLED BEFORE", "KILLED AFTER", "FROZEN BEFORE", "FROZEN AFTER", "NOT TAKEN", "REFUSED"}

// The calls of a replica.
const (
	callAcquire = iota
	callExtend
	callRelease
	callLedgerRead
	callLedgerWrite
	callLedgerOwner
	callSend
	callKeep
	callCheckpoint
	callReceive
	calls
)

var callNames = [...]string{"acquire", "extend", "release", "ledger read", "ledger write", "ledger owner", "send", "keep", "checkpoint", "receive"}

// A fault happens to the nth call of a kind.
type fault struct {
	call, nth, what int
	for_            time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%s %d: %s %v", callNames[f.call], f.nth, faultNames[f.what], f.for_)
}

// What can happen besides, and when.
const (
	handOver     = iota // the partition goes to another replica in good order
	kill                // its owner dies
	steal               // another replica takes over, and the owner hears of it later
	reopen              // an operator ends a window
	storeDown           // for a while
	ledgerDown          // for a while
	receiverDown        // for a while
	moves
)

var moveNames = [...]string{"HAND OVER", "KILL", "STEAL", "REOPEN", "STORE DOWN", "LEDGER DOWN", "RECEIVER DOWN"}

type move struct {
	at       time.Duration // after the start
	what     int
	for_     time.Duration
	deaf     bool // the old owner reads nothing more
	device   int
	level    int
	receiver int
}

func (m move) String() string {
	return fmt.Sprintf("%s %v (deaf %v, device %d, level %d, receiver %d)", moveNames[m.what], m.for_, m.deaf, m.device, m.level, m.receiver)
}

// A planned reading is enqueued a time after the one before, and can be read a time after that.
type planned struct {
	device   int
	value    float64
	gap, lag time.Duration
	late     time.Duration // of the event after the time that its device gives it; -1: it gives none
}

// A takeover is how the next owner begins.
type takeover struct {
	after time.Duration // the last owner has gone
	slot  int           // which of two replicas it is
	back  int           // events by which the checkpoint is moved back
	off   bool          // it is configured without rules with state
	opens time.Duration // how long the hub takes to deliver its first events
}

// A plan is everything that is left to chance in one run.
type plan struct {
	rule      rules.Rule
	devices   int
	receivers int
	giveUp    time.Duration
	largest   int  // batch
	changes   int  // behind the watermark that are kept apart
	alive     bool // of a rule about silence: at the end devices are heard again
	readings  []planned
	takeovers []takeover
	faults    []fault
	moves     []move
}

var devices = []string{"oven", "kiln"}

// A keptLetter is a dead letter that was kept at a time.
type keptLetter struct {
	notify.DeadLetter
	at time.Time
}

// A world is a partition, what keeps leases, ledgers, checkpoints and dead letters, receivers, and the
// replicas that come and go.
type world struct {
	plan
	decoder *telemetry.Decoder
	clock   *rules.Clock
	start   time.Time
	leases  *memlease.Store
	ledgers *records.Memory
	work    sync.WaitGroup
	ctx     context.Context

	mu         sync.Mutex
	log        []telemetry.Event
	grown      chan struct{} // closed when log grows
	checkpoint telemetry.Checkpoint
	inboxes    []*inbox
	dead       []keptLetter
	reopened   []reopening
	down       map[int]time.Time // what is down, by move and receiver, and until when
	counts     [calls]int
	happened   map[int]bool // faults
	calm       bool         // no more faults
	processes  [2]*process
	named      int
	taken      int            // takeovers
	kept       ledger.Content // that of the last write of the ledger
	unseen     [][2]int64     // events after the first and up to the second were read without state
	timeline   []string
	wrong      []string
}

type reopening struct {
	device, level string
	receiver      int
	at            time.Time
}

func (w *world) note(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(format, a...)
}

func (w *world) noteLocked(format string, a ...any) {
	w.timeline = append(w.timeline, fmt.Sprintf("%9v  ", time.Since(w.start).Round(time.Millisecond))+fmt.Sprintf(format, a...))
}

// violated records what must not happen. The caller holds w.mu.
func (w *world) violated(format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	w.wrong = append(w.wrong, s)
	w.noteLocked("!!! %s", s)
}

// An inbox is a receiver that drops what docs/receivers.md says.
type inbox struct {
	name string
	ids  map[string]time.Time // until when an id is remembered
	last map[string]token
	all  []arrival
}

type token struct {
	token int64
	until time.Time
}

type arrival struct {
	notify.Alert
	at      time.Time
	heard   time.Time // when the replica heard that it was taken, at if it did not
	dropped bool
}

// take is docs/receivers.md. The caller holds w.mu.
func (in *inbox) take(a notify.Alert) (dropped bool) {
	now := time.Now()
	key := a.Source + " " + a.Device
	last := in.last[key]
	if !now.Before(last.until) {
		last = token{}
	}
	dropped = now.Before(in.ids[a.Source+" "+a.ID]) || last.token > a.Token
	if a.Token >= last.token {
		in.last[key] = token{a.Token, now.Add(a.Remember)}
	}
	if !dropped {
		in.ids[a.Source+" "+a.ID] = now.Add(a.Window)
		if a.Resolved {
			in.ids[a.Source+" "+a.ID] = now.Add(a.Remember)
		}
	}
	in.all = append(in.all, arrival{a, now, now, dropped})
	return dropped
}

// A process is one replica. What it does to the world goes through call.
type process struct {
	*world
	name   string
	off    bool // its rules have no state
	worker *worker.Worker
	kill   context.CancelFunc
	ctx    context.Context
	owner  *owner // the last one; its partition may be lost

	// guarded by world.mu
	gone  bool
	wakes time.Time
}

// An owner is a process's hold of the partition.
type owner struct {
	*process
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
	lost  bool // and has heard that it has lost the partition
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
	p.mu.Unlock()
	p.kill()
	p.owner.end()
}

// freeze has the process stand still.
func (p *process) freeze(d time.Duration) {
	p.mu.Lock()
	p.wakes = time.Now().Add(d)
	p.noteLocked("%s is FROZEN for %v", p.name, d)
	p.mu.Unlock()
	p.owner.loseIn(d+10*time.Second, true)
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

// fault returns what is to happen to the next call of a kind.
func (w *world) fault(call int) (fault, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.counts[call]
	w.counts[call]++
	for i, f := range w.faults {
		if f.call == call && f.nth == n && !w.calm && !w.happened[i] {
			w.happened[i] = true
			return f, true
		}
	}
	return fault{}, false
}

func (w *world) isDown(what int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.down[what])
}

// call makes one call: effect is what it does. later, if not nil, replaces it in a call that is
// executed after its answer was given up.
func (p *process) call(ctx context.Context, call int, about string, effect func(context.Context) error, later func(context.Context) error) error {
	if err := p.thaw(); err != nil {
		return err
	}
	switch call {
	case callAcquire, callExtend, callRelease:
		if p.isDown(storeDown) {
			return errDown
		}
	case callLedgerOwner, callLedgerRead, callLedgerWrite, callCheckpoint:
		if p.isDown(ledgerDown) {
			return errDown
		}
	}
	f, ok := p.fault(call)
	if !ok {
		return effect(ctx)
	}
	p.note("%s %s %s: %s %v", p.name, callNames[call], about, faultNames[f.what], f.for_)
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
			p.note("the delayed %s of %s is executed", callNames[call], p.name)
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
		return &notify.Error{Refused: true, Err: errors.New("400 no")}
	}
	panic("no such fault")
}

// faultyLeases is the lease store as a process reaches it.
type faultyLeases struct {
	lease.Store
	*process
}

var errConflict = errors.New("412: the record was changed meanwhile")

// unchanged returns a func that fails if key's record is not what it is now any more: a request that
// arrives late has the concurrency tag of then.
func (s faultyLeases) unchanged(ctx context.Context, key string) func(lease.Record) error {
	was, _ := s.Store.Read(ctx, key)
	return func(r lease.Record) error {
		if r.Token != was.Token || !r.Written.Equal(was.Written) || r.Note != was.Note {
			return errConflict
		}
		return nil
	}
}

func (s faultyLeases) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	if ttl < 15*time.Second || ttl > time.Minute {
		return lease.Lease{}, fmt.Errorf("acquire lease %q for %v: a native blob lease lasts 15 s to 60 s", key, ttl)
	}
	same := s.unchanged(ctx, key)
	var l lease.Lease
	err := s.call(ctx, callAcquire, key, func(ctx context.Context) (err error) {
		l, err = s.Store.Acquire(ctx, key, ttl, next)
		s.note("%s claims %s: %s", s.name, key, short(l.Note, err))
		return err
	}, func(ctx context.Context) error {
		l, err := s.Store.Acquire(ctx, key, ttl, func(r lease.Record) (string, error) {
			if err := same(r); err != nil {
				return "", err
			}
			return next(r)
		})
		s.note("%s claims %s, late: %s", s.name, key, short(l.Note, err))
		return err
	})
	if err != nil {
		return lease.Lease{}, err
	}
	return l, nil
}

func short(note string, err error) string {
	if err != nil {
		return err.Error()
	}
	return note
}

func (s faultyLeases) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	same := s.unchanged(ctx, l.Key)
	var extended lease.Lease
	effect := func(ctx context.Context) (err error) {
		extended, err = s.Store.Extend(ctx, l, note, ttl)
		s.note("%s records the window of %s: %v", s.name, l.Key, short("done", err))
		return err
	}
	err := s.call(ctx, callExtend, l.Key, effect, func(ctx context.Context) error {
		if r, err := s.Store.Read(ctx, l.Key); err != nil || same(r) != nil {
			return errConflict
		}
		return effect(ctx)
	})
	if err != nil {
		return lease.Lease{}, err
	}
	return extended, nil
}

func (s faultyLeases) Release(ctx context.Context, l lease.Lease, note string) error {
	same := s.unchanged(ctx, l.Key)
	effect := func(ctx context.Context) error {
		err := s.Store.Release(ctx, l, note)
		s.note("%s frees %s: %s", s.name, l.Key, short(note, err))
		return err
	}
	return s.call(ctx, callRelease, l.Key, effect, func(ctx context.Context) error {
		if r, err := s.Store.Read(ctx, l.Key); err != nil || same(r) != nil {
			return errConflict
		}
		return effect(ctx)
	})
}

// faultyLedgers returns the ledger store as a process reaches it.
func (p *process) faultyLedgers() records.Store {
	return records.Around(notedLedgers{p.ledgers, p}, func(ctx context.Context, op records.Op, _ string, call func(context.Context) error) error {
		later := call
		if op != records.OpWrite { // a read whose answer is lost has no effect
			later = func(context.Context) error { return nil }
		}
		return p.call(ctx, map[records.Op]int{records.OpRead: callLedgerRead, records.OpStat: callLedgerOwner, records.OpWrite: callLedgerWrite}[op], "", call, later)
	})
}

// notedLedgers checks what is written.
type notedLedgers struct {
	records.Store
	*process
}

func (s notedLedgers) Write(ctx context.Context, r records.Record) (string, error) {
	s.mu.Lock() // what it does, and what is checked, is one step
	defer s.mu.Unlock()
	etag, err := s.Store.Write(ctx, r)
	if r.Name != "0" {
		s.noteLocked("%s writes the %s: %v", s.name, r.Name, err)
		return etag, err
	}
	if err != nil {
		s.noteLocked("%s writes the ledger: %v", s.name, err)
		return "", err
	}
	c := s.wrote(r)
	s.noteLocked("%s writes the ledger at %d: %s", s.name, c.Position.Sequence, describe(c))
	return etag, nil
}

func describe(c ledger.Content) string {
	var all []string
	for _, a := range c.Alarms {
		s := strings.TrimSpace(string(a.Device) + " " + a.Level)
		switch {
		case a.Open:
			s += " open"
		case !a.Since.IsZero():
			s += " pending"
		}
		if a.Due != nil {
			s += fmt.Sprint(" owed ", a.Due.Sequence)
		}
		all = append(all, s)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// unpack returns what a record holds.
func unpack(r records.Record) (ledger.Content, error) {
	var m records.Memory
	ctx := context.Background()
	if _, err := m.Write(ctx, records.Record{Name: r.Name, Content: r.Content}); err != nil {
		return ledger.Content{}, err
	}
	_, c, err := ledger.Open(ctx, &m, r.Name)
	return c, err
}

// faultyReceiver is a receiver as a process reaches it.
type faultyReceiver struct {
	*process
	index int
}

func (r faultyReceiver) Notify(ctx context.Context, alerts ...notify.Alert) error {
	a := alerts[0]
	if r.isDown(moves + r.index) {
		if err := r.thaw(); err != nil {
			return err
		}
		return errBusy
	}
	nth := -1
	err := r.call(ctx, callSend, tell(a), func(ctx context.Context) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		in := r.inboxes[r.index]
		dropped := in.take(a)
		nth = len(in.all) - 1
		r.stale(a)
		r.noteLocked("%s tells receiver %d: %s, token %d (dropped: %v)", r.name, r.index, tell(a), a.Token, dropped)
		return nil
	}, nil)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.inboxes[r.index].all[nth].heard = time.Now()
	}
	return err
}

// stale checks that a recovery is not about a device that is hot again, by what the hub held when the owner took
// over. The caller holds p.mu.
func (p *process) stale(a notify.Alert) {
	o := p.owner
	if p.rule.Silence() || !a.Resolved || p.off || int64(o.held) <= a.Sequence || time.Since(o.began) > 50*time.Second {
		return
	}
	p.each(func(device string, level int, facts []fact) {
		if device == a.Device && p.rule.Levels[level].Name == a.Level && facts[o.held].phase == "open" {
			p.violated("P2: the recovery of %s of %d is sent, and the hub held %d events at the take-over, after which it is open", device, a.Sequence, o.held)
		}
	})
}

func tell(a notify.Alert) string {
	what := "ALERT"
	if a.Resolved {
		what = "RESOLVED"
	}
	return fmt.Sprintf("%s %s %s of %d, id %s", what, a.Device, a.Level, a.Sequence, a.ID)
}

// Keep implements worker.DeadLetters.
func (p *process) Keep(ctx context.Context, d notify.DeadLetter) error {
	return p.call(ctx, callKeep, "", func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.dead = append(p.dead, keptLetter{d, time.Now()})
		p.noteLocked("%s keeps the DEAD LETTER of %s", p.name, tell(d.Alert))
		return nil
	}, nil)
}

// newProcess returns a replica that has just started.
func (w *world) newProcess(off bool) *process {
	w.named++
	p := &process{world: w, name: string(rune('A' + w.named - 1)), off: off}
	rule := w.rule
	if off {
		rule.Resolved, rule.Levels = false, slices.Clone(rule.Levels)
		for i := range rule.Levels {
			rule.Levels[i].Clear, rule.Levels[i].For = rule.Levels[i].Limit, 0
		}
	}
	p.ctx, p.kill = context.WithCancel(w.ctx)
	c := worker.Config{
		Origin: "ns/hub", Replica: p.name, Rules: rules.Set{Rules: []rules.Rule{rule}}, Concurrency: 8, GiveUp: w.giveUp,
		CheckpointInterval: interval, DrainTimeout: drain, Decoder: w.decoder, Clock: w.clock, DeadLetters: p, Log: zap.NewNop(),
		Ledger: func(ctx context.Context, partition string) (*ledger.Ledger, ledger.Content, error) {
			return ledger.Open(ctx, p.faultyLedgers(), partition)
		},
		Roster: func(partition string) *roster.File {
			return &roster.File{Store: p.faultyLedgers(), Name: "roster/" + partition}
		},
	}
	for i, in := range w.inboxes {
		c.Receivers = append(c.Receivers, worker.Receiver{ID: in.name, Name: in.name, Notifier: faultyReceiver{p, i}, Gate: func(r *rules.Rule, l *rules.Level) *throttle.Gate {
			return w.gate(faultyLeases{w.leases, p}, in.name, r, l)
		}})
	}
	p.worker = worker.New(c)
	p.worker.LimitChanges(w.changes)
	return p
}

func (w *world) gate(store lease.Store, receiver string, r *rules.Rule, l *rules.Level) *throttle.Gate {
	return throttle.New(throttle.Config{
		Store: store, Scope: "s", Receiver: receiver, Rule: r.Name, Level: l.Name, Silence: r.Silence(), Window: r.Window, SendTimeout: sendTimeout,
	})
}

// own has the next owner begin.
func (w *world) own() *owner {
	w.mu.Lock()
	defer w.mu.Unlock()
	var t takeover
	if w.taken < len(w.takeovers) {
		t = w.takeovers[w.taken]
	}
	if w.taken == 0 {
		t = takeover{off: t.off}
	}
	w.taken++
	if back := int(w.checkpoint.Sequence) - t.back; t.back > 0 && back > 0 {
		w.checkpoint.Position = w.log[back-1].Position
		w.noteLocked("the checkpoint is MOVED BACK to %d", back)
	} else if t.back > 0 && w.checkpoint.Sequence > 0 {
		w.checkpoint = telemetry.Checkpoint{}
		w.noteLocked("the checkpoint is REMOVED")
	}
	p := w.processes[t.slot]
	if p != nil && p.owner != nil {
		select {
		case <-p.owner.returned:
		default:
			p = nil // it still consumes, for all it knows
		}
	}
	if at := w.checkpoint.Sequence; !t.off && w.checkpoint.Ledger == "" && at > w.kept.Position.Sequence {
		w.unseen = append(w.unseen, [2]int64{w.kept.Position.Sequence, at})
	}
	if p == nil || p.gone || p.off != t.off || time.Now().Before(p.wakes) {
		p = w.newProcess(t.off)
		w.processes[t.slot] = p
	}
	o := &owner{process: p, resumed: w.checkpoint, over: make(chan struct{}), returned: make(chan struct{}), next: int(w.checkpoint.Sequence), held: len(w.log), began: time.Now(), opens: t.opens}
	o.ctx, o.cancel = context.WithCancelCause(p.ctx)
	p.owner = o
	w.noteLocked("%s takes over at %d (without state: %v)", p.name, o.next, p.off)
	w.work.Go(func() {
		err := p.worker.Consume(o.ctx, o)
		w.note("%s has ended: %v", p.name, err)
		close(o.returned)
		o.end()
	})
	return o
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
		o.noteLocked("%s hears that it has lost the partition", o.name)
		o.mu.Unlock()
		o.cancel(telemetry.ErrLost)
	})
}

func (o *owner) ID() string { return "0" }
func (o *owner) Last(context.Context) (int64, time.Time, error) {
	if err := o.thaw(); err != nil {
		return 0, time.Time{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.log) == 0 {
		return -1, time.Time{}, nil
	}
	last := o.log[len(o.log)-1]
	return last.Sequence, last.Enqueued, nil
}

func (o *owner) Rewind(at telemetry.Position) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next = int(at.Sequence)
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
		o.mu.Lock()
		lost, grown := o.lost, o.grown
		events := o.log[o.next:min(len(o.log), o.next+o.largest)]
		if o.deaf {
			events = nil
		}
		o.mu.Unlock()
		if lost {
			return nil, telemetry.ErrLost
		}
		if len(events) > 0 {
			err := o.call(ctx, callReceive, "", func(ctx context.Context) error {
				o.mu.Lock()
				defer o.mu.Unlock()
				if o.lost {
					return telemetry.ErrLost
				}
				o.next += len(events)
				o.noteLocked("%s reads %d to %d", o.name, events[0].Sequence, events[len(events)-1].Sequence)
				return nil
			}, func(context.Context) error { return nil })
			if err != nil {
				return nil, err
			}
			return events, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (o *owner) Checkpoint(ctx context.Context, c telemetry.Checkpoint) error {
	return o.call(ctx, callCheckpoint, fmt.Sprint(c.Sequence), func(context.Context) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.lost {
			return telemetry.ErrLost
		}
		if c.Sequence <= o.checkpoint.Sequence {
			return nil
		}
		o.checkpoint = c
		o.noteLocked("%s writes checkpoint %d", o.name, c.Sequence)
		if !o.off {
			o.checkpointed()
		}
		return nil
	}, nil)
}

// publish publishes the readings.
func (w *world) publish() {
	enqueued := w.start
	for _, r := range w.readings {
		enqueued = enqueued.Add(r.gap)
		time.Sleep(time.Until(enqueued.Add(r.lag)))
		w.mu.Lock()
		n := int64(len(w.log) + 1)
		w.log = append(w.log, telemetry.Event{
			Position: telemetry.Position{Sequence: n, Offset: fmt.Sprint(n * 100), Time: enqueued},
			Device:   devices[r.device], Body: fmt.Appendf(nil, `{"temperature":%v}`, r.value), Enqueued: enqueued,
		})
		if own := w.deviceTime(int(n - 1)); !own.IsZero() {
			w.log[n-1].Body = fmt.Appendf(nil, `{"temperature":%v,"at":%q}`, r.value, own.Format(time.RFC3339Nano))
		}
		w.noteLocked("                                        reading %d: %s %v", n, devices[r.device], r.value)
		close(w.grown)
		w.grown = make(chan struct{})
		w.mu.Unlock()
	}
}

// pass lets time pass, in which devices are heard if they are to be alive at the end.
func (w *world) pass(d time.Duration) {
	for ; w.alive && d > 0; d -= 20 * time.Second {
		w.revive()
		time.Sleep(20 * time.Second)
	}
	time.Sleep(max(0, d))
}

// revive has every device send a message.
func (w *world) revive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, device := range devices[:w.devices] {
		n := int64(len(w.log) + 1)
		w.log = append(w.log, telemetry.Event{
			Position: telemetry.Position{Sequence: n, Offset: fmt.Sprint(n * 100), Time: time.Now()},
			Device:   device, Body: []byte(`{"temperature":20}`), Enqueued: time.Now(),
		})
	}
	w.noteLocked("                                        all devices are heard: %d", len(w.log))
	close(w.grown)
	w.grown = make(chan struct{})
}

// apply has m happen, and returns the owner after it.
func (w *world) apply(m move, o *owner) {
	w.note("%s", m)
	switch m.what {
	case handOver:
		o.cancel(nil)
		<-o.returned
	case kill:
		o.die()
	case steal:
		o.loseIn(m.for_, m.deaf)
	case reopen:
		l := &w.rule.Levels[min(m.level, len(w.rule.Levels)-1)]
		receiver := min(m.receiver, len(w.inboxes)-1)
		if err := w.gate(w.leases, w.inboxes[receiver].name, &w.rule, l).Reopen(w.ctx, devices[m.device]); err == nil {
			w.mu.Lock()
			w.reopened = append(w.reopened, reopening{devices[m.device], l.Name, receiver, time.Now()})
			w.mu.Unlock()
		}
	case storeDown, ledgerDown, receiverDown:
		what := m.what
		if what == receiverDown {
			what = moves + min(m.receiver, len(w.inboxes)-1)
		}
		w.mu.Lock()
		w.down[what] = time.Now().Add(m.for_)
		w.mu.Unlock()
	}
}

// supervise sees to it that the partition has an owner until stop is closed, and returns the last one.
func (w *world) supervise(stop chan struct{}) *owner {
	todo := slices.Clone(w.moves)
	slices.SortStableFunc(todo, func(a, b move) int { return int(a.at - b.at) })
	o := w.own()
	for {
		var next <-chan time.Time
		if len(todo) > 0 {
			next = time.After(time.Until(w.start.Add(todo[0].at)))
		}
		select {
		case <-o.over:
			w.mu.Lock()
			var after time.Duration
			if w.taken < len(w.takeovers) {
				after = w.takeovers[w.taken].after
			}
			w.mu.Unlock()
			time.Sleep(after)
			o = w.own()
		case <-next:
			w.apply(todo[0], o)
			todo = todo[1:]
		case <-stop:
			select {
			case <-o.over:
			default:
				return o
			}
		}
	}
}

// quiet reports whether o has settled everything.
func (w *world) quiet(o *owner) bool {
	w.mu.Lock()
	done, lost := o.next == len(w.log), o.lost
	w.mu.Unlock()
	for _, p := range o.worker.Partitions() {
		if p.Partition != "0" || lost {
			continue
		}
		owed := 0
		for _, c := range o.worker.AlarmCounts() {
			owed += c.Due
		}
		return p.Delivering == 0 && p.Unsettled == 0 && done && owed == 0
	}
	return false
}

// run lets it all happen, in a bubble, and then checks what came of it.
func (w *world) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	w.ctx, w.start = ctx, time.Now()
	w.leases, w.ledgers = memlease.New(), &records.Memory{}
	w.grown, w.down, w.happened = make(chan struct{}), map[int]time.Time{}, map[int]bool{}
	for i := range w.receivers {
		w.inboxes = append(w.inboxes, &inbox{name: fmt.Sprint("receiver", i), ids: map[string]time.Time{}, last: map[string]token{}})
	}
	stop, last := make(chan struct{}), make(chan *owner, 1)
	w.work.Go(func() { last <- w.supervise(stop) })
	w.publish()
	var latest time.Duration
	for _, m := range w.moves {
		latest = max(latest, m.at+m.for_)
	}
	w.pass(time.Until(w.start.Add(latest)))
	w.pass(6 * time.Minute)
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	w.pass(6 * time.Minute) // whoever is frozen wakes up
	close(stop)
	o := <-last
	for range 20 {
		if w.quiet(o) {
			break
		}
		w.pass(2 * time.Minute)
	}
	quiet, state := w.quiet(o), fmt.Sprintf("%+v %+v", o.worker.Partitions(), o.worker.AlarmCounts())
	o.cancel(nil)
	<-o.returned
	w.mu.Lock()
	w.noteLocked("the end")
	if !quiet {
		w.violated("G2: there is no end: %s", state)
	} else {
		w.check(o)
	}
	w.mu.Unlock()
	cancel()
	w.work.Wait()
}
