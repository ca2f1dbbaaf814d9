package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/notify"
)

// A scenario is some hours of readings, and what receivers make of the alerts.
type scenario struct {
	owners      int
	concurrency int
	waiting     int // at most, of an owner for a receiver
	receivers   []behaviour
	readings    []scheduledReading // in order of time
}

// A behaviour is a receiver's.
type behaviour struct {
	takes   time.Duration // for each alert
	outages [][2]time.Duration
	told    time.Duration // Retry-After for devices that are told to wait
}

type scheduledReading struct {
	at     time.Duration
	owner  int
	device string
}

const (
	scenarioLasts = time.Hour
	scenarioAge   = 20 * time.Minute // NOTIFY_GIVE_UP
)

func drawScenario(t *rapid.T) scenario {
	seconds := func(name string, least, most int) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(t, name)) * time.Second
	}
	s := scenario{
		owners:      rapid.IntRange(1, 3).Draw(t, "owners"),
		concurrency: rapid.IntRange(1, 4).Draw(t, "concurrency"),
		waiting:     rapid.IntRange(3, 40).Draw(t, "waiting"),
	}
	for range rapid.IntRange(1, 2).Draw(t, "receivers") {
		b := behaviour{takes: seconds("takes", 0, 9), told: seconds("told", 1, 120)}
		for range rapid.IntRange(0, 2).Draw(t, "outages") {
			from := seconds("from", 0, 3000)
			b.outages = append(b.outages, [2]time.Duration{from, from + seconds("for", 1, 2400)})
		}
		s.receivers = append(s.receivers, b)
	}
	at := time.Duration(0)
	for range rapid.IntRange(1, 120).Draw(t, "readings") {
		at += seconds("pause", 0, 30)
		owner := rapid.IntRange(0, s.owners-1).Draw(t, "owner")
		kind := rapid.SampledFrom([]string{"well", "well", "well", "odd", "refused", "told"}).Draw(t, "kind")
		device := fmt.Sprintf("%s-%d-%d", kind, owner, rapid.IntRange(0, 20).Draw(t, "device"))
		s.readings = append(s.readings, scheduledReading{at, owner, device})
	}
	return s
}

// run plays s and returns what is wrong, nil if nothing is.
func (s scenario) run(t *testing.T) (err error) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var wrong []error
		var rs []*receiver
		for _, b := range s.receivers {
			rs = append(rs, &receiver{answer: b.answer(start)})
		}
		of := newReplica(t, rs...)
		of.config.Concurrency, of.waiting = s.concurrency, s.waiting
		of.config.GiveUp = scenarioAge
		of.window = 6 * time.Hour
		var ps []*owner
		for n := range s.owners {
			ps = append(ps, of.open(fmt.Sprint(n)))
		}
		for _, r := range s.readings {
			time.Sleep(time.Until(start.Add(r.at)))
			ps[r.owner].hot(r.device)
			synctest.Wait()
			if n := ps[r.owner].box.MostWaiting(); n > s.waiting {
				wrong = append(wrong, fmt.Errorf("%d alerts wait after %v, want %d at most", n, r.at, s.waiting))
			}
		}
		time.Sleep(scenarioLasts + 2*scenarioAge)
		synctest.Wait()

		for _, p := range ps {
			if got := p.watermark(); got != p.last {
				wrong = append(wrong, fmt.Errorf("of owner %s everything is settled up to %d of %d", p.name, got, p.last))
			}
		}
		for n, r := range rs {
			wrong = append(wrong, s.judge(n, r, of.dead.all())...)
		}
		of.end()
		err = errors.Join(wrong...)
	})
	return err
}

