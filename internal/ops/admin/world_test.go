package admin_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/notify"
	"alertworker/internal/ops/admin"
	"alertworker/internal/ops/status"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "0123456789abcdef"

// A world is an Admin and what it looks at.
type world struct {
	admin    *admin.Admin
	worker   *fakeWorker
	gate     *fakeGate
	recorder *admin.Recorder
	monitor  *status.Monitor

	mu              sync.Mutex
	reading         telemetry.SourceStats
	partitions      []telemetry.PartitionStatus
	partitionsError error
	standby         string
	asked           int // for partitions
}

func newWorld(t *testing.T, change ...func(*admin.Options)) *world {
	t.Helper()
	w := &world{worker: &fakeWorker{stats: worker.Stats{Counters: partition.Counters{Levels: make([]partition.LevelCounters, 4)}}}, gate: &fakeGate{}, recorder: &admin.Recorder{}, monitor: status.New(zap.NewNop())}
	o := admin.Options{
		Source: "contoso/telemetry", Replica: "alertworker-7d9f-x2x1p", Version: "1.2.3",
		Rules: rules.Threshold("temperature", 80, time.Minute), Started: time.Now(),
		Worker: w.worker, Receivers: []admin.Receiver{{Name: "example.com", Rule: "temperature", Gate: w.gate}},
		Recorder: w.recorder, Token: token, Log: zap.NewNop(),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "up 1") }),
		Ingest:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
		Partitions: func(context.Context) ([]telemetry.PartitionStatus, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked++
			return slices.Clone(w.partitions), w.partitionsError
		},
	}
	o.Self = func() status.Statement { return status.Statement{Replica: o.Replica, Status: w.monitor.Report()} }
	for _, c := range change {
		c(&o)
	}
	w.monitor.Watch(status.Replica{
		Worker: w.worker,
		Standby: func() string {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.standby
		},
		Source: func() telemetry.SourceStats {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.reading
		},
	})
	w.admin = admin.New(o)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.admin.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return w
}

// set changes what there is, between two looks at it.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.worker.mu.Lock()
	defer w.worker.mu.Unlock()
	change()
}

// do asks for one thing.
func (w *world) do(method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://host"+path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	w.admin.ServeHTTP(answer, r)
	return answer
}

func (w *world) authorized(method, path string) *httptest.ResponseRecorder {
	return w.do(method, path, "Authorization", "Bearer "+token)
}

// busy makes it a world in which much goes on, with so many alerts.
func (w *world) busy(alerts int) {
	now := time.Now()
	w.set(func() {
		w.reading = telemetry.SourceStats{Running: true, Owned: 2, Reading: 2}
		uuid := "-0b6d8a0e-7f6c-4d3a-9c41-2f6f2b7f0a11"
		w.partitions = []telemetry.PartitionStatus{
			{Partition: "0", Owner: "alertworker-7d9f-x2x1p" + uuid, Mine: true, Checkpoint: 1_203_999, Last: 1_204_100},
			{Partition: "1", Owner: "alertworker-7d9f-k8c2m" + uuid, Checkpoint: 1_187_201, Last: 1_187_204},
			{Partition: "2", Owner: "alertworker-7d9f-x2x1p" + uuid, Mine: true, Checkpoint: 998_310, Last: 1_001_456},
			{Partition: "10", Checkpoint: -1, Last: -1},
		}
		w.worker.partitions = []partition.State{
			{Partition: "0", Read: telemetry.Position{Sequence: 1_204_100}, Committed: telemetry.Position{Sequence: 1_203_999}, ReadUntil: now},
			{Partition: "2", Read: telemetry.Position{Sequence: 999_000}, ReadUntil: now, Unsettled: 3, Oldest: now.Add(-95 * time.Second), Delivering: 3},
			{Partition: "http"},
		}
		w.worker.receivers = []delivery.ReceiverState{
			{Name: "example.com", Taken: 112},
			{Name: "pager.example.net", Down: true, Since: now.Add(-95 * time.Second), Retry: now.Add(42 * time.Second), Taken: 97, Waiting: 3,
				Err: errors.New("post alert to https://pager.example.net: answered 503 Service Unavailable")},
		}
	})
	s := &w.worker.stats
	s.Events[telemetry.ReasonOK].Store(2_391_112)
	s.Events[telemetry.ReasonMissing].Store(12)
	s.Events[telemetry.ReasonMalformed].Store(3)
	s.Over.Store(9_120)
	s.Suppressed.Store(9_008)
	s.Ambiguous.Store(1)
	s.Levels[0].Sent.Store(209)
	for i := range alerts {
		w.take(notify.Alert{
			ID: fmt.Sprint("contoso/telemetry/0/", 1_203_000+i), Device: []string{"oven-3", "kiln/north", "boiler#12", "line-2.press"}[i%4],
			Temperature: 80 + float64(i*37%190)/10, Threshold: 80, Partition: "0", Sequence: int64(1_203_000 + i),
			Window: time.Minute, Token: int64(i), Suppressed: int64(i * 13), Enqueued: now,
		})
	}
}

