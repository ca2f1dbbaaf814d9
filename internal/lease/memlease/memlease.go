// Package memlease is a lease.Store in the memory of one process, for local
// mode and tests. It is exact to the nanosecond and forgets everything when the
// process ends.
package memlease

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"alertworker/internal/lease"
)

const (
	// maxRecords bounds the memory: a record of a usual device takes some 330 bytes.
	maxRecords = 1 << 20

	// dropAtOnce bounds what one call drops.
	dropAtOnce = 1000
)

// errFull says that no record can be dropped for another one.
var errFull = fmt.Errorf("the memory store is full: it has %d records, and all of them may still keep an alert from being repeated; use blob or cosmos for so many devices (THROTTLE_STORE)", maxRecords)

// A Store keeps one record for every key, until it was free for the retention.
// Its clock is the process's monotonic clock. Use New or Keeping.
//
// It keeps 1,048,576 records. For a key beyond that it drops the one written
// longest ago, if that has been free for twice the longest ttl that was ever asked for: neither
// a window nor the fate of an alert can depend on it any more, only the silence
// about a reading that comes that late. If there is none such, Acquire of a new key fails.
type Store struct {
	start     time.Time // the records' times count from here
	retention time.Duration
	max       int // records

	mu             sync.Mutex
	records        map[string]*record
	oldest, newest *record // by when they were written
	longest        time.Duration
}

// A record is kept small: there may be a million of them.
type record struct {
	key, note    string
	id           uuid.UUID // of the last lease granted
	token        int64
	claimed      time.Duration // since the Store's start
	written      time.Duration // likewise
	hold         time.Duration
	held         bool // not released
	older, newer *record
}

var _ lease.Store = (*Store)(nil)

// New returns an empty store that keeps records for a week, as long as an IoT
// Hub keeps an event that could still ask for one.
func New() *Store { return Keeping(7 * 24 * time.Hour) }

// Keeping returns an empty store with that retention.
func Keeping(retention time.Duration) *Store {
	return &Store{start: time.Now(), retention: retention, max: maxRecords, records: map[string]*record{}}
}

// now is the Store's clock.
func (s *Store) now() time.Duration { return time.Since(s.start) }

func (r *record) end() time.Duration { return r.written + r.hold }

// holds says that somebody has the key.
func (r *record) holds(now time.Duration) bool { return r.held && now < r.end() }

// public returns r as callers see it; a nil r is that of a key never taken.
func (s *Store) public(r *record, now time.Duration) lease.Record {
	if r == nil {
		return lease.Record{Now: s.start.Add(now)}
	}
	return lease.Record{Note: r.note, Token: r.token, Claimed: s.start.Add(r.claimed), Written: s.start.Add(r.written), Hold: r.hold, Now: s.start.Add(now)}
}

// lease is the proof that r, as just written, is held.
func (s *Store) lease(r *record) lease.Lease {
	end := s.start.Add(r.end())
	return lease.Lease{Key: r.key, ID: r.id.String(), Token: r.token, Claimed: s.start.Add(r.claimed), Note: r.note, Until: end, Frees: end}
}

// Acquire implements lease.Store. It calls next at most once.
func (s *Store) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	if err := ctx.Err(); err != nil {
		return lease.Lease{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.drop(dropAtOnce, now-s.retention)

	r := s.records[key]
	if r != nil && r.holds(now) {
		end := s.start.Add(r.end())
		return lease.Lease{}, &lease.HeldError{Key: key, Record: s.public(r, now), Until: end, Frees: end}
	}
	note, err := next(s.public(r, now))
	if err != nil {
		return lease.Lease{}, err
	}
	if r == nil {
		if len(s.records) >= s.max && s.drop(1, now-2*s.longest) == 0 {
			return lease.Lease{}, fmt.Errorf("acquire lease %q: %w", key, errFull)
		}
		r = &record{key: strings.Clone(key)}
		s.records[r.key] = r
		s.link(r)
	}
	r.token = max(r.token+1, s.start.Add(now).UnixMilli()) // the clock makes up for a record that was dropped
	r.id = uuid.New()
	r.claimed, r.held = now, true
	s.write(r, note, ttl)
	return s.lease(r), nil
}

// Extend implements lease.Store.
func (s *Store) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	if err := ctx.Err(); err != nil {
		return lease.Lease{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.current(l)
	if r == nil {
		return lease.Lease{}, lease.ErrLost
	}
	s.write(r, note, ttl)
	return s.lease(r), nil
}

// Release implements lease.Store.
func (s *Store) Release(ctx context.Context, l lease.Lease, note string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.current(l); r != nil {
		s.write(r, note, 0)
		r.held = false
	}
	return nil
}

// Read implements lease.Store.
func (s *Store) Read(ctx context.Context, key string) (lease.Record, error) {
	if err := ctx.Err(); err != nil {
		return lease.Record{}, fmt.Errorf("read the record of lease %q: %w", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.drop(dropAtOnce, now-s.retention)
	return s.public(s.records[key], now), nil
}

// Break implements lease.Store. It calls next at most once.
func (s *Store) Break(ctx context.Context, key string, next func(lease.Record) (string, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	r := s.records[key]
	if r == nil || !r.holds(now) {
		return nil
	}
	note, err := next(s.public(r, now))
	if err != nil {
		return err
	}
	s.write(r, note, 0)
	r.held = false
	return nil
}

// current returns l's record; nil if l is not the last lease granted on its key or was
// released. It may have expired.
func (s *Store) current(l lease.Lease) *record {
	r := s.records[l.Key]
	if id, err := uuid.Parse(l.ID); err != nil || r == nil || !r.held || r.id != id {
		return nil
	}
	return r
}

// write writes r now.
func (s *Store) write(r *record, note string, hold time.Duration) {
	s.unlink(r)
	s.link(r)
	r.note, r.written, r.hold = note, s.now(), hold
	s.longest = max(s.longest, hold)
}

// drop drops at most n records that ended at limit, which is past, or before, from
// the one written longest ago on, and returns how many.
func (s *Store) drop(n int, limit time.Duration) (dropped int) {
	for ; dropped < n; dropped++ {
		r := s.oldest
		if r == nil || r.end() > limit {
			break
		}
		s.unlink(r)
		delete(s.records, r.key)
	}
	return dropped
}

// link makes r, which is in no list, the newest.
func (s *Store) link(r *record) {
	r.older, r.newer = s.newest, nil
	if s.newest != nil {
		s.newest.newer = r
	} else {
		s.oldest = r
	}
	s.newest = r
}

// unlink takes r out of the list.
func (s *Store) unlink(r *record) {
	if r.older != nil {
		r.older.newer = r.newer
	} else {
		s.oldest = r.newer
	}
	if r.newer != nil {
		r.newer.older = r.older
	} else {
		s.newest = r.older
	}
	r.older, r.newer = nil, nil
}
