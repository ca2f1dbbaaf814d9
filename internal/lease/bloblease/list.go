package bloblease

import (
	"context"
	"iter"

	"alertworker/internal/lease"
)

// List implements lease.Lister. It needs leave to list, and costs one call for some 5,000
// blobs of the container, whatever the prefix.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[lease.Entry, error] {
	return s.blobs.List(ctx, prefix)
}
