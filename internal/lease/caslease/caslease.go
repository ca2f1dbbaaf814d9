// Package caslease is a lease.Store over any service that can read a record and
// replace it by compare-and-swap. It takes any ttl. A refused Acquire costs one
// call, a granted one two, an Extend or Release one. Where reads lag, one whose next declines costs a call of
// Service.Latest more.
//
// A key frees when the service's clock is past the ttl by its resolution and by
// how far apart the clocks of the service's machines may be: late, and never early.
package caslease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"alertworker/internal/lease"
)

// Records are a service's, one for every key. They are safe for concurrent use
// by any number of processes, and every call returns by the time its ctx ends.
//
// A service with locks besides its records may answer an Acquire's Read or Write
// with a *lease.HeldError: the record shows a free key that nevertheless cannot be acquired.
type Records interface {
	// Read returns the record of key, the zero Record but for Now if there is
	// none.
	Read(ctx context.Context, key string) (Record, error)

	// Write replaces the record that has prev's Version by next, or creates next
	// if prev does not exist and nothing else does, and returns the new
	// version. Now, Written, Exists and Version of next do not count: Written
	// becomes the service's clock as it writes. After an error the record
	// may have been written.
	Write(ctx context.Context, key string, prev, next Record) (version string, err error)
}

// A Record is a lease.Record and what a store needs to change it.
type Record struct {
	lease.Record
	ID       string // of the last lease granted; empty if there was none
	Released bool
	Exists   bool   // it is there, be it without a lease
	Version  string // differs after every write; opaque
}

// recordOf returns the record of l, as its holder writes it.
func recordOf(l lease.Lease, note string, hold time.Duration) Record {
	return Record{Record: lease.Record{Note: note, Token: l.Token, Claimed: l.Claimed, Hold: hold}, ID: l.ID}
}

// A Clock is what a service is known to tell the time by. It rounds down, and
// the machine that dates an answer need not be the one that dated the record.
type Clock struct {
	Resolution time.Duration
	Skew       time.Duration // how far apart two of its machines may be
}

// margin is how much less time than it seems may be between two times.
func (c Clock) margin() time.Duration { return c.Resolution + c.Skew }

// freesWithin returns the longest time until a key frees whose record was written, or seen, with left to go.
func (c Clock) freesWithin(left time.Duration) time.Duration {
	if c.Resolution > 0 { // the clock gets there by steps
		left += (c.Resolution - left%c.Resolution) % c.Resolution
	}

	return left + c.margin()
}

// Free says that nobody holds the key.
func (r Record) Free(c Clock) bool {
	//planted:lease-frees-early if !r.Now.Before(r.Written.Add(r.Hold + c.margin() - 4*time.Second)) { return true }
	return r.ID == "" || r.Released || !r.Now.Before(r.Written.Add(r.Hold+c.margin()))
}

// Granted returns l, which holds its key for ttl by a write that began at start, or later, and has ended just now.
func (c Clock) Granted(l lease.Lease, start time.Time, ttl time.Duration) lease.Lease {
	l.Until, l.Frees = start.Add(ttl), time.Now().Add(c.freesWithin(ttl))
	return l
}

// A Service is what a Store has to know of the one that keeps its records.
type Service struct {
	Clock Clock

	// Latest is Records.Read of a service whose Read may return a record that was replaced already: what it returns
	// is not older than the call. It may cost more. Nil: Read is like that.
	Latest func(ctx context.Context, key string) (Record, error)
}

// A Store grants leases. Use New.
type Store struct {
	records Records
	service Service
	latest  func(ctx context.Context, key string) (Record, error)
}

var _ lease.Store = (*Store)(nil)

// New returns the store that keeps its records in r, which s describes.
func New(r Records, s Service) *Store {
	latest := s.Latest
	if latest == nil {
		latest = r.Read
	}
	return &Store{r, s, latest}
}

