package httppost

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		code             int
		refused, untaken bool
		hint             string
	}{
		{http.StatusSwitchingProtocols, false, false, ""},
		{http.StatusMovedPermanently, false, true, "redirects are not followed"},
		{http.StatusFound, false, true, "redirects are not followed"},
		{http.StatusNotModified, false, true, "redirects are not followed"},
		{http.StatusBadRequest, true, true, "rejects it for good"},
		{http.StatusUnauthorized, false, true, "credentials"},
		{http.StatusForbidden, false, true, "credentials"},
		{http.StatusNotFound, false, true, "path"},
		{http.StatusMethodNotAllowed, false, true, "path"},
		{http.StatusProxyAuthRequired, false, true, ""},
		{http.StatusRequestTimeout, false, true, ""},
		{http.StatusConflict, false, true, ""},
		{http.StatusGone, false, true, "path"},
		{http.StatusRequestEntityTooLarge, true, true, "rejects it for good"},
		{http.StatusUnsupportedMediaType, true, true, "rejects it for good"},
		{http.StatusUnprocessableEntity, true, true, "rejects it for good"},
		{http.StatusTooEarly, false, true, ""},
		{http.StatusTooManyRequests, false, true, ""},
		{499, false, true, ""},
		{http.StatusInternalServerError, false, false, ""},
		{http.StatusBadGateway, false, false, ""},
		{http.StatusServiceUnavailable, false, false, ""},
		{http.StatusGatewayTimeout, false, false, ""},
		{999, false, false, ""},
	} {
		resp := &http.Response{StatusCode: tt.code, Header: http.Header{"Retry-After": {"7"}}}
		e := (&Client{setting: "NOTIFY_URLS", credentials: "NOTIFY_URLS"}).explain(resp, "", "the \x1b[31mreason\r\n")
		if e.Refused != tt.refused || e.Untaken != tt.untaken {
			t.Errorf("%d: refused %v, untaken %v; want %v, %v", tt.code, e.Refused, e.Untaken, tt.refused, tt.untaken)
		}
		want := 7 * time.Second
		if tt.refused {
			want = 0
		}
		if e.RetryAfter != want {
			t.Errorf("%d: RetryAfter %v, want %v", tt.code, e.RetryAfter, want)
		}
		if !strings.Contains(e.Error(), tt.hint) || !strings.Contains(e.Error(), `"the �[31mreason"`) {
			t.Errorf("%d: error %q", tt.code, e)
		}
	}
}

// A refusal of credentials names a clock that is wrong: signatures and tokens have times.
func TestRefusalNamesTheClock(t *testing.T) {
	for _, tt := range []struct {
		code  int
		ahead time.Duration
		want  string
	}{
		{http.StatusUnauthorized, 20*time.Minute + time.Second, "; this machine's clock is 20 min behind, by the answer's Date"},
		{http.StatusForbidden, -time.Hour, "; this machine's clock is 60 min ahead, by the answer's Date"},
		{http.StatusForbidden, 0, ""},
		{http.StatusServiceUnavailable, time.Hour, ""},
	} {
		date := time.Now().Add(tt.ahead).UTC().Format(http.TimeFormat)
		resp := &http.Response{StatusCode: tt.code, Header: http.Header{"Date": {date}}}
		e := (&Client{setting: "NOTIFY_URLS", credentials: "NOTIFY_URLS"}).explain(resp, "", "")
		if named := strings.Contains(e.Error(), "clock"); named != (tt.want != "") || !strings.HasSuffix(e.Error(), tt.want) {
			t.Errorf("%d, %v: error %q, want %q", tt.code, tt.ahead, e, tt.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"7", "", 7 * time.Second},
		{" 7 ", "", 7 * time.Second},
		{"007", "", 7 * time.Second},
		{"3600", "", time.Hour},
		{"3601", "", time.Hour},
		{"99999999999999999999999", "", time.Hour},
		{"-7", "", 0},
		{"+7", "", 0},
		{"1.5", "", 0},
		{"7s", "", 0},
		{"soon", "", 0},
		{"７", "", 0},
		{"Sun, 01 Mar 2026 12:00:30 GMT", "", 30 * time.Second},
		{"Sunday, 01-Mar-26 12:00:30 GMT", "", 30 * time.Second},
		{"Sun Mar  1 12:00:30 2026", "", 30 * time.Second},
		{"Sun, 01 Mar 2026 11:59:30 GMT", "", 0},
		{"Fri, 01 Mar 2999 12:00:00 GMT", "", time.Hour},
		{"Mon, 01 Jan 0001 00:00:00 GMT", "", 0},
		// The receiver's clock is ten minutes ahead of ours.
		{"Sun, 01 Mar 2026 12:10:30 GMT", "Sun, 01 Mar 2026 12:10:00 GMT", 30 * time.Second},
		{"Sun, 01 Mar 2026 12:00:30 GMT", "garbage", 30 * time.Second},
	} {
		h := make(http.Header)
		h.Set("Retry-After", tt.value)
		h.Set("Date", tt.date)
		if got := retryAfter(h, now); got != tt.want {
			t.Errorf("Retry-After %q, Date %q: got %v, want %v", tt.value, tt.date, got, tt.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"7", "-7", "99999999999999999999", "Sun, 01 Mar 2026 12:00:30 GMT", "Sun Mar  1 12:00:30 2026", ""} {
		f.Add(s, "")
		f.Add(s, "Sun, 01 Mar 2026 12:00:00 GMT")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		h := http.Header{"Retry-After": {value}, "Date": {date}}
		if d := retryAfter(h, time.Now()); d < 0 || d > maxRetryAfter {
			t.Fatalf("Retry-After %q, Date %q: %v", value, date, d)
		}
	})
}
