package eventhubs_test

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"

	"alertworker/internal/lab/emulators"
	"alertworker/internal/records"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/eventhubs"
)

// azeventhubs reads what we write, and we read what it writes: so does KEDA.
func TestLayoutIsThatOfAzeventhubs(t *testing.T) {
	t.Parallel()
	azurite := emulators.StartAzurite(t)
	c := azurite.Container(t, azurite.NewContainer(), nil)
	store, err := records.OpenBlobs(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := checkpoints.NewBlobStore(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	group := eventhubs.NewGroup("NS.servicebus.windows.net", "Hub", "$Default")
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	ours := eventhubs.StoredCheckpoint{Checkpoint: telemetry.Checkpoint{Position: telemetry.Position{Sequence: 41, Offset: "4100", Time: at, Generation: "4f1c09ab37e2d680"}, Ledger: "A7Q2"}}
	if _, err := store.Write(t.Context(), records.Record{Name: group.Checkpoint("3"), Values: ours.Values()}); err != nil {
		t.Fatal(err)
	}
	read, _, err := eventhubs.ReadCheckpoints(t.Context(), store, group)
	if c := read["3"]; err != nil || c.Position != ours.Position || c.Ledger != ours.Ledger {
		t.Errorf("we read %+v, %v; want %+v", read, err, ours)
	}
	all, err := theirs.ListCheckpoints(t.Context(), "ns.servicebus.windows.net", "hub", "$default", nil)
	if err != nil || len(all) != 1 || all[0].PartitionID != "3" || *all[0].SequenceNumber != 41 || *all[0].Offset != "4100" {
		t.Fatalf("azeventhubs reads %+v, %v", all, err)
	}
	// KEDA opens the body and never closes it: each look would cost it a connection.
	blob, err := c.NewBlobClient(group.Checkpoint("3")).GetProperties(t.Context(), nil)
	if err != nil || *blob.ContentLength != 0 {
		t.Errorf("a checkpoint has a body of %d bytes, %v; want none", *blob.ContentLength, err)
	}

	*all[0].SequenceNumber = 42
	all[0].Offset = to.Ptr("4200")
	if err := theirs.SetCheckpoint(t.Context(), all[0], nil); err != nil {
		t.Fatal(err)
	}
	read, _, err = eventhubs.ReadCheckpoints(t.Context(), store, group)
	if c := read["3"]; err != nil || c.Position != (telemetry.Position{Sequence: 42, Offset: "4200"}) || c.Ledger != "" {
		t.Errorf("of azeventhubs' we read %+v, %v", read, err)
	}
}
