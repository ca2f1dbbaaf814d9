package eventhubs_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

func probed(t *testing.T, c devhub.Config) *devhub.Hub {
	t.Helper()
	h, err := devhub.Listen("127.0.0.1:0", c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func TestProbe(t *testing.T) {
	h := probed(t, devhub.Config{Partitions: 20, MaxEvents: 4})
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range 10 { // of which four stay
		if _, err := h.Publish(devhub.Message{Partition: "0", Device: "d", Body: fmt.Append(nil, i), Enqueued: at}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Publish(devhub.Message{Partition: "1", Device: "e", Body: []byte("one"), Enqueued: at}); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{
		0: "",
		3: "d 7 d 8 d 9 e one",
		9: "d 6 d 7 d 8 d 9 e one", // no more than there are
	} {
		// Less than it would wait for events that do not come.
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		got, err := eventhubs.Probe(ctx, eventhubs.Config{ConnectionString: h.ConnectionString()}, n)
		if err != nil || ctx.Err() != nil {
			t.Fatalf("%v, %v", err, ctx.Err())
		}
		var events []string
		for _, e := range eventsOf(got) {
			events = append(events, e.Device, string(e.Body))
		}
		if strings.Join(events, " ") != want {
			t.Errorf("of %d events: got %q, want %q", n, events, want)
		}
		if len(got) != 20 {
			t.Fatalf("%d partitions, want 20", len(got))
		}
		if p := got[0]; p.ID != "0" || p.First != 6 || p.Last != 9 || !p.Enqueued.Equal(at) || p.Empty || p.Busy {
			t.Errorf("partition 0 is %+v", p)
		}
		if p := got[2]; p.ID != "2" || !p.Empty || p.Busy {
			t.Errorf("partition 2 is %+v", p)
		}
	}
	if n := h.Readers(""); n != 0 {
		t.Errorf("%d readers are left", n)
	}
}

// A worker is not disturbed, and what it leaves is looked at.
func TestProbeBesideAWorker(t *testing.T) {
	h := probed(t, devhub.Config{Partitions: 2})
	for _, partition := range []string{"0", "1"} {
		if _, err := h.Publish(devhub.Message{Partition: partition, Device: "d", Body: []byte(partition)}); err != nil {
			t.Fatal(err)
		}
	}
	client, err := azeventhubs.NewConsumerClientFromConnectionString(h.ConnectionString(), "", azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	earliest, level := true, int64(0)
	worker, err := client.NewPartitionClient("0", &azeventhubs.PartitionClientOptions{
		StartPosition: azeventhubs.StartPosition{Earliest: &earliest}, OwnerLevel: &level,
	})
	if err != nil {
		t.Fatal(err)
	}
	receive := func() {
		t.Helper()
		if _, err := worker.ReceiveEvents(t.Context(), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	receive()
	got, err := eventhubs.Probe(t.Context(), eventhubs.Config{ConnectionString: h.ConnectionString()}, 5)
	if err != nil {
		t.Fatal(err)
	}
	if !got[0].Busy || got[1].Busy || len(eventsOf(got)) != 1 || string(eventsOf(got)[0].Body) != "1" {
		t.Errorf("got %+v", got)
	}
	if _, err := h.Publish(devhub.Message{Partition: "0", Device: "d"}); err != nil {
		t.Fatal(err)
	}
	receive()
}

func TestProbeFailures(t *testing.T) {
	h := probed(t, devhub.Config{Hub: "telemetry", Partitions: 2, Key: "therightkey"})
	if _, err := h.Publish(devhub.Message{Partition: "0", Device: "d"}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close()
	right := h.ConnectionString()

	for _, test := range []struct {
		name, connection string
		fault            func()
		want             string
	}{
		{"key", strings.Replace(right, "therightkey", "thewrongkey", 1), func() {}, "rejected the key or identity"},
		{"hub", strings.Replace(right, "EntityPath=telemetry", "EntityPath=other", 1), func() {}, "there is no event hub other at 127.0.0.1"},
		{"refused", strings.Replace(right, h.Addr(), nobody, 1), func() {}, "nothing listens at " + nobody},
		{"host", strings.Replace(right, h.Addr(), "hub.invalid", 1), func() {}, "cannot find the host hub.invalid"},
		{"forbidden", right, func() { h.RefuseClaims(1, 403) }, "check the network rules"},
		{"trouble", right, func() { h.RefuseClaims(1, 500) }, "refused on demand"},
		{"management", right, func() { h.RefuseManagement(1, 401) }, "rejected the key or identity"},
		{"silence", right, func() { h.Stall(); time.AfterFunc(2*time.Second, h.Resume) }, "no answer from 127.0.0.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.fault()
			defer h.Resume()
			limit := waitLimit
			if test.name == "silence" {
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			got, err := eventhubs.Probe(ctx, eventhubs.Config{ConnectionString: test.connection}, 1)
			if err == nil {
				t.Fatalf("got %+v", got)
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "key"+"=") ||
				strings.Contains(err.Error(), "therightkey") || strings.Contains(err.Error(), "thewrongkey") {
				t.Errorf("error %q, want %q and no key", err, test.want)
			}
		})
	}
}

// A hub that falls silent, at whatever moment, does not keep Probe beyond its
// context, although azeventhubs ignores that while it asks for a partition.
func TestProbeEndsWithContext(t *testing.T) {
	t.Parallel()
	var probes sync.WaitGroup // side by side: each waits for seconds
	defer probes.Wait()
	for silent := time.Duration(0); silent < 150*time.Millisecond; silent += 10 * time.Millisecond {
		h := probed(t, devhub.Config{Partitions: 2})
		if _, err := h.Publish(devhub.Message{Partition: "0", Device: "d"}); err != nil {
			t.Fatal(err)
		}
		h.SetLatency(5 * time.Millisecond)

		probes.Go(func() {
			time.AfterFunc(silent, h.Stall)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			rescue := time.AfterFunc(30*time.Second, func() {
				t.Errorf("silent after %v: it does not end", silent)
				_ = h.Close()
			})
			defer rescue.Stop()
			_, _ = eventhubs.Probe(ctx, eventhubs.Config{ConnectionString: h.ConnectionString()}, 1)
		})
	}
}

// eventsOf returns those of all partitions.
func eventsOf(partitions []eventhubs.PartitionState) (all []telemetry.Event) {
	for _, p := range partitions {
		all = append(all, p.Events...)
	}
	return all
}
