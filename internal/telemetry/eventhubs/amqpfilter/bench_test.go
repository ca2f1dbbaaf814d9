package amqpfilter_test

import (
	"bytes"
	"net"
	"testing"

	amqp "github.com/Azure/go-amqp"

	"alertworker/internal/telemetry/eventhubs/amqpfilter"
)

// An endless connection delivers the same frames over and over.
type endless struct {
	net.Conn
	stream []byte
	at     int
	sent   int // bytes
}

func (c *endless) Write(p []byte) (int, error) { return len(p), nil }

func (c *endless) Read(p []byte) (int, error) {
	n := copy(p, c.stream[c.at:])
	c.at = (c.at + n) % len(c.stream)
	c.sent += n
	return n, nil
}

// BenchmarkRead reads events as an IoT Hub delivers them, without a filter and with
// one. BenchmarkRead/decode is what the library does with such a message besides, and
// event what the reader does with it instead. One operation is one event; compare within one run only:
//
//	go test -bench Read -benchmem -cpu 1 ./internal/telemetry/eventhubs/amqpfilter
func BenchmarkRead(b *testing.B) {
	text := "application/json"
	message, err := (&amqp.Message{
		Annotations: amqp.Annotations{
			"x-opt-sequence-number": at.Sequence, "x-opt-offset": at.Offset, "x-opt-enqueued-time": at.Enqueued, "x-opt-partition-key": "device",
			"iothub-connection-device-id": "device", "iothub-connection-auth-method": `{"scope":"device","type":"sas","issuer":"iothub","acceptingIpFilterRule":null}`,
			"iothub-connection-auth-generation-id": "638000000000000000", "iothub-enqueuedtime": at.Enqueued, "iothub-message-source": "Telemetry",
		},
		Properties:            &amqp.MessageProperties{MessageID: "message", ContentType: &text, ContentEncoding: &text},
		ApplicationProperties: map[string]any{"kind": "reading"},
		Data:                  [][]byte{bytes.Repeat([]byte("x"), 300)},
	}).MarshalBinary()
	if err != nil {
		b.Fatal(err)
	}
	p := &peer{}
	p.attachAlone(events)
	first := len(p.stream)
	p.deliver(0, 0, false, false, message)
	frame := p.stream[first:]
	const frames = 1000
	for range frames - 1 {
		p.stream = append(p.stream, frame...)
	}

	read := func(b *testing.B, from *endless, c net.Conn, after func()) {
		b.ReportAllocs()
		buffer := make([]byte, 64<<10)
		for from.sent < b.N*len(frame) {
			if _, err := c.Read(buffer); err != nil {
				b.Fatal(err)
			}
			after()
		}
	}
	b.Run("plain", func(b *testing.B) {
		c := &endless{stream: p.stream}
		read(b, c, c, func() {})
	})
	b.Run("filtered", func(b *testing.B) {
		c := &endless{stream: p.stream}
		filter := filtered(p, c)
		read(b, c, filter, filter.Forget)
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := new(amqp.Message).UnmarshalBinary(message); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("event", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := amqpfilter.Read(message); err != nil {
				b.Fatal(err)
			}
		}
	})
}
