package partition_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// A device that sends to several partitions is noticed at its next alert, and not one whose hub was recreated.
func TestScatteredDevice(t *testing.T) {
	for _, tt := range []struct {
		name        string
		ids         [2]string
		generations [2]string
		want        int64
	}{
		{"two partitions", [2]string{"3", "17"}, [2]string{"a", "a"}, 2},
		{"one partition", [2]string{"3", "3"}, [2]string{"a", "a"}, 0},
		{"another hub", [2]string{"3", "17"}, [2]string{"a", "b"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, second, r := newPartition(tt.ids[0]), newPartition(tt.ids[1]), &receiver{}
				first.generation, second.generation = tt.generations[0], tt.generations[1]
				s := newSetup(t, r)
				s.start(first, second)
				for _, p := range []*partition{first, second, first} {
					p.publish("press", threshold)
					p.publish("other-"+p.id+p.generation, threshold)
					time.Sleep(window + time.Second)
				}
				s.end()
				if n := s.stats.Scattered.Load(); n != tt.want {
					t.Errorf("noticed %d times, want %d", n, tt.want)
				}
				if len(r.alerts("press")) != 3 {
					t.Errorf("%d alerts", len(r.alerts("press")))
				}
			})
		})
	}
}
