// Package leader runs duties: work that exactly one replica does for all.
//
// An [Elector] makes one replica at a time the leader, by a lease in the store that
// the gates use. The leader's [Scheduler] runs each [Duty] when it is due and records the run in the
// lease's note, where the next leader and every replica's status page find
// it. Trust in the lease starts before the call that grants or renews it and
// ends 5 s before the store's expiry, so two replicas never act at the same time. What a
// duty started just before the lease was lost may still take effect, and must do no harm.
//
// A leader that is killed is replaced within 40 s, one that stops within 10 s.
package leader

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/lease"
)

const (
	runTimeout = 5 * time.Minute  // for one run
	firstRetry = 30 * time.Second // after a failed run; doubled after each further failure
	maxRetry   = 4 * time.Minute
	maxTries   = 5                // then the duty waits until it is due again
	goOnAfter  = 15 * time.Second // a run that left more to do, so that other duties get a turn
	maxSleep   = time.Minute      // the wall clock may be set, or have run on while the machine was suspended
	// between two replicas; a run recorded further in the future was recorded by a wrong clock
	maxClockGap = time.Hour
)

// Key returns the key of the leader's lease for a scope.
func Key(scope string) string { return "~duties/" + scope }

// A Duty is work that one replica does for all.
type Duty struct {
	Name  string        // short: it is recorded with every run
	Every time.Duration // between two runs
	// Do is nil if the duty has a schedule of its own: who performs it, while this replica leads, calls
	// Scheduler.Record. Else it performs the duty once, within 5 minutes. What it returns is recorded; an error must
	// hold no secrets. After an error it is retried, up to 5 times in all.
	// If the leader dies during the run, the next one starts it again.
	Do func(ctx context.Context, c *Call) (report string, err error)
}

// A Call is the input of one run of a duty.
type Call struct {
	Term int64 // fencing token: grows from leader to leader
	// Mark is what the previous run left in it, on whichever leader; what Do leaves in it
	// is for the next run, also after an error. A run that leaves a mark and returns no error
	// has more to do: the duty runs again within a minute. A mark that
	// is not valid UTF-8, or takes more than 256 bytes as JSON, is dropped.
	Mark string
}

// Config configures a Scheduler. All fields are required.
type Config struct {
	Store   lease.Store
	Key     string // see Key; shared by all replicas
	Replica string // shown to people
	Duties  []Duty
	Log     *zap.Logger
}

// A Scheduler runs duties, one at a time, while its replica leads. Run may be called once at a
// time, its other methods at any time.
type Scheduler struct {
	Config
	elector *Elector

	mu   sync.Mutex
	note note  // of this replica's last term
	term *Term // of the last
}

func New(c Config) *Scheduler {
	r := &Scheduler{Config: c}
	r.elector = NewElector(c.Store, c.Key, r.begin, c.Log)
	return r
}

// Run campaigns, and leads when elected, until ctx ends. It returns when the duty under way
// has returned and the lease is released.
func (r *Scheduler) Run(ctx context.Context) { r.elector.Run(ctx, r.lead) }

// Leading returns the token of the current term, if this replica leads.
func (r *Scheduler) Leading() (term int64, ok bool) { return r.elector.Leading() }

// Failures returns how many runs of each duty have failed in a row, whoever led; all are 0
// unless this replica leads. Runs that were interrupted because a leader stopped do not count.
func (r *Scheduler) Failures() map[string]int {
	_, leading := r.Leading()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]int, len(r.Duties))
	for _, d := range r.Duties {
		all[d.Name] = 0
		if leading {
			all[d.Name] = r.note.Duties[d.Name].Failed
		}
	}

	return all
}

// A scheduled duty.
type scheduled struct {
	Duty
	due   time.Time
	at    time.Time // due, or later for a retry
	tries int       // that failed
}

// next schedules the first try after last.
func (a *scheduled) next(last time.Time) {
	a.due = last.Add(a.Every)
	a.at, a.tries = a.due, 0
}

// begin returns the note with which a term of this replica begins.
func (r *Scheduler) begin(prev lease.Record) string {
	n := parseNote(prev.Note)
	n.Leader = r.Replica
	return n.String()
}

