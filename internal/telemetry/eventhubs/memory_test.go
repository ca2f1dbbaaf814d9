package eventhubs_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/telemetry/eventhubs"
)

func ownership(partition, owner string, etag *azcore.ETag) azeventhubs.Ownership {
	return azeventhubs.Ownership{FullyQualifiedNamespace: "ns", EventHubName: "hub", ConsumerGroup: "group", PartitionID: partition, OwnerID: owner, ETag: etag}
}

func claim(t *testing.T, m *eventhubs.MemoryCheckpoints, o azeventhubs.Ownership) (azeventhubs.Ownership, bool) {
	t.Helper()
	got, err := m.ClaimOwnership(t.Context(), []azeventhubs.Ownership{o}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) == 0 {
		return azeventhubs.Ownership{}, false
	}
	return got[0], true
}

func TestMemoryOwnershipNeedsThePresentETag(t *testing.T) {
	var m eventhubs.MemoryCheckpoints
	unknown := azcore.ETag("unknown")
	if _, ok := claim(t, &m, ownership("0", "a", &unknown)); ok {
		t.Error("claimed with an etag what was never owned")
	}
	first, ok := claim(t, &m, ownership("0", "a", nil))
	if !ok {
		t.Fatal("could not claim what nobody owns")
	}
	if _, ok := claim(t, &m, ownership("0", "b", nil)); ok {
		t.Error("claimed without an etag what is owned")
	}
	second, ok := claim(t, &m, ownership("0", "b", first.ETag))
	if !ok {
		t.Fatal("could not claim with the present etag")
	}
	if *second.ETag == *first.ETag {
		t.Error("a claim left the etag as it was")
	}
	if _, ok := claim(t, &m, ownership("0", "a", first.ETag)); ok {
		t.Error("renewed with an etag of before")
	}
	all, err := m.ListOwnership(t.Context(), "ns", "hub", "group", nil)
	if err != nil || len(all) != 1 || all[0].OwnerID != "b" || *all[0].ETag != *second.ETag || all[0].LastModifiedTime.IsZero() {
		t.Errorf("ListOwnership: %+v, %v; want b's claim", all, err)
	}
}

func TestMemoryOwnershipHasOneWinner(t *testing.T) {
	var m eventhubs.MemoryCheckpoints
	var etag *azcore.ETag
	for round := range 50 {
		var mu sync.Mutex
		var won []azeventhubs.Ownership
		var racers sync.WaitGroup
		for i := range 8 {
			racers.Go(func() {
				if got, ok := claim(t, &m, ownership("0", fmt.Sprint(i), etag)); ok {
					mu.Lock()
					defer mu.Unlock()
					won = append(won, got)
				}
			})
		}
		racers.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d has %d winners", round, len(won))
		}
		etag = won[0].ETag
	}
}
