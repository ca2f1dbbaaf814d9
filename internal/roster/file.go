package roster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"alertworker/internal/records"
)

// A File is where the roster of one partition is kept: a record of compressed binary data, whose name ends in a slash
// and the partition. Calls come one at a time.
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
	etag, err := f.Store.Write(
		ctx,
		records.Record{Name: f.Name, Content: records.Compress(content), Type: "application/gzip", ETag: f.etag},
	)
	if err == nil {
		f.etag = etag
		return nil
	}

	if there, again := f.Store.Stat(ctx, f.Name); again == nil || errors.Is(again, records.ErrNotFound) {
		f.etag = there.ETag
	}

	return fmt.Errorf("write roster %s: %w", f.Name, err)
}

// An Asked is a device, and what its events must have to count: see Column.Hears.
type Asked struct{ Hears, Device string }

// Elsewhere returns when other partitions, whose rosters are beside f, have heard devices last, in Unix ms; 0: not at
// all. others is how many there are. Rosters that cannot be understood have heard nothing. It may be called at any
// time.
func (f *File) Elsewhere(ctx context.Context, asked []Asked) (heard map[Asked]int64, others int, err error) {
	heard = map[Asked]int64{}
	for _, a := range asked {
		heard[a] = 0
	}

	all, err := records.All(ctx, f.Store, f.Name[:strings.LastIndex(f.Name, "/")+1])
	if err != nil {
		return nil, 0, fmt.Errorf("list rosters: %w", err)
	}

	for _, record := range all {
		if record.Name == f.Name {
			continue
		}

		r, _, _, err := (&File{Store: f.Store, Name: record.Name}).Read(ctx)
		if err != nil {
			return nil, 0, err
		}

		others++

		for a, at := range heard {
			if r != nil {
				heard[a] = max(at, r.LastOf(a.Device, a.Hears))
			}
		}
	}

	return heard, others, nil
}
