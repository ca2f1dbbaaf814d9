package throttle_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
	"alertworker/internal/throttle"
)

// seconds keeps records in memory as Azure would: its clock counts seconds, and the machine that
// dates its answers may be ahead of the one that dates its records. It counts its calls.
type seconds struct {
	ahead         time.Duration
	lags          bool
	mu            sync.Mutex
	records       map[string]caslease.Record
	old           map[string]caslease.Record // what they replaced
	outdated      int                        // so many reads to come see these
	reads, writes int
}

var secondsClock = caslease.Clock{Resolution: time.Second, Skew: time.Second}

func (s *seconds) store() lease.Store {
	s.records, s.old = map[string]caslease.Record{}, map[string]caslease.Record{}
	return caslease.New(s, caslease.Service{
		ShouldRetry: func(_ context.Context, try int, _ error) bool { return s.lags && try < 5 },
		Clock:       secondsClock,
		Lags:        s.lags,
	})
}

func (s *seconds) Read(_ context.Context, key string) (caslease.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	r := s.records[key]
	if s.outdated > 0 {
		s.outdated--
		r = s.old[key]
	}
	r.Now = time.Now().Add(s.ahead).Truncate(time.Second)
	return r, nil
}

func (s *seconds) Write(_ context.Context, key string, prev, next caslease.Record) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if there := s.records[key]; there.Version != prev.Version {
		return "", fmt.Errorf("conflict")
	}
	next.Written, next.Exists, next.Version = time.Now().Truncate(time.Second), true, fmt.Sprint(s.writes)
	s.records[key], s.old[key] = next, s.records[key]
	return next.Version, nil
}

// A window learnt from the store is forgotten no later than it ends, wherever in
// a second it began and was asked about, and however far apart the service's clocks are.
func TestRefusalIsRememberedNoLongerThanTheWindow(t *testing.T) {
	for _, ahead := range []time.Duration{-900 * time.Millisecond, 0, 900 * time.Millisecond} {
		for begun := time.Duration(0); begun < time.Second; begun += 100 * time.Millisecond {
			for asked := time.Duration(0); asked < time.Second; asked += 150 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					s := &seconds{ahead: ahead}
					store := s.store()
					time.Sleep(begun)
					r, _ := do(t, newGate(store), request("1"), throttle.Taken)
					want(t, r, throttle.Sent)
					end := time.Now().Add(window)
					time.Sleep(10*time.Second + asked)
					g := newGate(store)
					r, _ = do(t, g, request("2"), throttle.Taken)
					want(t, r, throttle.Throttled)
					if !g.Recent("oven#7") {
						t.Fatal("a refusal was not remembered")
					}
					time.Sleep(time.Until(end.Add(-5 * time.Second)))
					for g.Recent("oven#7") {
						time.Sleep(50 * time.Millisecond)
					}
					if late := time.Since(end); late > 0 {
						t.Fatalf("begun at .%d s, asked at .%d s, Date ahead by %v: a window was remembered for %v after its end",
							begun.Milliseconds()/100, asked.Milliseconds()/100, ahead, late)
					}
				})
			}
		}
	}
}

// Two alerts are a window apart although the machine that answers is ahead of
// the one that recorded the first.
func TestSkewedServiceKeepsAlertsAWindowApart(t *testing.T) {
	for _, ahead := range []time.Duration{200 * time.Millisecond, 900 * time.Millisecond} {
		for begun := time.Duration(0); begun < time.Second; begun += 50 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				s := &seconds{ahead: ahead}
				store := s.store()
				time.Sleep(begun)
				r, _ := do(t, newGate(store), request("1"), throttle.Taken)
				want(t, r, throttle.Sent)
				first := time.Now()
				time.Sleep(window - time.Second)
				for { // another replica, which remembers nothing and asks all the time
					if r, _ = do(t, newGate(store), request("2"), throttle.Taken); r.Outcome == throttle.Sent {
						break
					}
					time.Sleep(10 * time.Millisecond)
				}
				if apart := time.Since(first); apart < window {
					t.Fatalf("Date ahead by %v, begun at %v: two alerts %v apart", ahead, begun, apart)
				}
			})
		}
	}
}

// A device that is hot all the time costs one read and two writes for each alert.
func TestHotDeviceCostsThreeCallsPerAlert(t *testing.T) {
	for begun := time.Duration(0); begun < time.Second; begun += 130 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			s := &seconds{}
			g, alerts := newGate(s.store()), 0
			time.Sleep(begun)
			for end := time.Now().Add(20 * window); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if g.Recent("oven#7") {
					continue
				}
				for r, again := request(fmt.Sprint(alerts)), true; again; {
					result, err := g.Do(t.Context(), r, func(context.Context, throttle.Grant) throttle.Answer {
						time.Sleep(30 * time.Millisecond)
						return throttle.Taken
					})
					if err != nil {
						t.Fatal(err)
					}
					switch result.Outcome {
					case throttle.Busy:
						time.Sleep(time.Until(result.Retry))
					case throttle.Sent:
						alerts++
						again = false
					default:
						again = false
					}
				}
			}
			if alerts < 18 || s.reads > alerts || s.writes > 2*alerts {
				t.Fatalf("begun at %v: %d alerts in 20 windows took %d reads and %d writes, want at most one and two for each", begun, alerts, s.reads, s.writes)
			}
		})
	}
}
