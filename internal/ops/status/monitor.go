package status

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/humanize"
	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/telemetry"
	"alertworker/internal/worker"
)

const (
	tick         = time.Second
	probeTimeout = 4 * time.Second
	probeIdle    = 10 * time.Second // without a call of the throttle store, before the Monitor makes one
	probeFailing = 2 * time.Second  // the same while the store fails

	idleLimit = 10 * time.Minute // without an event, until that is worth a line

	remindFirst = time.Minute // after a problem began; doubled until remindLast
	remindLast  = time.Hour
)

// A Worker is a [worker.Worker], as far as this package reads it.
type Worker interface {
	Partitions() []worker.PartitionState
	Receivers() []worker.ReceiverState
}

// A Replica is what a Monitor watches. All fields are required.
type Replica struct {
	Worker  Worker
	Source  func() telemetry.SourceStats
	Standby func() string // why the replica waits for others to stop; empty if it does not
	Store   lease.Store   // the throttle store, whose calls Monitor.Store observes
	Key     string        // that can be read in it
}

// A Monitor watches one replica, from before there is one. It is safe for concurrent use.
type Monitor struct {
	Store       Dependency // the throttle store
	Checkpoints Dependency // checkpoints, ownership, and the settings in force

	log *zap.Logger

	mu       sync.Mutex
	opening  opening
	replica  *Replica // nil until Watch
	draining bool
	unread   time.Time // since when owned partitions are not read; zero if all are
	read     int64     // the times of the last events read, added up
	readAt   time.Time // when that last changed

	reported map[string]*reported // what the log has; used by Run alone
}

// opening is what could not be opened before there is a replica.
type opening struct {
	by By
	telemetry.Fault
}

// New returns a Monitor of a replica that is starting.
func New(log *zap.Logger) *Monitor {
	return &Monitor{log: log, reported: map[string]*reported{}}
}

// Opening says that the replica could not open something that it needs, and why; refused, that
// the credentials were refused. It replaces what the last call said. It may be called until Watch.
func (m *Monitor) Opening(by By, err error, refused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	since := m.opening.Since
	if m.opening.by != by || m.opening.Err == nil {
		since = time.Now()
	}
	m.opening = opening{by, telemetry.Fault{Since: since, Err: err, Refused: refused}}
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
	now := time.Now()
	if m.replica == nil {
		return m.starting()
	}
	standby := m.replica.Standby()
	source := m.replica.Source()
	receivers := m.replica.Worker.Receivers()
	partitions := m.replica.Worker.Partitions()
	r := Report{Ready: true, Problems: []Problem{}}
	for _, to := range receivers {
		r.Waiting += to.Waiting
	}
	add := func(p Problem) {
		p.Since = p.Since.Round(0) // one that people see is by the wall clock
		r.Problems = append(r.Problems, p)
	}
	if f := m.Store.fault(now); f.Err != nil {
		add(problem(ByStore, f, humanize.Capital(waits(r.Waiting))+" until the store answers."))
	}
	reading := source.Running && (source.Reading > 0 || source.Owned == 0)
	if f := source.Hub; f.Err != nil && (!reading || now.Sub(f.Since) >= settle) {
		add(problem(ByHub, f, "Readings wait in the hub, and are read when it answers, unless its retention ends first. Readings by HTTP still raise alerts."))
	}
	if f := m.Checkpoints.fault(now); f.Err != nil {
		effect := "What is settled cannot be recorded: a restart would read it again, without sending an alert twice. Partitions of replicas that stop are not taken over."
		if !source.Running {
			effect = "Without it nothing is read: readings wait in the hub."
		}
		add(problem(ByCheckpoints, f, effect))
	}
	if p, ok := m.unreadProblem(now, source); ok && source.Hub.Err == nil {
		add(p)
	}
	if p, ok := m.ledgerProblem(now, partitions, source); ok {
		add(p)
	}
	if p, ok := m.idleProblem(now, partitions, source); ok {
		add(p)
	}
	for _, to := range receivers {
		if to.Down {
			add(receiverProblem(to, now))
		}
	}
	m.conclude(&r, source, standby, receivers)
	return r
}

