package status

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/delivery"
	"alertworker/internal/humanize"
	"alertworker/internal/lease"
	"alertworker/internal/partition"
	"alertworker/internal/telemetry"
)

const (
	tick         = time.Second
	probeIdle    = 20 * time.Second // without a write to the throttle store, before the Monitor makes one
	probeFailing = 2 * time.Second  // the same while calls fail

	idleLimit = 10 * time.Minute // without an event, until that is worth a line

	justNow = 15 * time.Second // since a receiver has accepted an alert, until other replicas need not know

	remindFirst = time.Minute // after a problem began; doubled until remindLast
	remindLast  = time.Hour
)

// A Worker is a [worker.Worker], as far as this package reads it.
type Worker interface {
	Partitions() []partition.State
	Receivers() []delivery.ReceiverState
}

// A Replica is what a Monitor watches. All fields are required.
type Replica struct {
	Worker  Worker
	Source  func() telemetry.SourceStats
	Standby func() string // why the replica waits for others to stop; empty if it does not
	Store   lease.Store   // the throttle store, whose calls Monitor.Store observes
	Key     string        // for Try
}

// A Monitor watches one replica, from before there is one. It is safe for concurrent use.
type Monitor struct {
	Store       Dependency // the throttle store
	Checkpoints Dependency // checkpoints, ownership, and the settings in force

	log *zap.Logger

	mu       sync.Mutex
	opening  Problem         // what could not be opened before there is a replica; empty if nothing
	replica  *Replica        // nil until Watch
	secrets  telemetry.Fault // why new secrets are not used; zero if there are none
	differ   string          // how the rules of other replicas do from its own; empty if they do not
	draining bool
	began    map[By]time.Time // since when there are problems that do not know that themselves
	read     int64            // the times of the last events read, added up
	readAt   time.Time        // when that last changed

	reported map[string]*reported // what the log has; used by Run alone
}

// New returns a Monitor of a replica that is starting.
func New(log *zap.Logger) *Monitor {
	asIs, never := func(err error) error { return err }, func(error) bool { return false }
	return &Monitor{
		Store:       Dependency{Explain: asIs, Refused: never},
		Checkpoints: Dependency{Explain: asIs, Refused: never},
		log:         log,
		began:       map[By]time.Time{},
		reported:    map[string]*reported{},
	}
}

// Opening says that the replica could not open something that it needs, and why; refused, that
// the credentials were refused. It replaces what the last call said. It may be called until Watch.
func (m *Monitor) Opening(by By, err error, refused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opening.By != by {
		delete(m.began, by)
	}

	fault := telemetry.Fault{Since: m.since(by, true), Err: err, Refused: refused}
	m.opening = problem(by, fault, "This replica cannot start reading, and keeps trying.")
}

// NewSecrets says why secrets that are not in use yet cannot be used, nil that they can or that there are none.
func (m *Monitor) NewSecrets(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.secrets = telemetry.Fault{Since: m.since(BySecrets, err != nil), Err: err}
}

// since returns since when there is a problem of this kind, which is there now or not; zero if it is not. The caller holds
// m.mu.
func (m *Monitor) since(by By, is bool) time.Time {
	if !is {
		delete(m.began, by)
	} else if m.began[by].IsZero() {
		m.began[by] = time.Now()
	}

	return m.began[by]
}

// Watch says that there is a replica. It may be called once.
func (m *Monitor) Watch(r Replica) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replica = &r
}

// Drain says that the replica is stopping.
func (m *Monitor) Drain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.draining = true
}

// Report returns the state at this moment. It calls no service and does not block.
func (m *Monitor) Report() Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := view{now: time.Now(), draining: m.draining}
	if m.replica != nil {
		v.source = m.replica.Source()
		v.standby = m.replica.Standby()
		v.receivers = m.replica.Worker.Receivers()
		v.partitions = m.replica.Worker.Partitions()
	}

	r := Report{Problems: []Problem{}}
	for _, to := range v.receivers {
		r.Waiting += to.Waiting
		if !to.Down && v.now.Sub(to.TakenAt) < justNow {
			r.Accepting = append(r.Accepting, to.Name)
		}
	}

	for _, p := range m.problems(v, r.Waiting) {
		if p.What == "" {
			continue
		}

		p.Since = p.Since.Round(0) // one that people see is by the wall clock
		p.Why = humanize.Middle(p.Why, maxWhy)
		r.Problems = append(r.Problems, p)
	}

	v.conclude(&r)

	return r
}

