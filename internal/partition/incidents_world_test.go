package partition_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/records"
)

// An incidentWorld is two partitions, whose owners change, devices of two sites, and what fails now and then.
type incidentWorld struct {
	t     *testing.T
	rand  *rand.Rand
	first *setup
	r     *receiver
	story []string

	owners     [2]*setup
	partitions [2]*partition
	former     []*setup // that run on

	mu     sync.Mutex
	faults *rand.Rand
	fails  int // of ten answers of records are lost
	wrong  int // of ten answers of the receiver are, too
}

func (w *incidentWorld) say(format string, args ...any) {
	w.story = append(w.story, time.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// unlucky reports whether something fails that does so many times of ten.
func (w *incidentWorld) unlucky(of *int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faults.IntN(10) < *of
}

// lag takes a while, and sometimes long.
func (w *incidentWorld) lag() {
	w.mu.Lock()
	d := time.Duration(w.faults.IntN(200)) * time.Millisecond
	if w.faults.IntN(4) == 0 {
		d *= 15
	}
	w.mu.Unlock()
	time.Sleep(d)
}

// lossy loses answers of records of incidents, before they are written or after.
func (w *incidentWorld) lossy(ctx context.Context, op records.Op, name string, call func(context.Context) error) error {
	if !strings.HasPrefix(name, "incidents/") {
		return call(ctx)
	}
	w.lag()
	if !w.unlucky(&w.fails) {
		return call(ctx)
	}
	if op == records.OpWrite && w.unlucky(&w.fails) {
		_ = call(ctx)
	}
	return errors.New("connection reset")
}

// answer takes an alert, or not, and says so, or not.
func (w *incidentWorld) answer(_ context.Context, a notify.Alert) error {
	w.lag()
	if !w.unlucky(&w.wrong) {
		return nil
	}
	if w.unlucky(&w.wrong) {
		return errBusy
	}
	w.r.mu.Lock()
	w.r.taken = append(w.r.taken, a)
	w.r.mu.Unlock()
	return errors.New("no answer")
}

func (w *incidentWorld) own(p int, next *partition) {
	s := with(w.t, inSite, w.r)
	s.store, s.ledgers = w.first.store, w.first.ledgers
	w.owners[p], w.partitions[p] = s, next
	s.start(next)
	time.Sleep(time.Second) // whoever takes its ledger over last owns it
}

// pause lets time pass: often a moment, sometimes more than a window.
func (w *incidentWorld) pause() {
	w.mu.Lock()
	d := time.Duration(w.faults.IntN(4000)) * time.Millisecond
	switch w.faults.IntN(6) {
	case 0:
		d *= 20
	case 1, 2, 3:
		d *= 4
	}
	w.mu.Unlock()
	time.Sleep(d)
}

// heard is what a receiver makes of what it took: it drops what has an ID that it took within the window, or of an end
// for as long as that says, or an older token.
func heard(taken []notify.Alert) (all []notify.Alert) {
	tokens := map[string]int64{}
	ids := map[string]time.Time{}
	for _, a := range taken {
		if at, known := ids[a.ID]; known && a.Sent.Sub(at) < a.Window || known && a.Resolved && a.Sent.Sub(at) < a.Remember || tokens[a.PerValue] > a.Token {
			continue
		}
		ids[a.ID], tokens[a.PerValue] = a.Sent, a.Token
		all = append(all, a)
	}
	return all
}

// Whatever fails, and whoever owns the partitions: a site with a hot device is an incident that people were told of, one
// without is none, each incident ends once, and there is at most one alert in a window.
func TestIncidentWorlds(t *testing.T) {
	seeds := 200
	if testing.Short() {
		seeds = 40
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := &incidentWorld{t: t, rand: rand.New(rand.NewPCG(uint64(seed), 1)), faults: rand.New(rand.NewPCG(uint64(seed), 2)), r: &receiver{}}
			w.r.set(w.answer)
			w.first = with(t, inSite, w.r)
			w.first.ledgers = records.Around(w.first.ledgers, w.lossy)
			for p := range 2 {
				w.own(p, newPartition(fmt.Sprint(p)))
			}

			hot := map[string]bool{}
			site := func(device int) string { return [...]string{"berlin", "paris"}[device/2%2] }
			for range 60 {
				p := w.rand.IntN(2)
				switch n := w.rand.IntN(20); {
				case n < 14:
					device := w.rand.IntN(8)
					is := w.rand.IntN(3) == 0
					name := fmt.Sprintf("%s/%d", site(device), device)
					hot[name] = is
					value := map[bool]float64{true: 40, false: 20}[is]
					w.say("%s of partition %d: %v", name, device%2, value)
					w.partitions[device%2].publishOf(fmt.Sprint(device), site(device), value)
				case n < 15:
					w.say("partition %d has a new owner", p)
					w.owners[p].end()
					w.own(p, w.partitions[p].reopen())
				case n < 16:
					w.say("partition %d has a new owner, and the former one goes on", p)
					w.former = append(w.former, w.owners[p])
					w.own(p, w.partitions[p].reopen())
				case n < 17:
					for _, s := range w.former {
						s.end()
					}
					w.former = nil
				case n < 18:
					w.mu.Lock()
					w.fails = w.rand.IntN(3) * 3
					w.mu.Unlock()
					w.say("records fail %d times of ten", w.fails)
				default:
					w.mu.Lock()
					w.wrong = w.rand.IntN(3) * 3
					w.mu.Unlock()
					w.say("the receiver fails %d times of ten", w.wrong)
				}
				w.pause()
			}

			w.say("all works")
			w.mu.Lock()
			w.fails, w.wrong = 0, 0
			w.mu.Unlock()
			for _, s := range w.former {
				s.end()
			}
			time.Sleep(15 * time.Minute)
			for name, is := range hot { // who is hot says so again, as devices do
				if is {
					device := int(name[len(name)-1] - '0')
					w.partitions[device%2].publishOf(fmt.Sprint(device), site(device), 40)
				}
			}
			time.Sleep(15 * time.Minute)
			for _, s := range w.owners {
				s.end()
			}
			w.judge(seed, hot)
		})
		if t.Failed() {
			return
		}
	}
}

