package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"alertworker/internal/delivery"
	"alertworker/internal/lease"
	"alertworker/internal/lease/leasetest"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/lease/observe"
	"alertworker/internal/notify"
	"alertworker/internal/ops/tracing"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// The ways that deliveries go, as spans.
func TestDeliveries(t *testing.T) {
	refused := &notify.Error{Refused: true, Untaken: true, Err: errors.New("422 no")}
	busy := &notify.Error{Untaken: true, Err: errors.New("503 busy")}
	for name, c := range map[string]struct {
		answers []error
		store   func(lease.Store) lease.Store
		// before the delivery that is traced, if not nil
		before func(t *testing.T, s lease.Store)
		events func() []telemetry.Event
		by     time.Duration
		work   time.Duration
		want   string
	}{
		"sent": {want: `
process telemetry, consumer alert.id=ns/telemetry/3/1/946684800000 device=oven outcome=sent receiver=hook resolved=false rule=temperature suppressed=0
  lease acquire, internal outcome=ok store=memory token=1
  notify hook, client alert.id=ns/telemetry/3/1/946684800000 outcome=delivered receiver=hook suppressed=0 token=1
  lease extend, internal outcome=ok store=memory token=1
`},
		"three readings are one delivery": {
			by:     time.Second,
			events: func() []telemetry.Event { return []telemetry.Event{hot(1, "oven"), hot(2, "oven"), hot(3, "oven")} },
			want: `
process telemetry, consumer alert.id=ns/telemetry/3/1/946684800000 device=oven outcome=sent receiver=hook resolved=false rule=temperature suppressed=2
  lease acquire, internal outcome=ok store=memory token=1
  notify hook, client alert.id=ns/telemetry/3/1/946684800000 outcome=delivered receiver=hook suppressed=0 token=1
  lease extend, internal outcome=ok store=memory token=1
`},
		"failed once": {answers: []error{busy}, want: `
process telemetry, consumer alert.id=ns/telemetry/3/1/946684800000 device=oven outcome=sent receiver=hook resolved=false rule=temperature suppressed=0
  lease acquire, internal outcome=ok store=memory token=1
  notify hook, client, Error: 503 busy alert.id=ns/telemetry/3/1/946684800000 error.type=not_taken outcome=not_taken receiver=hook suppressed=0 token=1
  lease release, internal outcome=ok store=memory token=1
  lease acquire, internal outcome=ok store=memory token=2
  notify hook, client alert.id=ns/telemetry/3/1/946684800000 outcome=delivered receiver=hook suppressed=0 token=2
  lease extend, internal outcome=ok store=memory token=2
`},
		"refused": {answers: []error{refused}, want: `
process telemetry, consumer, Error: 422 no alert.id=ns/telemetry/3/1/946684800000 device=oven error.type=dead_letter outcome=dead_letter receiver=hook resolved=false rule=temperature suppressed=0
  lease acquire, internal outcome=ok store=memory token=1
  notify hook, client, Error: 422 no alert.id=ns/telemetry/3/1/946684800000 error.type=refused outcome=refused receiver=hook suppressed=0 token=1
  lease release, internal outcome=ok store=memory token=1
`},
		"lost and stopped": {answers: []error{errBroken}, work: 100 * time.Millisecond, want: `
process telemetry, consumer, Error: broken alert.id=ns/telemetry/3/1/946684800000 device=oven error.type=unsettled outcome=unsettled receiver=hook resolved=false rule=temperature suppressed=0
  lease acquire, internal outcome=ok store=memory token=1
  notify hook, client, Error: broken alert.id=ns/telemetry/3/1/946684800000 error.type=unknown outcome=unknown receiver=hook suppressed=0 token=1
  lease release, internal outcome=ok store=memory token=1
`},
		"throttled by another replica": {
			before: func(t *testing.T, s lease.Store) {
				consume(t, newReplica(t, nil, s, &script{}, noDeadLetters{}), time.Second, hot(1, "oven"))
			},
			want: `
process telemetry, consumer alert.id=ns/telemetry/3/1/946684801000 device=oven outcome=throttled receiver=hook resolved=false rule=temperature suppressed=0
  lease acquire, internal outcome=held store=memory
`},
		"covered by the last window": {
			events: func() []telemetry.Event {
				e := hot(1, "oven")
				time.Sleep(2 * time.Minute)
				return []telemetry.Event{e}
			},
			before: func(t *testing.T, s lease.Store) {
				consume(t, newReplica(t, nil, s, &script{}, noDeadLetters{}), time.Second, hot(1, "oven"))
			},
			want: `
process telemetry, consumer alert.id=ns/telemetry/3/1/946684801000 device=oven outcome=throttled receiver=hook resolved=false rule=temperature suppressed=0
  lease acquire, internal outcome=declined store=memory
`},
		"no store": {work: 100 * time.Millisecond, store: func(lease.Store) lease.Store { return dead{} }, want: `
process telemetry, consumer, Error: claim the window of device "oven": broken alert.id=ns/telemetry/3/1/946684800000 device=oven error.type=unsettled outcome=unsettled receiver=hook resolved=false rule=temperature suppressed=0
  lease acquire, internal, Error: broken error.type=unavailable outcome=error store=memory
`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var store lease.Store = memlease.New()
				if c.store != nil {
					store = c.store(store)
				}
				if c.before != nil {
					c.before(t, store)
				}
				events := []telemetry.Event{hot(1, "oven")}
				if c.events != nil {
					events = c.events()
				}
				if c.work == 0 {
					c.work = 10 * time.Second
				}
				r := tracetest.NewSpanRecorder()
				tr := tracing.Record(config(), r)
				consume(t, newReplica(t, tr, store, &script{answers: c.answers, by: c.by}, noDeadLetters{}), c.work, events...)
				tr.Close()
				if got := tree(t, r); got != strings.TrimPrefix(c.want, "\n") {
					t.Errorf("got:\n%s\nwant:%s", got, c.want)
				}
			})
		})
	}
}

