package eventhubs

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/telemetry/ownership"
)

// A PartitionOwnership is one partition as all replicas see it.
type PartitionOwnership struct {
	Partition  string
	Owner      string // as [Source.Owner]; empty if it has shown no sign of life for OwnershipExpiry
	Checkpoint int64  // sequence number; -1 if there is none
	Last       int64  // sequence number of the last event; -1 if there never was one, or the hub does not say, or it is before the checkpoint: then the hub is not the one it was
}

// Ownerships asks the checkpoint store who owns which partition and how far it is,
// and the hub where it ends. It is for people who look: it returns by the time ctx ends. Only the store's
// failure is an error. The order is by length and name, that of numbers.
func (s *Source) Ownerships(ctx context.Context) ([]PartitionOwnership, error) {
	g := newGuard(s, s.endpoint())
	positions, _, err := g.checkpoints.all(ctx)
	if err != nil {
		return nil, err
	}
	var records ownership.Records
	err = attempt(ctx, "list ownerships", func(ctx context.Context) (err error) {
		records, err = s.config.Ownership.List(ctx, g.scope())
		return err
	})
	if err != nil {
		return nil, err
	}
	last, _ := s.ends(ctx) // without it, lag is not known

	byID := map[string]*PartitionOwnership{}
	of := func(id string) *PartitionOwnership {
		if byID[id] == nil {
			byID[id] = &PartitionOwnership{Partition: id, Checkpoint: -1, Last: -1}
		}
		return byID[id]
	}
	for id, sequence := range last {
		of(id).Last = sequence
	}
	for id, c := range positions {
		p := of(id)
		p.Checkpoint = c.Sequence
		if p.Last < c.Sequence { // the hub was asked later
			p.Last = -1
		}
	}
	for _, r := range records.Partitions {
		of(r.Partition)
	}
	for id, owner := range records.Owners(s.config.OwnershipExpiry) {
		of(id).Owner = owner
	}
	all := make([]PartitionOwnership, 0, len(byID))
	for _, p := range byID {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b PartitionOwnership) int {
		return cmp.Or(cmp.Compare(len(a.Partition), len(b.Partition)), cmp.Compare(a.Partition, b.Partition))
	})
	return all, nil
}

// ends asks the hub for the last sequence number of every partition.
func (s *Source) ends(ctx context.Context) (map[string]int64, error) {
	return inquire(ctx, s, func(ctx context.Context, client *azeventhubs.ConsumerClient, at endpoint) (map[string]int64, error) {
		hub, err := client.GetEventHubProperties(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("ask event hub %s for its partitions: %w", at.hub, err)
		}
		return lastSequences(ctx, client, at, hub.PartitionIDs)
	})
}
