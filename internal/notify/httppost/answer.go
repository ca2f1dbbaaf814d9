package httppost

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/notify"
	"alertworker/internal/notify/redact"
)

const maxRetryAfter = time.Hour

// aboutMessage are answers that say that something is wrong with the message, unless Options.Settings finds that it is with
// the receiver, as it is set up.
var aboutMessage = []int{
	http.StatusBadRequest,
	http.StatusRequestEntityTooLarge,
	http.StatusUnsupportedMediaType,
	http.StatusUnprocessableEntity,
}

// explain returns what an answer means that does not accept the message. body is the beginning of its body,
// and shown the same without secrets.
func (c *Client) explain(resp *http.Response, body, shown string) *notify.Error {
	code := resp.StatusCode
	e := &notify.Error{
		// A redirect or a complaint about the request means that it was not taken. A 5xx
		// may come from a proxy that gave up on a receiver which did take it.
		Untaken:    code >= 300 && code < 500,
		RetryAfter: retryAfter(resp.Header, time.Now()),
		Status:     code,
	}
	e.Limited = code == http.StatusTooManyRequests || e.RetryAfter > 0

	hint := ""
	switch {
	case code < 300:
		hint = fmt.Sprintf("this is not the receiver's own answer, which is %q: check the URL in %s, and whether a "+
			"proxy answers in its place", c.says, c.setting)

	case code < 400:
		hint = "redirects are not followed: put the final address into " + c.setting

	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		hint = "check the credentials in " + c.credentials
		if ahead, ok := Ahead(resp.Header); ok && humanize.ClockOff(ahead) != "" {
			hint += "; " + humanize.ClockOff(ahead) + ", by the answer's Date"
		}

	case code == http.StatusNotFound, code == http.StatusMethodNotAllowed, code == http.StatusGone:
		hint = "check the path in " + c.setting

	case !slices.Contains(aboutMessage, code):

	case c.settings != nil && c.settings.MatchString(body):
		hint = "the fault is in the settings, not in this alert: check " + c.setting + " and the receiver"

	default:
		e.Refused, e.Limited, e.RetryAfter = true, false, 0
		hint = "the receiver rejects it for good"
	}

	text := strings.TrimSpace(fmt.Sprintf("answered %d %s", code, http.StatusText(code)))
	if s := redact.Excerpt(shown); s != "" {
		text += fmt.Sprintf(" (%q)", s)
	}

	e.Err = errors.New(strings.TrimSuffix(text+": "+hint, ": "))

	return e
}

// retryAfter returns how long the answer asks to wait, at most maxRetryAfter; 0 if it
// does not say or it makes no sense. A date is relative to the answer's own Date if it
// has one, because only the receiver's clock matters.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(v, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	}

	until, err := http.ParseTime(v)
	if err != nil {
		return 0
	}

	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}

	return min(max(until.Sub(now), 0), maxRetryAfter)
}
