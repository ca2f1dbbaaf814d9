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

	limitedFor = 5 * time.Minute // after a receiver was last seen rate-limited, until the log says that it is not

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
	limited  map[string]time.Time // when receivers were last seen rate-limited; likewise
}

// opening is what could not be opened before there is a replica.
type opening struct {
	by By
	fault
}

// New returns a Monitor of a replica that is starting.
func New(log *zap.Logger) *Monitor {
	return &Monitor{log: log, reported: map[string]*reported{}, limited: map[string]time.Time{}}
}

// Opening says that the replica could not open something that it needs, and why; refused, that
// the credentials were refused. It replaces what the last call said. It may be called until Watch.
func (m *Monitor) Opening(by By, err error, refused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	since := m.opening.since
	if m.opening.by != by || m.opening.err == nil {
		since = time.Now()
	}
	m.opening = opening{by, fault{since, err, refused}}
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
	var waiting load
	for _, r := range receivers {
		waiting.alerts += r.Waiting
	}
	partitions := m.replica.Worker.Partitions()
	for _, p := range partitions {
		if !p.Oldest.IsZero() && (waiting.oldest.IsZero() || p.Oldest.Before(waiting.oldest)) {
			waiting.oldest = p.Oldest
		}
	}

	r := Report{Ready: true, Waiting: waiting.alerts, Problems: []Problem{}}
	add := func(p Problem) {
		p.Since = p.Since.Round(0) // one that people see is by the wall clock
		r.Problems = append(r.Problems, p)
	}
	checkpoints := m.Checkpoints.fault(now)
	if !source.Running && checkpoints.err == nil {
		checkpoints = m.Checkpoints.lately()
	}
	store := m.Store.fault(now)
	if checkpoints.err != nil && store.err == nil {
		store = m.Store.lately() // mostly the same account: one failure is enough
	}
	if f := store; f.err != nil {
		add(problem(ByStore, f, waiting.until(now, "They are sent when the store answers.")))
	}
	reading := source.Running && (source.Reading > 0 || source.Owned == 0)
	if f := source.Hub; f.Err != nil && (!reading || now.Sub(f.Since) >= settle) {
		add(problem(ByHub, fault{f.Since, f.Err, f.Refused}, "Readings wait in the hub, and are read when it answers, unless its retention ends first. Readings by HTTP still raise alerts."))
	}
	if checkpoints.err != nil {
		effect := "What is settled cannot be recorded: a restart would read it again, without sending an alert twice. Partitions of replicas that stop are not taken over."
		if !source.Running {
			effect = "Without it nothing is read: readings wait in the hub."
		}
		add(problem(ByCheckpoints, checkpoints, effect))
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
	down := 0
	for _, to := range receivers {
		if !to.Down {
			continue
		}
		down++
		add(receiverProblem(to, now))
	}

	m.conclude(&r, source, standby, down, receivers)
	return r
}

// starting returns the report before there is a replica. The caller holds m.mu.
func (m *Monitor) starting() Report {
	r := Report{State: Starting, Headline: "Starting: no alerts are leaving yet.", Problems: []Problem{}}
	o := m.opening
	if o.err != nil {
		p := problem(o.by, o.fault, "This replica cannot start reading, and keeps trying.")
		r.Problems = append(r.Problems, p)
		r.State, r.Headline = Blocked, "No alerts are leaving: "+p.What+"."
	}
	if m.draining {
		r.State, r.Headline = Draining, "Stopping before the start was complete."
	}
	return r
}

// conclude sets what r says in short. The caller holds m.mu.
func (m *Monitor) conclude(r *Report, source telemetry.SourceStats, standby string, down int, all []worker.ReceiverState) {
	receivers := len(all)
	var blocked, others []string
	var idle time.Time
	for _, p := range r.Problems {
		switch {
		case p.By == ByReceiver:
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
		r.State, r.Headline = Blocked, "No alerts are leaving: "+strings.Join(blocked, ", and ")+"."
	case !source.Running:
		r.State, r.Headline, r.Ready = Starting, "Starting: waiting for the hub and the checkpoint store to answer.", false
	case down > 0 && down == receivers && receivers == 1:
		r.State, r.Headline = Blocked, "No alerts are leaving: the receiver is down."
	case down > 0 && down == receivers:
		r.State, r.Headline = Blocked, "No alerts are leaving: all receivers are down."
	case down > 0:
		r.State, r.Headline = Partly, fmt.Sprintf("Some alerts are not leaving: %d of %s %s down.", down, humanize.Count(receivers, "receiver"), isAre(down))
	case len(others) > 0:
		r.State, r.Headline = Impaired, "Alerts are leaving, but "+strings.Join(others, ", and ")+"."
	case !idle.IsZero():
		r.State, r.Headline = Idle, "Alerts would leave, but no event has arrived for "+humanize.Span(time.Since(idle))+"."
	default:
		r.State, r.Headline = Leaving, "Alerts are leaving."
		if r.Waiting > 0 {
			r.Headline = fmt.Sprintf("Alerts are leaving; %s to be sent.", waits(r.Waiting))
		}
		if paced := paced(all); paced != "" {
			r.Headline = "Alerts are leaving; " + paced + "."
		}
	}
}

// unreadProblem returns what there is to say about owned partitions that are not read. The
// caller holds m.mu.
func (m *Monitor) unreadProblem(now time.Time, s telemetry.SourceStats) (Problem, bool) {
	if !s.Running || s.Reading >= s.Owned {
		m.unread = time.Time{}
		return Problem{}, false
	}
	if m.unread.IsZero() {
		m.unread = now
	}
	p := Problem{
		By: ByPartitions, What: fmt.Sprintf("%d of %s that this replica owns %s not being read", s.Owned-s.Reading, humanize.Count(s.Owned, "partition"), isAre(s.Owned-s.Reading)), Since: m.unread, blocks: s.Reading == 0,
		Effect: "Their readings wait in the hub. This is normal for a moment when partitions change hands.",
	}
	for i, id := range slices.SortedFunc(maps.Keys(s.Faults), telemetry.ComparePartitions) {
		if i == 0 {
			p.Why = fmt.Sprintf("partition %s: %s", id, strings.ReplaceAll(s.Faults[id].Err.Error(), "\n", "; "))
		}
		p.Refused = p.Refused || s.Faults[id].Refused
	}
	if more := len(s.Faults) - 1; more > 0 {
		p.Why += fmt.Sprintf(" (and %s)", humanize.Count(more, "other partition"))
	}
	return p, true
}

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

// ledgerProblem returns what there is to say about ledgers that cannot be read or written: of
// partitions that wait for theirs, if any do. The caller holds m.mu.
func (m *Monitor) ledgerProblem(now time.Time, all []worker.PartitionState, s telemetry.SourceStats) (Problem, bool) {
	var waiting, others []worker.PartitionState
	for _, p := range all {
		switch l := p.Ledger; {
		case l.Err == nil || now.Sub(l.Since) < settle:
		case l.Writes == 0: // it has not been taken over
			waiting = append(waiting, p)
		default:
			others = append(others, p)
		}
	}
	of := waiting
	if len(waiting) == 0 {
		of = others
	}
	if len(of) == 0 {
		return Problem{}, false
	}
	var names []string
	oldest := of[0].Ledger
	for _, p := range of {
		names = append(names, p.Partition)
		if p.Ledger.Since.Before(oldest.Since) {
			oldest = p.Ledger
		}
	}
	slices.SortFunc(names, telemetry.ComparePartitions)
	partitions, its, waits := "partition ", "its ledger", "waits"
	if len(of) > 1 {
		partitions, its, waits = "partitions ", "their ledgers", "wait"
	}
	partitions += humanize.And(names)
	what := fmt.Sprintf("%s cannot write %s", partitions, its)
	effect := "Alerts leave, but no recoveries are sent, and the checkpoint stands still: a restart would read again what follows it, without sending an alert twice."
	if len(waiting) > 0 {
		what = fmt.Sprintf("%s %s for %s", partitions, waits, its)
		effect = "Readings wait in the hub: without the ledger, nobody knows which alarms are open."
	}
	f := m.Checkpoints.explained(oldest.Since, oldest.Err) // it is the same container
	p := problem(ByLedger, f, effect)
	p.What, p.blocks = what, len(waiting) > 0 && len(waiting) >= s.Reading
	return p, true
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
		p.Why = strings.ReplaceAll(r.Err.Error(), "\n", "; ")
		code := notify.AsError(r.Err).Status
		p.Refused = code == http.StatusUnauthorized || code == http.StatusForbidden
	}
	p.Effect = "Alerts wait"
	if r.Waiting > 0 {
		p.Effect = humanize.Capital(waits(r.Waiting))
	}
	p.Effect += " until it accepts them, or until NOTIFY_GIVE_UP."
	if left := r.Retry.Sub(now); left >= time.Second {
		p.Effect += " Next attempt in " + humanize.Span(left) + "."
	}
	return p
}

func problem(by By, f fault, effect string) Problem {
	return Problem{By: by, What: words[by].begin, Since: f.since, Why: strings.ReplaceAll(f.err.Error(), "\n", "; "), Refused: f.refused, Effect: effect, blocks: by == ByStore || by == ByHub}
}

// A load is what waits to be sent.
type load struct {
	alerts int
	oldest time.Time // when the hub took the oldest reading; zero if it is not known
}

// until says what waits, and until when.
func (l load) until(now time.Time, end string) string {
	if l.alerts == 0 {
		return "No alert is waiting yet."
	}
	text := humanize.Capital(waits(l.alerts))
	if !l.oldest.IsZero() {
		text += fmt.Sprintf(", the oldest about a reading from %s ago", humanize.Span(now.Sub(l.oldest)))
	}
	return text + ". " + end
}

func waits(n int) string {
	if n == 1 {
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
	var probing sync.WaitGroup
	defer probing.Wait()
	probed := make(chan struct{}, 1)
	probed <- struct{}{}
	clock := time.NewTicker(tick)
	defer clock.Stop()
	for {
		select {
		case <-clock.C:
		case <-ctx.Done():
			return
		}
		m.logChanges()
		m.logLimited()
		if !m.probeDue() {
			continue
		}
		select {
		case <-probed:
			probing.Go(func() {
				m.probe(ctx)
				probed <- struct{}{}
			})
		default: // one is under way
		}
	}
}

func (m *Monitor) probeDue() bool {
	m.mu.Lock()
	none := m.replica == nil || m.draining
	m.mu.Unlock()
	if none {
		return false
	}
	now := time.Now()
	idle, failing := m.Store.idle(now)
	_, suspect := m.Checkpoints.idle(now) // it may be the same account
	return idle >= probeIdle || (failing || suspect) && idle >= probeFailing
}

// probe reads a record of the throttle store; Store observes the call.
func (m *Monitor) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, fmt.Errorf("no answer within %v", probeTimeout))
	defer cancel()
	_, _ = m.replica.Store.Read(ctx, m.replica.Key)
}

