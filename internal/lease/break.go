package lease

import (
	"context"
	"errors"
	"fmt"
)

// A Breaker is a Store that can free a key without its holder. It is for people
// who know better; nothing that runs by itself breaks a lease.
type Breaker interface {
	// Break frees key, whoever holds it, and leaves the note that next returns
	// for the next holder. It calls next with the record; if next returns an
	// error, Break changes nothing and returns that error as it is. next may be
	// called more than once. It must not block.
	//
	// A key that is free stays as it is, without a call of next. A store whose
	// reads lag cannot know that it is free: it calls next all the same and writes,
	// so next must return a note that says no less than the record did; and it may
	// break the lease after the one that it first saw.
	//
	// To its holder the lease is lost. After any other error the key may or may not be
	// free; repeating the call is safe.
	Break(ctx context.Context, key string, next func(Record) (note string, err error)) error
}

// Break calls s's Break. The error Is errors.ErrUnsupported if s is no Breaker.
// A Store that wraps another one passes Break on with it.
func Break(ctx context.Context, s Store, key string, next func(Record) (note string, err error)) error {
	b, ok := s.(Breaker)
	if !ok {
		return fmt.Errorf("break lease %q: this store cannot: %w", key, errors.ErrUnsupported)
	}
	return b.Break(ctx, key, next)
}
