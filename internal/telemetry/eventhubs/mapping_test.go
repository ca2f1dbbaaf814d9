package eventhubs_test

import (
	"bytes"
	"context"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"alertworker/internal/devhub"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// receive returns what a Source makes of messages published to one partition.
func receive(t *testing.T, messages ...devhub.Message) []telemetry.Event {
	t.Helper()
	h := newHub(t, 1)
	for _, m := range messages {
		if _, err := h.Hub.Publish(m); err != nil {
			t.Fatal(err)
		}
	}
	var got []telemetry.Event
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := h.source(t, h.config()).Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
		for len(got) < len(messages) {
			events, err := p.Receive(ctx)
			if err != nil {
				return err
			}
			got = append(got, events...)
		}
		cancel()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestEvent(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	got := receive(t,
		devhub.Message{
			Device: "Room/1", Source: "twinChangeEvents", Body: []byte(`{"temp":21}`),
			ContentType: "application/json", ContentEncoding: "utf-8",
			Properties: map[string]any{"kind": "reading", "n": int64(3)}, Enqueued: at,
			Annotations: map[string]any{"iothub-enqueuedtime": at.Add(-time.Hour)}, // a device's backlog; not the hub's clock
		},
		devhub.Message{Body: []byte("no device"), Enqueued: at.Add(time.Second)},
		devhub.Message{Device: "d", Value: "text", Enqueued: at.Add(time.Second)},
		devhub.Message{Device: "d", Value: []byte("bytes"), Enqueued: at.Add(time.Second)},
		devhub.Message{Device: "d", Value: map[string]any{"a": int64(1)}, Enqueued: at.Add(time.Second)},
		devhub.Message{Device: "d", Sequence: [][]any{{int64(1)}}, Enqueued: at.Add(time.Second)},
		devhub.Message{Device: "d", Enqueued: at.Add(time.Second), Annotations: map[string]any{"iothub-connection-device-id": int64(7), "iothub-message-source": nil}},
	)
	first := got[0]
	if first.Sequence != 0 || first.Offset == "" {
		t.Errorf("position is %+v", first.Position)
	}
	if !first.Enqueued.Equal(at) {
		t.Errorf("enqueued at %v, want %v", first.Enqueued, at)
	}
	first.Position, first.Enqueued = telemetry.Position{}, at
	want := telemetry.Event{
		Device: "Room/1", Body: []byte(`{"temp":21}`), Enqueued: at, MessageSource: "twinChangeEvents",
		ContentType: "application/json", ContentEncoding: "utf-8", Properties: map[string]any{"kind": "reading", "n": int64(3)},
	}
	if !reflect.DeepEqual(first, want) {
		t.Errorf("got  %+v\nwant %+v", first, want)
	}
	for i, want := range []struct{ device, source, body string }{
		{"", "", "no device"},
		{"d", "Telemetry", "text"},
		{"d", "Telemetry", "bytes"},
		{"d", "Telemetry", ""},
		{"d", "Telemetry", ""},
		{"", "", ""}, // a device id that is no string, no source
	} {
		e := got[i+1]
		if e.Device != want.device || e.MessageSource != want.source || string(e.Body) != want.body || !e.Enqueued.Equal(at.Add(time.Second)) {
			t.Errorf("event %d is %+v, want %+v", i+1, e, want)
		}
	}
}

// Large events are buffered in small numbers.
func TestBufferIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	const size, budget, count = 100 << 10, 1 << 20, 150
	h := newHub(t, 1)
	for range count {
		h.Publish(t, "0", string(bytes.Repeat([]byte("x"), size)))
	}
	config := h.config()
	config.BufferBytes = budget
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	largest := 0
	if err := h.source(t, config).Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
		for n := 0; n < count; {
			time.Sleep(time.Millisecond) // let the buffer fill
			events, err := p.Receive(ctx)
			if err != nil {
				return err
			}
			if n += len(events); n > 80 { // the first window is open before any event was seen
				largest = max(largest, len(events))
			}
		}
		cancel()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if buffered := (largest - 1) * size; buffered > budget || largest == 0 { // Receive waits for one and takes what is buffered
		t.Errorf("%d events of %d bytes were buffered, want at most %d bytes", largest-1, size, budget)
	}
}

func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.IntRange(1, 5000).Draw(t, "events")
		budget := rapid.IntRange(1, 16<<20).Draw(t, "bytes")
		w := eventhubs.NewWindow(events, budget)
		outstanding := 0 // as azeventhubs counts it
		for range rapid.IntRange(1, 30).Draw(t, "calls") {
			ask := w.Ask()
			if ask < 1 || ask > events {
				t.Fatalf("asked for %d of at most %d events", ask, events)
			}
			outstanding = max(outstanding, ask)
			size := rapid.IntRange(0, 256<<10).Draw(t, "size")
			n := rapid.IntRange(1, outstanding).Draw(t, "took")
			batch := make([]telemetry.Event, n)
			for i := range batch {
				batch[i].Body = make([]byte, 0)[:0:0]
			}
			batch[0].Body = make([]byte, size)
			w.Took(batch)
			outstanding -= n
		}
		// Events of one size: what is outstanding comes to fit.
		body := make([]byte, rapid.IntRange(0, 256<<10).Draw(t, "final size"))
		for range 200 {
			outstanding = max(outstanding, w.Ask())
			w.Took([]telemetry.Event{{Body: body}})
			outstanding = max(0, outstanding-1)
		}
		for range events {
			if outstanding == 0 {
				break
			}
			w.Took([]telemetry.Event{{Body: body}})
			outstanding--
		}
		if ask := w.Ask(); ask > 1 && ask*len(body) > budget {
			t.Fatalf("asked for %d events of %d bytes, %d allowed", ask, len(body), budget)
		}
	})
}
