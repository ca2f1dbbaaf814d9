package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
)

// A receiver that took an alert for some of its recipients works. The alert is tried again for the others, and holds up
// nobody else's; for whom it refuses the alert for good there is one dead letter, and it counts as delivered.
func TestRecipientsOfAReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tried attempts
		p, r := newPartition("0"), &receiver{}
		r.set(tried.record(func(_ context.Context, a notify.Alert) error {
			switch {
			case a.Device == "gone":
				return &notify.Error{Refused: true, Left: "bob@example.com", Err: errors.New("550 bob")}
			case len(tried.of(a.Device)) <= 4 && a.Device != "well":
				return &notify.Error{Left: "bob@example.com", Err: errors.New("450 bob")}
			}
			return nil
		}))
		s := newSetup(t, r)
		keeping := func(err error) {
			s.dead.mu.Lock()
			defer s.dead.mu.Unlock()
			s.dead.err = err
		}
		keeping(errors.New("no room"))
		s.start(p)
		defer s.end()
		for i := range 3 {
			p.publish(fmt.Sprint("busy", i), 99)
		}
		pass(5 * time.Second) // each has failed three times
		if down := s.worker.Receivers()[0]; down.Down {
			t.Errorf("the receiver is down: %+v", down)
		}
		p.publish("well", 99)
		p.publish("gone", 99)
		synctest.Wait()
		if n := len(tried.of("well")); n != 1 {
			t.Errorf("another device was tried %d times at once", n)
		}
		pass(2 * time.Second)
		if n := len(tried.of("gone")); n < 2 {
			t.Errorf("tried %d times while its dead letter cannot be kept", n)
		}
		keeping(nil)
		pass(20 * time.Second)
		for i := range 3 {
			if n := len(tried.of(fmt.Sprint("busy", i))); n != 5 {
				t.Errorf("tried %d times, want 5", n)
			}
		}
		dead := s.dead.all()
		if len(dead) != 1 || dead[0].Alert.Device != "gone" || dead[0].Alert.To != "bob@example.com" {
			t.Errorf("dead letters %+v", dead)
		}
		before := len(tried.of("gone"))
		p.publish("gone", 99)
		pass(interval)
		if n := len(tried.of("gone")); n != before {
			t.Error("tried again within the window of those who took it")
		}
		wantCheckpoint(t, p, 6)
	})
}
