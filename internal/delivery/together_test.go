package delivery

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
)

const sendTimeout = 10 * time.Second

// A together is one message of several notices, of devices called 0, 1 and so on, each under a claim of its own. It is
// their gate too, whose store is slow.
type together struct {
	Gate
	begins map[string]time.Duration // to claim, by device
	takes  map[string]time.Duration // for the answer
	under  map[int]context.Context  // of their owners

	answer func(context.Context) error
	start  time.Time
	went   time.Duration // when the message did
	of     int           // how many notices it had

	mu      sync.Mutex
	claimed int
	late    int
	answers map[string]throttle.Answer
}

func (m *together) Claim(ctx context.Context, r throttle.Request) (*throttle.Claim, throttle.Result, error) {
	m.mu.Lock()
	m.claimed++
	m.mu.Unlock()
	time.Sleep(m.begins[r.Device])
	c, result, err := m.Gate.Claim(ctx, r)
	time.Sleep(m.takes[r.Device])
	return c, result, err
}

func (m *together) Settle(ctx context.Context, c *throttle.Claim, answer throttle.Answer) (throttle.Result, error) {
	m.mu.Lock()
	m.answers[c.Of().Device] = answer
	m.mu.Unlock()
	return m.Gate.Settle(ctx, c, answer)
}

func (m *together) Notify(ctx context.Context, alerts ...notify.Alert) error {
	m.went, m.of = time.Since(m.start), len(alerts)
	return m.answer(ctx)
}

func (m *together) send(t *testing.T, n int, timeout time.Duration, answer func(context.Context) error) {
	t.Helper()
	m.Gate = recent.New(throttle.Config{
		Store: memlease.New(), Scope: "s", Receiver: "r", Window: time.Hour, SendTimeout: timeout,
	}, recent.NewWindows())
	m.start, m.answers, m.answer = time.Now(), map[string]throttle.Answer{}, answer
	dp := New(Config{
		Receivers:   []Receiver{{Name: "r", Notifier: m, Limits: notify.Limits{Batch: 100}}},
		Concurrency: 1, GiveUp: time.Hour, DeadLetters: nobody{}, Stats: &Stats{},
	})
	r, topic := dp.receivers[0], &Topic{Gates: []Gate{m}, Sent: &atomic.Int64{}, Recovered: &atomic.Int64{}}
	sent := &message{to: r, began: dp.now(), left: n}
	for i := range n {
		under := m.under[i]
		if under == nil {
			under = t.Context()
		}
		box := dp.Open(t.Context(), under, Account{Owner: nobody{}, Logger: zap.NewNop()})
		defer box.Close()
		q := box.queues[0]
		d := &delivery{q: q, subject: Key{sensor.Of(fmt.Sprint(i)), topic}, head: Reading{Enqueued: time.Now().UnixMicro()}}
		box.work.Add(1)
		sent.attempts = append(sent.attempts, attempt{d: d, message: sent})
	}

	r.messages, r.sending, r.trying = 2, n, n // one is always under way, so that what is late does not go again
	sent.deliver()
	if sent.left != 0 || r.trying != 0 || r.messages != 1 {
		t.Errorf("%d have not ended, %d are tried, %d messages", sent.left, r.trying, r.messages)
	}
	synctest.Wait() // what goes on from there
	for _, a := range sent.attempts {
		if errors.Is(a.barred, errLate) {
			m.late++
			if a.d.state != ready {
				t.Errorf("%s is late, and does not wait for its turn", a.d.subject.About)
			}
		}
	}
}

// An answer that comes as the time is over is one: what is known of the alert is not forgotten.
func TestAnswerAtTheDeadline(t *testing.T) {
	for want, answer := range map[throttle.Answer]error{
		throttle.Taken: nil, throttle.NotTaken: &notify.Error{Untaken: true, Err: errors.New("no connection")},
	} {
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := together{}
				m.send(t, 3, sendTimeout, func(ctx context.Context) error { <-ctx.Done(); return answer })
				for i := range 3 {
					if got, settled := m.answers[fmt.Sprint(i)]; !settled || got != want {
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
	many := map[string]time.Duration{}
	for i := 1; i < 40; i++ {
		many[fmt.Sprint(i)] = 5 * time.Second
	}

	for name, test := range map[string]struct {
		n              int
		timeout        time.Duration
		begins, takes  map[string]time.Duration
		went           time.Duration
		late, unasked  int
		receiverAtMost time.Duration
	}{
		"all are quick": {3, sendTimeout, nil, nil, 0, 0, 0, sendTimeout},
		"one is alone":  {1, sendTimeout, nil, map[string]time.Duration{"0": 6 * time.Second}, 6 * time.Second, 0, 0, sendTimeout},
		"one is slow":   {3, sendTimeout, nil, map[string]time.Duration{"1": 6 * time.Second}, 2 * time.Second, 1, 0, sendTimeout},
		"little time to go": {3, 500 * time.Millisecond, nil, map[string]time.Duration{"0": 6900 * time.Millisecond, "1": 9 * time.Second, "2": 9 * time.Second},
			7200 * time.Millisecond, 2, 0, 500 * time.Millisecond},
		"the first claim ends first": {2, 3 * time.Second, map[string]time.Duration{"1": 7900 * time.Millisecond}, map[string]time.Duration{"0": 8 * time.Second},
			8 * time.Second, 0, 0, 2 * time.Second},
		"many are slow": {40, sendTimeout, nil, many, 2 * time.Second, 39, 23, sendTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := together{begins: test.begins, takes: test.takes}
				m.send(t, test.n, test.timeout, func(ctx context.Context) error {
					if deadline, _ := ctx.Deadline(); time.Until(deadline) > test.receiverAtMost {
						t.Errorf("the receiver has %v", time.Until(deadline))
					}
					return nil
				})
				if m.went != test.went || m.of != test.n-test.late || m.late != test.late || m.claimed != test.n-test.unasked {
					t.Errorf("%d went after %v, without %d; claimed were %d", m.of, m.went, m.late, m.claimed)
				}
				if len(m.answers) != m.claimed {
					t.Errorf("%d claims of %d are settled", len(m.answers), m.claimed)
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
				m := together{under: map[int]context.Context{}}
				for i := range cut {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
					defer cancel()
					m.under[i] = ctx
				}
				var ended time.Duration
				m.send(t, 2, sendTimeout, func(ctx context.Context) error {
					<-ctx.Done()
					ended = time.Since(m.start)
					return ctx.Err()
				})
				want := map[int]time.Duration{1: sendTimeout, 2: 2 * time.Second}[cut]
				if ended != want {
					t.Errorf("it ended after %v, want %v", ended, want)
				}
			})
		})
	}
}
