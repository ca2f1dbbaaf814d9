package admin

import (
	"math"
	"strings"
	"time"

	"alertworker/internal/ops/status"
)

// Past gives a an hour of history.
func (a *Admin) Past() {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	h := &a.history
	h.done = map[int64]totals{}
	for i := range minutes - 1 {
		wave := 1 + math.Sin(float64(i)/7)/3 + float64(i*7919%13)/40
		t := totals{Readings: int64(3000 * wave), Suppressed: int64(40 * wave)}
		if i%11 > 7 {
			t.Alerts, t.Suppressed = int64(i%5), t.Suppressed*3
		}
		h.done[h.minute-minutes+1+int64(i)] = t
	}
	t := a.totals()
	h.before = totals{t.Readings - 1100, t.Alerts - 1, t.Suppressed - 12}
	h.recent = []sample{
		{now.Add(-time.Minute), totals{t.Readings - 3204, t.Alerts - 3, t.Suppressed - 44}},
		{now, t},
	}
}

// DownOn is what a page says of the only receiver of several replicas.
func DownOn(all ...Snapshot) string {
	row := receiverRows(all)[0]
	return row.Fault.Text() + " on " + strings.Join(row.On, ", ")
}

// HeadlineOf is what a page says of several replicas.
func HeadlineOf(all []Snapshot) (status.State, string) {
	p := page{Replica: all[0].Replica}
	p.headline(all, nil, 0)
	return p.State, p.Headline
}
