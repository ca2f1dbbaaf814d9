package worker_test

import (
	"cmp"
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
	"alertworker/internal/muting"
	"alertworker/internal/notify"
	"alertworker/internal/records"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/telemetrytest"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// A world is what one plan is played in: a hub, what keeps leases, ledgers, rosters, checkpoints and dead letters,
// receivers, people, and replicas that come and go. The worker, the gates, the ledgers and the rosters are as they
// are; the stores are in memory, and their calls fail in every way. Time is virtual.
type world struct {
	plan
	decoders []*telemetry.Decoder // of each version
	clock    *rules.Clock
	start    time.Time
	leases   *memlease.Store
	ledgers  *records.Memory
	silences muting.Store
	work     sync.WaitGroup
	ctx      context.Context

	mu         sync.Mutex
	logs       []*hubLog
	inboxes    []*inbox
	calls      map[string]int       // so far, by kind
	happened   map[int]bool         // faults
	calm       bool                 // no more faults
	down       map[string]time.Time // what is down, and until when
	slots      [2]*process
	processes  []*process
	posted     []post
	dead       []keptLetter
	operations []operation
	mutes      []rules.Mute // that replicas know
	timeline   []string
	wrong      []string
	stories    map[chapter]*story // what the judge knows
}

// A hubLog is one partition, and what replicas have kept of it.
type hubLog struct {
	id         string
	events     []telemetry.Event
	readings   []reading     // what the events were made of; one can be read its lag later
	grown      chan struct{} // closed when there is an event more
	checkpoint telemetry.Checkpoint
	kept       ledger.Content // of the last write of the ledger
	reigns     []reign
	taken      int  // take-overs
	movedBack  bool // the checkpoint was
	owner      *owner
}

// A reign is how long one owner decides about a partition's events: those after from, up to the next reign.
type reign struct {
	owner   *owner
	version int
	from    int64
	at      time.Time // of the take-over
	rivaled bool      // an owner before it, with other rules, goes on
}

// A post is a reading by HTTP, for whose outcome its sender asks until there is one.
type post struct {
	reading
	at      time.Time // of the last try
	key     string
	verdict telemetry.Verdict
	version int
}

// A keptLetter is a dead letter that was kept at a time.
type keptLetter struct {
	notify.DeadLetter
	at       time.Time
	replayed bool
}

// An operation is what people did: see reopen, mute and forget.
type operation struct {
	move
	at, until time.Time
}

func (w *world) note(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(format, a...)
}

func (w *world) noteLocked(format string, a ...any) {
	at := time.Since(w.start).Round(time.Millisecond)
	w.timeline = append(w.timeline, fmt.Sprintf("%9v  ", at)+fmt.Sprintf(format, a...))
}

// violated records what must not happen. The caller holds w.mu.
func (w *world) violated(format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	w.wrong = append(w.wrong, s)
	w.noteLocked("!!! %s", s)
}

// An inbox is a receiver that drops what docs/receivers.md says.
type inbox struct {
	planned
	name string
	ids  map[string]time.Time // until when an id is remembered
	last map[string]token
	all  []arrival
}

type token struct {
	token int64
	until time.Time
}

// An arrival is an alert or a recovery at a receiver.
type arrival struct {
	notify.Alert
	at       time.Time
	heard    time.Time // when the replica heard that it was taken, at if it did not
	answered bool      // it did
	replayed bool      // it was a dead letter
	dropped  bool
}

// take is docs/receivers.md. The caller holds world.mu.
func (in *inbox) take(a notify.Alert) (dropped bool) {
	now := time.Now()
	key := a.Source + " " + a.About()
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
	in.all = append(in.all, arrival{Alert: a, at: now, heard: now, dropped: dropped})
	return dropped
}

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

// fault returns what is to happen to the next call of a kind.
func (w *world) fault(call string) (fault, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.calls[call]
	w.calls[call]++
	for i, f := range w.faults {
		if f.call == call && f.nth == n && !w.calm && !w.happened[i] {
			w.happened[i] = true
			return f, true
		}
	}
	return fault{}, false
}

func (w *world) isDown(what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.down[what])
}

