package pace_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/pace"
)

type notifier func(ctx context.Context, alerts []notify.Alert) error

func (n notifier) Notify(ctx context.Context, alerts ...notify.Alert) error { return n(ctx, alerts) }

// An answer that comes as the time is over is one: what is known of the alert is not forgotten.
func TestAnswerAtTheDeadline(t *testing.T) {
	for name, want := range map[string]error{"Taken": nil, "Untaken": &notify.Error{Untaken: true, Err: errors.New("no connection")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := notifier(func(ctx context.Context, _ []notify.Alert) error {
					<-ctx.Done()
					return want
				})
				m := pace.NewMessage(to, 3)
				var notices sync.WaitGroup
				for range 3 {
					notices.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						defer cancel()
						m.Admit()
						if got := m.Notify(ctx, notify.Alert{}); !errors.Is(got, want) {
							t.Errorf("got %v, want %v", got, want)
						}
						m.Leave(true)
					})
				}
				notices.Wait()
			})
		})
	}
}

// A notice that is cancelled while the message is on its way does not wait for the answer.
func TestCancelledOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		m := pace.NewMessage(notifier(func(context.Context, []notify.Alert) error { <-answer; return nil }), 2)
		var notices sync.WaitGroup
		for _, after := range []time.Duration{time.Second, time.Hour} {
			notices.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				timer := time.AfterFunc(after, cancel)
				defer timer.Stop()
				m.Admit()
				err := m.Notify(ctx, notify.Alert{})
				if cancelled := after == time.Second; cancelled != errors.Is(err, context.Canceled) {
					t.Errorf("cancelled after %v: %v", after, err)
				}
				m.Leave(true)
			})
			synctest.Wait() // the second one sends
		}
		time.Sleep(time.Minute)
		close(answer)
		notices.Wait()
	})
}
