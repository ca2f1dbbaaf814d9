// Package lease is the one coordination primitive of the worker: a key that at
// most one holder has at a time, a token that only grows, and a note that
// outlives the holder.
//
// A store keeps one [Record] per key and changes it by compare-and-swap. Its
// own clock alone decides whether a key is free; a caller's clock can only make
// the caller stop early. What a record means is the caller's business: the
// store never looks into a note.
package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxNote is the most bytes that a note has. With the longest key, as JSON in base64, it fits into the
// 8 KiB of metadata that an Azure blob has, unless most of it is escaped in JSON.
const MaxNote = 2 << 10

// CallLimit is how long a call of a Store should be allowed to take by its ctx: what a service needs that takes
// 5 s for each of up to four requests, and some more to repeat one that it answered too late.
const CallLimit = 30 * time.Second

// A Record is what a store holds for a key. All times are the store's clock, at
// the store's resolution (1 s in Azure). The zero Record, but for Now, stands
// for a key that was never taken or whose record was deleted.
type Record struct {
	Note    string        // left by the last write; UTF-8, at most MaxNote
	Token   int64         // the token of the last lease granted
	Claimed time.Time     // when that lease was granted
	Written time.Time     // when Note was written
	Hold    time.Duration // how long from Written the key is held; 0 once released
	Now     time.Time     // the store's clock when it gave this record
}

// A Lease is proof of holding Key. It is a value: copies are equal proofs.
type Lease struct {
	Key     string
	ID      string    // names this grant; random, never used for another attempt
	Token   int64     // of two leases on one key the later has the greater, across release, expiry, deletion and restarts
	Claimed time.Time // when it was granted, by the store's clock
	Note    string    // that was written with it: of what several calls of next returned, the one that counts
	// when it ends, by this machine's monotonic clock counted from before the request that granted it: never late
	Until time.Time
	// Frees is when others can have the key unless it is extended or released,
	// by the same clock: never early, because the store's clock has a resolution.
	Frees   time.Time
	Version string // the store's concurrency tag; opaque
}

// Ahead reports whether end, which has the reading of the monotonic clock that Until and Frees have, is still to
// come. Both clocks of this machine must say so: the monotonic one stands still while the machine is suspended, the
// wall clock can be set.
func Ahead(end time.Time) bool {
	now := time.Now()
	return now.Before(end) && now.Round(0).Before(end.Round(0))
}

// A Store grants leases. It is safe for concurrent use, by any number of
// processes. Every call returns by the time its ctx ends, or a second later if
// it has to undo something.
type Store interface {
	// Acquire takes key for ttl if nobody holds it, this process included.
	// Keys are any non-empty UTF-8 strings of up to 1 KiB; distinct keys never
	// share a lease. Of concurrent calls at most one succeeds.
	//
	// Before it takes a free key it calls next with the record it is about to
	// replace and writes the note that next returns; it replaces that very
	// record or none. If next returns an error, Acquire changes nothing and
	// returns that error as it is. next may be called more than once, and after an
	// answer was lost the last call need not be the one that counts: see
	// Lease.Note. It must not block.
	//
	// A held key is answered with a *HeldError. Any other error leaves the
	// outcome unknown: the key may stay taken for ttl.
	Acquire(ctx context.Context, key string, ttl time.Duration, next func(Record) (note string, err error)) (Lease, error)

	// Extend sets the note and the expiry of l: ttl from now, sooner or later
	// than it was. The token stays. An expired lease that nobody has taken since
	// can still be extended. ErrLost if another lease was granted or l was
	// released; any other error leaves the outcome unknown, and repeating the
	// call with the same l is safe.
	Extend(ctx context.Context, l Lease, note string, ttl time.Duration) (Lease, error)

	// Release frees the key and leaves note for the next holder. It does
	// nothing, and returns nil, if l is not current. Repeating it is safe.
	Release(ctx context.Context, l Lease, note string) error

	// Read returns key's record, held or not, and changes nothing. It costs one
	// call of the service. The record may have been replaced since, and where the
	// service's reads lag even before the call, so it is for showing: what is
	// decided on a record is decided in next.
	Read(ctx context.Context, key string) (Record, error)
}

// ErrLost says that a lease is not current any more.
var ErrLost = errors.New("lease lost")

// ErrHeld is what every *HeldError is, for errors.Is.
var ErrHeld = errors.New("lease held")

// A HeldError says that a key is taken: an answer, not a failure.
type HeldError struct {
	Key    string
	Record Record
	// Until is a moment not later than the end of the hold, and Frees one not
	// earlier than when the key frees, unless its holder changes that: the first
	// at which asking again is guaranteed to be useful. Both are by this machine's
	// monotonic clock, and zero if unknown: poll, at least a second apart, with jitter.
	Until, Frees time.Time
}

func (e *HeldError) Error() string {
	if e.Until.IsZero() {
		return fmt.Sprintf("lease %q is held", e.Key)
	}
	return fmt.Sprintf("lease %q is held for another %v", e.Key, time.Until(e.Until).Round(time.Millisecond))
}

// Is makes errors.Is(err, ErrHeld) hold.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }
