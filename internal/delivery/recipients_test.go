package delivery_test

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
		r := &receiver{}
		r.set(func(_ context.Context, a notify.Alert) error {
			switch {
			case a.Device == "gone":
				return &notify.Error{Refused: true, Left: "bob@example.com", Err: errors.New("550 bob")}
			case len(r.attempts(a.Device)) <= 4 && a.Device != "well":
				return &notify.Error{Left: "bob@example.com", Err: errors.New("450 bob")}
			}
			return nil
		})
		s := newReplica(t, r)
		s.dead.fail(errors.New("no room"))
		p := s.open("0")
		defer s.end()
		for i := range 3 {
			p.hot(fmt.Sprint("busy", i))
		}
		pass(5 * time.Second) // each has failed three times
		if down := s.dispatcher.Receivers()[0]; down.Down {
			t.Errorf("the receiver is down: %+v", down)
		}
		p.hot("well")
		p.hot("gone")
		synctest.Wait()
		if n := len(r.attempts("well")); n != 1 {
			t.Errorf("another device was tried %d times at once", n)
		}
		pass(2 * time.Second)
		if n := len(r.attempts("gone")); n < 2 {
			t.Errorf("tried %d times while its dead letter cannot be kept", n)
		}
		s.dead.fail(nil)
		pass(20 * time.Second)
		for i := range 3 {
			if n := len(r.attempts(fmt.Sprint("busy", i))); n != 5 {
				t.Errorf("tried %d times, want 5", n)
			}
		}
		dead := s.dead.all()
		if len(dead) != 1 || dead[0].Alert.Device != "gone" || dead[0].Alert.To != "bob@example.com" {
			t.Errorf("dead letters %+v", dead)
		}
		before := len(r.attempts("gone"))
		p.hot("gone")
		pass(5 * time.Second)
		if n := len(r.attempts("gone")); n != before {
			t.Error("tried again within the window of those who took it")
		}
		wantWatermark(t, p, 6)
	})
}
