package devhub_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"alertworker/internal/lab/devhub"
)

// Two processors share the partitions of a hub and see all of it between them.
func TestProcessor(t *testing.T) {
	const partitions, perPartition = 4, 50
	h := listen(t, devhub.Config{Partitions: partitions})
	for i := range partitions * perPartition {
		publish(t, h, devhub.Message{Partition: fmt.Sprint(i % partitions), Body: fmt.Append(nil, i)})
	}
	store := &memoryStore{owners: map[string]azeventhubs.Ownership{}, checkpoints: map[string]azeventhubs.Checkpoint{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var mu sync.Mutex
	seen := map[string]int{}
	all := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == partitions*perPartition
	}
	consume := func(p *azeventhubs.ProcessorPartitionClient) error {
		defer p.Close(context.Background())
		for {
			wait, done := context.WithTimeout(ctx, 50*time.Millisecond)
			events, err := p.ReceiveEvents(wait, 10, nil)
			done()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				if ctx.Err() != nil || isCode(err, azeventhubs.ErrorCodeOwnershipLost) {
					return nil
				}
				return err
			}
			for _, e := range events {
				mu.Lock()
				seen[string(e.Body)]++
				mu.Unlock()
				if err := p.UpdateCheckpoint(ctx, e, nil); err != nil && ctx.Err() == nil {
					return err
				}
			}
		}
	}
	var wg sync.WaitGroup
	for range 2 {
		c := consumer(t, h, quickRetries)
		p, err := azeventhubs.NewProcessor(c, store, &azeventhubs.ProcessorOptions{
			UpdateInterval: 20 * time.Millisecond,
			StartPositions: azeventhubs.StartPositions{Default: earliest},
		})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := p.Run(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			for {
				pc := p.NextPartitionClient(ctx)
				if pc == nil {
					return
				}
				wg.Go(func() {
					if err := consume(pc); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
	eventually(t, "all events were seen", all)
	eventually(t, "both processors own two partitions", func() bool {
		share := map[string]int{}
		for _, o := range store.list() {
			share[o.OwnerID]++
		}
		return len(share) == 2 && slices.Max(slices.Collect(maps.Values(share))) == 2
	})
	cancel()
	wg.Wait()
	list, err := store.ListCheckpoints(t.Context(), "", "", "", nil)
	if err != nil || len(list) != partitions {
		t.Fatalf("%d checkpoints, %v", len(list), err)
	}
	for _, c := range list {
		if *c.SequenceNumber != perPartition-1 {
			t.Errorf("partition %s: checkpoint at %d", c.PartitionID, *c.SequenceNumber)
		}
	}
}

// A memoryStore is a checkpoint store for one hub and group.
type memoryStore struct {
	mu          sync.Mutex
	etag        int
	owners      map[string]azeventhubs.Ownership
	checkpoints map[string]azeventhubs.Checkpoint
}

func (s *memoryStore) ClaimOwnership(_ context.Context, want []azeventhubs.Ownership, _ *azeventhubs.ClaimOwnershipOptions) (got []azeventhubs.Ownership, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range want {
		if cur, ok := s.owners[o.PartitionID]; ok && (o.ETag == nil || *o.ETag != *cur.ETag) {
			continue
		}
		s.etag++
		o.ETag, o.LastModifiedTime = ptr(azcore.ETag(fmt.Sprint(s.etag))), time.Now()
		s.owners[o.PartitionID] = o
		got = append(got, o)
	}
	return got, nil
}

func (s *memoryStore) list() []azeventhubs.Ownership {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.owners), func(a, b azeventhubs.Ownership) int { return cmp.Compare(a.PartitionID, b.PartitionID) })
}

func (s *memoryStore) ListOwnership(context.Context, string, string, string, *azeventhubs.ListOwnershipOptions) ([]azeventhubs.Ownership, error) {
	return s.list(), nil
}

func (s *memoryStore) ListCheckpoints(context.Context, string, string, string, *azeventhubs.ListCheckpointsOptions) ([]azeventhubs.Checkpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.checkpoints)), nil
}

func (s *memoryStore) SetCheckpoint(_ context.Context, c azeventhubs.Checkpoint, _ *azeventhubs.SetCheckpointOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkpoints[c.PartitionID] = c
	return nil
}
