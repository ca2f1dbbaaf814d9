package httppost

import (
	"net/http"
	"time"
)

// clockError is how far a receiver's clock may be from what it was taken for.
const clockError = time.Minute

// Ahead returns how far the clock of whoever answered with h is ahead of this machine's, to a second and the time that
// the answer took; false if it did not say. RFC 9110, 6.6.1: a server that has a clock sends its time as Date.
func Ahead(h http.Header) (ahead time.Duration, ok bool) {
	date, err := http.ParseTime(h.Get("Date"))
	return time.Until(date), err == nil
}

// Now returns the time by the receiver's clock, which decides whether what it is sent has ended, or was signed too long
// ago: as its last answer showed it, and before there is one, sent, which is notify.Alert.Sent; if that is zero, by this
// machine's clock.
func (c *Client) Now(sent time.Time) time.Time {
	ahead := c.ahead.Load()

	//planted:end-by-own-clock return time.Now()
	switch {
	case ahead != nil:
		return time.Now().Add(*ahead)
	case !sent.IsZero():
		return sent
	}

	return time.Now()
}

// Mistook reports whether the receiver's clock, as its answer has shown since, was not at now when a message was made
// for then: it has to be made anew.
func (c *Client) Mistook(now time.Time) bool { return c.Now(now).Sub(now).Abs() > clockError }
