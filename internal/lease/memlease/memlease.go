// Package memlease is a lease.Store in the memory of one process, for local
// mode and tests. It is exact to the nanosecond and forgets everything when the
// process ends.
package memlease

import (
	"context"
	"iter"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"alertworker/internal/lease"
)

const (
	// keep is how long a record outlives its hold: as long as an IoT Hub keeps
	// an event that could still ask for it.
	keep = 7 * 24 * time.Hour

	// sweepEvery is how often records past keep are looked for.
	sweepEvery = time.Hour
)

// A Store keeps one record for every key taken within the last week. Its clock
// is the process's monotonic clock. Use New.
type Store struct {
	mu      sync.Mutex
	records map[string]record
	swept   time.Time // when records was last searched for what is past keep
}

type record struct {
	note    string
	token   int64
	id      string // of the last lease granted
	claimed time.Time
	written time.Time
	hold    time.Duration
	held    bool // not released
}

var (
	_ lease.Store   = (*Store)(nil)
	_ lease.Breaker = (*Store)(nil)
	_ lease.Lister  = (*Store)(nil)
)

// New returns an empty store.
func New() *Store {
	return &Store{records: make(map[string]record), swept: time.Now()}
}

func (r record) end() time.Time { return r.written.Add(r.hold) }

func (r record) public(now time.Time) lease.Record {
	return lease.Record{Note: r.note, Token: r.token, Claimed: r.claimed, Written: r.written, Hold: r.hold, Now: now}
}

// lease is the proof that r, as just written, is held.
func (r record) lease(key string) lease.Lease {
	return lease.Lease{Key: key, ID: r.id, Token: r.token, Claimed: r.claimed, Note: r.note, Until: r.end(), Frees: r.end()}
}

// Acquire implements lease.Store. It calls next at most once.
func (s *Store) Acquire(ctx context.Context, key string, ttl time.Duration, next func(lease.Record) (string, error)) (lease.Lease, error) {
	if err := ctx.Err(); err != nil {
		return lease.Lease{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.sweep(now)

	last := s.records[key]
	if last.held && now.Before(last.end()) {
		return lease.Lease{}, &lease.HeldError{Key: key, Record: last.public(now), Until: last.end(), Frees: last.end()}
	}
	note, err := next(last.public(now))
	if err != nil {
		return lease.Lease{}, err
	}
	r := record{
		note:    note,
		token:   max(last.token+1, now.UnixMilli()), // the clock makes up for a record that was dropped
		id:      uuid.NewString(),
		claimed: now,
		written: now,
		hold:    ttl,
		held:    true,
	}
	s.records[key] = r
	return r.lease(key), nil
}

// Extend implements lease.Store.
func (s *Store) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	if err := ctx.Err(); err != nil {
		return lease.Lease{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, current := s.current(l)
	if !current {
		return lease.Lease{}, lease.ErrLost
	}
	r.note, r.written, r.hold = note, time.Now(), ttl
	s.records[l.Key] = r
	return r.lease(l.Key), nil
}

// Release implements lease.Store.
func (s *Store) Release(ctx context.Context, l lease.Lease, note string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, current := s.current(l)
	if !current {
		return nil
	}
	r.note, r.written, r.hold, r.held = note, time.Now(), 0, false
	s.records[l.Key] = r
	return nil
}

// Break implements lease.Breaker. It calls next at most once.
func (s *Store) Break(ctx context.Context, key string, next func(lease.Record) (string, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	r := s.records[key]
	if !r.held || !now.Before(r.end()) {
		return nil
	}
	note, err := next(r.public(now))
	if err != nil {
		return err
	}
	r.note, r.written, r.hold, r.held = note, now, 0, false
	s.records[key] = r
	return nil
}

// List implements lease.Lister.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[lease.Entry, error] {
	return func(yield func(lease.Entry, error) bool) {
		s.mu.Lock()
		var keys []string
		for key := range s.records {
			if strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
		s.mu.Unlock()
		for _, key := range keys {
			if err := ctx.Err(); err != nil {
				yield(lease.Entry{}, err)
				return
			}
			s.mu.Lock()
			r, ok := s.records[key]
			s.mu.Unlock()
			if ok && !yield(lease.Entry{Key: key, Record: r.public(time.Now())}, nil) {
				return
			}
		}
	}
}

// current returns l's record, and whether l is the last lease granted on its
// key and was not released. It may have expired.
func (s *Store) current(l lease.Lease) (record, bool) {
	r := s.records[l.Key]
	return r, r.held && r.id == l.ID
}

// sweep drops, now and then, the records that nobody can ask for any more.
func (s *Store) sweep(now time.Time) {
	if now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	maps.DeleteFunc(s.records, func(_ string, r record) bool { return now.Sub(r.end()) >= keep })
}
