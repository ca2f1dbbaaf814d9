package worker

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

// nobody takes alerts and tells nobody.
type nobody struct{}

func (nobody) Notify(context.Context, notify.Alert) error { return nil }

func (nobody) Keep(context.Context, notify.DeadLetter) error { return errors.New("not kept") }

func benchStream(b testing.TB, window time.Duration) *stream {
	decoder, err := telemetry.NewDecoder("temperature,temp")
	if err != nil {
		b.Fatal(err)
	}
	gate := throttle.New(throttle.Config{Store: memlease.New(), Scope: "s", Receiver: "r", Window: window, SendTimeout: time.Second})
	w := New(Config{Origin: "ns/hub", Threshold: 30, Window: window, Concurrency: 64, GiveUp: time.Hour, Decoder: decoder, DeadLetters: nobody{}, Log: zap.NewNop(),
		Receivers: []Receiver{{Name: "r", Gate: gate, Notifier: nobody{}}}})
	return newStream(b.Context(), w, "0")
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
	for name, body := range map[string]string{"normal": normalBody, "suppressed": hotBody} {
		s, events := benchStream(t, time.Hour), batch(body)
		s.take(events)
		s.work.Wait()
		if n := testing.AllocsPerRun(100, func() { s.take(events) }); n != 0 {
			t.Errorf("%s: %v allocations per 100 events", name, n)
		}
	}
}

// The three paths of an event, per event.
func BenchmarkNormal(b *testing.B)     { benchTake(b, normalBody) }
func BenchmarkSuppressed(b *testing.B) { benchTake(b, hotBody) }

func benchTake(b *testing.B, body string) {
	s, events := benchStream(b, time.Hour), batch(body)
	s.take(events)
	s.work.Wait()
	b.ReportAllocs()
	for b.Loop() {
		s.take(events)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
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
		s.take(events)
		s.work.Wait()
	}
}
