package leader

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"alertworker/internal/humanize"
	"alertworker/internal/lease"
)

const maxMark = 256 // bytes, as JSON

// A Status is the state of the duties, as any replica can read it.
type Status struct {
	Leader string    // the replica that leads; empty if none does
	Term   int64     // the current or last one, as in the leader's log
	Since  time.Time // when it began, by the store's clock
	Runs   []Run     // the last of each duty, the latest first
}

// A Run is one attempt at a duty. Details may be truncated. Its times are by the replica's wall clock.
type Run struct {
	Duty    string
	Term    int64     // in which it began
	Replica string    // that led; empty if that was in an earlier term
	Start   time.Time // to the second
	Seconds float64   // that it took, to the millisecond
	Outcome Outcome
	Detail  string // the report or the error
}

// An Outcome says how a Run ended.
type Outcome int

const (
	// Begun: the run is in progress, or its replica died during it.
	Begun Outcome = iota
	Done
	Failed
	// Interrupted: the replica stopped, or stopped leading, during the run.
	Interrupted
	// Reported: done, and what it reported is that something else is not well.
	Reported
)

func (o Outcome) String() string {
	return [...]string{"begun", "done", "failed", "interrupted", "reported a failure"}[o]
}

// IsBad reports whether somebody should read how a run ended.
func (o Outcome) IsBad() bool { return o == Failed || o == Reported }

// ReadStatus reads the last leader's note under key. It costs as much as a refused Acquire.
func ReadStatus(ctx context.Context, s lease.Store, key string) (Status, error) {
	r, err := s.Read(ctx, key)
	if err != nil {
		return Status{}, err
	}

	n := parseNote(r.Note)
	status := Status{Term: r.Token, Since: r.Claimed, Runs: []Run{}}
	if r.Now.Before(r.Written.Add(r.Hold)) {
		status.Leader = n.Leader
	}

	for name, d := range n.Duties {
		if len(d.Runs) == 0 {
			continue
		}

		run := Run(d.Runs[len(d.Runs)-1])
		run.Duty = name
		if run.Term == r.Token {
			run.Replica = n.Leader
		}

		status.Runs = append(status.Runs, run)
	}

	slices.SortFunc(status.Runs, func(x, y Run) int { return cmp.Or(y.Start.Compare(x.Start), cmp.Compare(x.Duty, y.Duty)) })
	return status, nil
}

// A note is what the leader stores in its lease record, as JSON. Runs are arrays there, because all has to fit into
// lease.MaxNote.
type note struct {
	Leader string             `json:"leader,omitempty"`
	Duties map[string]history `json:"duties,omitempty"`
}

// A history is what the note has about one duty.
type history struct {
	Last   int64     `json:"last,omitempty"`   // when it was last due and settled, Unix seconds
	Mark   string    `json:"mark,omitempty"`   // see Call
	Runs   []runNote `json:"runs,omitempty"`   // the last one, without Duty and Replica; version 1.0 kept ten, the latest last
	Failed int       `json:"failed,omitempty"` // runs that failed in a row; those that were interrupted do not count
}

// A runNote is what a Run is in a note: an array.
type runNote Run

func (r runNote) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{r.Term, r.Start.Unix(), int64(math.Round(r.Seconds * 1000)), int(r.Outcome), r.Detail})
}

func (r *runNote) UnmarshalJSON(b []byte) error {
	var start, took int64
	if err := json.Unmarshal(b, &[]any{&r.Term, &start, &took, &r.Outcome, &r.Detail}); err != nil {
		return err
	}

	r.Start = time.Unix(start, 0).UTC()
	r.Seconds = float64(took) / 1000
	r.Outcome = min(max(r.Outcome, Begun), Reported)

	return nil
}

// parseNote parses what String returned, and returns an empty note for anything else.
func parseNote(s string) (n note) {
	if json.Unmarshal([]byte(s), &n) != nil {
		return note{}
	}
	return n
}

// String returns n in at most lease.MaxNote: it truncates the longest names and details until they fit.
func (n *note) String() string {
	for limit := 515; ; limit -= 4 { // to 3, the least that Middle takes
		b, _ := json.Marshal(n) // strings and integers: cannot fail
		if len(b) <= lease.MaxNote || limit < 3 {
			return string(b)
		}

		n.Leader = humanize.Middle(n.Leader, limit)
		for _, d := range n.Duties {
			for i := range d.Runs {
				d.Runs[i].Detail = humanize.Middle(d.Runs[i].Detail, limit)
			}
		}
	}
}

// storable returns a duty's mark, or none if it is too long or not UTF-8.
func storable(mark string) string {
	if b, _ := json.Marshal(mark); len(b) > maxMark || !utf8.ValidString(mark) {
		return ""
	}
	return mark
}

// ended adds a run that has ended.
func (d *history) ended(run runNote) {
	d.Runs = []runNote{run}
	switch run.Outcome {
	case Done, Reported:
		d.Failed = 0
	case Failed:
		d.Failed++
	}
}