// problems returns what is in the way, the worst first, with empty ones between them. The caller holds m.mu.
func (m *Monitor) problems(v view, waiting int) []Problem {
	if m.replica == nil {
		return []Problem{m.opening, secretsProblem(m.secrets)}
	}

	store, storeAnswers := m.Store.fault(v.now)
	checkpoints, checkpointsAnswer := m.Checkpoints.fault(v.now)
	keeps, effect := none, "Progress cannot be recorded: after a restart, readings are read again, but no alert is sent twice. "+
		"Partitions of replicas that stop are not taken over."
	if v.source.Reading == 0 {
		keeps, effect = all, "Without it nothing is read: readings wait in the hub."
	}

	problems := []Problem{
		storeProblem(ByStore, "the throttle store", store, storeAnswers, all,
			humanize.Capital(waits(waiting))+" until the store accepts what is written to it."),
		v.hubProblem(),
		storeProblem(ByCheckpoints, "the checkpoint store", checkpoints, checkpointsAnswer, keeps, effect),
		m.partitionsProblem(v),
		m.ledgerProblem(v),
		m.idleProblem(v),
	}
	return append(append(problems, v.receiverProblems()...), secretsProblem(m.secrets), m.rulesProblem(v.now))
}

// Run logs what gets in the way and when that ends, and writes to the throttle store if nobody else
// does, until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	var probing sync.WaitGroup
	defer probing.Wait()
	probing.Go(func() {
		for backoff.Sleep(ctx, tick) {
			if replica := m.probeDue(); replica != nil {
				call, cancel := context.WithTimeoutCause(ctx, lease.CallLimit, fmt.Errorf("no answer within %v", lease.CallLimit))
				_ = Try(call, replica.Store, replica.Key) // Store observes the calls
				cancel()
			}
		}
	})

	for backoff.Sleep(ctx, tick) {
		m.logChanges()
	}
}

// probeDue returns the replica whose throttle store is to be written to, nil if it need not be.
func (m *Monitor) probeDue() *Replica {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	idle, failing := m.Store.idle(now)
	_, suspect := m.Checkpoints.idle(now) // it may be the same account

	pause := probeIdle
	if failing || suspect {
		pause = probeFailing
	}

	if m.draining || idle < pause {
		return nil
	}

	return m.replica
}

// reported is a problem that has begun.
type reported struct {
	Problem
	next  time.Time     // when it is logged, again
	pause time.Duration // after it was logged last; 0: it was not
}

// logChanges logs problems that have begun, last or have ended. Those of a replica that stops are no news: it gives its
// partitions back.
func (m *Monitor) logChanges() {
	now := time.Now()
	report := m.Report()
	if report.State == Draining {
		return
	}

	present := map[string]bool{}
	for _, p := range report.Problems {
		if p.By == BySecrets { // who tries them logs that
			continue
		}

		key := string(p.By) + " " + p.Receiver
		present[key] = true
		r := m.reported[key]
		if r == nil {
			r = &reported{}
			if p.By == ByPartitions {
				r.next = p.Since.Add(2 * settle) // they may be changing hands
			}
			m.reported[key] = r
		}

		r.Problem = p
		if now.Before(r.next) {
			continue
		}

		msg, log := words[p.By].begin, m.log.Error
		if p.By == ByRules {
			msg += ": " + p.What
		}
		if r.pause > 0 {
			msg = "still: " + msg
		}
		if !p.isOurs() {
			log = m.log.Warn // the others may be well, or nothing is wrong here
		}

		r.pause = min(max(remindFirst, 2*r.pause), remindLast)
		r.next = now.Add(r.pause)
		log(msg, field("receiver", p.Receiver), zap.String("for", p.Lasts(now)), field("error", p.Why), zap.String("effect", p.Effect))
	}

	for key, r := range m.reported {
		if present[key] {
			continue
		}

		delete(m.reported, key)
		if r.pause > 0 {
			m.log.Info(words[r.By].end, field("receiver", r.Receiver), zap.String("after", r.Lasts(now)), zap.Int("waiting", report.Waiting))
		}
	}
}

// field is one of a line in the log, unless its text is empty.
func field(name, text string) zap.Field {
	if text == "" {
		return zap.Skip()
	}
	return zap.String(name, text)
}
