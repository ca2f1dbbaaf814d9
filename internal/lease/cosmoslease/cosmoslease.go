// Package cosmoslease is a lease.Store on Azure Cosmos DB for NoSQL: an item for
// every key, changed by compare-and-swap on the item's ETag. It takes any ttl.
// A refused Acquire costs one call, a granted one two, an Extend or Release one.
//
// The service's clock counts in seconds, and its machines' clocks may be a second
// apart. A key frees when the clock is 2 s past the ttl: 1 to 3 s late, and never early.
//
// Every write is guarded by the ETag. Below strong and bounded staleness a read may be old: it costs Acquire a write
// that fails and another read, and it may show somebody who only looks an older record. Before anybody declines to take
// a key because of what a record says, it is read again with the session token of the last write, which costs two calls; so
// the account's default consistency must be Session or stronger.
//
// The account must have a single write region: with several the last writer wins
// silently.
package cosmoslease

import (
	"time"

	"alertworker/internal/lease/caslease"
)

// clock is the service's.
func clock() caslease.Clock {
	return caslease.Clock{Resolution: time.Second, Skew: time.Second}
}
