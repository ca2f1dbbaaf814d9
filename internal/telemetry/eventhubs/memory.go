package eventhubs

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// MemoryCheckpoints is a checkpoint store for one process: any number of
// Sources in it may share it. It behaves like the blob store of azeventhubs;
// in particular an ownership changes only if the claim has its present etag, or
// none if there is no ownership yet. The zero MemoryCheckpoints is empty and
// ready. It is safe for concurrent use.
type MemoryCheckpoints struct {
	mu          sync.Mutex
	ownerships  map[memoryKey]azeventhubs.Ownership
	checkpoints map[memoryKey]azeventhubs.Checkpoint
	etags       int64
}

type memoryKey struct{ namespace, hub, group, partition string }

func (k memoryKey) in(namespace, hub, group string) bool {
	return k.namespace == namespace && k.hub == hub && k.group == group
}

// ClaimOwnership implements [azeventhubs.CheckpointStore].
func (m *MemoryCheckpoints) ClaimOwnership(ctx context.Context, claims []azeventhubs.Ownership, _ *azeventhubs.ClaimOwnershipOptions) ([]azeventhubs.Ownership, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var got []azeventhubs.Ownership
	for _, o := range claims {
		key := memoryKey{o.FullyQualifiedNamespace, o.EventHubName, o.ConsumerGroup, o.PartitionID}
		present, exists := m.ownerships[key]
		if exists != (o.ETag != nil) || exists && *o.ETag != *present.ETag {
			continue
		}
		m.etags++
		etag := azcore.ETag(strconv.FormatInt(m.etags, 10))
		o.ETag, o.LastModifiedTime = &etag, time.Now().UTC()
		if m.ownerships == nil {
			m.ownerships = map[memoryKey]azeventhubs.Ownership{}
		}
		m.ownerships[key] = o
		got = append(got, o)
	}
	return got, nil
}

// ListOwnership implements [azeventhubs.CheckpointStore].
func (m *MemoryCheckpoints) ListOwnership(ctx context.Context, namespace, hub, group string, _ *azeventhubs.ListOwnershipOptions) ([]azeventhubs.Ownership, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []azeventhubs.Ownership
	for key, o := range m.ownerships {
		if key.in(namespace, hub, group) {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b azeventhubs.Ownership) int { return cmp.Compare(a.PartitionID, b.PartitionID) })
	return all, nil
}

// ListCheckpoints implements [azeventhubs.CheckpointStore].
func (m *MemoryCheckpoints) ListCheckpoints(ctx context.Context, namespace, hub, group string, _ *azeventhubs.ListCheckpointsOptions) ([]azeventhubs.Checkpoint, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []azeventhubs.Checkpoint
	for key, c := range m.checkpoints {
		if key.in(namespace, hub, group) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b azeventhubs.Checkpoint) int { return cmp.Compare(a.PartitionID, b.PartitionID) })
	return all, nil
}

// SetCheckpoint implements [azeventhubs.CheckpointStore].
func (m *MemoryCheckpoints) SetCheckpoint(ctx context.Context, c azeventhubs.Checkpoint, _ *azeventhubs.SetCheckpointOptions) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.checkpoints == nil {
		m.checkpoints = map[memoryKey]azeventhubs.Checkpoint{}
	}
	m.checkpoints[memoryKey{c.FullyQualifiedNamespace, c.EventHubName, c.ConsumerGroup, c.PartitionID}] = c
	return nil
}
