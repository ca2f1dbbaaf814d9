package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/ledger"
	"alertworker/internal/muting"
	"alertworker/internal/notify"
	"alertworker/internal/records"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// A world is what one plan is played in: a hub, what keeps leases, ledgers, rosters, checkpoints and dead letters,
// receivers, people, and replicas that come and go. The worker, the gates, the ledgers and the rosters are as they
// are; the stores are in memory, and their calls fail in every way. Time is virtual.
type world struct {
	plan
	decoders []*rules.Decoder // of each version
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
	incidents  []incidentWrite // writes of their records
	dead       []keptLetter
	refusals   map[string]time.Time // the last one of each alert, by its receiver and id
	operations []operation
	unclear    map[string]time.Time // since when the log does not say all of a device
	mutes      rules.Mutes          // that replicas know
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
	read       []time.Time   // when somebody had read so far for the first time
	checkpoint telemetry.Checkpoint
	kept       ledger.Content // of the last write of the ledger
	rosters    []time.Time    // when they were written
	rosterAt   time.Time      // when the first was that holds an event
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
	hears   int64     // after which it has heard who sends: from, or before it
	at      time.Time // of the take-over
	rivaled bool      // an owner before it, with other rules, goes on
}

// A keptLetter is a dead letter that was kept at a time.
type keptLetter struct {
	notify.DeadLetter
	at        time.Time
	refusedAt time.Time // when the receiver refused it last; zero if it did not
	answered  bool      // its replica heard that it was kept
	replayed  bool
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

// moveBack moves the checkpoint back by so many events. The caller holds w.mu.
func (w *world) moveBack(log *hubLog, events int) {
	back := int(log.checkpoint.Sequence) - events
	if events == 0 || log.checkpoint.Sequence == 0 {
		return
	}
	log.movedBack = true
	switch {
	case back > 0:
		log.checkpoint.Position = log.events[back-1].Position
		w.noteLocked("the checkpoint is MOVED BACK to %d", back)
	default:
		log.checkpoint = telemetry.Checkpoint{}
		w.noteLocked("the checkpoint is REMOVED")
	}
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

// quiet reports whether o has settled everything, but for silences if mayWait is true.
func (w *world) quiet(o *owner, mayWait bool) bool {
	w.mu.Lock()
	done := int64(o.next) >= o.log.readable() && !o.lost
	w.mu.Unlock()
	due := 0
	for _, c := range o.worker.AlarmCounts() {
		due += c.Due
	}
	for _, p := range o.worker.Partitions() {
		if p.Partition == o.log.id {
			return done && (p.Delivering == 0 || mayWait) && p.Unsettled == 0 && due == 0
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
	w.unclear, w.refusals = map[string]time.Time{}, map[string]time.Time{}
	for i, r := range w.receivers {
		w.inboxes = append(w.inboxes, &inbox{planned: r, name: fmt.Sprint("receiver", i), ids: map[string]time.Time{},
			last: map[string]token{}, choked: map[string]choking{}})
	}
	for i := range w.partitions {
		w.logs = append(w.logs, &hubLog{id: fmt.Sprint(i), grown: make(chan struct{})})
	}
	stop, last := make(chan struct{}), make(chan *owner, len(w.logs))
	for i := range w.logs {
		w.work.Go(func() { last <- w.supervise(i, stop) })
	}
	w.work.Go(w.operate)
	if w.patience > 0 {
		w.work.Go(w.watch)
	}
	w.publish()
	w.settleDown()
	close(stop)
	owners := []*owner{}
	for range w.logs {
		owners = append(owners, <-last)
	}
	slices.SortFunc(owners, func(a, b *owner) int { return strings.Compare(a.log.id, b.log.id) })
	for range 20 {
		if !slices.ContainsFunc(owners, func(o *owner) bool { return !w.quiet(o, false) }) {
			break
		}
		w.pass(2 * time.Minute)
	}
	// While the hub is cut off nothing is said of single devices.
	w.mu.Lock()
	isCutOff := !w.elsewhere && time.Since(w.newest()) > time.Hour/2 &&
		slices.ContainsFunc(slices.Concat(w.versions...), func(r rules.Rule) bool { return r.Silence() })
	w.mu.Unlock()
	state := ""
	for _, o := range owners {
		if !w.quiet(o, isCutOff) {
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
			p.intake.Cut()
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
