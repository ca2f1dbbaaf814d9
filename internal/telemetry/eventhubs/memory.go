package eventhubs

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// MemoryCheckpoints is a checkpoint store for one process: any number of
// Sources in it may share it. The zero MemoryCheckpoints is empty and ready. It
// is safe for concurrent use.
type MemoryCheckpoints struct {
	mu          sync.Mutex
	checkpoints map[memoryKey]azeventhubs.Checkpoint
}

type memoryKey struct{ namespace, hub, group, partition string }

func (k memoryKey) in(namespace, hub, group string) bool {
	return k.namespace == namespace && k.hub == hub && k.group == group
}

// ListCheckpoints implements [CheckpointStore].
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

// SetCheckpoint implements [CheckpointStore].
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
