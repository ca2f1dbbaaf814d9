package delivery

import (
	"container/heap"
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/notify"
	"alertworker/internal/sensor"
)

// A waiter is a delivery that waits for its turn, with what has gone since it began to.
type waiter struct {
	*delivery
	q        *queue
	present  map[*delivery]bool // those that waited then
	most     int64              // that may go first, of those of one owner that came later
	passed   map[*queue]int64   // that did
	reminded map[sensor.ID]int  // reminders that did, by device
	others   int                // that waited for the same owner
}

// The bound of receiver.next: before a delivery go those that waited when it came and, of each owner, no more later ones
// than its class times worth, those that waited for its own owner, and two. A first alert goes before every reminder of its
// owner that comes later, and of another owner before the third of anybody. One that is given up or withdrawn meanwhile
// leaves its turn to another of its owner.
func TestNobodyWaitsForEver(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dp := New(Config{Receivers: []Receiver{{Name: "r", Notifier: nobody{}, Limits: notify.Limits{Places: 1}}}, GiveUp: time.Hour})
		r := dp.receivers[0]
		topics := map[int]*Topic{}
		for rank := range 8 {
			topics[rank] = &Topic{Rank: rank}
		}
		var waiting []*waiter
		for range rapid.IntRange(1, 4).Draw(rt, "owners") {
			dp.Open(t.Context(), t.Context(), Account{})
		}
		push := func(q *queue, d *delivery) {
			w := &waiter{delivery: d, q: q, present: map[*delivery]bool{}, passed: map[*queue]int64{}, reminded: map[sensor.ID]int{}}
			for _, other := range waiting {
				w.present[other.delivery] = true
				if other.q == q {
					w.others++
				}
			}
			w.most = int64(d.class())*worth + int64(w.others) + 2
			d.q = q
			d.move(ready, WaitTurn, 0)
			waiting = append(waiting, w)
		}
		take := func(i int) *waiter {
			w := waiting[i]
			waiting = append(waiting[:i:i], waiting[i+1:]...)
			return w
		}
		sequence := int64(0)
		var owner int          // of most that come for a while
		var comes, dropped int // of ten steps
		for step := range rapid.IntRange(100, 3000).Draw(rt, "steps") {
			if step%200 == 0 {
				owner = rapid.IntRange(0, len(r.queues)-1).Draw(rt, "owner")
				comes = rapid.IntRange(2, 9).Draw(rt, "of ten steps come")
				dropped = rapid.IntRange(0, 9-comes).Draw(rt, "and are dropped")
			}
			switch what := rapid.IntRange(0, 9).Draw(rt, "step"); {
			case what < comes: // most are of one class
				sequence++
				q, d := r.queues[owner], &delivery{subject: Key{About: sensor.Of("d"), Topic: topics[0]}, head: Reading{Sequence: sequence}}
				if rapid.IntRange(0, 5).Draw(rt, "other") == 0 {
					q = rapid.SampledFrom(r.queues).Draw(rt, "owner of another")
					d.subject.Topic = topics[rapid.IntRange(0, 7).Draw(rt, "rank")]
					d.subject.About = sensor.Of(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "device"))
					d.reminder = rapid.Bool().Draw(rt, "reminder")
					if rapid.IntRange(0, 4).Draw(rt, "recovery") == 0 {
						d.notice = &Notice{}
					}
				}
				push(q, d)
			case what < comes+dropped: // one is given up, or withdrawn
				if len(waiting) > 0 {
					w := take(rapid.IntRange(0, len(waiting)-1).Draw(rt, "dropped"))
					heap.Remove(&w.q.lines[ready], int(w.delivery.index-1))
					for _, other := range waiting {
						other.passed[w.q]--
					}
				}
			default:
				d := r.next(time.Second)
				if d == nil {
					break
				}
				q := d.q
				d.move(attempting, WaitAttempt, 0)
				r.gone = max(r.gone, d.number)
				var gone *waiter
				for i, w := range waiting {
					if w.delivery == d {
						gone = take(i)
						break
					}
				}
				for _, w := range waiting {
					if w.present[d] {
						continue
					}
					if w.passed[q]++; w.passed[q] > w.most {
						rt.Fatalf("%d of one owner that came later have gone before one of class %d beside %d others", w.passed[q], w.class(), w.others)
					}
					if d.reminder && !d.notice.recovers() && !w.reminder && !w.delivery.notice.recovers() {
						if w.reminded[d.subject.About]++; w.q == q || w.reminded[d.subject.About] > 2 {
							rt.Fatalf("%d reminders of %s that came later have gone before a first alert", w.reminded[d.subject.About], d.subject.About)
						}
					}
				}
				if rapid.IntRange(0, 3).Draw(rt, "refused") == 0 { // for rate
					d.limited, d.number = min(d.limited+1, patience), 0
					push(gone.q, d)
				}
			}
		}
	})
}