// services says which outage makes a call fail.
var services = map[string]string{
	callAcquire: storeDown, callExtend: storeDown, callRelease: storeDown,
	callLedgerOwner: ledgerDown, callLedgerRead: ledgerDown, callLedgerWrite: ledgerDown, callCheckpoint: ledgerDown,
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

func (s faultyLeases) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string,
	error)) (lease.Lease, error) {
	if ttl < 15*second || ttl > time.Minute {
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

// faultyRecords returns the store of ledgers and rosters as o reaches it.
func (o *owner) faultyRecords() records.Store {
	kinds := map[records.Op]string{
		records.OpRead: callLedgerRead, records.OpList: callLedgerRead, records.OpStat: callLedgerOwner,
		records.OpWrite: callLedgerWrite,
	}
	return records.Around(&notedRecords{Store: o.ledgers, owner: o}, func(ctx context.Context, op records.Op, _ string,
		call func(context.Context) error) error {
		later := call
		if op != records.OpWrite { // a read whose answer is lost has no effect
			later = func(context.Context) error { return nil }
		}
		return o.call(ctx, kinds[op], "", call, later)
	})
}

// notedRecords checks what is written.
type notedRecords struct {
	records.Store
	*owner
	took bool // the ledger over
}

func (s *notedRecords) Write(ctx context.Context, r records.Record) (string, error) {
	s.mu.Lock() // what it does, and what is checked, is one step
	defer s.mu.Unlock()
	etag, err := s.Store.Write(ctx, r)
	what := "the " + r.Name
	if r.Name == s.log.id {
		what = "the ledger of " + r.Name
	}
	if err != nil {
		s.noteLocked("%s writes %s: %v", s.name, what, err)
		return etag, err
	}
	if r.Name != s.log.id {
		s.noteLocked("%s writes %s", s.name, what)
		return etag, nil
	}
	c, err := unpack(r)
	if err != nil {
		s.violated("unreadable ledger: %v", err)
		return etag, nil
	}
	s.log.kept = c
	s.noteLocked("%s writes %s at %d: %s", s.name, what, c.Position.Sequence, describe(c))
	if !s.took {
		s.took = true
		s.reigns(c.Position.Sequence)
	}
	s.judgeLedger(s.log)
	return etag, nil
}

// reigns notes from where on o decides: after its checkpoint and what its ledger holds. The caller holds o.mu.
func (o *owner) reigns(ledger int64) {
	o.forgetStories()
	from := o.resumed.Sequence
	if o.stateful() {
		from = max(from, ledger)
	}
	for i := range o.log.reigns {
		if r := &o.log.reigns[i]; r.owner == o {
			r.from = from
			return
		}
	}
	rivaled := slices.ContainsFunc(o.log.reigns, func(r reign) bool {
		return r.version != o.version && !r.owner.gone && r.owner.consumes(slices.Index(o.logs, o.log))
	})
	o.log.reigns = append(o.log.reigns, reign{o, o.version, from, time.Now(), rivaled})
}

// stateful reports whether any rule of p has state.
func (p *process) stateful() bool {
	set := rules.Set{Rules: p.versions[p.version]}
	return set.Stateful()
}

func describe(c ledger.Content) string {
	var all []string
	for _, a := range c.Alarms {
		s := strings.TrimSpace(strings.Join([]string{string(a.Device), a.Rule, a.Level}, " "))
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
	in *inbox
}

func (r faultyReceiver) Notify(ctx context.Context, alerts ...notify.Alert) error {
	if r.isDown(receiverDown + r.in.name) {
		if err := r.thaw(); err != nil {
			return err
		}
		return errBusy
	}
	var taken []int // places in the inbox
	err := r.call(ctx, callSend, tell(alerts[0]), func(ctx context.Context) error {
		select {
		case <-time.After(r.in.slow):
		case <-ctx.Done():
			return ctx.Err()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if slices.ContainsFunc(alerts, func(a notify.Alert) bool { return a.Device == r.in.refuses }) {
			r.noteLocked("%s refuses %s", r.in.name, tell(alerts[0]))
			return errRefused
		}
		for _, a := range alerts {
			dropped := r.in.take(a)
			taken = append(taken, len(r.in.all)-1)
			r.judgeRecovery(a)
			r.noteLocked("%s tells %s: %s, token %d (dropped: %v)", r.name, r.in.name, tell(a), a.Token, dropped)
		}
		return nil
	}, nil)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, i := range taken {
			a := &r.in.all[i]
			a.heard, a.answered = time.Now(), true
		}
	}
	return err
}

func tell(a notify.Alert) string {
	what := "ALERT"
	if a.Resolved {
		what = "RESOLVED"
	}
	return fmt.Sprintf("%s %s %s %s %s of %d, id %s", what, a.Device, a.PerValue, a.Rule, a.Level, a.Sequence, a.ID)
}

// Keep implements worker.DeadLetters.
func (p *process) Keep(ctx context.Context, d notify.DeadLetter) error {
	return p.call(ctx, callKeep, "", func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.dead = append(p.dead, keptLetter{DeadLetter: d, at: time.Now()})
		p.noteLocked("%s keeps the DEAD LETTER of %s for %s: %s", p.name, tell(d.Alert), d.Receiver, d.Reason)
		return nil
	}, nil)
}

// newProcess returns a replica that has just started. The caller holds w.mu.
func (w *world) newProcess(version int) *process {
	p := &process{world: w, name: string(rune('A' + len(w.processes)%26)), version: version, owners: make([]*owner,
		len(w.logs))}
	w.processes = append(w.processes, p)
	p.ctx, p.kill = context.WithCancel(w.ctx)
	c := worker.Config{
		Origin: "ns/hub", Replica: p.name, Rules: rules.Set{Rules: w.versions[version], Quiet: "quiet"}, Concurrency: 8,
		GiveUp:             w.giveUp,
		CheckpointInterval: interval, DrainTimeout: drain, Decoder: w.decoders[version], Clock: w.clock, DeadLetters: p,
		Log: zap.NewNop(),
		Ledger: func(ctx context.Context, partition string) (*ledger.Ledger, ledger.Content, error) {
			return ledger.Open(ctx, p.ownerOf(partition).faultyRecords(), partition)
		},
		Roster: func(partition string) *roster.File {
			return &roster.File{Store: p.ownerOf(partition).faultyRecords(), Name: "roster/" + partition}
		},
		Mutes: func() []rules.Mute {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.mutes
		},
	}
	for _, in := range w.inboxes {
		c.Receivers = append(c.Receivers, worker.Receiver{
			ID: in.name, Name: in.name, Filters: in.filters, Limits: in.limits, Notifier: faultyReceiver{p, in},
			Gate: func(r *rules.Rule, l *rules.Level) *throttle.Gate {
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

func gateOf(store lease.Store, receiver string, r *rules.Rule, l *rules.Level) *throttle.Gate {
	return throttle.New(throttle.Config{
		Store: store, Scope: "s", Receiver: receiver, Rule: r.Name, Level: l.Name, Per: r.Per, Silence: r.Silence(),
		Window: r.Window, SendTimeout: sendTimeout,
	})
}

// own has the next owner of a partition begin.
func (w *world) own(index int) *owner {
	w.mu.Lock()
	defer w.mu.Unlock()
	log, plan := w.logs[index], w.partitions[index]
	t := takeover{version: len(w.versions) - 1}
	if log.taken < len(plan) && !w.calm {
		t = plan[log.taken]
	}
	log.taken++
	w.moveBack(log, t.back)
	p := w.slots[t.slot]
	if p == nil || p.gone || p.version != t.version || time.Now().Before(p.wakes) || p.consumes(index) {
		p = w.newProcess(t.version)
		w.slots[t.slot] = p
	}
	o := &owner{
		process: p, log: log, resumed: log.checkpoint, over: make(chan struct{}), returned: make(chan struct{}),
		next: int(log.checkpoint.Sequence), held: len(log.events), began: time.Now(), opens: t.opens,
	}
	o.ctx, o.cancel = context.WithCancelCause(p.ctx)
	p.owners[index], log.owner = o, o
	if !o.stateful() { // else it does not begin before it has the ledger
		o.reigns(0)
	}
	w.noteLocked("%s takes %s over at %d (version %d)", p.name, log.id, o.next, p.version)
	w.work.Go(func() {
		err := p.worker.Consume(o.ctx, o)
		w.note("%s has ended %s: %v", p.name, log.id, err)
		close(o.returned)
		o.end()
	})
	return o
}

// consumes reports whether p still consumes a partition, for all it knows.
func (p *process) consumes(index int) bool {
	o := p.owners[index]
	if o == nil {
		return false
	}
	select {
	case <-o.returned:
		return false
	default:
		return true
	}
}

// moveBack moves the checkpoint back by so many events. The caller holds w.mu.
func (w *world) moveBack(log *hubLog, events int) {
	if events == 0 || log.checkpoint.Sequence == 0 {
		return
	}
	log.movedBack = true
	switch back := int(log.checkpoint.Sequence) - events; {
	case back > 0:
		log.checkpoint.Position = log.events[back-1].Position
		w.noteLocked("the checkpoint is MOVED BACK to %d", back)
	default:
		log.checkpoint = telemetry.Checkpoint{}
		w.noteLocked("the checkpoint is REMOVED")
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
		if r.fate != expired {
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

func (o *owner) Checkpoint(ctx context.Context, c telemetry.Checkpoint) error {
	return o.call(ctx, callCheckpoint, fmt.Sprint(c.Sequence), func(context.Context) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.lost {
			return telemetry.ErrLost
		}
		if c.Sequence <= o.log.checkpoint.Sequence {
			return nil
		}
		o.log.checkpoint = c
		o.noteLocked("%s writes checkpoint %d of %s", o.name, c.Sequence, o.log.id)
		o.judgeCheckpoint(o.log)
		return nil
	}, nil)
}

// publish has devices send what is planned.
func (w *world) publish() {
	enqueued := w.start
	for i, r := range w.readings {
		enqueued = enqueued.Add(r.gap)
		time.Sleep(time.Until(enqueued))
		if r.fate == byHTTP {
			w.work.Go(func() { w.post(r, fmt.Sprint("key-", i)) })
			continue
		}
		w.mu.Lock()
		w.logs[r.partition].publish(w, r, enqueued)
		w.mu.Unlock()
	}
}

// event returns what r is to a worker, at a time.
func (r reading) event(at time.Time) telemetry.Event {
	e := telemetry.Event{Device: r.device, Enqueued: at, Body: []byte("{}")}
	if r.value != 0 {
		e.Body = fmt.Appendf(nil, `{"temperature":%v,"mode":%q}`, r.value, r.mode)
	}
	if own := r.deviceTime(at); !own.IsZero() && r.value != 0 {
		e.Body = fmt.Appendf(nil, `{"temperature":%v,"mode":%q,"at":%q}`, r.value, r.mode, own.Format(time.RFC3339Nano))
	}
	properties := map[string]any{}
	if r.site != "" {
		properties["site"] = r.site
	}
	if r.limit != 0 {
		properties["maxTemp"] = r.limit
	}
	if r.quiet > 0 {
		properties["quiet"] = at.Add(r.quiet).Format(time.RFC3339Nano)
	}
	if len(properties) > 0 && r.fate != byHTTP {
		e.Properties = telemetrytest.Properties(properties)
	}
	if r.fate == undecodable {
		e.Undecodable, e.Body, e.Properties = "broken", nil, nil
	}
	return e
}

// publish adds an event. The caller holds w.mu.
func (log *hubLog) publish(w *world, r reading, enqueued time.Time) {
	n := int64(len(log.events) + 1)
	e := r.event(enqueued)
	e.Position = telemetry.Position{Sequence: n, Offset: fmt.Sprint(n * 100), Time: enqueued}
	log.events, log.readings = append(log.events, e), append(log.readings, r)
	w.noteLocked("                                        %s/%d: %s %v %s", log.id, n, r.device, r.value, r.details())
	close(log.grown)
	log.grown = make(chan struct{})
}

func (r reading) details() string {
	s := cmp.Or(r.site, "-") + " " + r.fate
	if r.late >= 0 {
		s += fmt.Sprint(" late ", r.late)
	}
	if r.quiet > 0 {
		s += fmt.Sprint(" quiet for ", r.quiet)
	}
	if r.limit > 0 {
		s += fmt.Sprint(" own limit ", r.limit)
	}
	return s + " " + r.mode
}

// deviceTime returns the time that the device gives a message that the hub takes at a time, zero if none.
func (r reading) deviceTime(at time.Time) time.Time {
	if r.late < 0 {
		return time.Time{}
	}
	return at.Add(-r.late)
}

// post sends a reading by HTTP until there is an outcome.
func (w *world) post(r reading, key string) {
	for range 40 {
		w.mu.Lock()
		var to *process
		for _, p := range w.processes {
			if !p.gone && !time.Now().Before(p.wakes) {
				to = p
			}
		}
		w.mu.Unlock()
		at := time.Now()
		if to != nil {
			ctx, cancel := context.WithTimeout(w.ctx, 20*second)
			verdict, err := to.intake.Handle(ctx, r.event(at), key)
			cancel()
			w.mu.Lock()
			w.noteLocked("                                        by HTTP %s %v %s, %s: %v, %v", r.device, r.value, r.site,
				key, verdict, err)
			if err == nil {
				w.posted = append(w.posted, post{r, at, key, verdict, to.version})
			}
			w.mu.Unlock()
			if err == nil || errors.As(err, new(*telemetry.DecodeError)) {
				return
			}
		}
		time.Sleep(10 * second)
	}
}

// pass lets time pass, in which devices send what the plan's tail says.
func (w *world) pass(d time.Duration) {
	r := reading{late: -1, mode: "run", site: "berlin"}
	switch w.tail {
	case "cool":
		r.value = 20
	case "warm": // between the limit and what ends an alarm
		r.value = 27
	}
	every := 100 * second
	if slices.ContainsFunc(w.subjects(), func(s subject) bool { r, _ := w.ever(s); return r.Silence() }) {
		every = 25 * second
	}
	for ; d > 0 && w.tail != "nothing"; d -= every {
		w.mu.Lock()
		for _, device := range w.devices {
			r.device, r.partition = device, w.home(device)
			w.logs[r.partition].publish(w, r, time.Now())
		}
		w.mu.Unlock()
		time.Sleep(every)
	}
	time.Sleep(max(0, d))
}

// home is the partition of a device since its last message.
func (w *world) home(device string) (partition int) {
	for _, r := range w.readings {
		if r.device == device && r.fate != byHTTP {
			partition = r.partition
		}
	}
	return partition
}

// apply has m happen to the partition of o.
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
	}
}

// operate has all that happens which is not about one partition.
func (w *world) operate() {
	for _, m := range w.moves {
		if m.what == handOver || m.what == kill || m.what == steal {
			continue
		}
		time.Sleep(time.Until(w.start.Add(m.at)))
		w.note("%s", m)
		switch m.what {
		case reopen:
			w.reopen(m)
		case mute:
			w.mute(m)
		case forget:
			w.forget(m)
		case replay:
			w.replay(m)
		case receiverDown:
			w.mu.Lock()
			w.down[receiverDown+w.inboxes[m.receiver].name] = time.Now().Add(m.for_)
			w.mu.Unlock()
		default:
			w.mu.Lock()
			w.down[m.what] = time.Now().Add(m.for_)
			w.mu.Unlock()
		}
	}
}

// reopen ends the windows of a device, and of the site of the same name, at one receiver.
func (w *world) reopen(m move) {
	for _, s := range w.subjects() {
		rule, level := w.ever(s)
		for _, r := range []*rules.Rule{rule, rule.Alone()} {
			_ = gateOf(w.leases, w.inboxes[m.receiver].name, r, level).Reopen(w.ctx, m.device)
		}
	}
	w.did(operation{move: m, at: time.Now()})
}

func (w *world) did(o operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.operations = append(w.operations, o)
	w.forgetStories()
}

// mute mutes alerts for a while, of which all replicas know at once. The answer to the first write is lost, and others
// mute something at the same time.
func (w *world) mute(m move) {
	lossy := m.deaf
	store := muting.Store{Name: "mutes", Records: records.Reliable(records.Around(w.silences.Records,
		func(ctx context.Context, op records.Op, _ string, call func(context.Context) error) error {
			err := call(ctx)
			if op != records.OpWrite || err != nil || !lossy {
				return err
			}
			lossy = false
			_, _ = w.silences.Add(ctx, muting.Silence{Device: "nobody", Why: "w", Who: "b"}, time.Hour)
			return errLost
		}))}
	at := time.Now()
	s, err := store.Add(w.ctx, muting.Silence{Device: m.device, Rule: m.rule, Why: "w", Who: "a"}, time.Hour)
	if err != nil {
		return
	}
	w.learnMutes()
	w.work.Go(func() {
		select {
		case <-time.After(m.for_):
		case <-w.ctx.Done():
			return
		}
		_, err := store.End(w.ctx, s.ID)
		w.note("%s has ended: %v", m, err)
		w.learnMutes()
		w.did(operation{move: m, at: at, until: time.Now()})
	})
}

func (w *world) learnMutes() {
	mutes, err := w.silences.Mutes(context.WithoutCancel(w.ctx))
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.mutes = mutes
	}
}

// replay sends the dead letters of a receiver again, as `alertworker deadletters replay` does. Silences it does not
// send.
func (w *world) replay(m move) {
	w.mu.Lock()
	letters := slices.Clone(w.dead)
	w.mu.Unlock()
	in := w.inboxes[m.receiver]
	for i, letter := range letters {
		a := letter.Alert
		if letter.replayed || letter.Receiver != in.name || a.Silent > 0 {
			continue
		}
		rule, level := w.ever(subject{a.Rule, a.Level})
		if a.PerValue == "" {
			rule = rule.Alone()
		}
		request := throttle.Request{Device: a.About(), ID: a.ID, Arrived: time.Now().Add(time.Hour)}
		if a.Resolved {
			request = throttle.Request{Device: a.Device, ID: a.ID, Enqueued: a.Enqueued, Log: a.Log, Sequence: a.Sequence,
				Recovery: true}
		}
		_, _ = gateOf(w.leases, in.name, rule, level).Do(w.ctx, request, func(_ context.Context,
			g throttle.Grant) throttle.Answer {
			w.mu.Lock()
			defer w.mu.Unlock()
			if g.ID != a.ID && !a.Resolved || a.Device == in.refuses || time.Now().Before(w.down[receiverDown+in.name]) {
				return throttle.NotTaken
			}
			a.ID, a.Token, a.Expires, a.Ambiguous, a.WillResolve = g.ID, g.Token, g.Expires, g.Ambiguous, false
			in.take(a)
			last := &in.all[len(in.all)-1]
			last.answered, last.replayed, w.dead[i].replayed = true, true, true
			w.noteLocked("people replay %s (dropped: %v)", tell(a), last.dropped)
			return throttle.Taken
		})
	}
}

// forget has the owner of a device's partition expect nothing more of it.
func (w *world) forget(m move) {
	w.mu.Lock()
	log := w.logs[w.home(m.device)]
	o := log.owner
	unread := o == nil || o.next < len(log.events)
	w.mu.Unlock()
	if unread || o.thaw() != nil {
		return
	}
	asked := time.Now()
	ctx, cancel := context.WithTimeout(w.ctx, 10*second)
	defer cancel()
	if known, _ := o.worker.Forget(ctx, m.device); known { // it knows it no more, whether or not the ledger says so
		w.did(operation{move: m, at: asked})
	}
}

// supervise sees to it that a partition has an owner until stop is closed, and returns the last one.
func (w *world) supervise(index int, stop chan struct{}) *owner {
	todo := slices.DeleteFunc(slices.Clone(w.moves), func(m move) bool {
		return m.partition != index || m.what != handOver && m.what != kill && m.what != steal
	})
	o := w.own(index)
	for {
		var next <-chan time.Time
		if len(todo) > 0 {
			next = time.After(time.Until(w.start.Add(todo[0].at)))
		}
		select {
		case <-o.over:
			w.mu.Lock()
			var after time.Duration
			if t := w.logs[index].taken; t < len(w.partitions[index]) {
				after = w.partitions[index][t].after
			}
			w.mu.Unlock()
			time.Sleep(after)
			o = w.own(index)
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

// lastVersion gives partitions that another version has to one that has the last version.
func (w *world) lastVersion() {
	for _, log := range w.logs {
		w.mu.Lock()
		o := log.owner
		w.mu.Unlock()
		if o.version != len(w.versions)-1 {
			w.apply(move{what: handOver}, o)
		}
	}
}

// quiet reports whether o has settled everything.
func (w *world) quiet(o *owner) bool {
	w.mu.Lock()
	done := int64(o.next) >= o.log.readable() && !o.lost
	w.mu.Unlock()
	due := 0
	for _, c := range o.worker.AlarmCounts() {
		due += c.Due
	}
	for _, p := range o.worker.Partitions() {
		if p.Partition == o.log.id {
			return done && p.Delivering == 0 && p.Unsettled == 0 && due == 0
		}
	}
	return false
}

// run lets it all happen, in a bubble, and then judges what came of it.
func (w *world) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	w.ctx, w.start = ctx, time.Now()
	w.leases, w.ledgers = memlease.New(), &records.Memory{}
	w.silences = muting.Store{Records: records.Reliable(w.ledgers), Name: "mutes"}
	w.down, w.happened, w.calls = map[string]time.Time{}, map[int]bool{}, map[string]int{}
	for i, r := range w.receivers {
		w.inboxes = append(w.inboxes, &inbox{planned: r, name: fmt.Sprint("receiver", i), ids: map[string]time.Time{},
			last: map[string]token{}})
	}
	for i := range w.partitions {
		w.logs = append(w.logs, &hubLog{id: fmt.Sprint(i), grown: make(chan struct{})})
	}
	stop, last := make(chan struct{}), make(chan *owner, len(w.logs))
	for i := range w.logs {
		w.work.Go(func() { last <- w.supervise(i, stop) })
	}
	w.work.Go(w.operate)
	w.publish()
	w.settleDown()
	close(stop)
	owners := []*owner{}
	for range w.logs {
		owners = append(owners, <-last)
	}
	slices.SortFunc(owners, func(a, b *owner) int { return strings.Compare(a.log.id, b.log.id) })
	for range 20 {
		if !slices.ContainsFunc(owners, func(o *owner) bool { return !w.quiet(o) }) {
			break
		}
		w.pass(2 * time.Minute)
	}
	state := ""
	for _, o := range owners {
		if !w.quiet(o) {
			state += fmt.Sprintf(" %+v %+v", o.worker.Partitions(), o.worker.AlarmCounts())
		}
	}
	for _, o := range owners {
		o.cancel(nil)
		<-o.returned
	}
	w.mu.Lock()
	w.noteLocked("the end")
	if state != "" {
		w.violated("G2: there is no end:%s", state)
	} else {
		w.judge()
	}
	w.mu.Unlock()
	cancel()
	for _, p := range w.processes {
		if p.intake != nil {
			p.intake.Close()
		}
	}
	w.work.Wait()
}

// settleDown waits until nothing fails any more and what follows from that has happened.
func (w *world) settleDown() {
	var latest time.Duration
	for _, m := range w.moves {
		latest = max(latest, m.at+m.for_)
	}
	w.pass(time.Until(w.start.Add(latest)))
	w.pass(2 * time.Minute)
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	w.pass(2 * time.Minute) // whoever is frozen wakes up
	if len(w.versions) > 1 {
		w.lastVersion()
		w.pass(12 * time.Minute)
	}
	w.pass(8 * time.Minute)
}
