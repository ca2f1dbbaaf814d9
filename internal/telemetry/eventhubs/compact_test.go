package eventhubs_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"
	"pgregory.net/rapid"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// broken stands in generated text for bytes that are not UTF-8, which go-amqp reads but
// does not write.
const broken = "\u00a7\u00b6"

// rawMessage draws a message without its place, with everything that the worker reads and
// every type that properties can have.
func rawMessage(t *rapid.T) amqp.Message {
	text := rapid.OneOf(
		rapid.SampledFrom([]string{"", "oven/7", "Telemetry", "application/json", "utf-8", broken, "d" + broken, string(make([]byte, 300))}),
		rapid.String(),
	)
	optional := func(name string) *string {
		if !rapid.Bool().Draw(t, "has "+name) {
			return nil
		}
		s := text.Draw(t, name)
		return &s
	}
	at := time.UnixMilli(rapid.Int64Range(0, math.MaxInt32*1000).Draw(t, "time")).UTC()
	values := rapid.SampledFrom([]any{
		nil, true, false, uint8(1), int8(-1), uint16(1), int16(-1), uint32(0), uint32(1), uint32(1 << 20), int32(-1), int32(1 << 20),
		uint64(0), uint64(1), uint64(1 << 40), int64(-1), int64(1 << 40), float32(1.5), 1.5, math.NaN(), "s", broken, string(make([]byte, 300)),
		[]byte{}, []byte{1}, make([]byte, 300), at, amqp.UUID{1}, []any{1, "a"}, map[string]any{"a": int32(1)}, []string{"a"}, []int64{1}, []byte(nil),
	})
	m := amqp.Message{Annotations: amqp.Annotations{}, ApplicationProperties: rapid.MapOfN(text, values, 0, 4).Draw(t, "properties")}
	for _, name := range []string{"iothub-connection-device-id", "iothub-message-source", "iothub-enqueuedtime", "x-opt-custom"} {
		if rapid.Bool().Draw(t, "has "+name) {
			m.Annotations[name] = rapid.OneOf(rapid.Map(text, func(s string) any { return s }), values).Draw(t, name)
		}
	}
	if key := optional("key"); key != nil {
		m.Annotations["x-opt-partition-key"] = *key
	}
	if rapid.Bool().Draw(t, "has properties") {
		m.Properties = &amqp.MessageProperties{MessageID: "m", ContentType: optional("content type"), ContentEncoding: optional("content encoding")}
	}
	if rapid.Bool().Draw(t, "has a header") {
		m.Header = &amqp.MessageHeader{Durable: true}
	}
	switch rapid.IntRange(0, 9).Draw(t, "body") {
	case 0:
		m.Value = values.Draw(t, "value")
	case 1:
		m.Data = [][]byte{[]byte("two"), []byte("sections")}
	case 2:
		m.Sequence = [][]any{{int64(1)}}
	default:
		m.Data = [][]byte{rapid.SliceOf(rapid.Byte()).Draw(t, "data")}
	}
	return m
}

// A message gives the same event whether the filter has made it compact or not.
func TestCompactEventsAreTheSame(t *testing.T) {
	const n = 1000
	h := newHub(t, 1)
	for i := range n {
		m := rapid.Custom(rawMessage).Example(i)
		if _, err := h.PublishRaw("0", func(at devhub.Published) []byte {
			m.Annotations["x-opt-sequence-number"], m.Annotations["x-opt-offset"], m.Annotations["x-opt-enqueued-time"] = at.Sequence, at.Offset, at.Enqueued
			b, err := m.MarshalBinary()
			if err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
			return bytes.ReplaceAll(b, []byte(broken), []byte("\xff\xc3\xa9\x80"))
		}); err != nil {
			t.Fatal(err)
		}
	}

	// Without a filter.
	client, err := azeventhubs.NewConsumerClientFromConnectionString(h.ConnectionString(), "", azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	earliest := true
	reader, err := client.NewPartitionClient("0", &azeventhubs.PartitionClientOptions{StartPosition: azeventhubs.StartPosition{Earliest: &earliest}})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close(context.Background())
	want, err := reader.ReceiveEvents(t.Context(), n, nil)
	if err != nil || len(want) != n {
		t.Fatalf("%d events, %v", len(want), err)
	}

	show := func(e telemetry.Event) string {
		properties := e.Properties.All()
		var each []string
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			each = append(each, fmt.Sprintf("%q: %+v", name, e.Properties.Get(name)))
		}
		e.Properties, e.Generation = telemetry.Properties{}, "" // which this reader does not know
		return fmt.Sprintf("%#v %#v %v", e, properties, each)
	}
	for i, e := range h.read(t, n) {
		if got, want := show(e), show(eventhubs.Whole(want[i])); got != want {
			t.Fatalf("message %d: got\n%s, want\n%s", i, got, want)
		}
	}
}
