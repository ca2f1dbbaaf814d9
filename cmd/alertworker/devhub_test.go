package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// A connection string for Microsoft's emulator works as it stands, whichever port.
func TestDevhubTakesTheEmulatorsConnectionString(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdout
	os.Stdout = writer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- command(ctx, []string{"devhub", "--addr", "127.0.0.1:0"}) }()
	printed, err := bufio.NewReader(reader).ReadString('\n')
	defer func() {
		stop()
		if code := <-ended; code != exitStopped {
			t.Errorf("exit code %d", code)
		}
		os.Stdout = before
		_, _ = reader.Close(), writer.Close()
	}()
	if err != nil {
		t.Fatal(err)
	}
	address, _, ok := strings.Cut(strings.TrimPrefix(printed, "Endpoint=sb://"), ";")
	if !ok {
		t.Fatalf("no connection string: %q", printed)
	}
	documented := "Endpoint=sb://" + address + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;EntityPath=telemetry"
	for _, s := range []string{documented, strings.TrimSpace(printed)} {
		client, err := azeventhubs.NewConsumerClientFromConnectionString(s, "", azeventhubs.DefaultConsumerGroup, nil)
		if err != nil {
			t.Fatal(err)
		}
		hub, err := client.GetEventHubProperties(t.Context(), nil)
		if err != nil || len(hub.PartitionIDs) != 4 {
			t.Errorf("%s: %d partitions, %v", s, len(hub.PartitionIDs), err)
		}
		_ = client.Close(context.Background())
	}
}

// 0 partitions are none, not as many as by default.
func TestDevhubWithoutPartitions(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for _, n := range []string{"0", "-1"} {
		err := serveHub(ctx, io.Discard, []string{"--addr", "127.0.0.1:0", "--partitions", n})
		var usage *usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), "must be 1 to 1024") {
			t.Errorf("%s: %v", n, err)
		}
	}
}
