package leader

import (
	"context"
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"

	"alertworker/internal/lease"
)

const (
	maxNote = 1024 // bytes, by lease.Store's contract
	maxRuns = 10   // recorded
	maxMark = 256  // bytes, as JSON
)

// A Status is the state of the duties, as any replica can read it.
type Status struct {
	Leader string    // the replica that leads; empty if none does
	Term   int64     // the current or last one
	Since  time.Time // when it began, by the store's clock
	Runs   []Run     // the last ten, latest last
}

// A Run is one attempt at a duty. Names and details may be truncated. Its times
// are by the replica's wall clock.
type Run struct {
	Duty, Replica string
	Start         time.Time     // to the second
	Took          time.Duration // to the millisecond
	Outcome       Outcome
	Detail        string // the report or the error
}

// An Outcome says how a Run ended.
type Outcome int

const (
	// Begun: the run is in progress, or its replica died during it.
	Begun Outcome = iota
	Done
	Failed
)

func (o Outcome) String() string { return [...]string{"begun", "done", "failed"}[o] }

// ReadStatus reads the last leader's note under key. It costs as much as a refused Acquire.
func ReadStatus(ctx context.Context, s lease.Store, key string) (Status, error) {
	r, err := s.Read(ctx, key)
	if err != nil {
		return Status{}, err
	}
	n := parseNote(r.Note)
	status := Status{Term: r.Token, Since: r.Claimed, Runs: n.Runs}
	if r.Now.Before(r.Written.Add(r.Hold)) {
		status.Leader = n.Leader
	}
	return status, nil
}

// A note is what the leader stores in its lease record.
type note struct {
	Leader string
	Last   map[string]int64  // by duty: when it was last due and settled, Unix seconds
	Marks  map[string]string // by duty: see Call
	Runs   []Run             // latest last
}

// written is a note in JSON. Field names are short and no name is repeated, for it has to
// fit into 1 KiB.
type written struct {
	Names []string          `json:"n,omitempty"` // of replicas and duties; the leader first
	Last  map[string]int64  `json:"last,omitempty"`
	Marks map[string]string `json:"marks,omitempty"`
	Runs  []writtenRun      `json:"runs,omitempty"`
}

type writtenRun struct {
	Duty    int     `json:"d,omitempty"` // in Names
	Replica int     `json:"r,omitempty"` // in Names
	Start   int64   `json:"s"`           // Unix seconds
	Took    int64   `json:"t,omitempty"` // ms
	Outcome Outcome `json:"o,omitempty"`
	Detail  string  `json:"x,omitempty"`
}

// parseNote parses what String returned. Of anything else it uses what it can.
func parseNote(s string) note {
	var w written
	if json.Unmarshal([]byte(s), &w) != nil {
		return note{}
	}
	name := func(i int) string {
		if i < 0 || i >= len(w.Names) {
			return ""
		}
		return w.Names[i]
	}
	n := note{Leader: name(0), Last: w.Last, Marks: w.Marks}
	for _, r := range w.Runs {
		if r.Outcome < Begun || r.Outcome > Failed {
			continue
		}
		n.begin(Run{
			Duty: name(r.Duty), Replica: name(r.Replica),
			Start: time.Unix(r.Start, 0).UTC(), Took: time.Duration(r.Took) * time.Millisecond,
			Outcome: r.Outcome, Detail: r.Detail,
		})
	}
	return n
}

// String returns n in at most 1 KiB: the longest texts are truncated until it fits.
func (n note) String() string {
	for limit := 128; ; limit -= 4 {
		b, _ := json.Marshal(n.cut(limit)) // strings and integers: cannot fail
		if len(b) <= maxNote || limit <= 0 {
			return string(b)
		}
	}
}

// cut returns n with all texts truncated to limit bytes.
func (n note) cut(limit int) written {
	w := written{Last: n.Last, Marks: n.Marks, Names: []string{clip(n.Leader, limit)}}
	name := func(s string) int {
		s = clip(s, limit)
		i := slices.Index(w.Names, s)
		if i < 0 {
			i = len(w.Names)
			w.Names = append(w.Names, s)
		}
		return i
	}
	for _, r := range n.Runs {
		w.Runs = append(w.Runs, writtenRun{
			Duty: name(r.Duty), Replica: name(r.Replica),
			Start: r.Start.Unix(), Took: r.Took.Milliseconds(),
			Outcome: r.Outcome, Detail: clip(r.Detail, limit),
		})
	}
	return w
}

// setMark stores the duty's mark, or none if it is empty, too long or not UTF-8.
func (n *note) setMark(duty, mark string) {
	delete(n.Marks, duty)
	if b, _ := json.Marshal(mark); mark == "" || len(b) > maxMark || !utf8.ValidString(mark) {
		return
	}
	if n.Marks == nil {
		n.Marks = map[string]string{}
	}
	n.Marks[duty] = mark
}

// begin adds a run and drops the oldest beyond ten.
func (n *note) begin(r Run) {
	n.Runs = append(n.Runs, r)
	n.Runs = n.Runs[max(0, len(n.Runs)-maxRuns):]
}

// end replaces the run that began last.
func (n *note) end(r Run) { n.Runs[len(n.Runs)-1] = r }

// clip returns at most the last limit bytes of s: what tells
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
