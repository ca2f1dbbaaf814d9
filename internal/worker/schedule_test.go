package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/notify"
)

// A scenario is some hours of readings, and what receivers make of the alerts.
type scenario struct {
	partitions  int
	concurrency int
	waiting     int // at most, in a partition for a receiver
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
	at        time.Duration
	partition int
	device    string
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
		partitions:  rapid.IntRange(1, 3).Draw(t, "partitions"),
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
		partition := rapid.IntRange(0, s.partitions-1).Draw(t, "partition")
		kind := rapid.SampledFrom([]string{"well", "well", "well", "odd", "refused", "told"}).Draw(t, "kind")
		device := fmt.Sprintf("%s-%d-%d", kind, partition, rapid.IntRange(0, 20).Draw(t, "device"))
		s.readings = append(s.readings, scheduledReading{at, partition, device})
	}
	return s
}

// run plays s and returns what is wrong, nil if nothing is.
func (s scenario) run(t *testing.T) (err error) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var wrong []error
		var tried []*attempts
		var rs []*receiver
		for _, b := range s.receivers {
			a := &attempts{}
			tried = append(tried, a)
			rs = append(rs, &receiver{answer: a.record(b.answer(start))})
		}
		setup := newSetup(t, rs...)
		setup.config.Concurrency, setup.waiting = s.concurrency, s.waiting
		setup.config.GiveUp = scenarioAge
		setup.config.Rules.Rules[0].Window = 6 * time.Hour
		var ps []*partition
		for n := range s.partitions {
			ps = append(ps, newPartition(fmt.Sprint(n)))
		}
		setup.start(ps...)
		for _, r := range s.readings {
			time.Sleep(time.Until(start.Add(r.at)))
			ps[r.partition].publish(r.device, 99)
			synctest.Wait()
			if n := setup.worker.MostWaiting(); n > s.waiting {
				wrong = append(wrong, fmt.Errorf("%d alerts wait after %v, want %d at most", n, r.at, s.waiting))
			}
		}
		time.Sleep(scenarioLasts + 2*scenarioAge)
		synctest.Wait()
		setup.end()

		for _, p := range ps {
			if got := p.checkpoint(); got != int64(len(p.log)) {
				wrong = append(wrong, fmt.Errorf("partition %s is settled up to %d of %d", p.id, got, len(p.log)))
			}
		}
		for n, r := range rs {
			wrong = append(wrong, s.judge(n, r, setup.dead.kept, tried[n])...)
		}
		err = errors.Join(wrong...)
	})
	return err
}

// judge says what is wrong about a receiver's alerts.
func (s scenario) judge(n int, r *receiver, dead []notify.DeadLetter, tried *attempts) (wrong []error) {
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
	if id, least := tried.soonest("told"); id != "" && least < s.receivers[n].told {
		wrong = append(wrong, fmt.Errorf("receiver %d was sent %s again after %v, and had asked for %v", n, id, least, s.receivers[n].told))
	}
	return wrong
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

// Whatever receivers do: every alert is taken once or becomes a dead letter, the checkpoint
// reaches the end, no receiver is told more at a time than it may be, none
// sooner than it asked for, and no more alerts wait than may.
func TestSchedule(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := drawScenario(r)
		if err := s.run(t); err != nil {
			r.Fatalf("%+v:\n%v", s, err)
		}
	})
}

// However much another partition has waiting, a partition's alert is next when a place becomes free.
func TestPartitionsStarveNoOther(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		storm := rapid.IntRange(1, 3).Draw(r, "partitions in a storm")
		concurrency := rapid.IntRange(1, 4).Draw(r, "concurrency")
		at := rapid.IntRange(0, 60).Draw(r, "seconds")
		const takes = time.Second
		var waited time.Duration
		synctest.Test(t, func(t *testing.T) {
			rec := &receiver{answer: wait(takes)}
			s := newSetup(t, rec)
			s.config.Concurrency = concurrency
			calm := newPartition("calm")
			ps := []*partition{calm}
			for n := range storm {
				p := newPartition(fmt.Sprint(n))
				for i := range 500 {
					p.publish(fmt.Sprint("device", n, "-", i), 99)
				}
				ps = append(ps, p)
			}
			s.start(ps...)
			defer s.end()
			pass(time.Duration(at) * time.Second)
			calm.publish("calm", 99)
			start := time.Now()
			for len(rec.alerts("calm")) == 0 && time.Since(start) < time.Hour {
				pass(takes / 10)
			}
			waited = time.Since(start)
		})
		// Each partition in the storm has its turn before at most; then it is sent.
		if most := time.Duration((storm+concurrency)/concurrency+1) * takes; waited > most+takes/10 {
			r.Fatalf("an alert of a calm partition waited %v, want %v at most", waited, most)
		}
	})
}
