package eventhubs_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"
	"pgregory.net/rapid"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
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

// A message gives the same event as the client library makes of it.
func TestEventsAreTheLibrarys(t *testing.T) {
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

	for i, e := range h.read(t, n) {
		if got, want := show(e, properties(e.Properties)), show(library(want[i])); got != want {
			t.Fatalf("message %d: got\n%s, want\n%s", i, got, want)
		}
	}
}

func show(e telemetry.Event, properties map[string]any) string {
	e.Properties, e.Generation = nil, "" // the library does not know the generation
	e.Body = append([]byte{}, e.Body...) // none is an empty one
	if e.Undecodable != "" {             // the message as it came, and only what is certain of the rest
		e.Body, e.MessageSource, properties = nil, "", nil
	}
	return fmt.Sprintf("%#v %#v", e, properties)
}

// properties are those of an event, as far as they are read.
func properties(encoded telemetry.Properties) map[string]any {
	all := map[string]any{}
	for name, p := range encoded.All() {
		text, isText := p.Text()
		bytes, isBytes := p.Bytes()
		yes, isBool := p.Bool()
		at, isTime := p.Time()
		var v any = "other"
		switch {
		case p.IsNull():
			v = nil
		case isText:
			v = "text " + string(text)
		case isBytes:
			v = bytes
		case isBool:
			v = yes
		case isTime:
			v = at
		case !strings.HasPrefix(p.String(), "amqp:"):
			v = "number " + p.String()
		}
		all[string(name)] = v
	}
	return all
}

// library returns the event and the properties of a message as the library decodes it.
func library(r *azeventhubs.ReceivedEventData) (telemetry.Event, map[string]any) {
	text := func(v any) string {
		s, _ := v.(string)
		return s
	}
	e := telemetry.Event{
		Position:      telemetry.Position{Sequence: r.SequenceNumber, Offset: r.Offset, Time: r.EnqueuedTime.UTC()},
		Device:        sensor.Device(text(r.SystemProperties["iothub-connection-device-id"])),
		Enqueued:      r.EnqueuedTime.UTC(),
		MessageSource: text(r.SystemProperties["iothub-message-source"]),
	}
	switch v := r.RawAMQPMessage.Body.Value.(type) {
	case nil:
		e.Body = append([]byte{}, bytes.Join(r.RawAMQPMessage.Body.Data, nil)...)
		if len(r.RawAMQPMessage.Body.Sequence) > 0 {
			e.Undecodable = "body that is neither bytes nor text"
		}
	case []byte:
		e.Body = v
	case string:
		e.Body = []byte(v)
	default:
		e.Undecodable = "body that is neither bytes nor text"
	}
	all := map[string]any{}
	for name, v := range r.Properties {
		switch n := v.(type) {
		case string:
			v = "text " + n
		case uint8, int8, uint16, int16, uint32, int32, uint64, int64, float32, float64:
			v = fmt.Sprint("number ", n)
		case time.Time:
			v = n.UTC()
		case nil, []byte, bool:
		default:
			v = "other"
		}
		all[name] = v
	}
	return e, all
}
