package eventhubs

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/ownership"
)

// Ownerships asks the checkpoint store who owns which partition and how far it is,
// and the hub where it ends. It is for people who look: it returns by the time ctx ends. Only the store's
// failure is an error. The order is by length and name, that of numbers.
func (s *Source) Ownerships(ctx context.Context) ([]telemetry.PartitionStatus, error) {
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

	byID := map[string]*telemetry.PartitionStatus{}
	of := func(id string) *telemetry.PartitionStatus {
		if byID[id] == nil {
			byID[id] = &telemetry.PartitionStatus{Partition: id, Checkpoint: -1, Last: -1}
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
		p := of(id)
		p.Owner, p.Mine = owner, owner == s.owner
	}
	all := make([]telemetry.PartitionStatus, 0, len(byID))
	for _, p := range byID {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b telemetry.PartitionStatus) int {
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
