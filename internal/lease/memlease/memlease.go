// Package memlease is a lease.Store in the memory of one process, for local
// mode and tests. It is exact to the nanosecond and forgets everything when the
// process ends.
package memlease

import (
	"container/list"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
)

const (
	// maxRecords bounds the memory: a record of a usual device takes some 390 bytes.
	maxRecords = 1 << 20

	// dropAtOnce bounds what one call drops.
	dropAtOnce = 1000
)

// errConflict says that a record has changed since it was read.
var errConflict = &lease.Failure{Text: "the record has changed", Cause: lease.Conflict, Again: true}

// errFull says that no record can be dropped for another one.
var errFull = lease.NewWrong(fmt.Sprintf(
	"the memory store is full: it has %d records, and all of them may still keep an alert from being repeated; use "+
		"blob or cosmos for so many devices (THROTTLE_STORE)",
	maxRecords,
))

// A Store keeps one record for every key, until it was free for the retention.
// Its clock is the process's monotonic clock. Use New or Keeping.
//
// It keeps 1,048,576 records. For a key beyond that it drops the one written
// longest ago, if that has been free for twice the longest ttl that was ever asked for: neither
// a window nor the fate of an alert can depend on it any more, only the silence
// about a reading that comes that late. If there is none such, Acquire of a new key fails.
type Store struct {
	lease.Store
	memory *memory
}

// New returns an empty store that keeps records for a week, as long as an IoT
// Hub keeps an event that could still ask for one.
func New() *Store { return Keeping(7 * 24 * time.Hour) }

// Keeping returns an empty store with that retention.
func Keeping(retention time.Duration) *Store {
	start := time.Now()
	m := &memory{
		start:     start,
		retention: retention,
		max:       maxRecords,
		records:   map[string]*list.Element{},
		writes:    start.UnixNano(),
	}

	return &Store{caslease.New(m, caslease.Service{}), m}
}

// A memory is a [caslease.Records].
type memory struct {
	start     time.Time // the records' times count from here, by the monotonic clock
	retention time.Duration
	max       int // records

	mu      sync.Mutex
	records map[string]*list.Element
	written list.List // of *record, the one written longest ago first
	longest time.Duration
	writes  int64 // the last version; it begins with the time, so that no two memories have the same
}

// A record is kept small: there may be a million of them.
type record struct {
	key, note string
	id        uuid.UUID // of the last lease granted
	token     int64
	claimed   time.Duration // since the memory's start
	written   time.Duration // likewise
	hold      time.Duration
	version   int64
	released  bool
}

// Read implements caslease.Records.
func (m *memory) Read(ctx context.Context, key string) (caslease.Record, error) {
	if err := ctx.Err(); err != nil {
		return caslease.Record{}, err
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Since(m.start)
	m.drop(dropAtOnce, now-m.retention)
	found := caslease.Record{Record: lease.Record{Now: m.start.Add(now)}}

	if e := m.records[key]; e != nil {
		r := e.Value.(*record)
		found.Note = r.note
		found.Token = r.token
		found.Hold = r.hold
		found.Claimed, found.Written = m.start.Add(r.claimed), m.start.Add(r.written)
		found.ID = r.id.String()
		found.Released = r.released
		found.Exists = true
		found.Version = strconv.FormatInt(r.version, 10)
	}

	return found, nil
}

// Write implements caslease.Records.
func (m *memory) Write(ctx context.Context, key string, prev, next caslease.Record) (version string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}

	id, err := uuid.Parse(next.ID)
	if err != nil {
		return "", err
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.records[key]
	switch {
	case prev.Exists != (e != nil) || e != nil && prev.Version != strconv.FormatInt(e.Value.(*record).version, 10):
		return "", errConflict
	case e != nil:
		m.written.MoveToBack(e)
	case len(m.records) >= m.max && m.drop(1, time.Since(m.start)-2*m.longest) == 0:
		return "", errFull
	default:
		e = m.written.PushBack(&record{key: strings.Clone(key)})
		m.records[e.Value.(*record).key] = e
	}

	r := e.Value.(*record)
	m.writes++
	r.id = id
	r.token = next.Token
	r.note = next.Note
	r.version = m.writes
	r.claimed = next.Claimed.Sub(m.start)
	r.written = time.Since(m.start)
	r.hold = next.Hold
	r.released = next.Released
	m.longest = max(m.longest, r.hold)

	return strconv.FormatInt(r.version, 10), nil
}

// drop drops at most n records that ended at limit, which is past, or before, from
// the one written longest ago on, and returns how many.
func (m *memory) drop(n int, limit time.Duration) (dropped int) {
	for ; dropped < n; dropped++ {
		e := m.written.Front()
		if e == nil {
			break
		}

		r := e.Value.(*record)
		if r.written+r.hold > limit {
			break
		}

		m.written.Remove(e)
		delete(m.records, r.key)
	}

	return dropped
}
