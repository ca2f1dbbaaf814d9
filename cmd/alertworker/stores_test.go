package main

import (
	"os"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/ledger"
	"alertworker/internal/records"
	"alertworker/internal/telemetry/ownership"
)

// Somebody deletes the checkpoint container while workers run.
func TestCheckpointContainerIsCreatedAgain(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	c := config.Config{CheckpointStore: config.StoreBlob, StorageConnectionString: config.NewSecret(azurite.ConnectionString), CheckpointContainer: azurite.NewContainer()}
	s, err := newStores(c, network{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.records, err = s.openRecords(t.Context(), c, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	blobs := azurite.RetryingContainer(t, c.CheckpointContainer, nil)
	for what, call := range map[string]func() error{
		"a checkpoint": func() error {
			_, err := s.records.Write(t.Context(), records.Record{Name: "a/b/c/checkpoint/0", Values: map[string]string{"offset": "1"}})
			return err
		},
		"checkpoints": func() error {
			_, err := records.All(t.Context(), s.records, "a/b/c")
			return err
		},
		"a ledger": func() error {
			_, _, err := ledger.Open(t.Context(), s.records, "a/b/c/ledger/0")
			return err
		},
		"a heartbeat": func() error { return ownership.Beat(t.Context(), s.records, "a/b/c", "owner", false, nil) },
	} {
		if _, err := blobs.Delete(t.Context(), nil); err != nil && !bloberror.HasCode(err, bloberror.ContainerNotFound) { // a try before did it, unheard
			t.Fatal(err)
		}
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A ledger keeps its name when an IoT Hub's endpoint moves, and is told from others.
func TestLedgerName(t *testing.T) {
	hub := config.Config{EventHubNamespace: "NS.servicebus.windows.net", EventHubName: "Hub", EventHubConsumerGroup: "$Default"}
	iotHub := config.Config{IoTHubConnectionString: config.NewSecret("HostName=My-Hub.azure-devices.net;SharedAccessKeyName=service;SharedAccessKey=c2VjcmV0"), EventHubConsumerGroup: "$Default"}
	moved := iotHub
	moved.EventHubConnectionString = config.NewSecret("Endpoint=sb://ns2.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=b;EntityPath=hub2")
	for want, cs := range map[string][]config.Config{
		"ns.servicebus.windows.net/hub/$default/ledger/3": {hub},
		"my-hub.azure-devices.net/$default/ledger/3":      {iotHub, moved},
	} {
		for _, c := range cs {
			if got := ledgerName(c, "3"); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
}

// Whatever THROTTLE_STORE can be can be opened, and is described where people choose one.
func TestEveryStoreIsKnown(t *testing.T) {
	setup, err := os.ReadFile("../../docs/setup.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, store := range config.Stores {
		if leaseStores[store.Name].open == nil || leaseStores[store.Name].place == nil {
			t.Errorf("%s cannot be opened", store.Name)
		}
		if column := "| `" + string(store.Name) + "` "; !strings.Contains(string(setup), column) {
			t.Errorf("docs/setup.md has no column %q", column)
		}
	}
	if len(leaseStores) != len(config.Stores) {
		t.Errorf("%d stores can be opened, of %d", len(leaseStores), len(config.Stores))
	}
}
