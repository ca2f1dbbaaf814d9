package metrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/ops/metrics"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// What an Event Hubs source wants to tell, and a worker has, fits what is read here.
var (
	_ eventhubs.Ends = (*metrics.Ends)(nil)
	_ metrics.Worker = (*worker.Worker)(nil)
)

func TestWorkerIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &state{}
		m := metrics.New("")
		m.Watch(s, s.Source, "blob")
		expect(t, m, map[string]float64{`events_total{reason="ok", result="reading"}`: 0, `gate_decisions_total{result="sent", store="blob"}`: 0})

		s.stats.Events[telemetry.ReasonOK].Store(100)
		s.stats.Events[telemetry.ReasonNotTelemetry].Store(2)
		s.stats.Events[telemetry.ReasonTooDeep].Store(3)
		s.stats.Over.Store(10)
		s.stats.Suppressed.Store(9)
		s.stats.Outcomes[throttle.Unavailable].Store(1)
		s.stats.Outcomes[throttle.Unconfirmed].Store(2)
		s.stats.Ambiguous.Store(4)
		s.stats.DeadLetters.Store(5)
		s.receivers = []worker.ReceiverState{{Name: "log"}, {Name: "hook", Down: true}}
		s.source = metrics.SourceStats{Owned: 3, Reading: 1, Lost: 6, Unread: 7, Restarts: 8, Moves: 9, StartedOver: 10, Expired: 11, Skipped: 12}
		s.partitions = []worker.PartitionState{
			{Partition: "0"},
			{Partition: "1", Unsettled: 2, Oldest: time.Now().Add(-time.Minute), Delivering: 3},
		}
		expect(t, m, map[string]float64{
			`events_total{reason="ok", result="reading"}`:              100,
			`events_total{reason="not_telemetry", result="ignored"}`:   2,
			`events_total{reason="too_deep", result="undecodable"}`:    3,
			`readings_over_threshold_total`:                            10,
			`readings_suppressed_total`:                                9,
			`gate_decisions_total{result="unavailable", store="blob"}`: 1,
			`gate_decisions_total{result="unconfirmed", store="blob"}`: 2,
			`ambiguous_sends_total`:                                    4,
			`dead_letters_total`:                                       5,
			`receiver_down{receiver="log"}`:                            0,
			`receiver_down{receiver="hook"}`:                           1,
			`hub_moves_total`:                                          9,
			`partitions_started_over_total`:                            10,
			`events_lost_total{reason="expired"}`:                      11,
			`events_lost_total{reason="skipped"}`:                      12,
			`partitions_owned`:                                         3,
			`partitions_unread`:                                        2,
			`partitions_lost_total`:                                    6,
			`processor_unread_restarts_total`:                          7,
			`processor_restarts_total`:                                 8,
			`partition_unsettled_events{partition="0"}`:                0,
			`partition_oldest_unsettled_age_seconds{partition="0"}`:    0,
			`partition_unsettled_events{partition="1"}`:                2,
			`partition_oldest_unsettled_age_seconds{partition="1"}`:    60,
			`partition_flights{partition="1"}`:                         3,
		})

		// While a lost partition settles, more are read than owned.
		s.source = metrics.SourceStats{Owned: 0, Reading: 1}
		expect(t, m, map[string]float64{`partitions_unread`: 0})
	})
}

func TestDuties(t *testing.T) {
	m := metrics.New("")
	leads := false
	m.Duties(func() (int64, bool) { return 7, leads })
	expect(t, m, map[string]float64{`duty_leader`: 0})
	leads = true
	expect(t, m, map[string]float64{`duty_leader`: 1})
}

func TestStandby(t *testing.T) {
	m := metrics.New("")
	waits := false
	m.Standby(func() bool { return waits })
	expect(t, m, map[string]float64{`standby`: 0})
	waits = true
	expect(t, m, map[string]float64{`standby`: 1})
}

// A partition that was lost and came back while its former consumer settles is one.
func TestPartitionTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &state{}
		m := metrics.New("")
		ends := m.Watch(s, s.Source, "blob")
		former := worker.PartitionState{Partition: "0", Read: at(10), Unsettled: 2, Oldest: time.Now().Add(-time.Minute), Delivering: 1}
		present := worker.PartitionState{Partition: "0", Read: at(20), Unsettled: 1, Oldest: time.Now().Add(-time.Second), Delivering: 1}
		for _, order := range [][]worker.PartitionState{{former, present}, {present, former}} {
			s.partitions = order
			ends.End("0", 25)
			expect(t, m, map[string]float64{
				`partition_unsettled_events{partition="0"}`:             3,
				`partition_flights{partition="0"}`:                      2,
				`partition_oldest_unsettled_age_seconds{partition="0"}`: 60,
				`partition_lag_events{partition="0"}`:                   5,
			})
		}
	})
}

func TestCheckpointAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = `partition_checkpoint_age_seconds{partition="0"}`
		s := &state{}
		m := metrics.New("")
		m.Watch(s, s.Source, "blob")
		see := func(what string, settled, committed telemetry.Position, want float64) {
			t.Helper()
			time.Sleep(15 * time.Second)
			s.partitions = []worker.PartitionState{{Partition: "0", Settled: settled, Committed: committed}}
			if got := values(t, m)[age]; got != want {
				t.Errorf("%s: %v s, want %v", what, got, want)
			}
		}
		none := telemetry.Position{}
		see("nothing read", none, none, 0)
		see("the first events", at(5), none, 15)
		see("its checkpoint is on the way", at(10), at(5), 0)
		see("it follows", at(15), at(10), 0)
		see("it does not", at(20), at(10), 15)
		see("it does not", at(25), at(10), 30)
		see("nothing new, still not", at(25), at(10), 45)
		see("it does again", at(30), at(25), 0)
		see("all is recorded", at(30), at(30), 0)
		see("for long", at(30), at(30), 0)
		see("and there is more", at(31), at(30), 15)

		s.partitions = nil
		time.Sleep(time.Hour)
		if v, ok := values(t, m)[age]; ok {
			t.Errorf("a partition that is gone has age %v", v)
		}
		see("it is back, behind", at(40), at(30), 0)
	})
}

func TestLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &state{}
		m := metrics.New("")
		ends := m.Watch(s, s.Source, "blob")
		read := func(p telemetry.Position, until time.Time) {
			s.partitions = []worker.PartitionState{{Partition: "0", Read: p, ReadUntil: until}}
		}
		see := func(what string, end int64, events, seconds float64) {
			t.Helper()
			time.Sleep(15 * time.Second)
			ends.End("0", end)
			got := values(t, m)
			if e, w := got[`partition_lag_events{partition="0"}`], got[`partition_lag_seconds{partition="0"}`]; e != events || w != seconds {
				t.Errorf("%s: %v events, %v s, want %v, %v", what, e, w, events, seconds)
			}
		}
		read(telemetry.Position{}, time.Time{})
		see("an idle partition", 1000, 0, 0)
		see("nothing is read of what came", 1010, 10, 15)
		see("and of what came then", 1020, 20, 30)
		read(at(1005), time.Now().Add(-10*time.Second))
		see("some is read; the last read is 25 s old", 1020, 15, 25)
		read(at(1020), time.Now())
		see("all is read", 1020, 0, 0)
		time.Sleep(time.Hour)
		see("an hour later", 1020, 0, 0)
		see("one more, not yet read, is no hour old", 1021, 1, 15)
		read(at(1030), time.Now())
		see("the reader is further than the hub was asked", 1025, 0, 0)
		read(at(1030), time.Now().Add(time.Hour))
		see("the hub's clock is ahead", 1040, 10, 0)
	})
}

// A hub that ends before what was read when it was asked is not the one that was
// read: that is no lag of 0.
func TestLagOfAnotherHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = `partition_lag_events{partition="0"}`
		s := &state{partitions: []worker.PartitionState{{Partition: "0", Read: at(1000), ReadUntil: time.Now()}}}
		m := metrics.New("")
		ends := m.Watch(s, s.Source, "blob")
		ends.Wanted()
		ends.End("0", 1000)
		expect(t, m, map[string]float64{events: 0})
		ends.Wanted()
		ends.End("0", 17)
		if lag, ok := values(t, m)[events]; ok {
			t.Errorf("the lag is %v, want none", lag)
		}
		ends.Wanted()
		s.partitions[0].Read = at(1010)
		ends.End("0", 1005) // more was read since it was asked
		expect(t, m, map[string]float64{events: 0})
	})
}

// A replica that starts far behind says so at once, and what is old is not shown.
func TestLagAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = `partition_lag_events{partition="0"}`
		s := &state{partitions: []worker.PartitionState{{Partition: "0", Read: at(1), ReadUntil: time.Now().Add(-time.Hour)}}}
		m := metrics.New("")
		ends := m.Watch(s, s.Source, "blob")
		if _, ok := values(t, m)[events]; ok {
			t.Error("there is a lag before the hub was asked")
		}
		ends.Partitions(4)
		ends.End("0", 1001)
		ends.End("7", 1001) // given away meanwhile
		expect(t, m, map[string]float64{`hub_partitions`: 4, events: 1000, `partition_lag_seconds{partition="0"}`: 3600})
		if _, ok := values(t, m)[`partition_lag_events{partition="7"}`]; ok {
			t.Error("there is a lag of a partition that is not read")
		}
		if got := ends.Wanted(); len(got) != 1 || got[0] != "0" {
			t.Errorf("it wants %v", got)
		}

		time.Sleep(time.Minute)
		if _, ok := values(t, m)[events]; ok {
			t.Error("a lag of a minute ago is shown")
		}
		expect(t, m, map[string]float64{`hub_partitions`: 4})

		// Given away and taken again: what was known of it is forgotten.
		s.partitions = nil
		ends.Wanted()
		s.partitions = []worker.PartitionState{{Partition: "0"}}
		ends.End("0", 5000)
		expect(t, m, map[string]float64{events: 0})
	})
}

func TestHandler(t *testing.T) {
	m := metrics.New("1.2.3")
	s := &state{}
	ends := m.Watch(s, s.Source, "blob")
	h := m.Handler()
	var scrapes sync.WaitGroup
	for range 4 {
		scrapes.Go(func() {
			for range 20 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				body, _ := io.ReadAll(w.Result().Body)
				for _, want := range []string{`alertworker_build_info{goversion="go`, `version="1.2.3"} 1`, "alertworker_partitions_owned 0", "go_goroutines ", "process_start_time_seconds "} {
					if w.Code != http.StatusOK || !strings.Contains(string(body), want) {
						t.Errorf("status %d, and no %q in\n%s", w.Code, want, body)
						return
					}
				}
			}
		})
	}
	for n := range 100 {
		s.mu.Lock()
		s.partitions = []worker.PartitionState{{Partition: "0", Read: at(int64(n))}}
		s.mu.Unlock()
		ends.Partitions(1)
		ends.End(ends.Wanted()[0], int64(n))
		s.stats.Over.Add(1)
	}
	scrapes.Wait()
}
