package worker

import (
	"math"
	"testing"
	"time"
)

// While a partition ends, the notice of a delivery that was dropped may become another: it is left alone.
func TestNoticeChangesAfterItsDeliveryIsDropped(t *testing.T) {
	s := benchStream(t, time.Hour)
	s.alarms = newAlarms(10)
	s.receivers[0].health = health{down: true, suspects: 2, nextNew: math.MaxInt64, nextFailed: math.MaxInt64}
	key := alarmKey{"oven", s.levels[0]}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.become(key, kept{due: &dueNotice{receivers: 1}})
	if n := s.queues[0].waiting(); n != 1 {
		t.Fatalf("%d wait, want 1", n)
	}
	s.queues[0].close()
	s.become(key, kept{due: &dueNotice{receivers: 1}})
	if n := s.queues[0].waiting(); n != 0 {
		t.Errorf("%d wait after the end", n)
	}
}
