// Package records keeps small records that replicas share: checkpoints, ownerships, ledgers, dead letters,
// settings, counts, leases. A record is replaced only by who knows what it replaces, and its times
// are those of the store's clock.
//
// [Blobs] has one blob per record, [Memory] is for the replicas of one process, and [Reliable]
// repeats what fails and finds out what became of a write whose answer was lost.
package records

import (
	"context"
	"errors"
	"iter"
	"time"
)

var (
	// ErrNotFound means that there is no record of that name.
	ErrNotFound = errors.New("no such record")

	// ErrConflict means that the record is not the one that the caller wants to replace or delete.
	ErrConflict = errors.New("the record was changed by another writer")
)

// Any is, for Write and Delete, the ETag of whatever record there is, or none.
const Any = "*"

// Resolution is that of a store's clock: its times are rounded down to it.
const Resolution = time.Second

// pageSize is how many records one call lists.
const pageSize = 1000

// A Record has values, content, or both.
type Record struct {
	Name string // with slashes between its parts
	// names are lower-case letters; values are printable ASCII without spaces around them, 8 KiB in all
	Values  map[string]string
	Content []byte
	Type    string // the content's media type, for people who open it; Read does not return it
	ETag    string // opaque, new with every write; empty if there is no record

	Written time.Time // by the store's clock
	Now     time.Time // the store's clock when it returned the record
	Locked  bool      // by a lock of the service, without whose ID nobody writes it
	Lock    string    // for Write: the ID of that lock, or empty
}

// Age returns how long ago r was written by the store's clock: never more than it is, and less by at most two
// seconds.
func (r Record) Age() time.Duration { return max(0, r.Now.Sub(r.Written)-Resolution) }

// A Store keeps records by name. It is safe for concurrent use by any number of processes, returns
// by the time ctx ends, and after a write was answered nobody reads what it replaced. An error other than ErrNotFound
// and ErrConflict leaves the outcome of a write or a deletion unknown.
type Store interface {
	// Read returns a record. If its content has more than limit bytes, limit+1 of them are
	// returned. If there is no record, it fails with ErrNotFound and returns Now alone.
	Read(ctx context.Context, name string, limit int) (Record, error)

	// Stat is Read without the content.
	Stat(ctx context.Context, name string) (Record, error)

	// Write replaces the record that has r's name and ETag, or creates it if the ETag is empty, and
	// returns the new ETag. ErrConflict if the store has another record, or none although r has an
	// ETag. If r.Content is nil, that of a record that is replaced stays as it is.
	Write(ctx context.Context, r Record) (etag string, err error)

	// Delete removes the record that has this name and ETag: ErrConflict if the store has another one
	// or none. With Any there may be none.
	Delete(ctx context.Context, name, etag string) error

	// List returns the records whose names begin with prefix, in their order and without
	// content: a page that begins at from, which is empty or the Next of the page before.
	List(ctx context.Context, prefix, from string) (Page, error)
}

// A Page is what one call lists.
type Page struct {
	Records []Record
	Next    string // where the next page begins; empty if this is the last one
}

// Pages lists the records whose names begin with prefix, page by page. It ends with the first error.
func Pages(ctx context.Context, s Store, prefix string) iter.Seq2[[]Record, error] {
	return func(yield func([]Record, error) bool) {
		for from := ""; ; {
			page, err := s.List(ctx, prefix, from)
			if !yield(page.Records, err) || err != nil || page.Next == "" {
				return
			}
			from = page.Next
		}
	}
}

// All lists all records whose names begin with prefix.
func All(ctx context.Context, s Store, prefix string) (all []Record, err error) {
	for page, err := range Pages(ctx, s, prefix) {
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
	}

	return all, nil
}

// An Op is a method of a Store.
type Op string

const (
	OpRead   Op = "read"
	OpStat   Op = "stat"
	OpWrite  Op = "write"
	OpDelete Op = "delete"
	OpList   Op = "list"
)

// Around returns next with f around each of its calls, which f makes: never, once, or several times. name is that of
// the record, or the prefix of a listing. f is called concurrently.
func Around(next Store, f func(ctx context.Context, op Op, name string, call func(context.Context) error) error) Store {
	return around{next, f}
}

type around struct {
	next Store
	f    func(ctx context.Context, op Op, name string, call func(context.Context) error) error
}

func (a around) Read(ctx context.Context, name string, limit int) (r Record, err error) {
	err = a.f(ctx, OpRead, name, func(ctx context.Context) (err error) {
		r, err = a.next.Read(ctx, name, limit)
		return err
	})
	return r, err
}

func (a around) Stat(ctx context.Context, name string) (r Record, err error) {
	err = a.f(ctx, OpStat, name, func(ctx context.Context) (err error) {
		r, err = a.next.Stat(ctx, name)
		return err
	})
	return r, err
}

func (a around) Write(ctx context.Context, r Record) (etag string, err error) {
	err = a.f(ctx, OpWrite, r.Name, func(ctx context.Context) (err error) {
		etag, err = a.next.Write(ctx, r)
		return err
	})
	if err != nil { // a test's f may make the call later
		return "", err
	}

	return etag, nil
}

func (a around) Delete(ctx context.Context, name, etag string) error {
	return a.f(ctx, OpDelete, name, func(ctx context.Context) error { return a.next.Delete(ctx, name, etag) })
}

func (a around) List(ctx context.Context, prefix, from string) (p Page, err error) {
	err = a.f(ctx, OpList, prefix, func(ctx context.Context) (err error) {
		p, err = a.next.List(ctx, prefix, from)
		return err
	})
	return p, err
}
