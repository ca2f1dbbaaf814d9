package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/lab/devhub"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
	"alertworker/internal/telemetry/ownership"
)

// BenchmarkEndToEnd compares what a worker makes of a hub full of normal
// readings with the bare loop of the SDK on the same hub: the ratio of the two
// is what the worker costs.
func BenchmarkEndToEnd(b *testing.B) {
	const events = 100_000
	hub, err := devhub.Listen("127.0.0.1:0", devhub.Config{Hub: "telemetry", Partitions: 1, MaxEvents: events, MaxBytes: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer hub.Close()
	for i := range events {
		device := fmt.Sprint("oven-", i%1000)
		body := fmt.Appendf(nil, `{"deviceId":%q,"messageId":%d,"humidity":54.2,"temperature":21.4,"unit":"C"}`, device, i)
		if _, err := hub.Publish(devhub.Message{Device: device, Body: body}); err != nil {
			b.Fatal(err)
		}
	}
	run := func(name string, read func(*testing.B)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				read(b)
			}
			b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
	run("bare", func(b *testing.B) { readBare(b, hub, events) })
	run("worker", func(b *testing.B) { readWorker(b, hub, events) })
}

// readBare is the SDK's usual loop, with the prefetch of the worker.
func readBare(b *testing.B, hub *devhub.Hub, events int) {
	client, err := azeventhubs.NewConsumerClientFromConnectionString(hub.ConnectionString(), "", azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		b.Fatal(err)
	}
	earliest := true
	partition, err := client.NewPartitionClient("0", &azeventhubs.PartitionClientOptions{Prefetch: eventhubs.DefaultPrefetch, StartPosition: azeventhubs.StartPosition{Earliest: &earliest}})
	if err != nil {
		b.Fatal(err)
	}
	for n := 0; n < events; {
		batch, err := partition.ReceiveEvents(b.Context(), 100, nil)
		if err != nil {
			b.Fatal(err)
		}
		n += len(batch)
	}
	_ = partition.Close(context.Background())
	_ = client.Close(context.Background())
}

// readWorker is a replica from start to stop.
func readWorker(b *testing.B, hub *devhub.Hub, events int) {
	c := config.Config{
		EventHubConnectionString: config.NewSecret(hub.ConnectionString()), EventHubConsumerGroup: "$Default", EventHubStart: eventhubs.Start{Earliest: true},
		EventHubPrefetch: eventhubs.DefaultPrefetch, TemperatureThreshold: 80, TemperatureField: telemetry.DefaultFields, ThrottleWindow: time.Minute,
		NotifyURLs: config.NewURLs("log:"), CheckpointInterval: 5 * time.Second, NotifyTimeout: 10 * time.Second, NotifyConcurrency: 64, NotifyGiveUp: time.Hour,
		OwnershipExpiry: 30 * time.Second, BalanceInterval: 5 * time.Second, DrainTimeout: time.Second,
	}
	shared := stores{leases: memlease.New(), checkpoints: &eventhubs.MemoryCheckpoints{}, ownership: &ownership.Memory{}}
	r, err := newReplica(c, shared, nil, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- r.run(ctx) }()
	for r.worker.Stats().Events[telemetry.ReasonOK].Load() < int64(events) {
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
