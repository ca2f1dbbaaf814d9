package eventhubs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// MemoryCheckpoints is a [Store] for one process: any number of Sources in it may
// share it. It behaves like the stores on blobs; in particular an ownership
// changes only if the claim has its present etag, or none if there is no ownership yet. The zero MemoryCheckpoints is empty and
// ready. It is safe for concurrent use.
type MemoryCheckpoints struct {
	mu         sync.Mutex
	ownerships map[memoryKey]azeventhubs.Ownership
	records    map[string]Record
	etags      int64
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

// List implements [Records].
func (m *MemoryCheckpoints) List(ctx context.Context, prefix string) (map[string]Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]Record{}
	for name, r := range m.records {
		if strings.HasPrefix(name, prefix) {
			all[name] = Record{Values: maps.Clone(r.Values), ETag: r.ETag}
		}
	}
	return all, nil
}

// Read implements [Records].
func (m *MemoryCheckpoints) Read(ctx context.Context, name string) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[name]
	if !ok {
		return Record{}, fmt.Errorf("%s: %w", name, ErrNoRecord)
	}
	return Record{Values: maps.Clone(r.Values), ETag: r.ETag}, nil
}

// Write implements [Records].
func (m *MemoryCheckpoints) Write(ctx context.Context, name string, values map[string]string, etag string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records[name].ETag != etag {
		return "", fmt.Errorf("%s: %w", name, ErrConflict)
	}
	if m.records == nil {
		m.records = map[string]Record{}
	}
	m.etags++
	next := Record{Values: maps.Clone(values), ETag: strconv.FormatInt(m.etags, 10)}
	m.records[name] = next
	return next.ETag, nil
}
