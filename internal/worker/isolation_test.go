package worker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
)

// A receiver that is down does not keep alerts from another.
func TestReceiverDownForHoursStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, down, up := newPartition("0"), &receiver{}, &receiver{}
		down.set(func(context.Context, notify.Alert) error { return errBusy })
		s := newSetup(t, down, up).start(p)
		defer s.end()
		devices, windows := 100, 120
		if testing.Short() {
			devices = 10
		}
		for range windows {
			for i := range devices {
				p.publish(fmt.Sprint("device", i), 99)
			}
			pass(window + time.Second)
		}
		if got := len(up.alerts("")); got != devices*windows {
			t.Errorf("%d alerts while another receiver was down, want %d", got, devices*windows)
		}
	})
}