// ruled are rules of all kinds.
func ruled(o *admin.Options) {
	o.Rules = rules.Set{Mutes: rules.Mutes{{Property: "quiet", Value: "true"}}, Rules: []rules.Rule{
		{Name: "hot", Field: "temperature,temp", Window: 10 * time.Minute, Resolved: true, Levels: []rules.Level{
			{Name: "warning", Limit: 70, Clear: 65, For: 2 * time.Minute}, {Name: "critical", Limit: 80, Clear: 65, For: 2 * time.Minute, LimitAt: rules.Reference{Name: "maxTemp"}},
		}},
		{Name: "cold-chain", Field: "probe.temp", Below: true, Window: time.Minute, Levels: []rules.Level{{Limit: 2, Clear: 2}}},
		{Name: "damp", Field: "humidity", Window: time.Minute, Levels: []rules.Level{{Limit: 60, Clear: 55}}},
		{Name: "door-open", Field: "door", Window: time.Minute, Per: "site", Is: []string{"open", "ajar", "wide-open-since-yesterday"}, Levels: []rules.Level{{Limit: 1, Clear: 1, For: 3 * time.Minute}}},
		{Name: "probe-dead", Field: "probe.temp", Window: time.Hour, Resolved: true, Forget: rules.DefaultForget, Silent: 15 * time.Minute, Levels: []rules.Level{{}}},
	}}
	gate := o.Receivers[0].Gate
	o.Receivers = nil
	for _, r := range o.Rules.Rules {
		for _, l := range r.Levels {
			o.Receivers = append(o.Receivers, admin.Receiver{Name: "example.com", Rule: r.Name, Level: l.Name, Gate: gate})
			if r.Per != "" {
				shared := o.Receivers[len(o.Receivers)-1]
				shared.Per = r.Per
				o.Receivers = append(o.Receivers, shared)
			}
		}
	}
}

