package roster

import (
	"context"
	"errors"
	"fmt"
	"math"
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
// it since, it is not replaced by this call, but by the next one.
func (f *File) Write(ctx context.Context, content []byte, dark bool) error {
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

// An Asked is a device, and what its events must have to count: see Column.Hears.
type Asked struct {
	Hears, Device string
	Rule          string // that awaits the device; empty: none does
	Since         int64  // then since when, in Unix ms
}

// Told is what rosters say of a device. Times are in Unix ms.
type Told struct {
	Heard int64 // the last time that it was; 0: not at all
	// of one that is awaited: from when on it is silent if Heard is 0, and what is proven by all of the rosters: see
	// Roster.Proven. 0: a roster is missing, or nobody heard for the rule
	Deadline, Proven int64
}

// Complete is what nobody says of a device.
var Complete = Told{Proven: math.MaxInt64}

// Tell adds to t what r says of a device.
func (r *Roster) Tell(a Asked, t *Told) {
	t.Heard = max(t.Heard, r.LastOf(a.Device, a.Hears))

	column := r.Column(a.Rule)
	if column < 0 || !r.columns[column].isHeardFor(a.Hears) {
		t.Proven = 0
		return
	}

	_, deadline := r.Silence(column, Heard{Sequence: Awaited, Time: a.Since})
	t.Deadline = max(t.Deadline, deadline)
	t.Proven = min(t.Proven, r.Proven)
}

// isHeardFor reports whether somebody hears for c, and counts events that have this.
func (c *Column) isHeardFor(hears string) bool { return c.Idle == 0 && c.Hears == hears }

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

// Elsewhere returns what other partitions, whose rosters are beside f, say of devices. others is how many there are.
// Rosters that cannot be understood say nothing. It may be called at any time. partitions are those of the hub: for
// devices that are awaited.
func (f *File) Elsewhere(
	ctx context.Context,
	asked []Asked,
	partitions []string,
) (told map[Asked]Told, others int, err error) {
	told = map[Asked]Told{}
	for _, a := range asked {
		told[a] = Complete
	}

	folder := f.folder()
	missing := map[string]bool{}
	for _, id := range partitions {
		missing[folder+id] = true
	}

	delete(missing, f.Name)

	all, err := records.All(ctx, f.Store, folder)
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
		if r == nil {
			continue
		}

		r.tellAll(told, missing[record.Name])
		delete(missing, record.Name)
	}

	if len(missing) > 0 || len(partitions) == 0 {
		unproven(told)
	}

	return told, others, nil
}

// tellAll is Tell for all devices that are asked for. If the hub has no partition of r any more, what is proven by r
// does not matter.
func (r *Roster) tellAll(told map[Asked]Told, ofHub bool) {
	for a, t := range told {
		proven := t.Proven
		r.Tell(a, &t)
		if !ofHub {
			t.Proven = proven
		}

		told[a] = t
	}
}

// unproven has nothing be proven of any device, because a roster is missing.
func unproven(told map[Asked]Told) {
	for a, t := range told {
		t.Proven = 0
		told[a] = t
	}
}
