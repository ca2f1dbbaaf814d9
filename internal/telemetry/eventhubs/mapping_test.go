package eventhubs_test

import (
	"context"
	"maps"
	"reflect"
	"testing"
	"time"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/devhub/devices"
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
			for _, e := range events {
				got = append(got, kept(e))
			}
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
	for name, want := range map[string]string{"kind": "reading", "n": "3", "other": "null"} {
		if got := first.Properties.Find([]byte(name)).String(); got != want {
			t.Errorf("property %s is %s, want %s", name, got, want)
		}
	}
	first.Position, first.Enqueued, first.Properties = telemetry.Position{}, at, nil
	want := telemetry.Event{
		Device: "Room/1", Body: []byte(`{"temp":21}`), Enqueued: at, MessageSource: "twinChangeEvents",
	}
	if !reflect.DeepEqual(first, want) {
		t.Errorf("got  %+v\nwant %+v", first, want)
	}
	const other = "body that is neither bytes nor text"
	for i, want := range []struct{ device, source, body, undecodable string }{
		{"", "", "no device", ""},
		{"d", "Telemetry", "text", ""},
		{"d", "Telemetry", "bytes", ""},
		{"d", "", "", other},
		{"d", "", "", other},
		{"", "", "", ""}, // a device id that is no string, no source
	} {
		e := got[i+1]
		if e.Undecodable != "" && len(e.Body) > 0 { // the message
			e.Body = nil
		}
		if e.Device != want.device || e.MessageSource != want.source || string(e.Body) != want.body || e.Undecodable != want.undecodable || !e.Enqueued.Equal(at.Add(time.Second)) {
			t.Errorf("event %d is %+v, want %+v", i+1, e, want)
		}
	}
}

// A publisher that uses the names of our own annotations changes nothing about its event.
func TestPublishersForgeNothing(t *testing.T) {
	forged := map[string]any{"x-opt-alertworker-sequence-guessed": true, "x-opt-alertworker-undecodable": "forged"}
	got := receive(t,
		devhub.Message{Device: "d", Value: "before"},
		devhub.Message{Device: "d", Value: "forged", Annotations: forged},
		devhub.Message{Device: "d", Body: []byte("forged"), Annotations: forged},
		devhub.Message{Device: "d", Value: "after"},
	)
	for i, body := range []string{"before", "forged", "forged", "after"} {
		if e := got[i]; e.Sequence != int64(i) || string(e.Body) != body || e.Undecodable != "" {
			t.Errorf("event %d is %+v, want %s", i, e, body)
		}
	}
}

// What an IoT Hub stamps on the messages of simulated devices is there, in the compact form,
// which allocates nothing.
func TestEnrichedEvents(t *testing.T) {
	fleet, err := devices.New(devices.Config{Devices: 16, Rate: 1e6, Threshold: 30, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	h := newHub(t, 1)
	var sent []devices.Message
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := fleet.Run(ctx, func(_ context.Context, m devices.Message) error {
		if sent = append(sent, m); len(sent) == 16 {
			stop()
		}
		_, err := h.Hub.Publish(m.Message)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	events := h.read(t, len(sent))
	values := map[string]int{}
	for i, m := range sent {
		for name, want := range m.Properties {
			p := events[i].Properties.Find([]byte(name))
			if text, _ := p.Text(); string(text) != want || events[i].Device != m.Device {
				t.Errorf("%s of %s is %+v, want %v", name, events[i].Device, p, want)
			}
			if name != "firmware" {
				values[p.String()]++
			}
		}
	}
	if want := map[string]int{"38": 2, "$twin.tags.maxTemp": 14, "true": 1, "$twin.tags.quiet": 15}; !maps.Equal(values, want) {
		t.Errorf("got %v, want %v", values, want)
	}
	if n := testing.AllocsPerRun(100, func() { events[0].Properties.Find([]byte(devices.MaxTemp)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