// alarming makes it a world in which rules, which must be those of ruled, have alarms.
func (w *world) alarming() {
	now := time.Now()
	w.set(func() {
		w.worker.counts = []partition.AlarmCounts{
			{Rule: "hot", Level: "warning", Pending: 7, Open: 1_204, Due: 31}, {Rule: "hot", Level: "critical", Open: 2}, {Rule: "cold-chain"}, {Rule: "damp", Open: 1}, {Rule: "door-open"},
			{Rule: "probe-dead", Open: 2, Due: 1},
		}
		for i, device := range []string{"truck-" + strings.Repeat("Feuerungsautomat", 3), "hub/telemetry"} {
			w.worker.alarms = append(w.worker.alarms, partition.AlarmState{
				Partition: "0", Device: device, Rule: "probe-dead", Phase: rules.Open, Since: now.Add(time.Duration(100*i-200) * time.Minute), Silence: true,
			})
		}
		for i, device := range []string{"oven-3", "kiln/north", "boiler#12", "cellar", "line-2.press"} {
			level := []string{"critical", "warning", "critical", "", "warning"}[i]
			rule := []string{"hot", "damp"}[i/3%2]
			if level != "" {
				rule = "hot"
			}
			w.worker.alarms = append(w.worker.alarms, partition.AlarmState{
				Partition: "0", Device: device, Rule: rule, Level: level, Phase: rules.Open, Since: now.Add(time.Duration(-60*(90-i*i*5)) * time.Second),
			})
		}
		w.worker.partitions[1].Ledger = partition.LedgerState{Writes: 3, Err: errors.New("write ledger: service unavailable"), Since: now.Add(-3 * time.Minute)}
	})
	s := &w.worker.stats
	s.Override[rules.OverrideUsed].Store(612)
	s.Override[rules.OverrideOther].Store(4)
	s.Quieted.Store(88)
	for i, a := range []notify.Alert{
		{Device: "oven-3", Rule: "hot", Level: "critical", Temperature: 93.5, Threshold: 85},
		{Device: "fridge", Rule: "cold-chain", Below: true, Temperature: 1.25, Threshold: 2},
		{Device: "press", Rule: "hot", Level: "warning", Temperature: 64.5, Threshold: 65, Resolved: true},
		{Device: "cellar", Rule: "damp", Temperature: 61, Threshold: 60},
		{Device: "door-7", Rule: "door-open", Per: "site", PerValue: "berlin", Word: "wide-open-since-yesterday", Temperature: 1, Threshold: 1},
		{Device: "truck-4", Rule: "probe-dead", Silent: 15 * time.Minute, Since: now.Add(-15 * time.Minute)},
		{Device: "hub/telemetry", Rule: "probe-dead", Silent: 15 * time.Minute, Since: now.Add(-15 * time.Minute)},
		{Device: "truck-9", Rule: "probe-dead", Silent: 15 * time.Minute, Since: now.Add(-time.Hour), Resolved: true},
	} {
		a.ID, a.Partition, a.Sequence, a.Window, a.Suppressed, a.Enqueued = fmt.Sprint("ruled/", i), "0", int64(77+i), 10*time.Minute, int64(i*3), now
		w.take(a)
	}
}

// take has a receiver take an alert.
func (w *world) take(a notify.Alert) {
	a.Rule = cmp.Or(a.Rule, notify.DefaultRule)
	_ = notify.Observe(well{}, w.recorder.Receiver("example.com")).Notify(context.Background(), a)
}

type well struct{}

func (well) Notify(context.Context, ...notify.Alert) error { return nil }

type ill struct{}

func (ill) Notify(context.Context, ...notify.Alert) error { return errors.New("no") }

type fakeWorker struct {
	stats      worker.Stats
	mu         sync.Mutex
	partitions []partition.State
	receivers  []delivery.ReceiverState
	devices    map[string]partition.DeviceState
	counts     []partition.AlarmCounts
	alarms     []partition.AlarmState // the oldest first
	unreadable partition.Unreadables
}

func (w *fakeWorker) Stats() *worker.Stats                      { return &w.stats }
func (w *fakeWorker) Device(of sensor.ID) partition.DeviceState { return w.devices[of.Device] }

func (w *fakeWorker) Forget(_ context.Context, of sensor.ID) (bool, error) {
	_, known := w.devices[of.Device]
	return known, nil
}
func (w *fakeWorker) AlarmCounts() []partition.AlarmCounts { return w.counts }
func (w *fakeWorker) Unreadable() partition.Unreadables    { return w.unreadable }
func (w *fakeWorker) Alarms(limit int) []partition.AlarmState {
	return w.alarms[:min(limit, len(w.alarms))]
}

func (w *fakeWorker) Receivers() []delivery.ReceiverState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.receivers)
}

func (w *fakeWorker) Partitions() []partition.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.partitions)
}

// read says that more events of the i-th partition were read.
func (w *fakeWorker) read(i int, events int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partitions[i].Read.Sequence += events
}

// A fakeGate remembers whom it was asked about.
type fakeGate struct {
	mu    sync.Mutex
	state throttle.State
	err   error
	asked []string
	count int64
}

func (g *fakeGate) Count(sensor.ID) int64 { return g.count }

func (g *fakeGate) Inspect(_ context.Context, of sensor.ID) (throttle.State, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, of.Device)
	return g.state, g.err
}

// problem says whether an answer is one, of status.
func problem(t *testing.T, answer *httptest.ResponseRecorder, status int) {
	t.Helper()
	if answer.Code != status || answer.Header().Get("Content-Type") != "application/problem+json" || !strings.Contains(answer.Body.String(), fmt.Sprintf(`"status":%d`, status)) {
		t.Errorf("answered %d %s %s, want the problem %d", answer.Code, answer.Header(), answer.Body, status)
	}
}
