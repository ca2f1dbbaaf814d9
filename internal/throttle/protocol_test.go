package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/lab/verify"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/throttle/throttletest"
)

// What can happen to one call of the store.
const (
	fine = iota
	lostBefore
	lostAfter
	slow   // executed after 2 s
	stuck  // executed after 25 s, longer than a claim
	frozen // executed after 85 s, longer than a claim and a window
	calls
)

// What can happen to one alert.
const (
	takenWell      = iota
	takenUnheard   // the receiver took it; the answer was lost
	refusedForNow  // the receiver did not take it and said so
	takenThenCrash // the replica dies before it can record
	crashBefore    // the replica dies before it sends
	sends
)

// A plan is everything that is left to chance in one run.
type plan struct {
	gaps     []time.Duration // between readings
	calls    []int           // what happens to the store's calls, in order; fine after that
	sends    []int           // what happens to alerts, in order; takenWell after that
	takeover time.Duration   // until a successor of a dead replica starts
	lag      int             // readings by which a checkpoint lags when it is taken over
	second   bool            // the device's readings come another way too, at the same time
}

func drawPlan(t *rapid.T) plan {
	gap := rapid.SampledFrom([]time.Duration{0, time.Second, 7 * time.Second, 30 * time.Second, window, 2 * window})
	return plan{
		gaps:     rapid.SliceOfN(gap, 1, 12).Draw(t, "gaps"),
		calls:    rapid.SliceOfN(rapid.IntRange(0, calls-1), 0, 20).Draw(t, "calls"),
		sends:    rapid.SliceOfN(rapid.IntRange(0, sends-1), 0, 6).Draw(t, "sends"),
		takeover: rapid.SampledFrom([]time.Duration{0, 5 * time.Second, 40 * time.Second, 3 * window}).Draw(t, "takeover"),
		lag:      rapid.IntRange(0, 3).Draw(t, "lag"),
		second:   rapid.Bool().Draw(t, "second"),
	}
}

var errCrash = errors.New("killed")

// A world is one device, its receiver, and the replicas that read it.
type world struct {
	plan
	store    *memlease.Store
	log      *verify.Log
	mu       sync.Mutex
	readings []throttle.Request
	recorded map[string]bool // ids of alerts whose window was recorded in time
	repeated []string        // of these, sent again after that
	nextCall int
	nextSend int
}

// pop returns the next of what is planned, 0 when there is no more.
func (w *world) pop(of []int, next *int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if *next == len(of) {
		return 0
	}
	*next++
	return of[*next-1]
}

// reading returns reading i, waiting until it is published; false if there is none.
func (w *world) reading(i int) (throttle.Request, bool) {
	for {
		w.mu.Lock()
		if i < len(w.readings) {
			defer w.mu.Unlock()
			return w.readings[i], true
		}
		w.mu.Unlock()
		if i >= len(w.gaps) {
			return throttle.Request{}, false
		}
		time.Sleep(time.Second)
	}
}

// replica settles readings from the given one on, and returns where it died, or
// the end.
func (w *world) replica(way string, from int) (at int) {
	dead := false
	fault := func(string) error {
		if dead {
			return errCrash
		}
		switch w.pop(w.calls, &w.nextCall) {
		case lostBefore:
			return errors.New("connection refused")
		case lostAfter:
			return errLater
		case slow:
			time.Sleep(2 * time.Second)
		case stuck:
			time.Sleep(25 * time.Second)
		case frozen:
			time.Sleep(85 * time.Second)
		}
		return nil
	}
	gate := recent.New(throttle.Config{
		Store: &faulty{Store: w.store, before: fault}, Scope: "s", Receiver: "r", Window: window, SendTimeout: sendTimeout,
	}, recent.NewWindows())
	for i := from; ; i++ {
		r, ok := w.reading(i)
		if !ok {
			return i
		}
		r.ID = way + r.ID
		for settled := gate.Recent(r.Of()); !settled; {
			var id string
			result, _ := throttletest.Do(context.Background(), gate, r, func(_ context.Context, g throttle.Grant) throttle.Answer {
				what := w.pop(w.sends, &w.nextSend)
				switch what {
				case crashBefore:
					dead = true
					return throttle.Unknown
				case refusedForNow:
					return throttle.NotTaken
				}
				w.mu.Lock()
				if id = g.ID; w.recorded[id] {
					w.repeated = append(w.repeated, id)
				}
				w.mu.Unlock()
				w.log.Delivered(verify.Delivery{Device: r.Device, ID: g.ID, Token: g.Token, At: time.Now()})
				switch what {
				case takenThenCrash:
					dead = true
					return throttle.Unknown
				case takenUnheard:
					return throttle.Unknown
				}
				return throttle.Taken
			})
			if dead {
				return i
			}
			switch result.Outcome {
			case throttle.Sent:
				w.mu.Lock()
				w.recorded[id] = true
				w.mu.Unlock()
				settled = true
			case throttle.SentLate, throttle.Throttled:
				settled = true
			case throttle.Unconfirmed:
				settled = gate.Confirm(context.Background(), result) == nil
			case throttle.Busy:
				time.Sleep(time.Until(result.Retry))
			default:
				time.Sleep(time.Second)
			}
		}
	}
}

// errLater asks a faulty store to execute the call and lose its answer.
var errLater = errors.New("execute, then lose the answer")

// run lets it all happen and returns what the judge says.
func (w *world) run() verify.Report {
	var all sync.WaitGroup
	owner := func(way string) {
		for from := 0; from < len(w.gaps); {
			if from = w.replica(way, from); from < len(w.gaps) {
				time.Sleep(w.takeover)
				from = max(0, from-w.lag)
			}
		}
	}
	all.Go(func() { owner("a") })
	if w.second {
		all.Go(func() { owner("b") })
	}
	for i, gap := range w.gaps {
		time.Sleep(gap)
		w.mu.Lock()
		w.readings = append(w.readings, throttle.Request{Device: "oven", ID: fmt.Sprint(i), Enqueued: time.Now()})
		w.mu.Unlock()
		w.log.Published(verify.Reading{Device: "oven", Over: true, At: time.Now(), Sequence: int64(i)})
	}
	all.Wait()
	return w.log.Check(verify.Rules{Window: window, Bound: 2 * time.Hour, Slack: claimTTL})
}

// Whatever fails, and wherever a replica dies: every reading is covered by a
// delivery, a receiver that keeps the rule of R1 gets no two within the window,
// and what was recorded is never sent again.
func TestPromiseHoldsWhateverFails(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		w := &world{plan: p, log: verify.NewLog(), recorded: map[string]bool{}}
		var report verify.Report
		synctest.Test(t, func(*testing.T) {
			w.store = memlease.New()
			report = w.run()
		})
		for _, l := range report.Lost {
			rt.Errorf("lost: %v", l)
		}
		if len(w.repeated) > 0 {
			rt.Errorf("sent again after their windows were recorded: %v", w.repeated)
		}
		for _, c := range report.TooClose {
			rt.Errorf("too close: %v", c)
		}
	})
}
