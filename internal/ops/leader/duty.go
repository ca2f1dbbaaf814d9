// Package leader runs duties: work that exactly one replica does for all.
//
// An [Elector] makes one replica at a time the leader, by a lease in the store that
// the gates use. The leader's [Scheduler] runs each [Duty] when it is due, and notes in the
// lease's record when that was, where the next leader finds
// it. Trust in the lease starts before the call that grants or renews it and
// ends 5 s before the store's expiry, so two replicas never act at the same time. What a
// duty started just before the lease was lost may still take effect, and must do no harm.
//
// A leader that is killed is replaced within 40 s, one that stops within 10 s.
package leader

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/lease"
)

const (
	runTimeout = 5 * time.Minute  // for one run
	firstRetry = 30 * time.Second // after a failed run; doubled after each further failure
	maxRetry   = 4 * time.Minute
	goOnAfter  = 15 * time.Second // a run that left more to do, so that other duties get a turn
	maxSleep   = time.Minute      // the wall clock may be set, or have run on while the machine was suspended
	maxMark    = 256              // bytes, as JSON
)

// Key returns the key of the leader's lease for a scope.
func Key(scope string) string { return "~duties/" + scope }

// A Duty is work that one replica does for all.
type Duty struct {
	Name  string        // short: it is noted
	Every time.Duration // between two runs
	// Do is nil if the duty has a schedule of its own: who performs it, while this replica leads, calls
	// Scheduler.Record. Else it performs the duty once, within 5 minutes, and returns a report for the log; an error must
	// hold no secrets. After an error it is tried again, with pauses of up to 4 minutes. A leader that dies during a run has
	// the next one do it.
	//
	// mark is what the previous run returned as next, on whichever leader, also with an error. A run that returns a next and
	// no error has more to do: the duty runs again within a minute. A next that is not valid UTF-8, or takes more than 256
	// bytes as JSON, is dropped.
	Do func(ctx context.Context, mark string) (report, next string, err error)
}

// Config configures a Scheduler. All fields are required.
type Config struct {
	Store  lease.Store
	Key    string // see Key; shared by all replicas
	Duties []Duty
	Log    *zap.Logger
}

// A Scheduler runs duties, one at a time, while its replica leads. Run may be called once at a
// time, its other methods at any time.
type Scheduler struct {
	config  Config
	elector *Elector

	mu   sync.Mutex
	note note  // of this replica's last term
	term *Term // the last
}

// A note is what the leader leaves in its lease record, as JSON: far less than lease.MaxNote. That of version 1.0 has more,
// which is not read.
type note struct {
	Duties map[string]history `json:"duties,omitempty"`
}

// A history is what the note has about one duty.
type history struct {
	Last   int64  `json:"last,omitempty"`   // when the last run began that left nothing to do, Unix seconds
	Mark   string `json:"mark,omitempty"`   // see Duty
	Failed int    `json:"failed,omitempty"` // runs that failed in a row; those that were interrupted do not count
}

func New(c Config) *Scheduler {
	return &Scheduler{config: c, elector: NewElector(c.Store, c.Key, c.Log)}
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
	all := make(map[string]int, len(r.config.Duties))
	for _, d := range r.config.Duties {
		all[d.Name] = 0
		if leading {
			all[d.Name] = r.note.Duties[d.Name].Failed
		}
	}

	return all
}

// Record notes that a duty without Do was performed, or failed. It does nothing unless this replica leads.
func (r *Scheduler) Record(duty string, failed bool) {
	token, leading := r.Leading()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !leading || r.term == nil || r.term.Token != token { // it has just begun
		return
	}

	h := r.note.Duties[duty]
	h.Failed++
	if !failed {
		h.Failed = 0
	}
	r.record(duty, h)
}

// record replaces what the note has about a duty. The caller holds r.mu.
func (r *Scheduler) record(duty string, h history) {
	r.note.Duties[duty] = h
	b, _ := json.Marshal(r.note) // strings and integers: cannot fail
	r.term.SetNote(string(b))
}

// A scheduled duty.
type scheduled struct {
	duty Duty
	at   time.Time // of its next run
}

// lead runs duties until ctx ends, from when they are due according to the note with which t begins. A duty that it does not
// list is first due as if it had just run, and so is one that ran in the future, by a wrong clock.
func (r *Scheduler) lead(ctx context.Context, t *Term) error {
	var known note
	_ = json.Unmarshal([]byte(t.Note()), &known) // what cannot be read has not run
	now := time.Now().Unix()
	var duties []*scheduled
	r.mu.Lock()
	r.term, r.note = t, note{map[string]history{}}
	for _, d := range r.config.Duties {
		h := known.Duties[d.Name]
		h.Last = min(cmp.Or(h.Last, now), now)
		r.record(d.Name, h)
		if d.Do != nil {
			duties = append(duties, &scheduled{d, time.Unix(h.Last, 0).Add(d.Every)})
		}
	}
	r.mu.Unlock()

	for ctx.Err() == nil {
		var next *scheduled
		pause := maxSleep
		for _, d := range duties {
			if until := time.Until(d.at.Round(0)); until < pause { // by the wall clock
				pause, next = until, d
			}
		}

		if backoff.Sleep(ctx, pause) && next != nil {
			r.run(ctx, next)
		}
	}

	return context.Cause(ctx)
}

// run runs a duty once, notes that, and schedules the next run.
func (r *Scheduler) run(ctx context.Context, d *scheduled) {
	start := time.Now()
	r.mu.Lock()
	h := r.note.Duties[d.duty.Name]
	r.mu.Unlock()
	try, cancel := context.WithTimeoutCause(ctx, runTimeout, fmt.Errorf("not finished within %v", runTimeout))
	report, next, err := d.duty.Do(try, h.Mark)
	cancel()

	h.Mark = next
	if b, _ := json.Marshal(next); len(b) > maxMark || !utf8.ValidString(next) {
		h.Mark = ""
	}

	log := r.config.Log.With(zap.String("duty", d.duty.Name), zap.Int64("term", r.term.Token), zap.Duration("took", time.Since(start)))
	switch {
	case err != nil && ctx.Err() != nil: // interrupted: the next leader's
	case err != nil:
		h.Failed++
		d.at = time.Now().Add(backoff.Delay(h.Failed, firstRetry, maxRetry))
		log.Warn("duty failed", zap.Error(err), zap.Int("times", h.Failed))
	default:
		h.Failed = 0
		d.at = time.Now().Add(goOnAfter)
		if h.Mark == "" {
			h.Last = start.Unix() // of several missed times one is made up for
			d.at = start.Add(d.duty.Every)
		}
		log.Info("duty completed", zap.String("report", report))
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.record(d.duty.Name, h)
}
