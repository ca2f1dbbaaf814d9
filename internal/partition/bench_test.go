package partition

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/roster"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
)

// unread is a partition of which nothing but the ID is asked.
type unread struct{ telemetry.Partition }

func (unread) ID() string                                   { return "0" }
func (unread) Resumed() (c telemetry.Checkpoint, over bool) { return c, false }

// nobody takes alerts and notifies nobody.
type nobody struct{}

func (nobody) Notify(context.Context, ...notify.Alert) error { return nil }

func (nobody) Keep(context.Context, notify.DeadLetter) error { return errors.New("not kept") }

func benchStream(b testing.TB, window time.Duration) *Stream {
	return benchRules(b, rules.Threshold("temperature,temp", 30, window))
}

func benchRules(b testing.TB, set rules.Set) *Stream {
	decoder, err := set.Decoder()
	if err != nil {
		b.Fatal(err)
	}
	gate := func(r *rules.Rule, _ *rules.Level) delivery.Gate {
		return recent.New(throttle.Config{Store: memlease.New(), Scope: "s", Receiver: "r", Window: r.Window, SendTimeout: time.Second}, recent.NewWindows())
	}
	c := Config{
		Evaluator: NewEvaluator(Rulebook{
			Origin:    "ns/hub",
			Rules:     set,
			Decoder:   decoder,
			Receivers: []Receiver{{Gate: gate}},
			Counters:  &Counters{},
		}),
		Dispatcher: delivery.New(delivery.Config{
			Receivers:   []delivery.Receiver{{Name: "r", Notifier: nobody{}}},
			Concurrency: 64,
			GiveUp:      time.Hour,
			DeadLetters: nobody{},
			Stats:       &delivery.Stats{},
		}),
		Roster: func(string) *roster.File { return nil },
		Log:    zap.NewNop(),
	}
	return New(b.Context(), c, unread{})
}

func batch(body string) []telemetry.Event {
	events := make([]telemetry.Event, 100)
	for i := range events {
		events[i] = telemetry.Event{Position: telemetry.Position{Sequence: int64(i), Offset: "1"}, Device: "oven-1", Body: []byte(body), Enqueued: time.Now(), MessageSource: "Telemetry"}
	}
	return events
}

const (
	normalBody = `{"deviceId":"oven-1","messageId":4711,"humidity":54.2,"temperature":21.4,"unit":"C"}`
	hotBody    = `{"deviceId":"oven-1","messageId":4711,"humidity":54.2,"temperature":99.9,"unit":"C"}`
)

func TestUsualPathsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	stateful := rules.Threshold("temperature,temp", 30, time.Hour)
	stateful.Rules[0].Resolved, stateful.Rules[0].Levels[0].Clear = true, 20
	for name, tt := range map[string]struct {
		s    *Stream
		body string
	}{
		"normal":            {benchStream(t, time.Hour), normalBody},
		"suppressed":        {benchStream(t, time.Hour), hotBody},
		"rule with state":   {statefulStream(t, stateful, ""), normalBody},
		"alarm of others":   {statefulStream(t, stateful, "oven-2"), normalBody},
		"alarm that stays":  {statefulStream(t, stateful, "oven-1"), normalBody},
		"alarm, suppressed": {statefulStream(t, stateful, "oven-1"), hotBody},
	} {
		s, events := tt.s, batch(tt.body)
		s.register.take(events)
		s.box.Wait()
		if n := testing.AllocsPerRun(100, func() { s.register.take(events) }); n != 0 {
			t.Errorf("%s: %v allocations per 100 events", name, n)
		}
	}
}

// The three paths of an event, per event.
func BenchmarkNormal(b *testing.B)     { benchTake(b, normalBody) }
func BenchmarkSuppressed(b *testing.B) { benchTake(b, hotBody) }

func benchTake(b *testing.B, body string) {
	s, events := benchStream(b, time.Hour), batch(body)
	s.register.take(events)
	s.box.Wait()
	b.ReportAllocs()
	for b.Loop() {
		s.register.take(events)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
}

// What a rule with state costs an event, in the three places of its device: it has
// no alarm, and nor does any other; another device has one; it has one itself.
func BenchmarkStateful(b *testing.B) {
	set := rules.Threshold("temperature,temp", 30, time.Hour)
	set.Rules[0].Resolved, set.Rules[0].Levels[0].Clear = true, 20
	for _, bm := range []struct{ name, alarm string }{{"no alarm", ""}, {"alarm of others", "oven-2"}, {"alarm", "oven-1"}} {
		b.Run(bm.name, func(b *testing.B) {
			s, events := statefulStream(b, set, bm.alarm), batch(normalBody)
			b.ReportAllocs()
			for b.Loop() {
				s.register.take(events)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
		})
	}
}

// statefulStream returns a stream of a set with state, and an open alarm of one device unless that is empty.
func statefulStream(b testing.TB, set rules.Set, device string) *Stream {
	s := benchRules(b, set)
	s.register.alarms = newAlarms(MaxChanges)
	if device != "" {
		s.register.alarms.set(alarmKey{sensor.Of(device), s.config.Evaluator.levels[0]}, alarm{State: rules.State{Phase: rules.Open, Since: rules.Moment{Hub: 1}}, value: 31, limit: 30})
	}
	return s
}

func BenchmarkSent(b *testing.B) {
	s, events := benchStream(b, time.Hour), batch(hotBody)[:1]
	devices := make([]string, 1<<18)
	for i := range devices {
		devices[i] = "oven-" + strconv.Itoa(i)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n == len(devices) {
			b.Fatal("more sends than devices; set -benchtime lower")
		}
		events[0].Device = devices[n]
		s.register.take(events)
		s.box.Wait()
	}
}

// What a rule about silence adds to an event: to be compared with none.
func BenchmarkSilence(b *testing.B) {
	none := rules.Threshold("temperature,temp", 30, time.Hour)
	silent := none
	silent.Rules = append(silent.Rules[:1:1], rules.Rule{Name: "offline", Forget: rules.DefaultForget, Silent: time.Hour, Levels: []rules.Level{{}}})
	for _, devices := range []int{100, 1000, 30_000} {
		for name, set := range map[string]rules.Set{"none": none, "silent": silent} {
			b.Run(fmt.Sprint(devices, " ", name), func(b *testing.B) {
				s := benchRules(b, set)
				s.register.alarms = newAlarms(MaxChanges)
				batches := make([][]telemetry.Event, devices/100)
				for n := range batches {
					batches[n] = batch(normalBody)
					for i := range batches[n] {
						batches[n][i].Device = fmt.Sprintf("press-%06d", 100*n+i)
					}
					s.register.take(batches[n])
				}
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					s.register.take(batches[n%len(batches)])
					n++
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*100), "ns/event")
			})
		}
	}
}
