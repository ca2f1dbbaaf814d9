package ownership

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// Memory is a Store for the replicas of one process. The zero Memory is empty and ready
// to use.
type Memory struct {
	mu         sync.Mutex
	partitions map[memoryKey]memoryRecord
	heartbeats map[memoryKey]memoryRecord
	writes     int64
}

type memoryKey struct{ scope, name string } // the name of a partition or an owner

type memoryRecord struct {
	owner   string
	leaving bool
	version string
	written time.Time
}

// List implements [Store].
func (m *Memory) List(ctx context.Context, scope string) (Records, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return Records{}, err
	}
	var all Records
	for key, r := range m.partitions {
		if key.scope == scope {
			all.Partitions = append(all.Partitions, Record{Partition: key.name, Owner: r.owner, Version: r.version, Age: time.Since(r.written)})
		}
	}
	for key, r := range m.heartbeats {
		if key.scope == scope {
			all.Heartbeats = append(all.Heartbeats, Heartbeat{Owner: r.owner, Version: r.version, Leaving: r.leaving, Age: time.Since(r.written)})
		}
	}
	return all, nil
}

// Claim implements [Store].
func (m *Memory) Claim(ctx context.Context, scope, partition, owner, version string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	key := memoryKey{scope, partition}
	if m.partitions[key].version != version {
		return false, nil
	}
	if m.partitions == nil {
		m.partitions = map[memoryKey]memoryRecord{}
	}
	m.partitions[key] = m.record(owner, false)
	return true, nil
}

// Beat implements [Store].
func (m *Memory) Beat(ctx context.Context, scope, owner string, leaving bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.heartbeats == nil {
		m.heartbeats = map[memoryKey]memoryRecord{}
	}
	m.heartbeats[memoryKey{scope, owner}] = m.record(owner, leaving)
	return nil
}

// Forget implements [Store].
func (m *Memory) Forget(ctx context.Context, scope, owner, version string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	key := memoryKey{scope, owner}
	if version == "" || m.heartbeats[key].version == version {
		delete(m.heartbeats, key)
	}
	return nil
}

func (m *Memory) record(owner string, leaving bool) memoryRecord {
	m.writes++
	return memoryRecord{owner: owner, leaving: leaving, version: strconv.FormatInt(m.writes, 10), written: time.Now()}
}
