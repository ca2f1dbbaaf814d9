package incident

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"alertworker/internal/records"
)

// A Group is the members of one level of a rule that share a value.
type Group struct {
	Rule    string `json:"rule"`
	Level   string `json:"level,omitempty"`
	Silence bool   `json:"silence,omitempty"` // the rule is about silence
	Per     string `json:"per"`               // by what name devices share it
	Value   string `json:"value"`             // what they share, at most MaxValue bytes
}

// A Book has the records of groups. It is safe for concurrent use, by any number of replicas.
type Book struct {
	Store  records.Store
	Prefix string // of the names of its records, with a slash at its end
	IDs    string // how the ids of incidents begin
}

// MaxValue bounds what members share, in bytes.
const MaxValue = 128

// stateValue is a record's State among its values, so that the open ones are found without reading all.
const stateValue = "state"

const (
	maxRecord = 1 << 20 // bytes
	rounds    = 8       // of reading and writing a record that others write, too
)

// content is what a record holds.
type content struct {
	Group  Group  `json:"group"`
	Record Record `json:"incident"`
}

func (b *Book) name(g Group) string {
	text, _ := json.Marshal(g) // strings: cannot fail
	sum := sha256.Sum256(text)
	return b.Prefix + hex.EncodeToString(sum[:16])
}

// Read returns the record of g, and the store's clock. Without one the record is zero.
func (b *Book) Read(ctx context.Context, g Group) (r Record, now time.Time, err error) {
	c, there, err := b.read(ctx, b.name(g))
	return c.Record, there.Now, wrap(g, err)
}

// read returns what a record holds. One that is gone, or damaged, holds nothing: its incident begins anew.
func (b *Book) read(ctx context.Context, name string) (c content, there records.Record, err error) {
	there, err = b.Store.Read(ctx, name, maxRecord)
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return content{}, there, fmt.Errorf("read its record: %w", err)
	}

	if json.Unmarshal(there.Content, &c) != nil {
		c = content{}
	}

	return c, there, nil
}

// Sync writes what a partition has of g: see Record.Sync. After an error it may have been written or not; repeating the
// call, with the same or a later entry, is safe.
func (b *Book) Sync(ctx context.Context, g Group, partition string, e Entry) (result Result, err error) {
	id := b.IDs + rand.Text()
	err = b.change(ctx, g, func(r Record, now time.Time) (next Record, changed bool) {
		next, result = r.Sync(partition, e, id, now)
		return next, !result.Behind
	})
	return result, err
}

// Close notes that every receiver has settled an end: see Record.Closed. Repeating the call is safe.
func (b *Book) Close(ctx context.Context, g Group, e End) error {
	return b.change(ctx, g, func(r Record, _ time.Time) (Record, bool) { return r.Closed(e) })
}

// change replaces the record of g by what f makes of it, if that changes it.
func (b *Book) change(ctx context.Context, g Group, f func(r Record, now time.Time) (next Record, changed bool)) (err error) {
	for range rounds {
		was, there, err := b.read(ctx, b.name(g))
		if err != nil {
			return wrap(g, err)
		}

		next, changed := f(was.Record, there.Now)
		if !changed {
			return nil
		}

		text, err := json.Marshal(content{g, next})
		if err != nil {
			return err
		}

		var values map[string]string // none is empty
		if next.State != None {
			values = map[string]string{stateValue: string(next.State)}
		}

		_, err = b.Store.Write(ctx, records.Record{
			Name:    b.name(g),
			Values:  values,
			Content: text,
			Type:    "application/json",
			ETag:    there.ETag,
		})
		if !errors.Is(err, records.ErrConflict) {
			return wrap(g, err)
		}
	}

	return wrap(g, records.ErrConflict)
}

func wrap(g Group, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the incident of %s %q: %w", g.Per, g.Value, err)
}

// A Listed is a record, and what it is of.
type Listed struct {
	Group  Group
	Record Record
	Age    time.Duration // since it was written
}

// Open returns the records of incidents that run, or are over and not closed: at most so many, and whether that is all.
// If overFor is not 0, it returns only those that have been over for longer.
func (b *Book) Open(ctx context.Context, most int, overFor time.Duration) (open []Listed, all bool, err error) {
	wanted := func(s State, since time.Duration) bool {
		return (s == Running || s == Over) && (overFor == 0 || s == Over && since > overFor)
	}

	for page, err := range records.Pages(ctx, b.Store, b.Prefix) {
		if err != nil {
			return nil, false, fmt.Errorf("list incidents: %w", err)
		}

		for _, there := range page {
			if !b.owns(there.Name) || !wanted(stateOf(there), there.Age()) {
				continue
			}

			if len(open) == most {
				return open, false, nil
			}

			c, _, err := b.read(ctx, there.Name)
			if err != nil {
				return nil, false, err
			}
			if wanted(c.Record.State, there.Age()) {
				open = append(open, Listed{c.Group, c.Record, there.Age()})
			}
		}
	}

	return open, true, nil
}

// owns reports whether a record of this name, which begins with Prefix, is one of b's.
func (b *Book) owns(name string) bool { return !strings.Contains(name[len(b.Prefix):], "/") }

// stateOf returns the state of a record that was listed.
func stateOf(there records.Record) State { return State(there.Values[stateValue]) }

// A Swept counts what Sweep has changed.
type Swept struct {
	Removed int // records
	Entries int // of partitions that are no more
}

// Sweep removes the records of incidents that do not run and that nobody has written for longer than retention, and from
// the others the entries of partitions that the hub does not have: of none, if has is nil. It goes through the records
// from a place on: "", or what an earlier call has returned. When ctx ends, or after an error, next is where to continue; ""
// after the last record.
func (b *Book) Sweep(
	ctx context.Context,
	from string,
	retention time.Duration,
	has func(partition string) bool,
) (done Swept, next string, err error) {
	for next = from; ; {
		page, err := b.Store.List(ctx, b.Prefix, next)
		if err != nil {
			return done, next, fmt.Errorf("list incidents: %w", err)
		}

		for _, there := range page.Records {
			if !b.owns(there.Name) {
				continue
			}
			if err := b.sweep(ctx, there, retention, has, &done); err != nil {
				return done, next, err
			}
		}

		if next = page.Next; next == "" {
			return done, "", nil
		}
	}
}

// sweep is Sweep of one record.
func (b *Book) sweep(
	ctx context.Context,
	there records.Record,
	retention time.Duration,
	has func(partition string) bool,
	done *Swept,
) error {
	if stateOf(there) != Running {
		if there.Age() <= retention {
			return nil
		}

		err := b.Store.Delete(ctx, there.Name, there.ETag)
		switch {
		case err == nil:
			done.Removed++
		case !errors.Is(err, records.ErrConflict): // else somebody has written it, or deleted it
			return fmt.Errorf("remove an incident: %w", err)
		}

		return nil
	}

	if has == nil {
		return nil
	}

	c, _, err := b.read(ctx, there.Name)
	if err != nil {
		return err
	}

	for partition := range c.Record.Entries {
		if has(partition) {
			continue
		}

		without := func(r Record, _ time.Time) (Record, bool) { return r.Without(partition) }
		if err := b.change(ctx, c.Group, without); err != nil {
			return err
		}

		done.Entries++
	}

	return nil
}
