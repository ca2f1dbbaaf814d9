package eventhubs

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// The Processor's own balancing is not used: it compares this machine's clock
// with the store's, knows only replicas that own something, draws from the head
// of the list only, and waits for every link that it opens before it renews. It
// is told that nobody owns anything, so it claims all partitions, and gets those
// that the Member holds. It opens links for these.

// ListOwnership implements [azeventhubs.CheckpointStore].
func (g *guard) ListOwnership(context.Context, string, string, string, *azeventhubs.ListOwnershipOptions) ([]azeventhubs.Ownership, error) {
	return nil, nil
}

// ClaimOwnership implements [azeventhubs.CheckpointStore]. It paces the
// Processor: it waits until the Member holds more than before, or for an
// interval, after which links that could not be opened are tried again.
func (g *guard) ClaimOwnership(ctx context.Context, wanted []azeventhubs.Ownership, _ *azeventhubs.ClaimOwnershipOptions) ([]azeventhubs.Ownership, error) {
	g.called.Store(time.Now().UnixNano())
	if len(wanted) == 0 || wanted[0].OwnerID == "" {
		return nil, nil // it ends and gives all back, which is the Member's to do
	}
	timer := time.NewTimer(g.interval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-g.member.Changed():
	case <-timer.C:
	}
	held := g.member.Held()
	owned := make([]azeventhubs.Ownership, len(held))
	for i, id := range held {
		owned[i] = wanted[0]
		owned[i].PartitionID = id
	}
	return owned, nil
}
