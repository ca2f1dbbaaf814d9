package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"alertworker/internal/httpapi"
	"alertworker/internal/ops/leader"
)

// dutiesStatus returns the status of the duties and when it was read. An error says that it is not up
// to date; at is zero if it was never read.
func (a *Admin) dutiesStatus(ctx context.Context) (d leader.Status, at time.Time, err error) {
	d, at, err = a.duties.get(ctx)
	switch age := time.Since(at); {
	case err != nil:
		err = fmt.Errorf("read the leader's record: %w", err)
	case at.IsZero() || age > askAgain+askTimeout: // it is being asked
		err = errors.New("read the leader's record: the throttle store has not answered yet")
	}
	return d, at, err
}

// A dutiesAnswer is the response to GET /duties. Lists have the latest first.
type dutiesAnswer struct {
	Leader string       `json:"leader,omitempty"` // missing if nobody leads
	Term   int64        `json:"term,omitempty"`   // of the leader, as in its log
	Since  *time.Time   `json:"since,omitempty"`  // by the store's clock
	Terms  []termAnswer `json:"terms"`            // that have ended, at most ten
	Runs   []runAnswer  `json:"runs"`             // at most ten of each duty
	Read   time.Time    `json:"read"`             // when this was read, by this replica's clock
}

type termAnswer struct {
	Term   int64     `json:"term"`
	Leader string    `json:"leader"`
	From   time.Time `json:"from"` // by the store's clock
	Until  time.Time `json:"until"`
	End    string    `json:"end"` // handed back, expired or lost
	Cause  string    `json:"cause,omitempty"`
}

type runAnswer struct {
	Duty    string    `json:"duty"`
	Term    int64     `json:"term"`              // in which it began
	Replica string    `json:"replica,omitempty"` // missing if the term is not listed any more
	Start   time.Time `json:"start"`             // by the replica's clock
	Seconds float64   `json:"seconds"`
	Outcome string    `json:"outcome"` // begun, done, failed or interrupted
	Detail  string    `json:"detail,omitempty"`
}

func (a *Admin) serveDuties(w http.ResponseWriter, r *http.Request) {
	if a.Options.Duties == nil {
		httpapi.Fail(w, httpapi.Problem{Status: http.StatusNotFound, Detail: "there are no duties: set SUMMARY_SCHEDULE for a daily summary; other duties exist only with THROTTLE_STORE=blob and blob-lease"})
		return
	}
	d, at, err := a.dutiesStatus(r.Context())
	if err != nil {
		httpapi.Fail(w, httpapi.Problem{Status: http.StatusServiceUnavailable, Detail: err.Error()})
		return
	}
	answer := dutiesAnswer{Leader: d.Leader, Terms: []termAnswer{}, Runs: []runAnswer{}, Read: at.UTC().Round(time.Millisecond)}
	if d.Leader != "" {
		answer.Term, answer.Since = d.Term, &d.Since
	}
	for _, t := range slices.Backward(d.Terms) {
		answer.Terms = append(answer.Terms, termAnswer{Term: t.Term, Leader: t.Leader, From: t.From, Until: t.Until, End: t.End.String(), Cause: t.Cause})
	}
	for _, run := range slices.Backward(d.Runs) {
		answer.Runs = append(answer.Runs, runAnswer{
			Duty: run.Duty, Term: run.Term, Replica: run.Replica, Start: run.Start.UTC(), Seconds: run.Took.Seconds(), Outcome: run.Outcome.String(), Detail: run.Detail,
		})
	}
	httpapi.Write(w, http.StatusOK, answer)
}

// runsShown is how many runs of each duty are on the page. GET /duties has more.
const runsShown = 5

type dutiesView struct {
	Old    string // how old this is, if the store does not respond
	Leader string
	Led    time.Duration  // for how long the leader has led
	Terms  []leader.Ended // the latest first
	Runs   []leader.Run   // likewise
}

func (a *Admin) dutiesView(r *http.Request) *dutiesView {
	if a.Options.Duties == nil {
		return nil
	}
	d, at, err := a.dutiesStatus(r.Context())
	v := &dutiesView{Leader: d.Leader, Led: max(time.Second, at.Sub(d.Since))}
	switch {
	case at.IsZero():
		v.Old = "The throttle store has not answered yet."
		return v
	case err != nil:
		v.Old = aged("The throttle store", at, time.Now(), err)
	}
	v.Terms = slices.Clone(d.Terms)
	slices.Reverse(v.Terms)
	shown := map[string]int{}
	for _, run := range slices.Backward(d.Runs) {
		if shown[run.Duty]++; shown[run.Duty] <= runsShown {
			v.Runs = append(v.Runs, run)
		}
	}
	return v
}