func (w *incidentWorld) judge(seed int, hot map[string]bool) {
	var wrong []string
	for _, site := range []string{"berlin", "paris"} {
		isHot := false
		for name, is := range hot {
			isHot = isHot || is && strings.HasPrefix(name, site)
		}

		open := map[string]bool{}
		var last notify.Alert
		var lastAlert time.Time
		for _, a := range heard(w.r.all()) {
			if a.PerValue != site {
				continue
			}
			id := a.Incident.ID
			switch {
			case a.Resolved && last.ID == "":
				wrong = append(wrong, fmt.Sprintf("%s: an end without an alert", site))
			case a.Resolved:
				delete(open, id)
			default:
				if since := a.Sent.Sub(lastAlert); since < window {
					wrong = append(wrong, fmt.Sprintf("%s: an alert %v after another one, at %s", site, since, a.Sent.Format("15:04:05")))
				}
				lastAlert = a.Sent
				open[id] = true
			}
			last = a
		}

		switch {
		case isHot && (last.ID == "" || last.Resolved):
			wrong = append(wrong, site+" is hot, and that is not what was heard last")
		case isHot && (len(open) != 1 || !open[last.Incident.ID]):
			wrong = append(wrong, fmt.Sprintf("%s is hot, and %d incidents are open", site, len(open)))
		case !isHot && last.ID != "" && !last.Resolved:
			wrong = append(wrong, site+" is normal, and that is not what was heard last")
		case !isHot && len(open) > 0:
			wrong = append(wrong, fmt.Sprintf("%s is normal, and %d incidents are open", site, len(open)))
		}
	}

	if len(wrong) == 0 {
		return
	}

	for _, a := range w.r.all() {
		what := "alert"
		if a.Resolved {
			what = "end"
		}
		w.story = append(w.story, fmt.Sprintf("%s heard the %s of %s in %s, %d, token %d", a.Sent.Format("15:04:05"), what, a.Incident.ID[len(a.Incident.ID)-4:], a.PerValue, a.Incident.Members, a.Token))
	}
	slices.Sort(w.story)
	w.t.Errorf("seed %d: %s\n%s", seed, strings.Join(wrong, "; "), strings.Join(w.story, "\n"))
}
