package eventhubs

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
)

// MemoryCheckpoints is [Records] in memory, for any number of Sources of one process.
// The zero value is empty and ready to use. It is safe for concurrent use.
type MemoryCheckpoints struct {
	mu      sync.Mutex
	records map[string]Record
	etags   int64
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
