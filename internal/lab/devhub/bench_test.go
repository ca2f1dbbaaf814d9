package devhub_test

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/lab/devhub/frames"
)

// benchmarkEvents is how many events are in the log that a benchmark reads again and again.
const benchmarkEvents = 20_000

func benchmarkHub(b *testing.B) *devhub.Hub {
	h := listen(b, devhub.Config{Partitions: 1, Key: "key", MaxEvents: benchmarkEvents, MaxBytes: 1 << 30})
	body := []byte(`{"machine":{"temperature":21.48,"pressure":1.05},"ambient":{"temperature":20.9,"humidity":24},"timeCreated":"2026-01-02T03:04:05.678Z"}`)
	for i := range benchmarkEvents {
		publish(b, h, devhub.Message{Device: fmt.Sprint("device-", i%1000), Body: body, MessageID: "8f0b1d9e-0c1f-4a52-9a4f-6d1d3d0f2a11",
			ContentType: "application/json", ContentEncoding: "utf-8",
			Properties: map[string]any{"sequenceNumber": "1", "temperatureAlert": "false"}})
	}
	return h
}

func cpu() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func report(b *testing.B, used time.Duration) {
	events := float64(b.N) * benchmarkEvents
	b.ReportMetric(events/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(events/used.Seconds(), "events/cpu-s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkServe is what serving costs: the client grants all the credit there
// is and does no more than count frames. What it reads is part of the CPU time.
func BenchmarkServe(b *testing.B) {
	h := benchmarkHub(b)
	c := dialRaw(b, h, "key", &frames.Open{ContainerID: "raw"})
	began := cpu()
	for b.Loop() {
		c.attachReceiver(b, "devhub/ConsumerGroups/$Default/Partitions/0")
		c.skip(b, benchmarkEvents)
		c.write(b, &frames.Detach{Handle: 0, Closed: true})
		c.read(b)
	}
	report(b, cpu()-began)
}

// BenchmarkServeOfficialClient is the same with the real client, whose cost prevails.
func BenchmarkServeOfficialClient(b *testing.B) {
	h := benchmarkHub(b)
	c := consumer(b, h, noRetries)
	began := cpu()
	for b.Loop() {
		p, err := c.NewPartitionClient("0", &azeventhubs.PartitionClientOptions{StartPosition: earliest, Prefetch: 1000})
		if err != nil {
			b.Fatal(err)
		}
		for n := 0; n < benchmarkEvents; n += 100 {
			if _, err := p.ReceiveEvents(b.Context(), 100, nil); err != nil {
				b.Fatal(err)
			}
		}
		p.Close(b.Context())
	}
	report(b, cpu()-began)
}

func BenchmarkPublish(b *testing.B) {
	h := listen(b, devhub.Config{Partitions: 1})
	m := devhub.Message{Device: "device", Body: bytes.Repeat([]byte("x"), 140), ContentType: "application/json", ContentEncoding: "utf-8"}
	b.ReportAllocs()
	for b.Loop() {
		publish(b, h, m)
	}
}
