package heartbeat

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/notify/httppost"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "5up3rs3cr3t"

func parse(t testing.TB, text string) *Target {
	t.Helper()
	target, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// What each service gets, if all is well and if it is not.
func TestRequests(t *testing.T) {
	for _, test := range []struct{ url, good, bad string }{
		{"https://hc-ping.com/" + secret, "POST https://hc-ping.com/" + secret + " ", "POST https://hc-ping.com/" + secret + "/fail the hub & more"},
		{"https://uptime.betterstack.com/api/v1/heartbeat/" + secret, "POST https://uptime.betterstack.com/api/v1/heartbeat/" + secret + " ", "POST https://uptime.betterstack.com/api/v1/heartbeat/" + secret + "/fail the hub & more"},
		{"https://x/ping?key=" + secret, "POST https://x/ping?key=" + secret + " ", "POST https://x/ping/fail?key=" + secret + " the hub & more"},
		{"http://kuma:3001/api/push/" + secret + "?status=up&msg=OK&ping=", "GET http://kuma:3001/api/push/" + secret + "?msg=OK&ping=&status=up ", "GET http://kuma:3001/api/push/" + secret + "?msg=the+hub+%26+more&ping=&status=down "},
		{"https://cronitor.link/p/" + secret + "/alerts", "GET https://cronitor.link/p/" + secret + "/alerts?message=OK&state=complete ", "GET https://cronitor.link/p/" + secret + "/alerts?message=the+hub+%26+more&state=fail "},
	} {
		target := parse(t, test.url)
		for why, want := range map[string]string{"": test.good, "the hub & more": test.bad} {
			m := target.message(why)
			if got := fmt.Sprintf("%s %s %s", cmp.Or(m.Method, "POST"), m.URL, m.Body); got != want {
				t.Errorf("%q: %q, want %q", why, got, want)
			}
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "begins with https://",
		"hc-ping.com/" + secret:              "begins with https://",
		"alertmanager+http://x/" + secret:    "the rules in deploy/prometheus",
		"ftp://x/" + secret:                  "begins with https://",
		"https:///" + secret:                 "begins with https://",
		"http://%" + secret:                  "not a URL",
		"https://x:1/a@" + secret:            "cannot be used: there is an @ after the host",
		"interval=1ms https://x/" + secret:   "1s to 1h0m0s",
		"interval=2h https://x/" + secret:    "1s to 1h0m0s",
		"interval=" + secret + " https://x":  "1s to 1h0m0s",
		"fail=on https://x/" + secret:        "must be off",
		"https://x/" + secret + " https://y": "must be a URL, optionally preceded by",
	} {
		if target, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v, %v; want %q", text, target, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("interval=5m fail=off https://user:password@host:1/a?b=c")
	f.Add("alertmanager+https://host")
	f.Fuzz(func(t *testing.T, text string) {
		if target, err := Parse(text); err == nil {
			target.message("why")
			if _, err := httppost.New(target.url, httppost.Options{}); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

// A service that answers as it is told, and remembers what it got and when.
type service struct {
	mu     sync.Mutex
	start  time.Time
	status int
	got    []string
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status == 0 {
		return nil, fmt.Errorf("no route to %s", r.URL)
	}
	what := "ok"
	if strings.HasSuffix(r.URL.Path, "/fail") {
		body, _ := io.ReadAll(r.Body)
		what = string(body)
	}
	s.got = append(s.got, fmt.Sprintf("%v %s", time.Since(s.start), what))
	return &http.Response{StatusCode: s.status, Status: http.StatusText(s.status), Body: io.NopCloser(strings.NewReader("no: " + r.URL.Path))}, nil
}

func (s *service) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got, s.start = nil, time.Now()
	return got
}

func (s *service) answer(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// A call is made every minute by the leader alone; a failure that lasts is reported within half a minute, and
// so is its end.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{start: time.Now(), status: 200}
		var mu sync.Mutex
		leading, why := false, ""
		set := func(l bool, w string) {
			mu.Lock()
			defer mu.Unlock()
			leading, why = l, w
		}
		core, logs := observer.New(zap.InfoLevel)
		var last Call
		h := &Heartbeat{
			Transport: s,
			Made:      func(call Call) { mu.Lock(); defer mu.Unlock(); last = call },
			Target:    parse(t, "https://hc/"+secret), Log: zap.New(core),
			Leading: func() bool { mu.Lock(); defer mu.Unlock(); return leading },
			Check:   func(context.Context) string { mu.Lock(); defer mu.Unlock(); return why },
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.Run(ctx) })
		expect := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := s.take(); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}

		expect(time.Minute)
		set(true, "")
		expect(2*time.Minute+time.Second, "5s ok", "1m5s ok")
		set(true, "the hub is gone") // for a moment
		time.Sleep(10 * time.Second)
		set(true, "")
		expect(40*time.Second, "14s ok")
		set(true, "the hub is gone")
		expect(90*time.Second, "19s the hub is gone", "1m19s the hub is gone")
		if last.Why != "the hub is gone" || last.Err != "" || last.At.IsZero() {
			t.Errorf("the last call was %+v", last)
		}
		set(true, "")
		expect(10*time.Second, "4s ok")
		logs.TakeAll()

		s.answer(500)
		expect(time.Minute, "54s ok", "59s ok")
		if !strings.Contains(last.Err, `post heartbeat to https://hc: answered 500 Internal Server Error ("no: `) || strings.Contains(last.Err, secret) {
			t.Errorf("the last call was %+v", last)
		}
		s.answer(0)
		time.Sleep(10 * time.Second)
		s.answer(200)
		expect(20*time.Second, "14s ok")
		if n := logs.FilterMessageSnippet("heartbeat").Len(); n != 2 || strings.Contains(fmt.Sprint(logs.All()), secret) {
			t.Errorf("%d lines: %v", n, logs.All())
		}

		set(false, "")
		expect(5 * time.Minute)
		set(true, "")
		expect(10*time.Second, "4s ok")
		stop()
		running.Wait()
	})
}

// With fail=off nothing is called while an alert would not go out.
func TestFailOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{start: time.Now(), status: 200}
		h := &Heartbeat{
			Transport: s,
			Target:    parse(t, "interval=8s fail=off https://hc/"+secret), Log: zap.NewNop(),
			Made:    func(Call) {},
			Leading: func() bool { return true },
			Check: func(context.Context) string {
				if time.Since(s.start) > 9*time.Second {
					return "no"
				}
				return ""
			},
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		h.Run(ctx)
		if got := s.take(); !slices.Equal(got, []string{"2s ok"}) {
			t.Errorf("got %q", got)
		}
	})
}
