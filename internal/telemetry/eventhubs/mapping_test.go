package eventhubs_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/telemetry"
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
	return h.read(t, len(messages))
}

// read returns the first n events of a hub with one partition.
func (h *hub) read(t *testing.T, n int) []telemetry.Event {
	t.Helper()
	var got []telemetry.Event
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := h.source(t, h.config()).Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
		for len(got) < n {
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
	first.Position, first.Enqueued, first.Properties = telemetry.Position{}, at, telemetry.PropertiesOf(first.Properties.All())
	want := telemetry.Event{
		Device: "Room/1", Body: []byte(`{"temp":21}`), Enqueued: at, MessageSource: "twinChangeEvents",
		ContentType: "application/json", ContentEncoding: "utf-8", Properties: telemetry.PropertiesOf(map[string]any{"kind": "reading", "n": int64(3)}),
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
