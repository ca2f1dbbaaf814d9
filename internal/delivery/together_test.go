package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/delivery"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

// A together is one message of several notices, each under a claim of its own.
type together struct {
	t       *testing.T
	gate    *throttle.Gate
	begins  map[int]time.Duration // to claim a notice
	takes   map[int]time.Duration // for the claim of a notice
	under   map[int]context.Context
	claimed []int

	mu      sync.Mutex
	went    time.Duration // when the message did
	of      int           // how many notices it had
	answers map[int]error
}

func (m *together) send(n int, timeout time.Duration, answer func(context.Context) error) {
	m.t.Helper()
	m.gate = throttle.New(throttle.Config{Store: memlease.New(), Scope: "s", Receiver: "r", Window: window, SendTimeout: timeout})
	m.answers = map[int]error{}
	start := time.Now()
	claims := make([]*throttle.Claim, n)
	delivery.Send(n, func(i int) (delivery.Claimed, bool) {
		m.mu.Lock()
		m.claimed = append(m.claimed, i)
		m.mu.Unlock()
		time.Sleep(m.begins[i])
		c, _, err := m.gate.Claim(m.t.Context(), throttle.Request{Device: fmt.Sprint(i), ID: "id", Enqueued: time.Now()})
		if err != nil {
			m.t.Error(err)
			return delivery.Claimed{}, false
		}
		claims[i] = c
		time.Sleep(m.takes[i])
		under := m.under[i]
		if under == nil {
			under = m.t.Context()
		}
		return delivery.Claimed{Grant: c.Grant, Under: under}, true
	}, func(ctx context.Context, _ []int, alerts ...notify.Alert) error {
		m.went, m.of = time.Since(start), len(alerts)
		return answer(ctx)
	}, func(i int, err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if _, twice := m.answers[i]; twice {
			m.t.Errorf("notice %d is settled twice", i)
		}
		m.answers[i] = err
		if claims[i] != nil {
			_, _ = m.gate.Settle(m.t.Context(), claims[i], throttle.NotTaken)
		}
	})
}

// late returns the notices that the message went without.
func (m *together) late() (all []int) {
	for i, err := range m.answers {
		if errors.Is(err, delivery.ErrLate) {
			all = append(all, i)
		}
	}
	slices.Sort(all)
	return all
}

// An answer that comes as the time is over is one: what is known of the alert is not forgotten.
func TestAnswerAtTheDeadline(t *testing.T) {
	for name, want := range map[string]error{"Taken": nil, "Untaken": &notify.Error{Untaken: true, Err: errors.New("no connection")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := together{t: t}
				m.send(3, sendTimeout, func(ctx context.Context) error { <-ctx.Done(); return want })
				for i := range 3 {
					if got, settled := m.answers[i]; !settled || got != want {
						t.Errorf("notice %d got %v, %t", i, got, settled)
					}
				}
			})
		})
	}
}

// Notices whose claims are slow do not keep the others from going, and leave the receiver the time to answer. What is
// claimed too late is given back, and what has not been claimed by then is not.
func TestMessageDoesNotWaitForSlowClaims(t *testing.T) {
	for name, test := range map[string]struct {
		n              int
		timeout        time.Duration
		begins, takes  map[int]time.Duration
		went           time.Duration
		late, unasked  int
		receiverAtMost time.Duration
	}{
		"all are quick":     {3, sendTimeout, nil, nil, 0, 0, 0, sendTimeout},
		"one is alone":      {1, sendTimeout, nil, map[int]time.Duration{0: 6 * time.Second}, 6 * time.Second, 0, 0, sendTimeout},
		"one is slow":       {3, sendTimeout, nil, map[int]time.Duration{1: 6 * time.Second}, 2 * time.Second, 1, 0, sendTimeout},
		"little time to go": {3, 500 * time.Millisecond, nil, map[int]time.Duration{0: 6900 * time.Millisecond, 1: 9 * time.Second, 2: 9 * time.Second}, 7200 * time.Millisecond, 2, 0, 500 * time.Millisecond},
		"the first claim ends first": {2, 3 * time.Second, map[int]time.Duration{1: 7900 * time.Millisecond}, map[int]time.Duration{0: 8 * time.Second},
			8 * time.Second, 0, 0, 2 * time.Second},
		"many are slow": {40, sendTimeout, nil, func() map[int]time.Duration {
			all := map[int]time.Duration{}
			for i := 1; i < 40; i++ {
				all[i] = 5 * time.Second
			}
			return all
		}(), 2 * time.Second, 39, 23, sendTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := together{t: t, begins: test.begins, takes: test.takes}
				m.send(test.n, test.timeout, func(ctx context.Context) error {
					if deadline, _ := ctx.Deadline(); time.Until(deadline) > test.receiverAtMost {
						t.Errorf("the receiver has %v", time.Until(deadline))
					}
					return nil
				})
				if m.went != test.went || m.of != test.n-test.late || len(m.late()) != test.late || len(m.claimed) != test.n-test.unasked {
					t.Errorf("%d went after %v, without %v; claimed were %d", m.of, m.went, m.late(), len(m.claimed))
				}
				if len(m.answers) != test.n {
					t.Errorf("%d are settled", len(m.answers))
				}
			})
		})
	}
}

// What ends one of the notices of a message does not end the others; a message that nobody wants any more is cancelled.
func TestMessageIsCancelledOnceNobodyWantsIt(t *testing.T) {
	for _, cut := range []int{1, 2} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := together{t: t, under: map[int]context.Context{}}
				for i := range cut {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
					defer cancel()
					m.under[i] = ctx
				}
				start := time.Now()
				m.send(2, sendTimeout, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
				want := map[int]time.Duration{1: sendTimeout, 2: 2 * time.Second}[cut]
				if got := time.Since(start); got != want {
					t.Errorf("it ended after %v, want %v", got, want)
				}
			})
		})
	}
}
