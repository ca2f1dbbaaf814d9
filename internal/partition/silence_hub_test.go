package partition_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
)

// manyPartitions returns those of one hub.
func manyPartitions(n int) (all []*partition) {
	for i := range n {
		all = append(all, newPartition(fmt.Sprint(i)))
	}
	for _, p := range all {
		for _, other := range all {
			if other != p {
				p.others = append(p.others, other.id)
			}
		}
	}
	return all
}

// An outage before the hub is one alert and one recovery, however many partitions it makes dark, one after the other,
// and whichever replicas they have. Nothing is said of a device.
func TestDarkHub(t *testing.T) {
	const m = time.Minute
	for _, tt := range []struct {
		name string
		dark []int // the partitions to which nothing comes, each 20 s after the one before it
		fast []int // of these, those to which it comes again half an hour before the others
		want []string
	}{
		{"all", []int{0, 1, 2, 3}, nil, []string{"0", "1", "2", "3"}},
		{"the one that tells", []int{0}, nil, []string{"0"}},
		{"another one", []int{2}, nil, []string{"2"}},
		{"some, which end one by one", []int{0, 1, 3}, []int{0, 3}, []string{"0", "1", "3"}},
		{"the one that tells is the last", []int{0, 1, 3}, []int{1}, []string{"0", "1", "3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, r := manyPartitions(4), &receiver{}
				one, two := silence(t, nil, r), silence(t, nil, r)
				two.store, two.ledgers = one.store, one.ledgers
				one.start(all[0], all[1])
				two.start(all[2], all[3])

				start := time.Now()
				comes := func(partition int) bool {
					after := time.Since(start)
					dark := slices.Index(tt.dark, partition)
					end := 100 * m
					if slices.Contains(tt.fast, partition) {
						end = 70 * m
					}
					return dark < 0 || after < 5*m+time.Duration(dark)*20*time.Second || after >= end
				}
				var ended time.Duration
				for time.Since(start) < 180*m {
					for i, p := range all {
						if !comes(i) {
							continue
						}
						for device := range 25 {
							p.publishBody(fmt.Sprint(i, "-", device), "{}")
						}
					}
					time.Sleep(20 * time.Second)
					if n := r.alerts(notify.Hub); len(n) > 0 && n[len(n)-1].Resolved && ended == 0 {
						ended = time.Since(start)
					}
				}
				one.end()
				two.end()

				told := r.alerts(notify.Hub)
				if len(told) != 2 || told[0].Resolved || !told[1].Resolved || ended < 100*m || ended > 104*m {
					t.Fatalf("the last message came after %v; all: %+v", ended, told)
				}
				want := notify.Outage{Partitions: tt.want, Of: 4, Devices: 25 * len(tt.want)}
				if got := told[0].Outage; got == nil || !slices.Equal(got.Partitions, tt.want) || got.Devices != want.Devices || got.Of != 4 {
					t.Errorf("the alert is about %+v; want %+v", got, want)
				}
				if len(r.alerts("")) > 2 {
					t.Errorf("%d messages", len(r.alerts("")))
				}
			})
		})
	}
}
