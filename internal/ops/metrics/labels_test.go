package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/lease/observe"
	"alertworker/internal/notify"
	"alertworker/internal/ops/metrics"
	"alertworker/internal/ops/metrics/metricstest"
	"alertworker/internal/partition"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/worker"
)

// Which devices there are, and how many, shows in no label: all that a worker has
// to do with them leaves the same series behind.
func TestNoDeviceInLabels(t *testing.T) {
	few := seriesOf(t, "oven-1", "Kessel {7}\n\"ö\"", "x=1,y=2")
	var many []string
	for n := range 60 {
		many = append(many, fmt.Sprint("device-", n))
	}
	for s := range seriesOf(t, many...) {
		if !few[s] {
			t.Errorf("%s comes with devices", s)
		}
		delete(few, s)
	}
	for s := range few {
		t.Errorf("%s comes with devices", s)
	}
}

// Nobody adds a label without coming by here.
func TestLabelsAreFew(t *testing.T) {
	known := map[string]bool{
		"reason": true, "operation": true, "result": true, "by": true, "le": true, // constants
		"partition":  true,                                      // those of the hub, 1024 at most
		"receiver":   true,                                      // NOTIFY_URLS
		"store":      true,                                      // THROTTLE_STORE
		"duty":       true,                                      // the few that there are
		"rule":       true,                                      // RULES_FILE, 32 at most
		"level":      true,                                      // likewise, 64 at most
		"credential": true,                                      // variables of secrets, and entries of NOTIFY_URLS
		"state":      true,                                      // of an alarm
		"version":    true, "revision": true, "goversion": true, // one each
	}
	for _, s := range metricstest.All(t) {
		for name := range s.Metric {
			if name != "__name__" && !known[string(name)] {
				t.Errorf("%s has a label %q: are its values few, and no devices?", s.Metric["__name__"], name)
			}
		}
	}
}

// seriesOf has a worker alert about these devices, over a good receiver and one
// that refuses some and fails for others, and returns the series that are left.
func seriesOf(t *testing.T, devices ...string) map[string]bool {
	t.Helper()
	series := map[string]bool{}
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New("")
		store := observe.Store(memlease.New(), m.Store("memory"))
		set := rules.Threshold("temperature", 30, time.Minute)
		decoder, err := set.Decoder()
		if err != nil {
			t.Fatal(err)
		}
		config := worker.Config{
			Rulebook:   partition.Rulebook{Origin: "ns/hub", Rules: set, Decoder: decoder},
			Deliveries: delivery.Config{Concurrency: 64, GiveUp: time.Hour, DeadLetters: buried{}},
			Partitions: partition.Config{
				CheckpointInterval: time.Second, DrainTimeout: time.Second, Log: zap.NewNop(),
				Roster: func(string) *roster.File { return nil },
			},
		}
		for name, n := range map[string]notify.Notifier{"good": &metricstest.Stub{}, "bad": &unreliable{}} {
			config.Rulebook.Receivers = append(config.Rulebook.Receivers, partition.Receiver{To: delivery.Receiver{Name: name, Notifier: notify.Observe(n, m.Receiver(name))}, Gate: func(rule *rules.Rule, _ *rules.Level) delivery.Gate {
				return recent.New(throttle.Config{Store: store, Scope: "s", Receiver: name, Window: rule.Window, SendTimeout: time.Second}, recent.NewWindows())
			}})
		}
		w := worker.New(config)
		lag := m.Watch(w, func() telemetry.SourceStats { return telemetry.SourceStats{Owned: 1, Reading: 1} }, "memory")

		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Consume(ctx, &hotPartition{devices: devices}) }()
		time.Sleep(10 * time.Minute)
		lag.Record(1, map[string]int64{"0": 1000})
		if got := values(t, m)[`notify_attempts_total{reason="none", receiver="bad", result="refused"}`]; got == 0 {
			t.Error("no alert was refused: nothing is shown")
		}
		for s := range values(t, m) {
			series[s] = true
			if slices.ContainsFunc(devices, func(device string) bool {
				return strings.Contains(s, device) || strings.Contains(s, strings.Trim(fmt.Sprintf("%q", device), `"`))
			}) {
				t.Errorf("%s holds a device", s)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return series
}

// unreliable is a receiver that refuses an alert, fails at the next two, and so on.
type unreliable struct{ n atomic.Int64 }

func (m *unreliable) Notify(_ context.Context, alerts ...notify.Alert) error {
	a := alerts[0]
	switch m.n.Add(1) % 3 {
	case 1:
		return &notify.Error{Refused: true, Untaken: true, Err: errors.New("no " + a.Device)}
	default:
		return &notify.Error{Err: errors.New("lost " + a.Device)}
	}
}

type buried struct{}

func (buried) Keep(context.Context, notify.DeadLetter) error { return nil }

// A hotPartition has one hot reading of each device.
type hotPartition struct {
	devices []string
	done    bool
}

func (*hotPartition) ID() string { return "0" }

func (p *hotPartition) Receive(ctx context.Context) (events []telemetry.Event, err error) {
	if p.done {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p.done = true
	for n, device := range p.devices {
		events = append(events, telemetry.Event{Position: metricstest.At(int64(n + 1)), Device: device, Body: []byte(`{"temperature":99}`), Enqueued: time.Now()})
	}
	return events, nil
}

func (*hotPartition) Rewind(telemetry.Position) {}
func (*hotPartition) Newest(context.Context, time.Time) (newest, asked time.Time, err error) {
	return time.Time{}, time.Now(), nil
}
func (*hotPartition) Last(context.Context) (int64, time.Time, error) { return -1, time.Time{}, nil }
func (*hotPartition) Resumed() (telemetry.Checkpoint, bool)          { return telemetry.Checkpoint{}, false }

func (*hotPartition) Checkpoint(context.Context, telemetry.Checkpoint) error { return nil }
