package partition_test

import (
	"testing"
	"testing/synctest"
	"time"

	partitions "alertworker/internal/partition"
)

// A device that sends to several partitions is noticed at its next alert, and not one whose hub was recreated.
func TestScatteredDevice(t *testing.T) {
	for _, tt := range []struct {
		name         string
		ids          [2]string
		generations  [2]string
		want         int64
		inPartitions [2]string
	}{
		{"two partitions", [2]string{"3", "17"}, [2]string{"a", "a"}, 2, [2]string{"17", "3"}},
		{"one partition", [2]string{"3", "3"}, [2]string{"a", "a"}, 0, [2]string{}},
		{"another hub", [2]string{"3", "17"}, [2]string{"a", "b"}, 0, [2]string{}},
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
				stats := s.stats
				if n := stats.Scattered.Load(); n != tt.want {
					t.Errorf("noticed %d times, want %d", n, tt.want)
				}
				if d := stats.LastScattered.Load(); (d != nil) != (tt.want > 0) || d != nil && *d != (partitions.Scattered{Device: "press", Partitions: tt.inPartitions}) {
					t.Errorf("noticed %v", d)
				}
				if len(r.alerts("press")) != 3 {
					t.Errorf("%d alerts", len(r.alerts("press")))
				}
			})
		})
	}
}
