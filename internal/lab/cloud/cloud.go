// Package cloud has two services of Azure in memory, [Blobs] and [Items], that answer the real SDKs as the
// documentation of the real ones says: ETags and conditions, native leases, listings in pages, metadata, time to live,
// and clocks that tell whole seconds. They are handlers of HTTP, and neither authenticates nor persists anything.
package cloud

import (
	"net/http"
	"time"
)

// A Clock is that of a service, which has several machines.
type Clock struct {
	Ahead time.Duration // of this machine's clock
	Skew  time.Duration // of every other answer's machine before the first one's; the service promises less than a second

	answers int
}

// next returns the time of the machine that answers next.
func (c *Clock) next() time.Time {
	c.answers++
	now := time.Now().Add(c.Ahead)
	if c.answers%2 == 0 {
		now = now.Add(c.Skew)
	}

	return now.Truncate(time.Second)
}

// date writes the header that every answer has.
func date(w http.ResponseWriter, now time.Time) {
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
}
