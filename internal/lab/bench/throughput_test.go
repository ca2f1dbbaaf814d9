//go:build linux

package bench_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/telemetry/eventhubs"
)

const runEvents = 409_600 // in a run, a multiple of 1024

// What a second of CPU time is worth: start to end of each process, the programs in turn, so that a noisy
// neighbor disturbs all of them.
func BenchmarkThroughput(b *testing.B) {
	path := build(b)
	state := map[string]string{
		"TEMPERATURE_THRESHOLD": "",
		"RULES":                 "rules: [{name: temperature, field: 'temperature, temp', above: 80, clear: 75, for: 2s, resolved: true}]",
	}
	for _, l := range []struct {
		name  string
		cores int
		readings
		rule map[string]string // settings of the worker
	}{
		{"normal", 1, readings{partitions: 1}, nil},
		{"normal, TLS", 1, readings{partitions: 1, tls: true}, nil},
		{"normal, 2 cores", 2, readings{partitions: 1}, nil},
		{"normal, 8 partitions", 1, readings{partitions: 8}, nil},
		{"normal, 32 partitions", 1, readings{partitions: 32}, nil},
		{"normal, rule with state", 1, readings{partitions: 1}, state},
		{"1 % hot", 1, readings{partitions: 1, hot: 1}, nil},
		{"1 % hot, rule with state", 1, readings{partitions: 1, hot: 1}, state},
		{"all hot", 1, readings{partitions: 1, hot: 100}, nil},
		{"all hot, rule with state", 1, readings{partitions: 1, hot: 100}, state},
		{"731 B", 1, readings{partitions: 1, fields: 731}, nil},
		{"array of 10", 1, readings{partitions: 1, array: 10}, nil},
		{"4 KB of fields", 1, readings{partitions: 1, fields: 4 << 10, events: runEvents / 8}, nil},
		{"array of 100", 1, readings{partitions: 1, array: 100, events: runEvents / 16}, nil},
		{"64 KB of fields", 1, readings{partitions: 1, fields: 64 << 10, events: runEvents / 50}, nil},
	} {
		b.Run(l.name, func(b *testing.B) {
			l.events, l.devices = cmp.Or(l.events, runEvents), 1024
			_, settings := serve(b, l.readings)
			worker := maps.Clone(settings)
			maps.Copy(worker, l.rule)
			var bare, naive, worth, memory []float64
			for b.Loop() {
				bare = append(bare, runReader(b, "bare", l.cores, l.readings, settings))
				naive = append(naive, runReader(b, "naive", l.cores, l.readings, settings))
				p := startWorker(b, l.cores, path, worker)
				wait(b, 100*time.Millisecond, runLimit, "the worker has read all", func() bool { return p.counter("alertworker_events_total") >= float64(l.events) })
				memory = append(memory, p.peak()/(1<<20))
				p.stop()
				worth = append(worth, float64(l.events)/p.CPU().Seconds())
			}
			least := report(b, bare, 50, "bare/CPU-s")
			report(b, naive, 50, "naive/CPU-s")
			b.ReportMetric(report(b, worth, 50, "worker/CPU-s")/least, "worker/bare")
			report(b, memory, 50, "MB")
		})
	}
}

// readEnv has the test binary be a program that reads a hub: its name, the number of partitions, and of events.
const readEnv = "BENCH_READ"

// runReader returns how many events such a program reads in a second of CPU time.
func runReader(b *testing.B, name string, cores int, r readings, settings map[string]string) float64 {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	settings = maps.Clone(settings)
	settings[readEnv] = fmt.Sprint(name, " ", r.partitions, " ", r.events)
	p := start(b, cores, self, settings)
	wait(b, 10*time.Millisecond, runLimit, name+" has read all", p.Ended)
	if err := p.Err(); err != nil {
		b.Fatal(err)
	}
	return float64(r.events) / p.CPU().Seconds()
}

// read reads a hub in the usual loop of azeventhubs until it has seen as many events as there are. "bare" throws
// them away: nothing that uses this client is cheaper. "naive" is the program that one writes first:
// encoding/json, a mutex and a map.
func read(program string) error {
	var name string
	var partitions, events int
	if _, err := fmt.Sscan(program, &name, &partitions, &events); err != nil {
		return err
	}
	handle := func(*azeventhubs.ReceivedEventData) {}
	if name == "naive" {
		handle = (&naive{last: map[string]time.Time{}}).take
	}
	connection := os.Getenv("EVENTHUB_CONNECTION_STRING")
	properties, err := azeventhubs.ParseConnectionString(connection)
	if err != nil {
		return err
	}
	var options azeventhubs.ConsumerClientOptions
	if !properties.Emulator { // azeventhubs takes the port for a part of the name in the certificate
		options.NewWebSocketConn = func(ctx context.Context, _ azeventhubs.WebSocketConnParams) (net.Conn, error) {
			return new(tls.Dialer).DialContext(ctx, "tcp", properties.FullyQualifiedNamespace)
		}
	}
	client, err := azeventhubs.NewConsumerClientFromConnectionString(connection, "", azeventhubs.DefaultConsumerGroup, &options)
	if err != nil {
		return err
	}
	errs := make(chan error, partitions)
	for i := range partitions {
		go func() { errs <- readPartition(client, fmt.Sprint(i), events/partitions, handle) }()
	}
	for range partitions {
		if err := <-errs; err != nil {
			return err
		}
	}
	return client.Close(context.Background())
}

func readPartition(client *azeventhubs.ConsumerClient, id string, events int, handle func(*azeventhubs.ReceivedEventData)) error {
	earliest := true
	p, err := client.NewPartitionClient(id, &azeventhubs.PartitionClientOptions{
		Prefetch: eventhubs.DefaultPrefetch, StartPosition: azeventhubs.StartPosition{Earliest: &earliest},
	})
	if err != nil {
		return err
	}
	for events > 0 {
		batch, err := p.ReceiveEvents(context.Background(), min(100, events), nil)
		if err != nil {
			return err
		}
		for _, e := range batch {
			handle(e)
		}
		events -= len(batch)
	}
	return p.Close(context.Background())
}

// naive alerts a device at most once a minute, in one process and for as long as that lives.
type naive struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func (n *naive) take(e *azeventhubs.ReceivedEventData) {
	var body struct {
		Temperature float64 `json:"temperature"`
	}
	if json.Unmarshal(e.Body, &body) != nil || body.Temperature < 80 {
		return
	}
	device, _ := e.SystemProperties["iothub-connection-device-id"].(string)
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); now.Sub(n.last[device]) > time.Minute {
		n.last[device] = now
	}
}
