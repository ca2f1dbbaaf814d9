package eventhubs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/telemetry/eventhubs"
)

// A History has the events of all partitions in the hub's order, from a time on, up to what there was when it was opened; beside a worker.
func TestHistory(t *testing.T) {
	h := probed(t, devhub.Config{Partitions: 4})
	start := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	publish := func(i int) {
		t.Helper()
		if _, err := h.Publish(devhub.Message{Partition: fmt.Sprint(i % 3), Device: fmt.Sprint("oven-", i%3), Body: fmt.Append(nil, i), Enqueued: start.Add(time.Duration(i) * time.Second)}); err != nil {
			t.Fatal(err)
		}
	}
	const events, from = 2000, 100
	for i := range events {
		publish(i)
	}
	client, err := azeventhubs.NewConsumerClientFromConnectionString(h.ConnectionString(), "", azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	worker, err := client.NewPartitionClient("0", &azeventhubs.PartitionClientOptions{StartPosition: azeventhubs.StartPosition{Earliest: new(true)}, OwnerLevel: new(int64)})
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close(context.Background())
	if _, err := worker.ReceiveEvents(t.Context(), 1, nil); err != nil {
		t.Fatal(err)
	}

	h.RefuseLinks("1", 2, "amqp:internal-error")
	history, err := eventhubs.OpenHistory(t.Context(), eventhubs.Config{ConnectionString: h.ConnectionString(), ConsumerGroup: "backtest"}, start.Add(from*time.Second), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer history.Close()
	publish(events + 1) // too late
	h.Reset()
	for next := from; ; {
		partition, events_, err := history.Next(t.Context())
		if errors.Is(err, io.EOF) {
			if next != events {
				t.Errorf("it ends before event %d", next)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events_ {
			if string(e.Body) != fmt.Sprint(next) || partition != fmt.Sprint(next%3) || e.Generation == "" || !e.Enqueued.Equal(start.Add(time.Duration(next)*time.Second)) {
				t.Fatalf("event %s of partition %s at %v, want %d", e.Body, partition, e.Enqueued, next)
			}
			next++
		}
	}
	if p := history.Progress(); p < 0.4 || p > 0.7 {
		t.Errorf("the progress is %v", p)
	}
	if _, err := h.Publish(devhub.Message{Partition: "0", Device: "oven", Body: []byte("live")}); err != nil {
		t.Fatal(err)
	}
	for { // the worker still reads
		got, err := worker.ReceiveEvents(t.Context(), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if string(got[0].Body) == "live" {
			break
		}
	}
}

// To open a link to a hub that is far away takes longer than a batch may.
func TestHistoryOfAFarHub(t *testing.T) {
	h := probed(t, devhub.Config{Partitions: 1})
	const events = 10
	for range events {
		if _, err := h.Publish(devhub.Message{Partition: "0", Device: "oven"}); err != nil {
			t.Fatal(err)
		}
	}
	h.SetLatency(100 * time.Millisecond)
	history, err := eventhubs.OpenHistory(t.Context(), eventhubs.Config{ConnectionString: h.ConnectionString()}, time.Now().Add(-time.Hour), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer history.Close()
	for read := 0; read < events; {
		_, got, err := history.Next(t.Context())
		if err != nil {
			t.Fatalf("after %d events: %v", read, err)
		}
		read += len(got)
	}
}

func TestHistoryFails(t *testing.T) {
	h := probed(t, devhub.Config{Partitions: 1})
	for i := range 10 {
		if _, err := h.Publish(devhub.Message{Partition: "0", Device: "oven", Body: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
	}
	open := func(group string, rate float64) (*eventhubs.History, error) {
		history, err := eventhubs.OpenHistory(t.Context(), eventhubs.Config{ConnectionString: h.ConnectionString(), ConsumerGroup: group}, time.Now().Add(-time.Minute), rate)
		if err == nil {
			t.Cleanup(history.Close)
		}
		return history, err
	}
	slow, err := open("$Default", 0.001)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := slow.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("at a rate of one in a quarter of an hour: %v", err)
	}

	client, err := azeventhubs.NewConsumerClientFromConnectionString(h.ConnectionString(), "", "others", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	worker, err := client.NewPartitionClient("0", &azeventhubs.PartitionClientOptions{StartPosition: azeventhubs.StartPosition{Earliest: new(true)}, OwnerLevel: new(int64)})
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close(context.Background())
	if _, err := worker.ReceiveEvents(t.Context(), 1, nil); err != nil {
		t.Fatal(err)
	}
	taken, err := open("others", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := taken.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "a worker reads the consumer group others") {
		t.Errorf("in a worker's consumer group: %v", err)
	}

	h.RefuseLinks("0", 100, "amqp:not-found")
	absent, err := open("nowhere", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := absent.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "no consumer group nowhere") || strings.Contains(err.Error(), "EVENTHUB_CONSUMER_GROUP") {
		t.Errorf("in a consumer group that does not exist: %v", err)
	}

	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go func() {
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "SSH-2.0-server\r\n")
			_ = c.Close()
		}
	}()
	at := other.Addr().String()
	_, err = eventhubs.OpenHistory(t.Context(), eventhubs.Config{ConnectionString: strings.ReplaceAll(h.ConnectionString(), h.Addr(), at), ConsumerGroup: "others"}, time.Now(), 0)
	if err == nil || !strings.Contains(err.Error(), at) {
		t.Errorf("of a server that is no hub: %v", err)
	}
}