// A delivery says which limit it is about, and whether it tells that the device is normal again.
func TestLevelIsTraced(t *testing.T) {
	r := tracetest.NewSpanRecorder()
	tr := tracing.Record(config(), r)
	d := tr.Deliveries()(delivery.Start{AlertID: "ns/telemetry/3/1/2/hot/critical/resolved", Device: "oven", Rule: "hot", Level: "critical", Recovery: true, Receiver: "hook", Partition: "3", FromHub: true})
	d.End(delivery.End{Outcome: "sent"})
	tr.Close()
	want := "process telemetry, consumer alert.id=ns/telemetry/3/1/2/hot/critical/resolved device=oven level=critical outcome=sent receiver=hook resolved=true rule=hot suppressed=0\n"
	if got := tree(t, r); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

// dead is a store that asks, and does not answer.
type dead struct{ lease.Store }

func (dead) Acquire(_ context.Context, _ string, _ time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	_, _ = next(lease.Record{Now: time.Now()})
	return lease.Lease{}, errBroken
}

// A store that was declined, in a round that came to nothing, and then fails has failed.
func TestStoreDeclinedRound(t *testing.T) {
	r := tracetest.NewSpanRecorder()
	tr := tracing.Record(config(), r)
	d := tr.Deliveries()(delivery.Start{Partition: "http"})
	_, err := observe.Store(dead{}, tr.Store("blob")).Acquire(d.Under(t.Context()), "k", time.Minute, func(lease.Record) (string, error) { return "", errors.New("covered") })
	if err != errBroken {
		t.Errorf("got %v, want %v as it is", err, errBroken)
	}
	d.End(delivery.End{Outcome: throttle.Throttled.String()})
	if want := "  lease acquire, internal, Error: broken error.type=unavailable outcome=error store=blob\n"; !strings.HasSuffix(tree(t, r), want) {
		t.Errorf("got:\n%s\nwant, at its end:\n%s", tree(t, r), want)
	}
}

// Outside a delivery only calls without an answer are traced, each by itself.
func TestStoreOutsideADelivery(t *testing.T) {
	r := tracetest.NewSpanRecorder()
	tr := tracing.Record(config(), r)
	well, ill := observe.Store(memlease.New(), tr.Store("blob")), observe.Store(dead{}, tr.Store("blob"))
	next := func(lease.Record) (string, error) { return "", nil }
	for range 2 { // the second is refused: an answer
		_, _ = well.Acquire(t.Context(), "k", time.Minute, next)
	}
	if _, err := ill.Acquire(t.Context(), "k", time.Minute, next); err != errBroken {
		t.Errorf("got %v, want %v as it is", err, errBroken)
	}
	if got, want := tree(t, r), "lease acquire, internal, Error: broken error.type=unavailable outcome=error store=blob\n"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// The delivery's span follows the conventions for messages of Event Hubs, and lasts from
// the delivery's beginning to its end.
func TestConventions(t *testing.T) {
	for host, server := range map[string]map[attribute.Key]string{
		"ns.servicebus.windows.net": {"server.address": "ns.servicebus.windows.net"},
		"localhost:5672":            {"server.address": "localhost", "server.port": "5672"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := config()
			c.Source.Host = host
			r := tracetest.NewSpanRecorder()
			tr := tracing.Record(c, r)
			start := time.Now()
			consume(t, newReplica(t, tr, memlease.New(), &script{by: 3 * time.Second}, noDeadLetters{}), time.Minute, hot(4711, "oven"))
			tr.Close()

			span := r.Started()[0]
			want := map[attribute.Key]string{
				"messaging.system":                          "eventhubs",
				"messaging.operation.type":                  "process",
				"messaging.operation.name":                  "process",
				"messaging.destination.name":                "telemetry",
				"messaging.destination.partition.id":        "3",
				"messaging.consumer.group.name":             "alerts",
				"messaging.message.id":                      "4711",
				"messaging.eventhubs.message.enqueued_time": fmt.Sprint(start.Unix()),
			}
			for key, value := range server {
				want[key] = value
			}
			for _, a := range span.Attributes() {
				if w, ok := want[a.Key]; ok && a.Value.String() != w {
					t.Errorf("%s is %s, want %s", a.Key, a.Value.String(), w)
				} else if !ok && !strings.HasPrefix(string(a.Key), "alertworker.") {
					t.Errorf("there is %s=%s", a.Key, a.Value.String())
				}
				delete(want, a.Key)
			}
			for key := range want {
				t.Errorf("there is no %s", key)
			}
			if span.StartTime() != start || span.EndTime().Sub(start) != 3*time.Second {
				t.Errorf("it lasts from %v to %v", span.StartTime(), span.EndTime())
			}
		})
	}
}

// What comes by an Intake is no message of a hub.
func TestIntake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tracetest.NewSpanRecorder()
		tr := tracing.Record(config(), r)
		in := newReplica(t, tr, memlease.New(), &script{}, noDeadLetters{}).NewIntake(t.Context(), "http")
		if v, _, err := in.Handle(t.Context(), hot(1, "oven"), "a key"); v != telemetry.VerdictAlerted || err != nil {
			t.Error(v, err)
		}
		in.Cut()
		tr.Close()
		span := r.Started()[0]
		if span.Name() != "process http" || span.SpanKind() != trace.SpanKindInternal {
			t.Errorf("the span is %q, %s", span.Name(), span.SpanKind())
		}
		for _, a := range span.Attributes() {
			if strings.HasPrefix(string(a.Key), "messaging.") {
				t.Errorf("there is %s", a.Key)
			}
		}
	})
}

