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
	maxRuns  = 10  // recorded
	maxTerms = 10  // recorded
	maxMark  = 256 // bytes, as JSON
)

// A Status is the state of the duties, as any replica can read it.
type Status struct {
	Leader string    // the replica that leads; empty if none does
	Term   int64     // the current or last one
	Since  time.Time // when it began, by the store's clock
	Terms  []Ended   // the last ten that have ended, latest last
	Runs   []Run     // the last ten, latest last
}

// An Ended is a term that has ended. Names and causes may be truncated. Its times are by the store's
// clock, to the second.
type Ended struct {
	Leader      string
	From, Until time.Time
	End         End
	Cause       string // of Lost
}

// An End says how a term ended.
type End int

const (
	// HandedBack: the leader stopped, and freed the lease.
	HandedBack End = iota
	// Expired: the leader died, or could not reach the store until its lease had expired.
	Expired
	// Lost: the leader noticed in time that it could not keep the lease, and stopped leading.
	Lost
)

func (e End) String() string { return [...]string{"handed back", "expired", "lost"}[e] }

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
	// Interrupted: the replica stopped, or stopped leading, during the run.
	Interrupted
)

func (o Outcome) String() string { return [...]string{"begun", "done", "failed", "interrupted"}[o] }

// ReadStatus reads the last leader's note under key. It costs as much as a refused Acquire.
func ReadStatus(ctx context.Context, s lease.Store, key string) (Status, error) {
	r, err := s.Read(ctx, key)
	if err != nil {
		return Status{}, err
	}
	n := parseNote(r.Note)
	status := Status{Term: r.Token, Since: r.Claimed}
	if r.Now.Before(r.Written.Add(r.Hold)) {
		status.Leader = n.Leader
	} else {
		n.endTerm(r)
	}
	status.Terms, status.Runs = n.Terms, n.Runs
	return status, nil
}

// A note is what the leader stores in its lease record.
type note struct {
	Leader string
	Lost   string            // why the leader could not keep its lease; empty if it could
	Last   map[string]int64  // by duty: when it was last due and settled, Unix seconds
	Marks  map[string]string // by duty: see Call
	Terms  []Ended           // latest last
	Runs   []Run             // latest last
}

// written is a note in JSON. Field names are short and no name is repeated, for it has to
// fit into lease.MaxNote. Fields may be added, never changed: replicas of other versions read them.
type written struct {
	Names []string          `json:"n,omitempty"` // of replicas and duties; the leader first
	Lost  string            `json:"lost,omitempty"`
	Last  map[string]int64  `json:"last,omitempty"`
	Marks map[string]string `json:"marks,omitempty"`
	Terms []writtenTerm     `json:"terms,omitempty"`
	Runs  []writtenRun      `json:"runs,omitempty"`
}

type writtenTerm struct {
	Leader int    `json:"r,omitempty"` // in Names
	From   int64  `json:"f"`           // Unix seconds
	Until  int64  `json:"u"`           // Unix seconds
	End    End    `json:"e,omitempty"`
	Cause  string `json:"x,omitempty"`
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
	n := note{Leader: name(0), Lost: w.Lost, Last: w.Last, Marks: w.Marks}
	for _, t := range w.Terms {
		if t.End < HandedBack || t.End > Lost {
			continue
		}
		n.addTerm(Ended{
			Leader: name(t.Leader), From: time.Unix(t.From, 0).UTC(), Until: time.Unix(t.Until, 0).UTC(), End: t.End, Cause: t.Cause,
		})
	}
	for _, r := range w.Runs {
		if r.Outcome < Begun || r.Outcome > Interrupted {
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

// String returns n in at most lease.MaxNote: the longest texts are truncated until it fits.
func (n note) String() string {
	for limit := 512; ; limit -= 4 {
		b, _ := json.Marshal(n.cut(limit)) // strings and integers: cannot fail
		if len(b) <= lease.MaxNote || limit <= 0 {
			return string(b)
		}
	}
}

// cut returns n with all texts truncated to limit bytes.
func (n note) cut(limit int) written {
	w := written{Lost: clip(n.Lost, limit), Last: n.Last, Marks: n.Marks, Names: []string{clip(n.Leader, limit)}}
	name := func(s string) int {
		s = clip(s, limit)
		i := slices.Index(w.Names, s)
		if i < 0 {
			i = len(w.Names)
			w.Names = append(w.Names, s)
		}
		return i
	}
	for _, t := range n.Terms {
		w.Terms = append(w.Terms, writtenTerm{
			Leader: name(t.Leader), From: t.From.Unix(), Until: t.Until.Unix(), End: t.End, Cause: clip(t.Cause, limit),
		})
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

// endTerm adds the term that r, which holds n and is no longer held, was the record of.
func (n *note) endTerm(r lease.Record) {
	if r.Token == 0 || n.Leader == "" { // there was none, or it is not known whose it was
		return
	}
	t := Ended{Leader: n.Leader, From: r.Claimed.UTC().Truncate(time.Second), Until: r.Written.Add(r.Hold).UTC().Truncate(time.Second)}
	switch {
	case n.Lost != "":
		t.End, t.Cause = Lost, n.Lost
	case r.Hold > 0:
		t.End = Expired
	}
	n.addTerm(t)
	n.Leader, n.Lost = "", ""
}

// addTerm adds a term and drops the oldest beyond ten.
func (n *note) addTerm(t Ended) {
	n.Terms = append(n.Terms, t)
	n.Terms = n.Terms[max(0, len(n.Terms)-maxTerms):]
}

// explain adds why the term of leader that began at from was lost, if it is listed without that.
func (n *note) explain(leader string, from time.Time, cause string) {
	for i := range n.Terms {
		if t := &n.Terms[i]; t.Leader == leader && t.End == Expired && t.From.Equal(from.UTC().Truncate(time.Second)) {
			t.End, t.Cause = Lost, cause
		}
	}
}

// failures returns how often the duty has failed in a row, of the runs that are listed.
// Interrupted runs do not count; those whose replica died do.
func (n *note) failures(duty string) int {
	count := 0
	for _, r := range slices.Backward(n.Runs) {
		switch {
		case r.Duty != duty || r.Outcome == Interrupted:
		case r.Outcome == Done:
			return count
		default:
			count++
		}
	}
	return count
}

// begin adds a run and drops the oldest beyond ten.
func (n *note) begin(r Run) {
	n.Runs = append(n.Runs, r)
	n.Runs = n.Runs[max(0, len(n.Runs)-maxRuns):]
}

// end replaces the run that began last.
func (n *note) end(r Run) { n.Runs[len(n.Runs)-1] = r }

// clip returns s in at most limit bytes: an ellipsis and the end of s if it is longer, for what tells
// replicas of one deployment apart, and the cause of an error, come last.
func clip(s string, limit int) string {
	const cut = "…"
	if len(s) <= limit {
		return s
	}
	if limit <= len(cut) {
		return ""
	}
	s = s[len(s)-limit+len(cut):]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return cut + s
}