// starting returns the report before there is a replica. The caller holds m.mu.
func (m *Monitor) starting() Report {
	r := Report{State: Starting, Headline: "Starting: no alerts are going out yet.", Problems: []Problem{}}
	o := m.opening
	if o.Err != nil {
		p := problem(o.by, o.Fault, "This replica cannot start reading, and keeps trying.")
		r.Problems = append(r.Problems, p)
		r.State, r.Headline = Blocked, "No alerts are going out: "+p.What+"."
	}
	if m.draining {
		r.State, r.Headline = Draining, "Stopping before the start was complete."
	}
	return r
}

// conclude sets what r says in short. The caller holds m.mu.
func (m *Monitor) conclude(r *Report, source telemetry.SourceStats, standby string, receivers []worker.ReceiverState) {
	var blocked, others []string
	var idle time.Time
	down := 0
	for _, p := range r.Problems {
		switch {
		case p.By == ByReceiver:
			down++
		case p.By == ByDevices:
			idle = p.Since
		case p.blocks || !source.Running:
			blocked = append(blocked, p.What)
		default:
			others = append(others, p.What)
		}
	}
	r.Ready = len(blocked)+len(others) == 0
	switch {
	case m.draining:
		r.State, r.Headline, r.Ready = Draining, "Draining: alerts in progress are being settled.", false
	case standby != "":
		// Ready, or a rolling update would never stop the replicas that this one waits for.
		r.State, r.Headline = Standby, "Standing by: "+standby+"."
	case len(blocked) > 0:
		r.State, r.Headline = Blocked, "No alerts are going out: "+strings.Join(blocked, ", and ")+"."
	case !source.Running:
		r.State, r.Headline, r.Ready = Starting, "Starting: waiting for the hub and the checkpoint store to answer.", false
	case down > 0 && down == len(receivers):
		r.State, r.Headline = Blocked, "No alerts are going out: no receiver accepts any."
	case down > 0:
		r.State, r.Headline = Partly, fmt.Sprintf("Some alerts aren't going out: %d of %d receivers %s down.", down, len(receivers), isAre(down))
	case len(others) > 0:
		r.State, r.Headline = Impaired, "Alerts are going out, but "+strings.Join(others, ", and ")+"."
	case !idle.IsZero():
		r.State, r.Headline = Idle, "Alerts would go out, but no event has arrived for "+humanize.Span(time.Since(idle))+"."
	default:
		r.State, r.Headline = GoingOut, "Alerts are going out."
		if r.Waiting > 0 {
			r.Headline = fmt.Sprintf("Alerts are going out; %s to be sent.", waits(r.Waiting))
		}
		if paced := paced(receivers); paced != "" {
			r.Headline = "Alerts are going out; " + paced + "."
		}
	}
}

// unreadProblem returns what there is to say about owned partitions that are not read. The
// caller holds m.mu.
func (m *Monitor) unreadProblem(now time.Time, s telemetry.SourceStats) (Problem, bool) {
	if !s.Running || s.Reading >= s.Owned {
		m.unread = time.Time{}
		return atRiskProblem(now, s)
	}
	if m.unread.IsZero() {
		m.unread = now
	}
	p := Problem{
		By: ByPartitions, What: fmt.Sprintf("%d of %s that this replica owns %s not being read", s.Owned-s.Reading, humanize.Count(s.Owned, "partition"), isAre(s.Owned-s.Reading)), Since: m.unread, blocks: s.Reading == 0,
		Effect: "Their readings wait in the hub. This is normal for a moment when partitions change hands.",
	}
	p.because(s.Faults)
	return p, true
}

