// Package duty does what has to be done once, however many replicas run.
//
// An [Elector] lets one replica lead at a time, by a lease in the store that
// the gates use. The leader's [Roster] runs each [Duty] when it is due and logs it in the
// lease's note, where the next leader, and any replica's status page, find
// it. Trust in the lease starts before the call that grants or renews it and
// ends 5 s before the store's expiry, so no two replicas act at one time; what a
// duty started just before it lost the lease may still take effect, and must do no harm.
//
// A killed leader is replaced within 40 s, one that stops within 10.
package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"go.uber.org/zap"

	"alertworker/internal/lease"
)

const (
	runTimeout  = 5 * time.Minute  // for one run of a duty
	firstRetry  = 30 * time.Second // after a run that failed; then twice as long each time
	maxTries    = 5                // then the duty waits until it is due again
	goOnAfter   = 15 * time.Second // a run that left more to do; other duties come first
	maxSleep    = time.Minute      // the wall clock may be set, or have run on while the machine was suspended
	maxClockGap = time.Hour        // between two replicas; a duty done later than this from now was done by a clock gone wrong
)

// Key names the lease of the duties of one scope.
func Key(scope string) string { return "~duties/" + scope }

// A Duty is work that one replica does for all.
type Duty struct {
	Name     string // short: it is kept in the log
	Schedule Schedule
	// Do does the duty once. What it returns is kept in the log; an error must
	// hold no secrets. It gets 5 minutes, and is repeated after an error, at most 5 times.
	// The leader may die in it, and the next one begin it again.
	Do func(ctx context.Context, c *Call) (report string, err error)
}

// A Call says for what Do is called.
type Call struct {
	Due  time.Time // by the schedule; a call may come later
	Term int64     // fencing token: grows from leader to leader
	// Mark is what the last run of the duty left, whoever led, and what it is when Do
	// returns is left to the next, also by a run that fails. A duty that leaves a mark and no error
	// has more to do: it is called again within a minute. A mark that
	// is no UTF-8, or takes more than 256 bytes as JSON, is dropped.
	Mark string
}

// A Schedule says when a duty is due next after t; never, if zero. It goes by the leader's wall clock.
type Schedule interface {
	Next(t time.Time) time.Time
}

// Every is due at intervals of d, at least a second.
func Every(d time.Duration) Schedule { return every(d) }

type every time.Duration

func (d every) Next(t time.Time) time.Time { return t.Add(max(time.Duration(d), time.Second)) }

// ParseSchedule reads a cron expression of five fields, or a descriptor such as
// @daily, in the local time zone unless it begins with CRON_TZ=<zone>.
func ParseSchedule(expression string) (Schedule, error) {
	var s cron.Schedule
	var err error
	if zone := strings.HasPrefix(expression, "TZ=") || strings.HasPrefix(expression, "CRON_TZ="); zone && !strings.Contains(expression, " ") {
		err = errors.New("nothing follows the time zone") // cron would panic
	} else {
		s, err = cron.ParseStandard(expression)
	}
	if err != nil {
		return nil, fmt.Errorf("cron expression %q: %w: write five fields such as \"0 8 * * *\" (every day at 8), or @daily", expression, err)
	}
	return s, nil
}

// Config says what a Roster is for. All fields are required.
type Config struct {
	Store   lease.Store
	Key     string // see Key; shared by all replicas
	Replica string // a label for people
	Duties  []Duty
	Log     *zap.Logger
}

// A Roster runs duties, one at a time, while its replica leads. One Run at a
// time; Leading may be called at any time.
type Roster struct {
	Config
	elector *Elector
}

func New(c Config) *Roster {
	return &Roster{Config: c, elector: NewElector(c.Store, c.Key, c.Log)}
}

// Run takes part in elections, and leads when elected, until ctx ends and what
// runs has ended and is handed over.
func (r *Roster) Run(ctx context.Context) { r.elector.Run(ctx, r.lead) }

