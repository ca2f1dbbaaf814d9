package eventhubs_test

import (
	"context"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/lab/devhub"
	"alertworker/internal/telemetry/eventhubs"
)

// A key is tried beside the worker that reads, which does not notice.
func TestTry(t *testing.T) {
	h := probed(t, devhub.Config{Hub: "telemetry", Partitions: 1, Key: "therightkey"})
	try := func(connection string) error {
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		return eventhubs.Try(ctx, eventhubs.Config{ConnectionString: connection})
	}
	right := h.ConnectionString()
	if err := try(right); err != nil {
		t.Errorf("nobody reads: %v", err)
	}

	client, err := azeventhubs.NewConsumerClientFromConnectionString(right, "", azeventhubs.DefaultConsumerGroup, nil)
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
		if _, err := h.Publish(devhub.Message{Partition: "0", Device: "d"}); err != nil {
			t.Fatal(err)
		}
		if _, err := worker.ReceiveEvents(t.Context(), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	receive()
	if err := try(right); err != nil {
		t.Errorf("a worker reads: %v", err)
	}
	receive()

	for _, test := range []struct {
		name, connection string
		fault            func()
		want             string
	}{
		{"key", strings.Replace(right, "therightkey", "thewrongkey", 1), func() {}, "rejected the key or identity"},
		{"hub", strings.Replace(right, "EntityPath=telemetry", "EntityPath=other", 1), func() {}, "there is no event hub other"},
		{"link", right, func() { h.RefuseLinks("0", 1, "refused on demand") }, "refused on demand"},
	} {
		test.fault()
		if err := try(test.connection); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "wrongkey") {
			t.Errorf("%s: error %v, want %q", test.name, err, test.want)
		}
	}
}
