package admin

import (
	"net/http"
	"time"

	"alertworker/internal/ops/leader"
)

type dutiesView struct {
	Old    string // how old this is, if the store does not respond
	Leader string
	Led    time.Duration // for how long the leader has led
	Runs   []leader.Run  // the last of each duty, the latest first
}

// dutiesView returns the duties for the page, nil if there are none.
func (a *Admin) dutiesView(r *http.Request) *dutiesView {
	if a.Options.Duties == nil {
		return nil
	}

	d, at, err := a.duties.get(r.Context())
	v := &dutiesView{
		Old:    aged("The throttle store", at, time.Now(), err),
		Leader: d.Leader,
		Led:    max(time.Second, at.Sub(d.Since)),
		Runs:   d.Runs,
	}
	return v
}
