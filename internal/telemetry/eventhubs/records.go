package eventhubs

import (
	"context"
	"errors"
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
	// empty, and returns the new ETag. It is ErrConflict if the record has
	// another ETag, is gone, or is there although it should be created.
	Write(ctx context.Context, name string, values map[string]string, etag string) (string, error)
}

// A Record is a few values by name. Names of values are lower-case letters.
type Record struct {
	Values map[string]string
	ETag   string // opaque; another one after each write
}

var (
	// ErrNoRecord says that there is no record of that name.
	ErrNoRecord = errors.New("no such record")

	// ErrConflict says that somebody else has written the record.
	ErrConflict = errors.New("the record was changed by somebody else")
)