// A traced store keeps the contract of a store, in a delivery and outside.
func TestTracedStore(t *testing.T) {
	for name, in := range map[string]func(*tracing.Tracing, lease.Store) lease.Store{
		"delivery": func(tr *tracing.Tracing, s lease.Store) lease.Store {
			return inDelivery{s, tr.Deliveries()(delivery.Start{})}
		},
		"outside": func(_ *tracing.Tracing, s lease.Store) lease.Store { return s },
	} {
		t.Run(name, func(t *testing.T) {
			r := &counter{}
			tr := tracing.Record(config(), r)
			leasetest.Run(t, leasetest.Harness{
				New: func(testing.TB) leasetest.Backend {
					s := &struct{ *memlease.Store }{memlease.New()}
					return leasetest.Backend{
						Open:   func(http.RoundTripper) (lease.Store, error) { return in(tr, observe.Store(s, tr.Store("memory"))), nil },
						Delete: func(context.Context, string) error { s.Store = memlease.New(); return nil }, // every record is one more
					}
				},
				Bubble: synctest.Test,
			})
			if n := r.spans.Load(); (n > 50) != (name == "delivery") { // outside there are those of calls that got no answer
				t.Errorf("there are %d spans", n)
			}
		})
	}
}

// counter counts spans that ended.
type counter struct{ spans atomic.Int64 }

func (*counter) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (c *counter) OnEnd(sdktrace.ReadOnlySpan)                   { c.spans.Add(1) }
func (*counter) Shutdown(context.Context) error                  { return nil }
func (*counter) ForceFlush(context.Context) error                { return nil }

// inDelivery calls a store as a delivery does.
type inDelivery struct {
	lease.Store
	delivery delivery.Trace
}

func (s inDelivery) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	return s.Store.Acquire(s.delivery.Under(ctx), key, ttl, next)
}

func (s inDelivery) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	return s.Store.Extend(s.delivery.Under(ctx), l, note, ttl)
}

func (s inDelivery) Release(ctx context.Context, l lease.Lease, note string) error {
	return s.Store.Release(s.delivery.Under(ctx), l, note)
}