// Acquire implements lease.Store.
func (s *Store) Acquire(
	ctx context.Context,
	key string,
	ttl time.Duration,
	next func(lease.Record) (string, error),
) (lease.Lease, error) {
	start, clock := time.Now(), s.service.Clock
	var wrote time.Time // when the first write began: the key is held from then on at the earliest
	id := uuid.NewString()
	read, sure := s.records.Read, s.service.Latest == nil
	for try := 0; ; try++ {
		prev, err := read(ctx, key)
		if err == nil {
			l := lease.Lease{Key: key, ID: id, Token: prev.Token, Claimed: prev.Claimed, Note: prev.Note, Version: prev.Version}
			if prev.ID == id { // an earlier try did it and its answer was lost
				return clock.Granted(l, wrote, ttl), nil
			}
			if !prev.Free(clock) {
				left := prev.Written.Add(prev.Hold).Sub(prev.Now)
				return lease.Lease{}, &lease.HeldError{
					Key:    key,
					Record: prev.Record,
					Until:  start.Add(left - clock.margin()),
					Frees:  time.Now().Add(clock.freesWithin(left)),
				}
			}

			var declined error
			l.Note, declined = next(prev.Record)
			if declined != nil && sure {
				return lease.Lease{}, declined
			}
			if declined != nil { // no write shows whether that was the record
				read, sure = s.latest, true
				continue
			}

			if wrote.IsZero() {
				wrote = time.Now()
			}
			l.Token, l.Claimed = max(prev.Token+1, prev.Now.UnixMilli()), prev.Now
			if l.Version, err = s.records.Write(ctx, key, prev, recordOf(l, l.Note, ttl)); err == nil {
				return clock.Granted(l, wrote, ttl), nil
			}
		}

		if errors.Is(err, lease.ErrHeld) {
			return lease.Lease{}, err
		}
		if !lease.Retry(ctx, try, err) {
			return lease.Lease{}, fmt.Errorf("acquire lease %q: %w", key, err)
		}
	}
}

// Extend implements lease.Store.
func (s *Store) Extend(ctx context.Context, l lease.Lease, note string, ttl time.Duration) (lease.Lease, error) {
	start := time.Now()
	version, err := s.replace(ctx, l, recordOf(l, note, ttl))
	if err != nil {
		return lease.Lease{}, fmt.Errorf("extend lease %q: %w", l.Key, err)
	}

	l.Note, l.Version = note, version

	return s.service.Clock.Granted(l, start, ttl), nil
}

// Release implements lease.Store.
func (s *Store) Release(ctx context.Context, l lease.Lease, note string) error {
	freed := recordOf(l, note, 0)
	freed.Released = true
	if _, err := s.replace(ctx, l, freed); err != nil && !errors.Is(err, lease.ErrLost) {
		return fmt.Errorf("release lease %q: %w", l.Key, err)
	}

	return nil
}

// Read implements lease.Store.
func (s *Store) Read(ctx context.Context, key string) (lease.Record, error) {
	for try := 0; ; try++ {
		r, err := s.records.Read(ctx, key)
		if err == nil {
			return r.Record, nil
		}
		if !lease.Retry(ctx, try, err) {
			return lease.Record{}, fmt.Errorf("read the record of lease %q: %w", key, err)
		}
	}
}

// replace writes r in place of l's record, whatever has become of that while l
// is current, and returns the new version; ErrLost if l is not current.
func (s *Store) replace(ctx context.Context, l lease.Lease, r Record) (version string, err error) {
	prev := Record{Exists: true, Version: l.Version}
	for try := 0; ; try++ {
		version, err := s.records.Write(ctx, l.Key, prev, r)
		switch {
		case err == nil:
			return version, nil
		case !lease.Retry(ctx, try, err):
			return "", err
		}

		// The record has changed, or an earlier try did it and its answer was
		// lost: both end well with another write while l is current.
		now, err := s.latest(ctx, l.Key)
		switch {
		//planted:lost-lease-extended case false
		case err == nil && (now.ID != l.ID || now.Released):
			return "", lease.ErrLost
		case err == nil:
			prev = now
		default:
			if try++; !lease.Retry(ctx, try, err) {
				return "", err
			}
		}
	}
}
