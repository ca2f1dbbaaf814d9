// Package cosmoslease is a lease.Store on Azure Cosmos DB for NoSQL: an item for
// every key, changed by compare-and-swap on the item's ETag. It takes any ttl.
// A refused Acquire costs one call, a granted one two, an Extend or Release one.
//
// The service's clock counts in seconds. A key is free when the clock is
// a second past the ttl, so it frees 1 to 2 s late, and never early.
//
// Any consistency level will do, for every write is guarded by the ETag. The
// account must have a single write region: with several the last writer wins,
// and nobody hears of it.
package cosmoslease

import (
	"alertworker/internal/lease"
	"alertworker/internal/lease/caslease"
)

// A Store keeps its records in one container. Use Open.
type Store struct {
	*caslease.Store
	items items
}

var (
	_ lease.Store   = (*Store)(nil)
	_ lease.Breaker = (*Store)(nil)
	_ lease.Lister  = (*Store)(nil)
)
