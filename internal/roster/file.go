package roster

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// Read returns the roster, nil if there is none, or none that can be understood: why. It was read before the time now,
// by the store's clock. An error says that it is not known.
func (f *File) Read(ctx context.Context) (r *Roster, now time.Time, why, err error) {
	there, err := f.Store.Read(ctx, f.Name, maxBytes)
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return nil, time.Time{}, nil, fmt.Errorf("read roster %s: %w", f.Name, err)
	}

	f.etag = there.ETag
	now = there.Now.Add(records.Resolution)
	if there.ETag == "" {
		return nil, now, nil, nil
	}

	if r, why = Decode(there.Content); why != nil {
		why = fmt.Errorf("read roster %s: %w", f.Name, why)
	}

	return r, now, why, nil
}

// darkValue is in the record of a roster that has a Dark, so that one listing finds it.
const darkValue = "dark"

// Write replaces the roster by what Encode returned, of a partition that is dark or not. If somebody else has written
// it since, it is not replaced by this call, but by the next one. One that Read would not understand, because it is too
// large, is not written.
func (f *File) Write(ctx context.Context, content []byte, dark bool) error {
	if len(content) > maxBytes { // nobody could read it
		return fmt.Errorf("write roster %s: it takes %d bytes, and may have %d: have fewer rules about silence", f.Name, len(content), maxBytes)
	}

	record := records.Record{Name: f.Name, Content: records.Compress(content), Type: "application/gzip", ETag: f.etag}
	if dark {
		record.Values = map[string]string{darkValue: "true"}
	}

	etag, err := f.Store.Write(ctx, record)
	if err == nil {
		f.etag = etag
		return nil
	}

	if there, again := f.Store.Stat(ctx, f.Name); again == nil || errors.Is(again, records.ErrNotFound) {
		f.etag = there.ETag
	}

	return fmt.Errorf("write roster %s: %w", f.Name, err)
}

// folder is what the names of all rosters of the hub begin with.
func (f *File) folder() string { return f.Name[:strings.LastIndex(f.Name, "/")+1] }

// A DarkPartition is one of the hub.
type DarkPartition struct {
	ID string
	Dark
}

// Dark returns, by rule, which of these partitions have a Dark, as their owners last wrote. complete says that each of
// them has a roster. It may be called at any time.
func (f *File) Dark(
	ctx context.Context,
	partitions []string,
) (dark map[string][]DarkPartition, complete bool, err error) {
	listed, err := records.All(ctx, f.Store, f.folder())
	if err != nil {
		return nil, false, fmt.Errorf("list rosters: %w", err)
	}

	missing := len(partitions)
	dark = map[string][]DarkPartition{}
	for _, record := range listed {
		id := strings.TrimPrefix(record.Name, f.folder())
		if !slices.Contains(partitions, id) {
			continue
		}

		missing--
		if record.Values[darkValue] == "" {
			continue
		}

		r, _, why, err := (&File{Store: f.Store, Name: record.Name}).Read(ctx)
		if err = errors.Join(err, why); err != nil {
			return nil, false, err
		}

		r.AddDark(id, dark)
	}

	return dark, missing == 0, nil
}

// AddDark adds each Dark of r, which is that of a partition, and may be nil.
func (r *Roster) AddDark(id string, to map[string][]DarkPartition) {
	if r == nil {
		return
	}

	for _, c := range r.columns {
		if c.Dark != (Dark{}) {
			to[c.Rule] = append(to[c.Rule], DarkPartition{id, c.Dark})
		}
	}
}
