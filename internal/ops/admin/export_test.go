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
	a.minutes = map[int64]totals{minuteOf(now): {1100, 1, 12}}
	for i := range minutes - 1 {
		wave := 1 + math.Sin(float64(i)/7)/3 + float64(i*7919%13)/40
		t := totals{Readings: int64(3000 * wave), Suppressed: int64(40 * wave)}
		if i%11 > 7 {
			t.Alerts, t.Suppressed = int64(i%5), t.Suppressed*3
		}
		a.minutes[minuteOf(now)-minutes+1+int64(i)] = t
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
