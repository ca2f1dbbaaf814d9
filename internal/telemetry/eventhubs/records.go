package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Records keep small records by name, for example checkpoints. They are safe
// for concurrent use. A call that fails with anything but ErrNoRecord and
// ErrConflict leaves its outcome unknown.
type Records interface {
	// List returns the records whose names begin with prefix, by name.
	List(ctx context.Context, prefix string) (map[string]Record, error)

	// Read returns one record, or ErrNoRecord.
	Read(ctx context.Context, name string) (Record, error)

	// Write replaces the record whose ETag is etag, or creates one if etag is
	// empty, and returns the new ETag. ErrConflict if the record has another
	// ETag, is gone, or exists although etag is empty.
	Write(ctx context.Context, name string, values map[string]string, etag string) (string, error)
}

// A Record is a few values by name. Names of values are lower-case letters.
type Record struct {
	Values map[string]string
	ETag   string // opaque; changes with every write
}

var (
	// ErrNoRecord means that there is no record of that name.
	ErrNoRecord = errors.New("no such record")

	// ErrConflict means that somebody else has written the record.
	ErrConflict = errors.New("the record was changed by somebody else")
)

// storeTimeout is for one answer of the checkpoint store.
const storeTimeout = 10 * time.Second

// attempt makes one call to the checkpoint store, for at most storeTimeout. what
// names it in the error.
func attempt(ctx context.Context, what string, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, fmt.Errorf("no answer within %v", storeTimeout))
	defer cancel()
	err := call(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("checkpoint store: %s: %w (%w)", what, err, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("checkpoint store: %s: %w", what, err)
	}
	return nil
}