// atRiskProblem returns what there is to say about partitions that are read and may soon not be.
func atRiskProblem(now time.Time, s telemetry.SourceStats) (Problem, bool) {
	if !s.Running || len(s.AtRisk) == 0 {
		return Problem{}, false
	}
	p := Problem{
		By: ByPartitions, What: humanize.Count(len(s.AtRisk), "partition") + " may soon not be read any more", Since: now,
		Effect: "They are being read. Once they are not, their readings wait in the hub.",
	}
	for _, f := range s.AtRisk {
		if f.Since.Before(p.Since) {
			p.Since = f.Since
		}
	}
	p.because(s.AtRisk)
	return p, true
}

// because sets why partitions are not well.
func (p *Problem) because(faults map[string]telemetry.Fault) {
	for i, id := range slices.SortedFunc(maps.Keys(faults), telemetry.ComparePartitions) {
		f := faults[id]
		if i == 0 {
			p.Why = "partition " + id + ": " + oneLine(f.Err)
		}
		p.Refused = p.Refused || f.Refused
	}
	if more := len(faults) - 1; more > 0 {
		p.Why += fmt.Sprintf(" (and %s)", humanize.Count(more, "other partition"))
	}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// idleProblem returns what there is to say if nothing comes from the partitions that are read: no device is silent then, but
// what lies before them is broken. The caller holds m.mu.
func (m *Monitor) idleProblem(now time.Time, all []worker.PartitionState, s telemetry.SourceStats) (Problem, bool) {
	read := int64(0)
	for _, p := range all {
		read += p.ReadUntil.UnixMilli()
	}
	if read != m.read || m.readAt.IsZero() || !s.Running || s.Hub.Err != nil || s.Owned == 0 || s.Reading < s.Owned {
		m.read, m.readAt = read, now
	}
	if now.Sub(m.readAt) < idleLimit {
		return Problem{}, false
	}
	return Problem{
		By: ByDevices, What: "no events have arrived on any partition that this replica reads", Since: m.readAt,
		Effect: "Check whether devices are connected to the IoT Hub, and whether its route to this hub is enabled and healthy.",
	}, true
}

// ledgerProblem returns what there is to say about ledgers that cannot be read or written. The caller holds m.mu.
func (m *Monitor) ledgerProblem(now time.Time, all []worker.PartitionState, s telemetry.SourceStats) (Problem, bool) {
	faults := map[string]telemetry.Fault{}
	waiting := 0
	p := Problem{By: ByLedger, Since: now}
	for _, of := range all {
		l := of.Ledger
		if l.Err == nil || now.Sub(l.Since) < settle {
			continue
		}
		faults[of.Partition] = m.Checkpoints.explained(l.Since, l.Err) // it is the same container
		if l.Since.Before(p.Since) {
			p.Since = l.Since
		}
		if l.Writes == 0 { // it has not been taken over
			waiting++
		}
	}
	p.because(faults)
	p.What = humanize.Count(len(faults), "partition") + " cannot record alarms in the ledger"
	p.Effect = "Alerts go out, but no recoveries are sent, and the checkpoint stands still: a restart would read again what follows it, without sending an alert twice."
	if waiting > 0 {
		p.What, p.blocks = humanize.Count(waiting, "partition")+" cannot be read without the ledger", waiting >= s.Reading
		p.Effect = "Readings wait in the hub: without the ledger, nobody knows which alarms are open."
	}
	return p, len(faults) > 0
}

// paced says which receivers take alerts more slowly than they come, and how long that will last.
func paced(all []worker.ReceiverState) string {
	var parts []string
	for _, to := range all {
		if to.Down || to.Waiting < 2 || to.Left < longPace {
			continue
		}
		word := "paced"
		if to.Limited {
			word = "rate-limited"
		}
		parts = append(parts, fmt.Sprintf("%s is %s (%s): %s, about %s", to.Name, word, pace(to.Rate), waits(to.Waiting), humanize.Span(to.Left)))
	}
	return strings.Join(parts, "; ")
}

// pace writes a rate in messages a second.
func pace(rate float64) string {
	if rate < 1 {
		return fmt.Sprintf("1 in %.3g s", 1/rate)
	}
	return fmt.Sprintf("%.3g a second", rate)
}

// longPace is how long what waits for a paced receiver takes at least, to be worth a word.
const longPace = 10 * time.Second

func receiverProblem(r worker.ReceiverState, now time.Time) Problem {
	p := Problem{By: ByReceiver, Receiver: r.Name, What: "receiver " + r.Name + " is down", Since: r.Since, Waiting: r.Waiting}
	if r.Err != nil {
		p.Why = oneLine(r.Err)
		code := notify.AsError(r.Err).Status
		p.Refused = code == http.StatusUnauthorized || code == http.StatusForbidden
	}
	p.Effect = humanize.Capital(waits(r.Waiting)) + " until it accepts them, or until NOTIFY_GIVE_UP."
	if left := r.Retry.Sub(now); left >= time.Second {
		p.Effect += " Next attempt in " + humanize.Span(left) + "."
	}
	return p
}

func problem(by By, f telemetry.Fault, effect string) Problem {
	return Problem{By: by, What: words[by].begin, Since: f.Since, Why: oneLine(f.Err), Refused: f.Refused, Effect: effect, blocks: by == ByStore || by == ByHub}
}

func waits(n int) string {
	switch n {
	case 0:
		return "alerts wait"
	case 1:
		return "1 alert waits"
	}
	return fmt.Sprintf("%d alerts wait", n)
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// Run logs what gets in the way and when that ends, and asks the throttle store if nobody else
// does, until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	clock := time.NewTicker(tick)
	defer clock.Stop()
	for {
		select {
		case <-clock.C:
		case <-ctx.Done():
			return
		}
		m.logChanges()
		if replica := m.probeDue(); replica != nil {
			probing, cancel := context.WithTimeoutCause(ctx, probeTimeout, fmt.Errorf("no answer within %v", probeTimeout))
			_, _ = replica.Store.Read(probing, replica.Key) // Store observes the call
			cancel()
		}
	}
}

// probeDue returns the replica whose throttle store is to be asked, nil if it was asked of late.
func (m *Monitor) probeDue() *Replica {
	m.mu.Lock()
	defer m.mu.Unlock()
	idle, failing := m.Store.idle()
	_, suspect := m.Checkpoints.idle() // it may be the same account
	if m.draining || idle < probeFailing || idle < probeIdle && !failing && !suspect {
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

// logChanges logs problems that have begun, last or have ended.
func (m *Monitor) logChanges() {
	now := time.Now()
	report := m.Report()
	present := map[string]bool{}
	for _, p := range report.Problems {
		key := string(p.By) + " " + p.Receiver
		present[key] = true
		r := m.reported[key]
		if r == nil {
			r = &reported{next: now}
			if p.By == ByPartitions {
				r.next = p.Since.Add(2 * settle) // they may be changing hands
			}
			m.reported[key] = r
		}
		if r.Problem = p; now.Before(r.next) {
			continue
		}
		msg := words[p.By].begin
		if r.pause > 0 {
			msg = "still: " + msg
		}
		r.pause = min(max(remindFirst, 2*r.pause), remindLast)
		r.next = now.Add(r.pause)
		log := m.log.Error
		if p.By == ByReceiver || p.By == ByDevices {
			log = m.log.Warn // the others may be well, or nothing is wrong here
		}
		log(msg, p.field(), zap.String("for", p.Lasts(now)), zap.String("error", p.Why), zap.String("effect", p.Effect))
	}
	for key, r := range m.reported {
		if present[key] {
			continue
		}
		delete(m.reported, key)
		if r.pause > 0 && report.State != Draining {
			m.log.Info(words[r.By].end, r.field(), zap.String("after", r.Lasts(now)), zap.Int("waiting", report.Waiting))
		}
	}
}

func (p Problem) field() zap.Field {
	if p.Receiver == "" {
		return zap.Skip()
	}
	return zap.String("receiver", p.Receiver)
}
