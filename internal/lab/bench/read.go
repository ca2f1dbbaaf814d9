package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/telemetry/eventhubs"
)

// read is a process that reads a hub in the usual loop of azeventhubs until it has seen as many
// events as there are. "bare" throws them away: nothing that uses this client is cheaper.
// "naive" is the program that one writes first: encoding/json, a mutex and a map.
func read(ctx context.Context, args []string) error {
	partitions, events := 0, 0
	if len(args) == 3 {
		partitions, _ = strconv.Atoi(args[1])
		events, _ = strconv.Atoi(args[2])
	}
	handle := map[string]func(*azeventhubs.ReceivedEventData){"bare": func(*azeventhubs.ReceivedEventData) {}, "naive": newNaive().take}[args[0]]
	if partitions < 1 || handle == nil {
		return fmt.Errorf("usage: read bare|naive PARTITIONS EVENTS")
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
		go func() { errs <- readPartition(ctx, client, fmt.Sprint(i), events/partitions, handle) }()
	}
	for range partitions {
		if err := <-errs; err != nil {
			return err
		}
	}
	return client.Close(ctx)
}

func readPartition(ctx context.Context, client *azeventhubs.ConsumerClient, id string, events int, handle func(*azeventhubs.ReceivedEventData)) error {
	earliest := true
	p, err := client.NewPartitionClient(id, &azeventhubs.PartitionClientOptions{
		Prefetch: eventhubs.DefaultPrefetch, StartPosition: azeventhubs.StartPosition{Earliest: &earliest},
	})
	if err != nil {
		return err
	}
	for events > 0 {
		batch, err := p.ReceiveEvents(ctx, min(100, events), nil)
		if err != nil {
			return err
		}
		for _, e := range batch {
			handle(e)
		}
		events -= len(batch)
	}
	return p.Close(ctx)
}

// naive alerts a device at most once a minute, in one process and for as long as that lives.
type naive struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func newNaive() *naive { return &naive{last: map[string]time.Time{}} }

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
