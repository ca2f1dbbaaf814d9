package roster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"alertworker/internal/records"
)

// A File is where the roster of one partition is kept: a record of compressed binary data. Calls come one at a time.
type File struct {
	Store records.Store
	Name  string
	etag  string // of what is replaced next; empty if there is none
}

// Read returns the roster, nil if there is none, or none that can be understood: why. now is the store's clock. An
// error says that it is not known.
func (f *File) Read(ctx context.Context) (r *Roster, now time.Time, why, err error) {
	there, err := f.Store.Read(ctx, f.Name, maxBytes)
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return nil, time.Time{}, nil, fmt.Errorf("read roster %s: %w", f.Name, err)
	}
	f.etag = there.ETag
	if there.ETag == "" {
		return nil, there.Now, nil, nil
	}
	if r, why = Decode(there.Content); why != nil {
		why = fmt.Errorf("read roster %s: %w", f.Name, why)
	}
	return r, there.Now, why, nil
}

// Write replaces the roster by what Encode returned. If somebody else has written it since, it is not replaced by
// this call, but by the next one.
func (f *File) Write(ctx context.Context, content []byte) error {
	etag, err := f.Store.Write(ctx, records.Record{Name: f.Name, Content: records.Compress(content), Type: "application/gzip", ETag: f.etag})
	if err == nil {
		f.etag = etag
		return nil
	}
	if there, again := f.Store.Stat(ctx, f.Name); again == nil || errors.Is(again, records.ErrNotFound) {
		f.etag = there.ETag
	}
	return fmt.Errorf("write roster %s: %w", f.Name, err)
}
