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
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/throttletest"
)

// seconds keeps records in memory as Azure would: its clock counts seconds, and the machine that
// dates its answers may be ahead of the one that dates its records. It counts its calls.
type seconds struct {
	ahead         time.Duration
	lags          bool
	mu            sync.Mutex
	records       map[string]caslease.Record
	old           map[string][]caslease.Record // what they replaced, the last one first
	outdated      int                          // so many reads to come see these
	behind        int                          // of these
	reads, writes int
}

var secondsClock = caslease.Clock{Resolution: time.Second, Skew: time.Second}

func (s *seconds) store() lease.Store {
	s.records, s.old = map[string]caslease.Record{}, map[string][]caslease.Record{}
	service := caslease.Service{Clock: secondsClock}
	if s.lags {
		service.Latest = func(_ context.Context, key string) (caslease.Record, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.latest(key), nil
		}
	}
	return caslease.New(s, service)
}

// latest reads a record. The caller holds s.mu.
func (s *seconds) latest(key string) caslease.Record {
	s.reads++
	r := s.records[key]
	r.Now = time.Now().Add(s.ahead).Truncate(time.Second)
	return r
}

func (s *seconds) Read(_ context.Context, key string) (caslease.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.latest(key)
	if s.outdated > 0 {
		s.outdated--
		now := r.Now
		r = s.old[key][s.behind]
		r.Now = now
	}
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
	s.records[key], s.old[key] = next, append([]caslease.Record{s.records[key]}, s.old[key]...)
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
					if !g.Recent(sensor.Of("oven#7")) {
						t.Fatal("a refusal was not remembered")
					}
					time.Sleep(time.Until(end.Add(-5 * time.Second)))
					for g.Recent(sensor.Of("oven#7")) {
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
				if g.Recent(sensor.Of("oven#7")) {
					continue
				}
				for r, again := request(fmt.Sprint(alerts)), true; again; {
					result, err := throttletest.Do(t.Context(), g, r, func(context.Context, throttle.Grant) throttle.Answer {
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

// Where reads lag, a record from before a recovery shows a window that the recovery has ended since. It covers no
// reading after that of the recovery.
func TestStaleWindow(t *testing.T) {
	for behind := range 3 { // the window; a claim that was given back; that claim, given back
		synctest.Test(t, func(t *testing.T) {
			s := &seconds{lags: true}
			store := s.store()
			r, _ := do(t, newGate(store), reading(1, "1"), throttle.Taken)
			want(t, r, throttle.Sent)
			time.Sleep(window - time.Second)
			late := reading(4, "4") // within the window, but nobody reads it yet
			time.Sleep(10 * time.Second)
			if behind > 0 {
				r, _ = do(t, newGate(store), reading(2, "2"), throttle.NotTaken)
				want(t, r, throttle.Failed)
			}
			r, _ = do(t, newGate(store), cleared(3, "3"), throttle.Taken)
			want(t, r, throttle.Sent)
			s.outdated, s.behind = 1, 1
			if behind == 2 {
				s.behind = 2
			}
			r, _ = do(t, newGate(store), late, throttle.Taken)
			if r.Outcome == throttle.Busy { // the claim that it saw may be in force
				time.Sleep(time.Until(r.Retry))
				r, _ = do(t, newGate(store), late, throttle.Taken)
			}
			want(t, r, throttle.Sent)
		})
	}
}

// A record from before an alert does not show that the receiver needs a recovery.
func TestStaleRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &seconds{lags: true}
		store := s.store()
		r, _ := do(t, newGate(store), reading(1, "1"), throttle.Taken)
		want(t, r, throttle.Sent)
		time.Sleep(window + 5*time.Second)
		s.outdated, s.behind = 1, 1 // before the claim
		r, _ = do(t, newGate(store), cleared(2, "2"), throttle.Taken)
		want(t, r, throttle.Sent)
	})
}
