package lease

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// An Entry is a key and its record.
type Entry struct {
	Key    string
	Record Record
}

// A Lister is a Store that can say what keys it has.
type Lister interface {
	// List yields each key that begins with prefix and has a record, held or not,
	// in no order. It reads page by page, and asks for a page when it
	// is needed. Records that are made, changed or removed meanwhile come as they were or
	// as they are, or not at all; a key may come twice. It ends with
	// the first error. The store may be used while it is listed.
	List(ctx context.Context, prefix string) iter.Seq2[Entry, error]
}

// List calls s's List. The error Is errors.ErrUnsupported if s is no Lister. A
// Store that wraps another one passes List on with it.
func List(ctx context.Context, s Store, prefix string) iter.Seq2[Entry, error] {
	l, ok := s.(Lister)
	if !ok {
		return func(yield func(Entry, error) bool) {
			yield(Entry{}, fmt.Errorf("list leases: this store cannot: %w", errors.ErrUnsupported))
		}
	}
	return l.List(ctx, prefix)
}
