// Package turns has replicas take turns at a receiver whose messages people read, so that together they send as few as
// one of them would.
//
// A small record for each receiver says how far apart messages are at present. Who replaces it has the turn. No promise
// needs it: a record that is lost, or written late, has one message come earlier or later.
package turns

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"alertworker/internal/records"
)

// Turns of one receiver. They are safe for concurrent use, but for copying.
type Turns struct {
	Store records.Store
	Name  string // of the record

	// From one message to the next: Nearest after a quiet time, then twice as far each time, up to Farthest.
	Nearest, Farthest time.Duration

	mu   sync.Mutex
	seen string    // the record's ETag when it was last seen
	at   time.Time // since when it is that, as far as we know
}

// distanceValue is how far the next message is from the one for which the record was written.
const distanceValue = "distance"

// tries is how often the record is read again because another replica has taken the turn.
const tries = 3

// Take returns 0 if this replica may send a message now, or else after which time it may ask again.
func (t *Turns) Take(ctx context.Context) (wait time.Duration, err error) {
	for range tries {
		there, err := t.Store.Stat(ctx, t.Name)
		if err != nil && !errors.Is(err, records.ErrNotFound) {
			return 0, fmt.Errorf("take the turn %s: %w", t.Name, err)
		}

		distance := t.Nearest
		if there.ETag != "" {
			last, _ := time.ParseDuration(there.Values[distanceValue]) // what nobody can read has no distance
			last = min(max(last, 0), t.Farthest)
			age := t.age(there)
			if age < last {
				return last - age, nil
			}
			if age < 2*last { // something has come for as long as it was to be quiet
				distance = min(2*last, t.Farthest)
			}
		}

		next := records.Record{Name: t.Name, Values: map[string]string{distanceValue: distance.String()}, ETag: there.ETag}
		etag, err := t.Store.Write(ctx, next)
		switch {
		case err == nil:
			t.mu.Lock()
			defer t.mu.Unlock()
			t.seen, t.at = etag, time.Now()
			return 0, nil
		case !errors.Is(err, records.ErrConflict):
			return 0, fmt.Errorf("take the turn %s: %w", t.Name, err)
		}
	}

	return t.Nearest, nil // one after the other: whoever was last begins the distance
}

// age returns how long ago a record was written. The store's clock counts in seconds, ours knows since when we have
// seen the record.
func (t *Turns) age(there records.Record) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if there.ETag != t.seen {
		t.seen, t.at = there.ETag, time.Now()
	}

	return max(there.Age(), time.Since(t.at))
}
