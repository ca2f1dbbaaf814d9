package roster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// What the record of a roster says without its content, so that one listing covers all partitions.
const (
	devicesValue = "devices"
	limitValue   = "limit"
)

// Write replaces the roster by what Encode returned, and Expects. If somebody else has written it since, it is not
// replaced by this call, but by the next one. One that Read would not understand, because it is too large, is not
// written.
func (f *File) Write(ctx context.Context, content []byte, expected Expected) error {
	if len(content) > maxBytes { // nobody could read it
		return fmt.Errorf("write roster %s: it takes %d bytes, and may have %d: have fewer rules about silence", f.Name, len(content), maxBytes)
	}

	record := records.Record{
		Name:    f.Name,
		Values:  map[string]string{devicesValue: strconv.Itoa(expected.Devices), limitValue: expected.Limit.String()},
		Content: records.Compress(content),
		Type:    "application/gzip",
		ETag:    f.etag,
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

// Others returns what rules expect in the other partitions of the hub, as their owners last wrote. It may be called at
// any time.
func (f *File) Others(ctx context.Context) (all Expected, err error) {
	folder := f.Name[:strings.LastIndex(f.Name, "/")+1]
	listed, err := records.All(ctx, f.Store, folder)
	if err != nil {
		return Expected{}, fmt.Errorf("list rosters: %w", err)
	}

	for _, record := range listed {
		if record.Name == f.Name {
			continue
		}

		devices, _ := strconv.Atoi(record.Values[devicesValue]) // version 1.0 does not say it
		limit, _ := time.ParseDuration(record.Values[limitValue])
		all = all.And(Expected{Devices: devices, Limit: limit})
	}

	return all, nil
}
