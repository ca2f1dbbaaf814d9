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

	"alertworker/internal/delivery"
	"alertworker/internal/ops/metrics"
	"alertworker/internal/ops/metrics/metricstest"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// What a worker has fits what is read here.
var _ metrics.Worker = (*worker.Worker)(nil)

func TestWorkerIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &metricstest.Worker{}
		m := metrics.New("")
		m.Watch(s, s.Source, "blob")
		expect(t, m, map[string]float64{`events_total{reason="ok", result="reading"}`: 0, `gate_decisions_total{result="sent", store="blob"}`: 0})

		s.Counts.Events[telemetry.ReasonOK].Store(100)
		s.Counts.Events[telemetry.ReasonNotTelemetry].Store(2)
		s.Counts.Events[telemetry.ReasonTooLarge].Store(3)
		s.Counts.Over.Store(10)
		s.Counts.Suppressed.Store(9)
		s.Counts.Outcomes[throttle.Unavailable].Store(1)
		s.Counts.Outcomes[throttle.Unconfirmed].Store(2)
		s.Counts.Ambiguous.Store(4)
		s.Counts.DeadLetters.Store(5)
		s.ReceiverStates = []delivery.ReceiverState{{Name: "log"}, {Name: "hook", Down: true}}
		s.SourceStats = telemetry.SourceStats{Owned: 3, Reading: 1, Lost: 6, Stalled: 7, Reopened: 8, Moves: 9, StartedOver: 10, Expired: 11, Skipped: 12}
		s.PartitionStates = []partition.State{
			{Partition: "0"},
			{Partition: "1", Unsettled: 2, Oldest: time.Now().Add(-time.Minute), Delivering: 3},
		}
		s.UnreadDevices.Devices[telemetry.ReasonNull] = 24
		s.Counts.Quieted.Store(13)
		s.Counts.Untracked.Store(14)
		s.Counts.Override[rules.OverrideOther].Store(15)
		s.Counts.Levels = make([]partition.LevelCounters, 2)
		s.Alarms = []partition.AlarmCounts{{Rule: "temperature", Pending: 1, Open: 2, Due: 3, Incidents: 21}, {Rule: "hot", Level: "critical"}}
		of := &s.Counts.Levels[1]
		of.Over.Store(16)
		of.Opened.Store(17)
		of.Cleared.Store(18)
		of.Sent.Store(19)
		of.Recovered.Store(20)
		expect(t, m, map[string]float64{
			`events_total{reason="ok", result="reading"}`:              100,
			`events_total{reason="not_telemetry", result="ignored"}`:   2,
			`events_total{reason="too_large", result="undecodable"}`:   3,
			`devices_unreadable{reason="null"}`:                        24,
			`devices_unreadable{reason="missing"}`:                     0,
			`readings_over_threshold_total`:                            10,
			`readings_suppressed_total`:                                9,
			`gate_decisions_total{result="unavailable", store="blob"}`: 1,
			`gate_decisions_total{result="unconfirmed", store="blob"}`: 2,
			`ambiguous_sends_total`:                                    4,
			`dead_letters_total`:                                       5,
			`incidents{level="", rule="temperature"}`:                  21,
			`receiver_down{reason="failing", receiver="log"}`:          0,
			`receiver_down{reason="failing", receiver="hook"}`:         1,
			`hub_moves_total`:                                          9,
			`partitions_started_over_total`:                            10,
			`events_lost_total{reason="expired"}`:                      11,
			`events_lost_total{reason="skipped"}`:                      12,
			`partitions_owned`:                                         3,
			`partitions_unread`:                                        2,
			`partitions_lost_total`:                                    6,
			`partition_links_stalled_total`:                            7,
			`partition_link_failures_total`:                            8,
			`partition_unsettled_events{partition="0"}`:                0,
			`partition_oldest_unsettled_age_seconds{partition="0"}`:    0,
			`partition_unsettled_events{partition="1"}`:                2,
			`partition_oldest_unsettled_age_seconds{partition="1"}`:    60,
			`partition_deliveries{partition="1"}`:                      3,
			`readings_quieted_total`:                                   13,
			`readings_untracked_total`:                                 14,
			`overrides_total{result="not_a_number"}`:                   15,
			`alarms{level="", rule="temperature", state="pending"}`:    1, // an empty level is none
			`alarms{level="", rule="temperature", state="open"}`:       2,
			`alarms{level="", rule="temperature", state="due"}`:        3,
			`alarms{level="critical", rule="hot", state="open"}`:       0,
			`readings_over_limit_total{level="critical", rule="hot"}`:  16,
			`readings_over_limit_total{level="", rule="temperature"}`:  0,
			`alarms_opened_total{level="critical", rule="hot"}`:        17,
			`alarms_cleared_total{level="critical", rule="hot"}`:       18,
			`alerts_delivered_total{level="critical", rule="hot"}`:     19,
			`recoveries_delivered_total{level="critical", rule="hot"}`: 20,
		})

		// While a lost partition settles, more are read than owned.
		s.SourceStats = telemetry.SourceStats{Owned: 0, Reading: 1}
		expect(t, m, map[string]float64{`partitions_unread`: 0})
	})
}

func TestLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const failing = `partition_ledger_failing_seconds{partition="0"}`
		s := &metricstest.Worker{}
		m := metrics.New("")
		m.Watch(s, s.Source, "blob")
		s.PartitionStates = []partition.State{{Partition: "0"}}
		expect(t, m, map[string]float64{failing: 0})

		waits := partition.State{Partition: "0", Ledger: partition.LedgerState{Err: metricstest.ErrBroken, Since: time.Now().Add(-time.Minute)}}
		s.PartitionStates[0] = waits
		expect(t, m, map[string]float64{failing: 60})

		// Its former consumer, which settles, does not hide that the partition waits.
		s.PartitionStates = []partition.State{waits, {Partition: "0", Read: metricstest.At(10), Ledger: partition.LedgerState{Writes: 1}}}
		expect(t, m, map[string]float64{failing: 60})
	})
}

func TestDuties(t *testing.T) {
	m := metrics.New("")
	leads, failures := false, map[string]int{"janitor": 0, "heartbeat": 0}
	m.Duties(func() (int64, bool) { return 7, leads }, func() map[string]int { return failures })
	expect(t, m, map[string]float64{`duty_leader`: 0, `duty_consecutive_failures{duty="janitor"}`: 0, `duty_consecutive_failures{duty="heartbeat"}`: 0})
	leads, failures["heartbeat"] = true, 3
	expect(t, m, map[string]float64{`duty_leader`: 1, `duty_consecutive_failures{duty="janitor"}`: 0, `duty_consecutive_failures{duty="heartbeat"}`: 3})
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
		s := &metricstest.Worker{}
		m := metrics.New("")
		lag := m.Watch(s, s.Source, "blob")
		former := partition.State{Partition: "0", Read: metricstest.At(10), Unsettled: 2, Oldest: time.Now().Add(-time.Minute), Delivering: 1}
		present := partition.State{Partition: "0", Read: metricstest.At(20), Unsettled: 1, Oldest: time.Now().Add(-time.Second), Delivering: 1}
		for _, order := range [][]partition.State{{former, present}, {present, former}} {
			s.PartitionStates = order
			lag.Record(1, map[string]int64{"0": 25})
			expect(t, m, map[string]float64{
				`partition_unsettled_events{partition="0"}`:             3,
				`partition_deliveries{partition="0"}`:                   2,
				`partition_oldest_unsettled_age_seconds{partition="0"}`: 60,
				`partition_lag_events{partition="0"}`:                   5,
			})
		}
	})
}

func TestCheckpointAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = `partition_checkpoint_age_seconds{partition="0"}`
		s := &metricstest.Worker{}
		m := metrics.New("")
		m.Watch(s, s.Source, "blob")
		see := func(what string, settled, committed telemetry.Position, want float64) {
			t.Helper()
			time.Sleep(15 * time.Second)
			s.PartitionStates = []partition.State{{Partition: "0", Settled: settled, Committed: committed}}
			if got := values(t, m)[age]; got != want {
				t.Errorf("%s: %v s, want %v", what, got, want)
			}
		}
		none := telemetry.Position{}
		see("nothing read", none, none, 0)
		see("the first events", metricstest.At(5), none, 15)
		see("its checkpoint is on the way", metricstest.At(10), metricstest.At(5), 0)
		see("it follows", metricstest.At(15), metricstest.At(10), 0)
		see("it does not", metricstest.At(20), metricstest.At(10), 15)
		see("it does not", metricstest.At(25), metricstest.At(10), 30)
		see("nothing new, still not", metricstest.At(25), metricstest.At(10), 45)
		see("it does again", metricstest.At(30), metricstest.At(25), 0)
		see("all is recorded", metricstest.At(30), metricstest.At(30), 0)
		see("for long", metricstest.At(30), metricstest.At(30), 0)
		see("and there is more", metricstest.At(31), metricstest.At(30), 15)

		s.PartitionStates = nil
		time.Sleep(time.Hour)
		if v, ok := values(t, m)[age]; ok {
			t.Errorf("a partition that is gone has age %v", v)
		}
		see("it is back, behind", metricstest.At(40), metricstest.At(30), 0)
	})
}

func TestLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &metricstest.Worker{}
		m := metrics.New("")
		lag := m.Watch(s, s.Source, "blob")
		read := func(p telemetry.Position, until time.Time) {
			s.PartitionStates = []partition.State{{Partition: "0", Read: p, ReadUntil: until}}
		}
		see := func(what string, end int64, events, seconds float64) {
			t.Helper()
			time.Sleep(15 * time.Second)
			lag.Record(1, map[string]int64{"0": end})
			got := values(t, m)
			if e, w := got[`partition_lag_events{partition="0"}`], got[`partition_lag_seconds{partition="0"}`]; e != events || w != seconds {
				t.Errorf("%s: %v events, %v s, want %v, %v", what, e, w, events, seconds)
			}
		}
		read(telemetry.Position{}, time.Time{})
		see("an idle partition", 1000, 0, 0)
		see("nothing is read of what came", 1010, 10, 15)
		see("and of what came then", 1020, 20, 30)
		read(metricstest.At(1005), time.Now().Add(-10*time.Second))
		see("some is read; the last read is 25 s old", 1020, 15, 25)
		read(metricstest.At(1020), time.Now())
		see("all is read", 1020, 0, 0)
		time.Sleep(time.Hour)
		see("an hour later", 1020, 0, 0)
		see("one more, not yet read, is no hour old", 1021, 1, 15)
		read(metricstest.At(1030), time.Now())
		see("the reader is further than the hub was asked", 1025, 0, 0)
		read(metricstest.At(1030), time.Now().Add(time.Hour))
		see("the hub's clock is ahead", 1040, 10, 0)
	})
}

// What is not settled is after the checkpoint, read or not.
func TestCheckpointLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &metricstest.Worker{}
		m := metrics.New("")
		lag := m.Watch(s, s.Source, "blob")
		see := func(what string, end int64, want float64, p partition.State) {
			t.Helper()
			p.Partition = "0"
			s.PartitionStates = []partition.State{p}
			lag.Record(1, map[string]int64{"0": end})
			expect(t, m, map[string]float64{`partition_checkpoint_lag_events{partition="0"}`: want})
		}
		see("nothing is read, and the checkpoint is not known", 1000, 0, partition.State{})
		see("what came since is not settled", 1010, 10, partition.State{})
		see("all is read, and the first of it waits", 1010, 10, partition.State{First: 1001, Read: metricstest.At(1010)})
		see("all is read, and something later waits", 1010, 6, partition.State{First: 1001, Read: metricstest.At(1010), Committed: metricstest.At(1004)})
		see("all is settled", 1010, 0, partition.State{First: 1001, Read: metricstest.At(1012), Committed: metricstest.At(1012)})
	})
}

// A replica that starts far behind says so at once, and what is old is not shown.
func TestLagAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = `partition_lag_events{partition="0"}`
		s := &metricstest.Worker{PartitionStates: []partition.State{{Partition: "0", Read: metricstest.At(1), ReadUntil: time.Now().Add(-time.Hour)}}}
		m := metrics.New("")
		lag := m.Watch(s, s.Source, "blob")
		if _, ok := values(t, m)[events]; ok {
			t.Error("there is a lag before the hub was asked")
		}
		lag.Record(4, map[string]int64{"0": 1001, "7": 1001}) // 7 was given away meanwhile
		expect(t, m, map[string]float64{`hub_partitions`: 4, events: 1000, `partition_lag_seconds{partition="0"}`: 3600})
		if _, ok := values(t, m)[`partition_lag_events{partition="7"}`]; ok {
			t.Error("there is a lag of a partition that is not read")
		}
		time.Sleep(2 * time.Minute)
		if _, ok := values(t, m)[events]; ok {
			t.Error("a lag of two minutes ago is shown")
		}
		expect(t, m, map[string]float64{`hub_partitions`: 4})

		// Given away and taken again: what was known of it is forgotten.
		s.PartitionStates = nil
		lag.Record(4, nil)
		s.PartitionStates = []partition.State{{Partition: "0"}}
		lag.Record(4, map[string]int64{"0": 5000})
		expect(t, m, map[string]float64{events: 0})
	})
}

func TestHandler(t *testing.T) {
	m := metrics.New("1.2.3")
	s := &metricstest.Worker{}
	lag := m.Watch(s, s.Source, "blob")
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
		s.Lock()
		s.PartitionStates = []partition.State{{Partition: "0", Read: metricstest.At(int64(n))}}
		s.Unlock()
		lag.Record(1, map[string]int64{"0": int64(n)})
		s.Counts.Over.Add(1)
	}
	scrapes.Wait()
}
