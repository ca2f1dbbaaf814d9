package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/lease"
	"alertworker/internal/lease/observe"
	"alertworker/internal/notify"
	"alertworker/internal/ops/tracing"
	partitions "alertworker/internal/partition"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config() tracing.Config {
	return tracing.Config{
		Version: "1.2.3", Replica: "replica-1", Log: zap.NewNop(),
		Source: tracing.Source{Host: "ns.servicebus.windows.net", Hub: "telemetry", ConsumerGroup: "alerts"},
	}
}

// newReplica returns a worker with one receiver, traced unless t is nil.
func newReplica(tb testing.TB, t *tracing.Tracing, store lease.Store, n notify.Notifier, dead delivery.DeadLetters) *worker.Worker {
	tb.Helper()
	set := rules.Threshold("temperature", 30, time.Minute)
	decoder, err := set.Decoder()
	if err != nil {
		tb.Fatal(err)
	}
	return worker.New(worker.Config{
		Rulebook: partitions.Rulebook{
			Origin: "ns/telemetry", Rules: set, Decoder: decoder,
			Receivers: []partitions.Receiver{{
				To: delivery.Receiver{Name: "hook", Notifier: notify.Observe(n, t.Receiver("hook"))},
				Gate: func(*rules.Rule, *rules.Level) delivery.Gate {
					return recent.New(throttle.Config{
						Store: observe.Store(store, t.Store("memory")), Scope: "s", Receiver: "hook", Window: time.Minute, SendTimeout: 10 * time.Second,
					}, recent.NewWindows())
				},
			}},
		},
		Deliveries: delivery.Config{Concurrency: 4, GiveUp: time.Hour, DeadLetters: dead, Trace: t.Deliveries()},
		Partitions: partitions.Config{
			CheckpointInterval: time.Second, DrainTimeout: time.Second, Log: zap.NewNop(),
			Roster: func(string) *roster.File { return nil },
		},
	})
}

// consume works the events off for d.
func consume(tb testing.TB, w *worker.Worker, d time.Duration, events ...telemetry.Event) {
	tb.Helper()
	ctx, stop := context.WithTimeout(tb.Context(), d)
	defer stop()
	if err := w.Consume(ctx, &partition{events: events}); err != nil {
		tb.Error(err)
	}
}

// hot is a reading over the threshold, taken by the hub now.
func hot(sequence int64, device string) telemetry.Event {
	return telemetry.Event{
		Position: telemetry.Position{Sequence: sequence, Offset: "1"}, Device: device,
		Body: []byte(`{"temperature":99}`), Enqueued: time.Now(),
	}
}

type partition struct{ events []telemetry.Event }

func (*partition) ID() string { return "3" }

func (p *partition) Receive(ctx context.Context) ([]telemetry.Event, error) {
	if events := p.events; events != nil {
		p.events = nil
		return events, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (*partition) Rewind(telemetry.Position) {}
func (*partition) Newest(context.Context, time.Time) (newest, asked time.Time, err error) {
	return time.Time{}, time.Now(), nil
}
func (*partition) Last(context.Context) (int64, time.Time, error) { return -1, time.Time{}, nil }
func (*partition) Resumed() (telemetry.Checkpoint, bool)          { return telemetry.Checkpoint{}, false }

func (*partition) Checkpoint(context.Context, telemetry.Checkpoint) error { return nil }

// script is a receiver that gives these answers, and then takes everything.
type script struct {
	mu      sync.Mutex
	answers []error
	by      time.Duration // how long it takes for them
}

func (s *script) Notify(ctx context.Context, _ ...notify.Alert) error {
	s.mu.Lock()
	var answer error
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	s.mu.Unlock()
	select {
	case <-time.After(s.by):
		return answer
	case <-ctx.Done():
		return ctx.Err()
	}
}

type noDeadLetters struct{}

func (noDeadLetters) Keep(context.Context, notify.DeadLetter) error { return nil }

var errBroken = errors.New("broken")

// tree writes spans down, one a line, indented below their parents, in the order in
// which they began. Each line has the span's name, kind, status and attributes of ours.
func tree(tb testing.TB, r *tracetest.SpanRecorder) string {
	tb.Helper()
	if begun, ended := len(r.Started()), len(r.Ended()); begun != ended {
		tb.Errorf("%d spans began and %d ended", begun, ended)
	}
	var b strings.Builder
	depths, tokens := map[string]int{}, map[string]int{}
	for _, s := range r.Started() {
		depth := 0
		if s.Parent().IsValid() {
			parent, ok := depths[s.Parent().SpanID().String()]
			if !ok {
				tb.Errorf("the parent of %q is unknown", s.Name())
			}
			depth = parent + 1
		}
		depths[s.SpanContext().SpanID().String()] = depth
		attributes := map[string]string{}
		for _, a := range s.Attributes() {
			key, ours := strings.CutPrefix(string(a.Key), "alertworker.")
			if ours || key == "error.type" { // the others are the same in all; see TestConventions
				attributes[key] = a.Value.String()
			}
		}
		if token, ok := attributes["token"]; ok { // which they are does not matter
			if tokens[token] == 0 {
				tokens[token] = len(tokens) + 1
			}
			attributes["token"] = fmt.Sprint(tokens[token])
		}
		fmt.Fprintf(&b, "%s%s, %s", strings.Repeat("  ", depth), s.Name(), s.SpanKind())
		if st := s.Status(); st.Code != 0 {
			fmt.Fprintf(&b, ", %s: %s", st.Code, st.Description)
		}
		for _, key := range slices.Sorted(maps.Keys(attributes)) {
			fmt.Fprintf(&b, " %s=%s", key, attributes[key])
		}
		b.WriteByte('\n')
	}
	return b.String()
}