// lead runs duties until ctx ends.
func (r *Scheduler) lead(ctx context.Context, t *Term) error {
	duties := r.schedule(t)
	if len(duties) == 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}

	for {
		next := slices.MinFunc(duties, func(a, b *scheduled) int { return a.at.Compare(b.at) })
		backoff.Sleep(ctx, min(time.Until(next.at.Round(0)), maxSleep))
		if err := context.Cause(ctx); err != nil {
			return err
		}

		if !time.Now().Round(0).Before(next.at.Round(0)) {
			r.run(ctx, t, next)
		}
	}
}

// schedule returns when each duty is due, according to the note with which t begins. A duty that it does
// not list is first due as if it had just run.
func (r *Scheduler) schedule(t *Term) []*scheduled {
	now := time.Now()
	n := parseNote(t.Note())
	known := n.Duties
	n.Duties = make(map[string]history, len(r.Duties))
	var duties []*scheduled
	for _, d := range r.Duties {
		h := known[d.Name]
		at := time.Unix(h.Last, 0)
		if h.Last == 0 || at.After(now.Add(maxClockGap)) {
			at = now
		}

		if d.Do == nil {
			n.Duties[d.Name] = h
			continue
		}

		h.Last = at.Unix()
		n.Duties[d.Name] = h
		a := &scheduled{Duty: d}
		a.next(at)
		duties = append(duties, a)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.note, r.term = n, t
	t.SetNote(n.String())

	return duties
}

// Record records a run of a duty without Do that began at start and has just ended: Done or Reported, with a report, or
// Failed, with an error. The detail must hold no secrets. It does nothing unless this replica leads.
func (r *Scheduler) Record(duty string, start time.Time, outcome Outcome, detail string) {
	term, ok := r.Leading()
	if !ok {
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.term == nil || r.term.Token != term { // it has just begun
		return
	}

	h := r.note.Duties[duty]
	h.ended(runNote{Term: term, Start: start, Seconds: time.Since(start).Seconds(), Outcome: outcome, Detail: detail})
	r.note.Duties[duty] = h
	r.term.SetNote(r.note.String())
}

// record replaces what the note has about a duty.
func (r *Scheduler) record(t *Term, duty string, h history) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note.Duties[duty] = h
	t.SetNote(r.note.String())
}

// history returns what the note has about a duty.
func (r *Scheduler) history(duty string) history {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.note.Duties[duty]
}

// run runs a duty once, records the run, and schedules the next.
func (r *Scheduler) run(ctx context.Context, t *Term, a *scheduled) {
	start := time.Now()
	done := runNote{Term: t.Token, Start: start}
	h := r.history(a.Name)
	if len(h.Runs) > 0 && h.Runs[len(h.Runs)-1].Outcome == Begun { // its leader died
		h.Failed++
	}

	h.Runs = []runNote{done}
	r.record(t, a.Name, h)

	try, cancel := context.WithTimeoutCause(ctx, runTimeout, fmt.Errorf("not finished within %v", runTimeout))
	call := &Call{Term: t.Token, Mark: h.Mark}
	report, err := a.Do(try, call)
	cancel()
	h.Mark = storable(call.Mark)

	took := time.Since(start)
	done.Seconds = took.Seconds()
	done.Outcome = Done
	done.Detail = report
	log := r.Log.With(zap.String("duty", a.Name), zap.Int64("term", t.Token), zap.Duration("took", took))

	switch {
	case err == nil:
		log.Info("duty completed", zap.String("report", report))
	case ctx.Err() != nil:
		done.Outcome, done.Detail = Interrupted, context.Cause(ctx).Error()
	default:
		done.Outcome, done.Detail = Failed, err.Error()
		a.tries++
		log.Warn("duty failed", zap.Error(err), zap.Int("tries", a.tries), zap.Int("of", maxTries))
	}

	switch {
	case err == nil && h.Mark != "":
		a.at, a.tries = time.Now().Add(goOnAfter), 0

	case err == nil || a.tries == maxTries:
		settled := a.due
		if start.After(settled) {
			settled = start // of several missed times one is made up for
		}
		h.Last = settled.Unix()
		a.next(settled)

	default:
		a.at = time.Now().Add(backoff.Delay(a.tries, firstRetry, maxRetry))
	}

	h.ended(done)
	r.record(t, a.Name, h)
}
