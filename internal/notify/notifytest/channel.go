package notifytest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"alertworker/internal/notify"
)

// Odd is an alert with all that a channel has to deal with: a device that is any text,
// a level, and a delivery that may be a repeat.
func Odd() notify.Alert {
	a := Alert(7)
	a.Device = "K\u00e4l<te>&\"1'`*_~|\\[x](https://evil.example) <!channel> @here\n\x1b[31m\u202e\u2026"
	a.Level, a.Ambiguous = "warning", true
	return a
}

// Alerts are the alerts of which channels have golden payloads, by name of the file.
func Alerts() map[string]notify.Alert {
	with := func(change func(*notify.Alert)) notify.Alert {
		a := Alert(7)
		change(&a)
		return a
	}
	return map[string]notify.Alert{
		"alert":     Alert(7),
		"odd":       Odd(),
		"test":      with(func(a *notify.Alert) { a.Test = true }),
		"resolved":  with(func(a *notify.Alert) { a.Level, a.Resolved, a.Temperature = "critical", true, 71.5 }),
		"no_device": with(func(a *notify.Alert) { a.Device = "" }),
	}
}

// Golden compares JSON with testdata/name.json, which it rewrites if update is true.
func Golden(t *testing.T, update bool, name string, payload []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".json")
	var got bytes.Buffer
	if err := json.Indent(&got, bytes.TrimSpace(payload), "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	if update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("payload differs from %s (go test -update writes it anew). Got:\n%s", file, got.Bytes())
	}
}

// A Request is what a channel has posted.
type Request struct {
	Path   string // and query
	Header http.Header
	Body   []byte
}

// Posted returns what send posts to a receiver that answers code.
func Posted(t testing.TB, code int, send func(url string) error) Request {
	t.Helper()
	var r Request
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.Path, r.Header = req.URL.RequestURI(), req.Header
		r.Body, _ = io.ReadAll(req.Body)
		w.WriteHeader(code)
	}))
	defer srv.Close()
	if err := send(srv.URL); err != nil {
		t.Fatal(err)
	}
	return r
}

// An Answer is one that a service documents, and what it means.
type Answer struct {
	Code       int
	RetryAfter string
	Body       string

	Taken, Refused bool          // otherwise the receiver is down or busy
	Wait           time.Duration // RetryAfter of the error
}

// RunAnswers checks what a notifier makes of the answers. open returns a new one for the
// server at url.
func RunAnswers(t *testing.T, answers []Answer, open func(t *testing.T, url string) notify.Notifier) {
	var answer Answer
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if answer.RetryAfter != "" {
			w.Header().Set("Retry-After", answer.RetryAfter)
		}
		w.WriteHeader(answer.Code)
		_, _ = io.WriteString(w, answer.Body)
	}))
	defer srv.Close()
	n := open(t, srv.URL)
	for _, answer = range answers {
		err := n.Notify(t.Context(), Alert(1))
		if (err == nil) != answer.Taken {
			t.Errorf("%d %s: got %v, want taken: %v", answer.Code, answer.Body, err, answer.Taken)
			continue
		}
		if err == nil {
			continue
		}
		e := asError(t, err)
		if e.Refused != answer.Refused || e.RetryAfter != answer.Wait || e.Untaken != (answer.Code < 500) {
			t.Errorf("%d %s: got Refused %v, RetryAfter %v, Untaken %v; want %v, %v, %v: %v",
				answer.Code, answer.Body, e.Refused, e.RetryAfter, e.Untaken, answer.Refused, answer.Wait, answer.Code < 500, err)
		}
	}
}
