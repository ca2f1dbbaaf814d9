package eventhubs_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/transport"
)

// BenchmarkReceive compares Receive, over AMQP and over WebSockets, with the plain loop of azeventhubs, count 100, from
// the same loopback hub. One operation is one event; compare within one run only:
//
//	go test -run '^$' -bench Receive -benchmem -cpu 1 -benchtime 600000x ./internal/telemetry/eventhubs
func BenchmarkReceive(b *testing.B) {
	h := filled(b)
	b.Run("plain", func(b *testing.B) { receivePlainly(b, h) })
	b.Run("websocket", func(b *testing.B) {
		receiveFrom(b, h, eventhubs.Config{Transport: transport.WebSocket}, 0)
	})
	for _, prefetch := range []int{30, 100, 300, 1000, 5000} {
		b.Run(fmt.Sprintf("prefetch=%d", prefetch), func(b *testing.B) {
			receiveFrom(b, h, eventhubs.Config{Prefetch: prefetch, BufferBytes: 2 * prefetch * eventhubs.MaxEventBytes}, 0)
		})
	}
}

// receivePlainly reads b.N events by azeventhubs, over and over from the beginning.
func receivePlainly(b *testing.B, h *devhub.Hub) {
	b.ReportAllocs()
	client, err := azeventhubs.NewConsumerClientFromConnectionString(
		h.ConnectionString(), "", azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close(context.Background()) })
	earliest := true
	options := &azeventhubs.PartitionClientOptions{
		StartPosition: azeventhubs.StartPosition{Earliest: &earliest}, Prefetch: 300,
	}
	for left := b.N; left > 0; left -= benchEvents {
		reader, err := client.NewPartitionClient("0", options)
		if err != nil {
			b.Fatal(err)
		}
		for n := min(left, benchEvents); n > 0; {
			got, err := reader.ReceiveEvents(b.Context(), min(100, n), nil)
			if err != nil {
				b.Fatal(err)
			}
			n -= len(got)
		}
		if err := reader.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkDistance is how fast one partition is read from afar, by EVENTHUB_PREFETCH, with the byte budget of a worker:
//
//	go test -run '^$' -bench Distance ./internal/telemetry/eventhubs
func BenchmarkDistance(b *testing.B) {
	h := filled(b)
	for _, roundTrip := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
		for _, prefetch := range []int{300, 1000, 2000, 5000} {
			b.Run(fmt.Sprintf("%v/prefetch=%d", roundTrip, prefetch), func(b *testing.B) {
				receiveFrom(b, h, eventhubs.Config{Prefetch: prefetch}, roundTrip)
			})
		}
	}
}

// benchEvents are in the hub of benchmarks.
const benchEvents = 60_000

func filled(b *testing.B) *devhub.Hub {
	h, err := devhub.Listen("127.0.0.1:0", devhub.Config{Partitions: 1, MaxBytes: 256 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Close() })
	body := bytes.Repeat([]byte("x"), 300)
	for range benchEvents {
		if _, err := h.Publish(devhub.Message{Device: "device", Body: body, MessageID: "message", ContentType: "application/json", ContentEncoding: "utf-8", Properties: map[string]any{"kind": "reading"}}); err != nil {
			b.Fatal(err)
		}
	}
	return h
}

// receiveFrom takes events from h at a distance.
func receiveFrom(b *testing.B, h *devhub.Hub, config eventhubs.Config, roundTrip time.Duration) {
	config.ConnectionString, config.Start, config.Records = h.ConnectionString(), eventhubs.Start{Earliest: true}, &records.Memory{}
	s, err := eventhubs.New(config)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportAllocs()
	if roundTrip > 0 {
		far(s, roundTrip)
	}
	calls := 0
	for left := b.N; left > 0; left -= benchEvents {
		ctx, cancel := context.WithCancel(b.Context())
		b.StopTimer()
		_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error {
			defer cancel()
			for n := 0; n < min(left, benchEvents); calls++ {
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
}
