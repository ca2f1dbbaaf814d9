package azure

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"alertworker/internal/humanize"
)

// A Clock is what answers of services have shown of their time. The zero Clock has seen none. It is safe for concurrent
// use.
type Clock struct {
	ahead atomic.Pointer[time.Duration] // of this machine's clock, at the last answer
}

// Ahead returns how far the services' clock was ahead of this machine's at the last answer, to a second and the time that
// the answer took; false if there was none.
func (c *Clock) Ahead() (ahead time.Duration, ok bool) {
	last := c.ahead.Load()
	if last == nil {
		return 0, false
	}
	return *last, true
}

// receivedHeader is where a Clock's transport notes in an answer when it came, by this machine's clock: errors are explained
// later, and again and again.
const receivedHeader = "X-Alertworker-Received"

// Through returns next, at whose answers c looks, whatever they say.
func (c *Clock) Through(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err != nil {
			return resp, err
		}

		now := time.Now()
		if date, err := Date(resp); err == nil {
			ahead := date.Sub(now)
			c.ahead.Store(&ahead)
			resp.Header.Set(receivedHeader, now.UTC().Format(time.RFC3339Nano))
		}

		return resp, nil
	})
}

// refusing is how far clocks may be apart before a service refuses what is signed by time. Azure Storage takes requests
// that are up to 15 minutes old (learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key), but a
// signature with a start has no such margin.
const refusing = 5 * time.Minute

// withClock returns a text about a refusal, "403 Code: advice", with how far this machine's clock is from the service's, if
// that is far.
func withClock(text string, resp *http.Response) string {
	received, notNoted := time.Parse(time.RFC3339Nano, resp.Header.Get(receivedHeader))
	date, notSaid := Date(resp)
	if errors.Join(notNoted, notSaid) != nil {
		return text
	}

	ahead := date.Sub(received)
	off := humanize.ClockOff(ahead)
	if off == "" {
		return strings.Replace(text, andClock, "", 1)
	}

	answer, advice, _ := strings.Cut(text, ": ")
	if ahead.Abs() < refusing {
		return text + "; " + off + ", by the answer's Date"
	}
	if advice != "" {
		advice = ", or else " + advice
	}

	return answer + ": " + off + ", by the answer's Date: correct it" + advice
}
