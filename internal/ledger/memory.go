package ledger

import (
	"context"
	"slices"
	"strconv"
	"sync"
)

// Memory is a Store in memory, for any number of owners in one process. The zero value is
// empty and ready to use.
type Memory struct {
	mu      sync.Mutex
	records map[string]Record
	etags   int64
}

var _ Store = (*Memory)(nil)

// Read implements [Store].
func (m *Memory) Read(ctx context.Context, name string) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[name]
	r.Content = slices.Clone(r.Content)
	return r, nil
}

// Owner implements [Store].
func (m *Memory) Owner(ctx context.Context, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[name].Owner, nil
}

// Write implements [Store].
func (m *Memory) Write(ctx context.Context, name string, r Record) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records[name].ETag != r.ETag {
		return "", ErrConflict
	}
	if m.records == nil {
		m.records = map[string]Record{}
	}
	m.etags++
	m.records[name] = Record{Owner: r.Owner, Content: slices.Clone(r.Content), ETag: strconv.FormatInt(m.etags, 10)}
	return m.records[name].ETag, nil
}
