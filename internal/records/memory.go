package records

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Memory is a Store for the replicas of one process. Its clock counts in seconds, as the service's
// does. The zero value is empty and ready to use.
type Memory struct {
	mu      sync.Mutex
	records map[string]Record
	etags   int64
}

var _ Store = (*Memory)(nil)

// Read implements [Store].
func (m *Memory) Read(ctx context.Context, name string, limit int) (Record, error) {
	r, err := m.look(ctx, name)
	r.Content = bytes.Clone(r.Content[:min(len(r.Content), limit+1)])
	return r, err
}

// Stat implements [Store].
func (m *Memory) Stat(ctx context.Context, name string) (Record, error) {
	r, err := m.look(ctx, name)
	r.Content = nil
	return r, err
}

func (m *Memory) look(ctx context.Context, name string) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, fmt.Errorf("read record %q: %w", name, err)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[name]
	r.Now = now()
	if !ok {
		return r, fmt.Errorf("read record %q: %w", name, ErrNotFound)
	}

	r.Values = maps.Clone(r.Values)

	return r, nil
}

// Write implements [Store].
func (m *Memory) Write(ctx context.Context, r Record) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("write record %q: %w", r.Name, err)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	there := m.records[r.Name]
	if r.ETag != there.ETag && r.ETag != Any {
		return "", fmt.Errorf("write record %q: %w", r.Name, ErrConflict)
	}

	next := Record{Name: r.Name, Values: maps.Clone(r.Values), Content: there.Content, Written: now()}
	if r.Content != nil {
		next.Content = bytes.Clone(r.Content)
	}

	if m.records == nil {
		m.records = map[string]Record{}
	}

	m.etags++
	next.ETag = strconv.FormatInt(m.etags, 10)
	m.records[r.Name] = next

	return next.ETag, nil
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, name, etag string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete record %q: %w", name, err)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if there, ok := m.records[name]; etag != Any && (!ok || etag != there.ETag) {
		return fmt.Errorf("delete record %q: %w", name, ErrConflict)
	}

	delete(m.records, name)

	return nil
}

// List implements [Store].
func (m *Memory) List(ctx context.Context, prefix, from string) (p Page, err error) {
	if err := ctx.Err(); err != nil {
		return Page{}, fmt.Errorf("list records %q: %w", prefix, err)
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	for _, name := range slices.Sorted(maps.Keys(m.records)) {
		if !strings.HasPrefix(name, prefix) || name < from {
			continue
		}

		if len(p.Records) == pageSize {
			p.Next = name
			break
		}

		r := m.records[name]
		r.Values = maps.Clone(r.Values)
		r.Content = nil
		r.Now = now()
		p.Records = append(p.Records, r)
	}

	return p, nil
}

func now() time.Time { return time.Now().UTC().Truncate(Resolution) }
