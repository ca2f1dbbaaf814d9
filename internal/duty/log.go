package duty

import (
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"

	"alertworker/internal/lease"
)

const (
	maxNote = 1024 // bytes, by lease.Store's contract
	maxRuns = 10   // kept in the log
)

// A Status is what replicas can tell of the duties.
type Status struct {
	Leader string    // the replica that leads; empty if none does
	Term   int64     // the last one
	Since  time.Time // when it began, by the store's clock
	Runs   []Run     // the last ten, latest last
}

// A Run is one attempt at a duty. Names and details may be cut short. Its times
// are those of the replica's wall clock.
type Run struct {
	Duty, Replica string
	Start         time.Time // to the second
	Took          time.Duration
	Outcome       Outcome
	Detail        string // what was done, or what went wrong
}

// An Outcome says how a Run ended.
type Outcome int

const (
	// Begun: the run is under way, or its replica died in it.
	Begun Outcome = iota
	Done
	Failed
)

func (o Outcome) String() string { return [...]string{"begun", "done", "failed"}[o] }

// ReadStatus returns what the last leader left under key. It costs what a refused Acquire does.
func ReadStatus(ctx context.Context, s lease.Store, key string) (Status, error) {
	r, err := lease.Peek(ctx, s, key)
	if err != nil {
		return Status{}, err
	}
	n := parseNote(r.Note)
	status := Status{Term: r.Token, Since: r.Claimed, Runs: n.runs()}
	if r.Now.Before(r.Written.Add(r.Hold)) {
		status.Leader = n.Leader
	}
	return status, nil
}

// A note is what the leader keeps in its lease record. Short names: all of it
// has to fit into 1 KiB.
type note struct {
	Leader string           `json:"by,omitempty"`
	Last   map[string]int64 `json:"last,omitempty"` // by duty: when it was last due and dealt with, Unix seconds
	Runs   []entry          `json:"runs,omitempty"` // latest last
}

type entry struct {
	Duty    string  `json:"d"`
	Replica string  `json:"r"`
	Start   int64   `json:"s"`           // Unix seconds
	Took    int64   `json:"t,omitempty"` // ms
	Outcome Outcome `json:"o,omitempty"`
	Detail  string  `json:"x,omitempty"`
}

// parseNote reads what String wrote. Of anything else it takes what it can.
func parseNote(s string) note {
	var n note
	if json.Unmarshal([]byte(s), &n) != nil {
		n = note{}
	}
	n.Runs = n.Runs[max(0, len(n.Runs)-maxRuns):]
	for i, e := range n.Runs {
		if e.Outcome < Begun || e.Outcome > Failed {
			n.Runs[i].Outcome = Begun
		}
	}
	return n
}

// String returns n in at most 1 KiB: the longest texts are cut until it fits.
func (n note) String() string {
	for limit := 128; ; limit -= 4 {
		cut := n
		cut.Leader = clip(n.Leader, limit)
		cut.Runs = make([]entry, len(n.Runs))
		for i, e := range n.Runs {
			e.Duty, e.Replica, e.Detail = clip(e.Duty, limit), clip(e.Replica, limit), clip(e.Detail, limit)
			cut.Runs[i] = e
		}
		b, _ := json.Marshal(cut) // strings and integers: cannot fail
		if len(b) <= maxNote || limit <= 0 {
			return string(b)
		}
	}
}

// begin adds a run and drops the oldest beyond ten.
func (n *note) begin(e entry) {
	n.Runs = append(n.Runs, e)
	n.Runs = n.Runs[max(0, len(n.Runs)-maxRuns):]
}

// end replaces the run last begun.
func (n *note) end(e entry) { n.Runs[len(n.Runs)-1] = e }

func (n note) runs() []Run {
	runs := make([]Run, len(n.Runs))
	for i, e := range n.Runs {
		runs[i] = Run{
			Duty: e.Duty, Replica: e.Replica,
			Start: time.Unix(e.Start, 0).UTC(), Took: time.Duration(e.Took) * time.Millisecond,
			Outcome: e.Outcome, Detail: e.Detail,
		}
	}
	return runs
}

// clip returns s if it has at most limit bytes, and else its end: what tells
// replicas of one deployment apart, and the cause of an error, come last.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	s = s[len(s)-max(0, limit):]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}
