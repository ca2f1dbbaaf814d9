package eventhubs_test

import (
	"fmt"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/telemetry/eventhubs"
)

func TestMemoryKeepsGroupsApart(t *testing.T) {
	var m eventhubs.MemoryCheckpoints
	set := func(namespace, hub, group string, sequence int64) {
		offset := fmt.Sprint(sequence)
		c := azeventhubs.Checkpoint{FullyQualifiedNamespace: namespace, EventHubName: hub, ConsumerGroup: group, PartitionID: "0", SequenceNumber: &sequence, Offset: &offset}
		if err := m.SetCheckpoint(t.Context(), c, nil); err != nil {
			t.Fatal(err)
		}
	}
	set("ns", "hub", "group", 1)
	set("ns", "hub", "other", 2)
	set("ns", "other", "group", 3)
	set("other", "hub", "group", 4)
	set("ns", "hub", "group", 5)
	all, err := m.ListCheckpoints(t.Context(), "ns", "hub", "group", nil)
	if err != nil || len(all) != 1 || *all[0].SequenceNumber != 5 || *all[0].Offset != "5" {
		t.Errorf("ListCheckpoints: %+v, %v; want the one at 5", all, err)
	}
}
