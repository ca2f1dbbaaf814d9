package eventhubs_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/eventhubs/amqpfilter"
	"alertworker/internal/telemetry/transport"
)

// BenchmarkReceive compares Receive with the plain loop of azeventhubs, count
// 100, with and without a filter on the connection and over WebSockets, from the same
// loopback hub. One operation is one event; compare within one run only:
//
//	go test -bench Receive -benchmem -cpu 1 ./internal/telemetry/eventhubs
func BenchmarkReceive(b *testing.B) {
	const events = 60_000
	h, err := devhub.Listen("127.0.0.1:0", devhub.Config{Partitions: 1, MaxBytes: 256 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	body := bytes.Repeat([]byte("x"), 300)
	for range events {
		if _, err := h.Publish(devhub.Message{Device: "device", Body: body, MessageID: "message", ContentType: "application/json", ContentEncoding: "utf-8", Properties: map[string]any{"kind": "reading"}}); err != nil {
			b.Fatal(err)
		}
	}
	connect := func(options *azeventhubs.ConsumerClientOptions) *azeventhubs.ConsumerClient {
		client, err := azeventhubs.NewConsumerClientFromConnectionString(h.ConnectionString(), "", azeventhubs.DefaultConsumerGroup, options)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = client.Close(context.Background()) })
		return client
	}
	plain := connect(nil)
	filter := func(over transport.Transport) *azeventhubs.ConsumerClient {
		return connect(&azeventhubs.ConsumerClientOptions{NewWebSocketConn: func(ctx context.Context, _ azeventhubs.WebSocketConnParams) (net.Conn, error) {
			address := transport.EventHubs(h.Addr())
			address.Plain = true
			c, err := over.Dial(ctx, address)
			if err != nil {
				return nil, err
			}
			return amqpfilter.New(c, nil), nil
		}})
	}
	filtered := filter(transport.AMQP)

	// pass reads n events from the beginning.
	pass := func(b *testing.B, client *azeventhubs.ConsumerClient, prefetch int32, read func(*azeventhubs.PartitionClient, int) error) {
		b.ReportAllocs()
		calls := 0
		for left := b.N; left > 0; left -= events {
			earliest := true
			reader, err := client.NewPartitionClient("0", &azeventhubs.PartitionClientOptions{StartPosition: azeventhubs.StartPosition{Earliest: &earliest}, Prefetch: prefetch})
			if err != nil {
				b.Fatal(err)
			}
			if err := read(reader, min(left, events)); err != nil {
				b.Fatal(err)
			}
			if err := reader.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
			calls++
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	}

	for name, client := range map[string]*azeventhubs.ConsumerClient{"plain": plain, "filtered": filtered, "websocket": filter(transport.WebSocket)} {
		b.Run(name, func(b *testing.B) {
			pass(b, client, 300, func(reader *azeventhubs.PartitionClient, n int) error {
				for n > 0 {
					got, err := reader.ReceiveEvents(b.Context(), min(100, n), nil)
					if err != nil {
						return err
					}
					n -= len(got)
				}
				return nil
			})
		})
	}
	for _, prefetch := range []int{30, 100, 300, 1000, 5000} {
		b.Run(fmt.Sprintf("Receive/prefetch=%d", prefetch), func(b *testing.B) {
			s, err := eventhubs.New(eventhubs.Config{
				ConnectionString: h.ConnectionString(), Start: eventhubs.Start{Earliest: true}, Prefetch: prefetch, BufferBytes: 2 * prefetch * eventhubs.MaxEventBytes,
				Records: &records.Memory{},
			})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			calls := 0
			for left := b.N; left > 0; left -= events {
				ctx, cancel := context.WithCancel(b.Context())
				b.StopTimer()
				_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
					defer cancel()
					for n := 0; n < min(left, events); calls++ {
						got, err := p.Receive(ctx)
						if err != nil {
							return err
						}
						b.StartTimer() // with the first
						n += len(got)
					}
					b.StopTimer()
					return nil
				})
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(b.N)/float64(calls), "events/call")
		})
	}
}