// Leading returns the token of the term under way, if this replica leads.
func (r *Roster) Leading() (term int64, ok bool) { return r.elector.Leading() }

// An agendum is a duty and when it has to be seen to.
type agendum struct {
	Duty
	due   time.Time // by the schedule; zero: never
	at    time.Time // due, or later for another try
	tries int       // that failed
}

// next plans the first try after last.
func (a *agendum) next(last time.Time) {
	a.due = a.Schedule.Next(last)
	a.at, a.tries = a.due, 0
}

// lead runs duties until ctx ends.
func (r *Roster) lead(ctx context.Context, t *Term) error {
	n := parseNote(t.Note())
	n.Leader = r.Replica
	agenda := r.plan(&n)
	t.SetNote(n.String())
	for {
		a := earliest(agenda)
		wait := maxSleep
		if a != nil {
			wait = min(time.Until(a.at.Round(0)), maxSleep)
		}
		sleep(ctx, wait)
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if a == nil || time.Now().Round(0).Before(a.at.Round(0)) {
			continue
		}
		r.run(ctx, t, &n, a)
	}
}

// plan says when each duty is due, going by n. A duty that n does not know is
// due for the first time as if it had just been done.
func (r *Roster) plan(n *note) []*agendum {
	now := time.Now()
	last := make(map[string]int64, len(r.Duties))
	var agenda []*agendum
	for _, d := range r.Duties {
		at := now
		if seconds, known := n.Last[d.Name]; known && !time.Unix(seconds, 0).After(now.Add(maxClockGap)) {
			at = time.Unix(seconds, 0)
		}
		last[d.Name] = at.Unix()
		a := &agendum{Duty: d}
		a.next(at)
		agenda = append(agenda, a)
	}
	n.Last = last
	maps.DeleteFunc(n.Marks, func(name, _ string) bool { _, known := last[name]; return !known })
	return agenda
}

func earliest(agenda []*agendum) (first *agendum) {
	for _, a := range agenda {
		if !a.due.IsZero() && (first == nil || a.at.Before(first.at)) {
			first = a
		}
	}
	return first
}

// run does a once, logs it in n, and plans the next time.
func (r *Roster) run(ctx context.Context, t *Term, n *note, a *agendum) {
	start := time.Now()
	done := Run{Duty: a.Name, Replica: r.Replica, Start: start}
	n.begin(done)
	t.SetNote(n.String())

	try, cancel := context.WithTimeoutCause(ctx, runTimeout, fmt.Errorf("not done within %v", runTimeout))
	call := &Call{Due: a.due, Term: t.Token, Mark: n.Marks[a.Name]}
	report, err := a.Do(try, call)
	cancel()
	n.setMark(a.Name, call.Mark)

	done.Took, done.Outcome, done.Detail = time.Since(start), Done, report
	log := r.Log.With(zap.String("duty", a.Name), zap.Int64("term", t.Token), zap.Duration("took", done.Took))
	switch {
	case err == nil:
		log.Info("duty done", zap.String("report", report))
	case ctx.Err() != nil:
		done.Outcome, done.Detail = Failed, "cut short: "+context.Cause(ctx).Error()
	default:
		done.Outcome, done.Detail = Failed, err.Error()
		a.tries++
		log.Warn("duty failed", zap.Error(err), zap.Int("tries", a.tries), zap.Int("of", maxTries))
	}
	switch {
	case err == nil && n.Marks[a.Name] != "":
		a.at, a.tries = time.Now().Add(goOnAfter), 0
	case err == nil || a.tries == maxTries:
		last := a.due
		if start.After(last) {
			last = start // of several times that were missed one is made up for
		}
		n.Last[a.Name] = last.Unix()
		a.next(last)
	default:
		wait := firstRetry << max(0, a.tries-1)
		a.at = time.Now().Add(wait/2 + rand.N(wait/2))
	}
	n.end(done)
	t.SetNote(n.String())
}