// judge says what is wrong about a receiver's alerts.
func (s scenario) judge(n int, r *receiver, dead []notify.DeadLetter) (wrong []error) {
	if r.most > s.concurrency {
		wrong = append(wrong, fmt.Errorf("receiver %d was told %d alerts at a time, want %d at most", n, r.most, s.concurrency))
	}
	settled := map[string]int{}
	for _, a := range r.alerts("") {
		if settled[a.Device]++; settled[a.Device] > 1 {
			wrong = append(wrong, fmt.Errorf("receiver %d took two alerts of %s", n, a.Device))
		}
	}
	for _, d := range dead {
		if d.Receiver == fmt.Sprint("receiver", n) {
			settled[d.Alert.Device]++
		}
	}
	for _, reading := range s.readings {
		if settled[reading.device] == 0 {
			wrong = append(wrong, fmt.Errorf("receiver %d: nothing came of the alert of %s", n, reading.device))
		}
	}
	if id, least := r.soonest("told"); id != "" && least < s.receivers[n].told {
		wrong = append(wrong, fmt.Errorf("receiver %d was sent %s again after %v, and had asked for %v", n, id, least, s.receivers[n].told))
	}
	return wrong
}

// soonest returns the shortest time between two attempts at one alert of a device whose name has the
// prefix, and its id, which is empty if there are none.
func (r *receiver) soonest(prefix string) (id string, least time.Duration) {
	last := map[string]time.Time{}
	for _, one := range r.tried {
		if !strings.HasPrefix(one.device, prefix) {
			continue
		}
		if at, ok := last[one.id]; ok && (id == "" || one.at.Sub(at) < least) {
			id, least = one.id, one.at.Sub(at)
		}
		last[one.id] = one.at
	}
	return id, least
}

// answer is what the receiver makes of an alert.
func (b behaviour) answer(start time.Time) func(context.Context, notify.Alert) error {
	return func(ctx context.Context, a notify.Alert) error {
		if err := wait(b.takes)(ctx, a); err != nil {
			return err
		}
		kind, _, _ := strings.Cut(a.Device, "-")
		if kind == "told" {
			return &notify.Error{Untaken: true, Limited: true, RetryAfter: b.told, Err: errors.New("429")}
		}
		for _, outage := range b.outages {
			if since := time.Since(start); since >= outage[0] && since < outage[1] {
				return errBusy
			}
		}
		switch kind {
		case "odd":
			return &notify.Error{Untaken: true, Err: errors.New("401")}
		case "refused":
			return &notify.Error{Refused: true, Untaken: true, Err: errors.New("422")}
		}
		return nil
	}
}

// Whatever receivers do: every alert is taken once or becomes a dead letter, everything is settled at the end, no
// receiver is sent more at a time than it may be, none sooner than it asked for, and no more alerts wait than may.
func TestSchedule(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := drawScenario(r)
		if err := s.run(t); err != nil {
			r.Fatalf("%+v:\n%v", s, err)
		}
	})
}

// However much other owners have waiting, an owner's alert is next when a place becomes free.
func TestOwnersStarveNoOther(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		storm := rapid.IntRange(1, 3).Draw(r, "owners in a storm")
		concurrency := rapid.IntRange(1, 4).Draw(r, "concurrency")
		at := rapid.IntRange(0, 60).Draw(r, "seconds")
		const takes = time.Second
		var waited time.Duration
		synctest.Test(t, func(t *testing.T) {
			rec := &receiver{answer: wait(takes)}
			s := newReplica(t, rec)
			s.config.Concurrency = concurrency
			calm := s.open("calm")
			defer s.end()
			for n := range storm {
				p := s.open(fmt.Sprint(n))
				for i := range 500 {
					p.hot(fmt.Sprint("device", n, "-", i))
				}
			}
			pass(time.Duration(at) * time.Second)
			calm.hot("calm")
			start := time.Now()
			for len(rec.alerts("calm")) == 0 && time.Since(start) < time.Hour {
				pass(takes / 10)
			}
			waited = time.Since(start)
		})
		// Each owner in the storm has its turn before at most; then it is sent.
		if most := time.Duration((storm+concurrency)/concurrency+1) * takes; waited > most+takes/10 {
			r.Fatalf("an alert of a calm owner waited %v, want %v at most", waited, most)
		}
	})
}