// reported is a problem that the log has.
type reported struct {
	Problem
	next   time.Time // the next reminder
	pause  time.Duration
	logged bool
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
			r = &reported{pause: remindFirst}
			m.reported[key] = r
		}
		r.Problem = p
		switch {
		case !r.logged && p.By == ByPartitions && now.Sub(p.Since) < 2*settle: // while partitions change hands
		case !r.logged:
			r.logged, r.next = true, now.Add(r.pause)
			m.write(p, words[p.By].begin, now)
		case !now.Before(r.next):
			r.pause = min(2*r.pause, remindLast)
			r.next = now.Add(r.pause)
			m.write(p, "still: "+words[p.By].begin, now)
		}
	}
	for key, r := range m.reported {
		if present[key] {
			continue
		}
		delete(m.reported, key)
		if r.logged && !m.isDraining() {
			m.log.Info(words[r.By].end, append(fields(r.Problem), zap.String("after", r.Lasts(now)), zap.Int("waiting", report.Waiting))...)
		}
	}
}

// logLimited logs which receivers have become rate-limited, or are not any more.
func (m *Monitor) logLimited() {
	m.mu.Lock()
	replica := m.replica
	m.mu.Unlock()
	if replica == nil {
		return
	}
	now := time.Now()
	for _, to := range replica.Worker.Receivers() {
		last, known := m.limited[to.Name]
		switch {
		case to.Limited:
			if m.limited[to.Name] = now; !known {
				m.log.Warn("receiver is rate-limited: sending more slowly", zap.String("receiver", to.Name), zap.String("rate", pace(to.Rate)), zap.Int("waiting", to.Waiting))
			}
		case known && now.Sub(last) >= limitedFor:
			delete(m.limited, to.Name)
			m.log.Info("receiver is no longer rate-limited", zap.String("receiver", to.Name), zap.Int("waiting", to.Waiting))
		}
	}
}

func (m *Monitor) isDraining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.draining
}

func (m *Monitor) write(p Problem, msg string, now time.Time) {
	log := m.log.Error
	if p.By == ByReceiver || p.By == ByDevices {
		log = m.log.Warn // the others may be well, or nothing is wrong here
	}
	log(msg, append(fields(p), zap.String("for", p.Lasts(now)), zap.String("error", p.Why), zap.String("effect", p.Effect))...)
}

func fields(p Problem) []zap.Field {
	if p.Receiver == "" {
		return nil
	}
	return []zap.Field{zap.String("receiver", p.Receiver)}
}
