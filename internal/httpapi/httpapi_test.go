package httpapi_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"alertworker/internal/httpapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read takes a request's first line as a server does.
func read(t testing.TB, target string) (*http.Request, bool) {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
	return r, err == nil
}

func TestDevice(t *testing.T) {
	long := strings.Repeat("x", 4096)
	for _, test := range []struct {
		target     string
		id, action string
		ok         bool
	}{
		{"/devices/oven", "oven", "", true},
		{"/devices/oven/telemetry", "oven", "telemetry", true},
		{"/devices/oven/window?a=/b/c", "oven", "window", true},
		{"/devices/oven?a=b#c", "oven", "", true},
		{"http://host/devices/oven/telemetry", "oven", "telemetry", true},
		{"/devices/Oven", "Oven", "", true},

		{"/devices/a%2Fb/telemetry", "a/b", "telemetry", true},
		{"/devices/a%2fb/telemetry", "a/b", "telemetry", true},
		{"/devices/%2F/telemetry", "/", "telemetry", true},
		{"/devices/oven%2Ftelemetry", "oven/telemetry", "", true},
		{"/devices/a%23b%3Fc/telemetry", "a#b?c", "telemetry", true},
		{"/devices/a%25b/telemetry", "a%b", "telemetry", true},
		{"/devices/a%252Fb/telemetry", "a%2Fb", "telemetry", true}, // decoded once
		{"/devices/a+b%20c%2Bd/telemetry", "a+b c+d", "telemetry", true},
		{"/devices/-:.+_*!(),=@;$'~/telemetry", "-:.+_*!(),=@;$'~", "telemetry", true},
		{"/devices/../telemetry", "..", "telemetry", true},
		{"/devices/%2e%2E/telemetry", "..", "telemetry", true},
		{"/devices/./window", ".", "window", true},
		{"/devices/..%2F..%2Fmetrics", "../../metrics", "", true},
		{"/devices/K%C3%BChler%20%F0%9F%94%A5/telemetry", "Kühler 🔥", "telemetry", true},
		{"/devices/Kühler/telemetry", "Kühler", "telemetry", true},
		{"/devices/%FF%00/telemetry", "\xff\x00", "telemetry", true},
		{"/devices/devices/devices", "devices", "devices", true},
		{"/devices/" + long, long, "", true},

		// Not as RFC 3986 has it, and yet clear.
		{"/devices/a#b/telemetry", "a#b", "telemetry", true},
		{`/devices/"a%2Ftelemetry`, `"a/telemetry`, "", true},
		{`/devices/"a%2F/window`, `"a/`, "window", true},

		{"/devices", "", "", false},
		{"/devices/", "", "", false},
		{"/devices//telemetry", "", "", false},
		{"/devices/oven/", "", "", false},
		{"/devices/oven//telemetry", "", "", false},
		{"/devices/oven/telemetry/", "", "", false},
		{"/devices/a/b/telemetry", "", "", false},
		{"/Devices/oven", "", "", false},
		{"/%64evices/oven", "", "", false},
		{"//devices/oven", "", "", false},
		{"/x/devices/oven", "", "", false},
		{"/x/../devices/oven", "", "", false},
		{"/", "", "", false},
		{"*", "", "", false},
	} {
		r, ok := read(t, test.target)
		if !ok {
			t.Errorf("%s: no request", test.target)
			continue
		}
		id, action, ok := httpapi.Device(r)
		if id != test.id || action != test.action || ok != test.ok {
			t.Errorf("%.80s: %.80q, %q, %v, want %.80q, %q, %v", test.target, id, action, ok, test.id, test.action, test.ok)
		}
	}
}

// Any id comes out as it was put in, and whatever comes in makes no other device of it.
func FuzzDevice(f *testing.F) {
	for _, seed := range []string{"oven", "a/b", "..", "%2F", "#?&", "Kühler", "\xff", "a b", "telemetry", `"`} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, id, raw string) {
		for action, path := range map[string]string{"": "", "telemetry": "/telemetry"} {
			r, ok := read(t, "/devices/"+url.PathEscape(id)+path)
			if !ok {
				t.Fatalf("%q cannot be asked for", id)
			}
			if got, did, ok := httpapi.Device(r); ok != (id != "") || ok && (got != id || did != action) {
				t.Errorf("%q, %q became %q, %q, %v", id, action, got, did, ok)
			}
		}

		r, ok := read(t, "/devices/"+raw)
		if !ok {
			return
		}
		id, action, ok := httpapi.Device(r)
		if !ok {
			if id != "" || action != "" {
				t.Errorf("%q is none, and %q, %q", raw, id, action)
			}
			return
		}
		path, _, _ := strings.Cut(strings.TrimPrefix(r.RequestURI, "/devices/"), "?")
		segment, rest, _ := strings.Cut(path, "/")
		if want, err := url.PathUnescape(segment); err != nil || id != want || id == "" || action != rest {
			t.Errorf("%q is the device %q, %q, want %q, %q", raw, id, action, want, rest)
		}
	})
}

func TestAuthorized(t *testing.T) {
	const token = "s3cr3t+/="
	for _, test := range []struct {
		header, token string
		ok            bool
	}{
		{"Bearer " + token, token, true},
		{"bearer " + token, token, true}, // RFC 9110: schemes have no case
		{"BEARER   " + token + " ", token, true},
		{"Bearer " + strings.ToUpper(token), token, false}, // tokens have
		{"Bearer " + token + "x", token, false},
		{"Bearer " + token[:len(token)-1], token, false},
		{"Bearer x" + token, token, false},
		{"Bearer " + token + ", Bearer x", token, false},
		{"Basic " + token, token, false},
		{"Bearer" + token, token, false},
		{"Bearer\t" + token, token, false},
		{" " + token, token, false},
		{token, token, false},
		{"Bearer", token, false},
		{"Bearer ", token, false},
		{"", token, false},

		{"Bearer ", "", false},
		{"Bearer", "", false},
		{"", "", false},
		{"Bearer x", "", false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if test.header != "" {
			r.Header.Set("Authorization", test.header)
		}
		if got := httpapi.Authorized(r, test.token); got != test.ok {
			t.Errorf("%q for the token %q: %v", test.header, test.token, got)
		}
	}
}

// Another site can give itself any name, and have that resolve to an address here.
func TestOwnHost(t *testing.T) {
	own := []string{"alerts.example.com", "vm-7.corp.example.", ""}
	for host, want := range map[string]bool{
		"": true, "localhost:8080": true, "LOCALHOST": true, "tenant.localhost:8080": true, "127.0.0.1:8080": true, "10.1.2.3": true,
		"[::1]:8080": true, "[fe80::1%25eth0]:8080": true, "::1": true,
		"worker-1:8080": true, "alertworker-7d9f-x2x1p:8080": true, "alertworker.alertworker.svc:8080": true,
		"alertworker.alertworker.svc.cluster.local:8080": true, "Alerts.Example.com.": true, "vm-7.corp.example:80": true,
		"rebound.attacker.example:8080": false, "attacker.example": false, "alerts.example.com.attacker.example": false,
		"127.0.0.1.attacker.example:8080": false, "localhost.attacker.example": false, "notlocalhost.example": false,
		"xalerts.example.com": false, "1.2.3.4.5": false, "svc.example": false,
	} {
		if got := httpapi.OwnHost(host, own); got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
}

func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		name   string
		write  func(http.ResponseWriter)
		status int
		header map[string]string
		body   map[string]any
	}{
		{"a value", func(w http.ResponseWriter) { httpapi.Write(w, 200, map[string]string{"status": "ok"}) },
			200, map[string]string{"Content-Type": "application/json"}, map[string]any{"status": "ok"}},
		{"a problem", func(w http.ResponseWriter) {
			httpapi.Fail(w, httpapi.Problem{Status: 422, Detail: "no <reading>", Reason: "malformed"})
		}, 422, map[string]string{"Content-Type": "application/problem+json"},
			map[string]any{"title": "Unprocessable Entity", "status": 422., "detail": "no <reading>", "reason": "malformed"}},
		{"a short problem", func(w http.ResponseWriter) { httpapi.Fail(w, httpapi.Problem{Status: 404}) },
			404, nil, map[string]any{"title": "Not Found", "status": 404.}},
		{"no authorization", func(w http.ResponseWriter) { httpapi.Unauthorized(w, "HTTP_INGEST_TOKEN") },
			401, map[string]string{"Www-Authenticate": `Bearer realm="alertworker"`}, map[string]any{"title": "Unauthorized", "status": 401., "detail": `send the header "Authorization: Bearer <token>" with the value of HTTP_INGEST_TOKEN`}},
		{"no such method", func(w http.ResponseWriter) { httpapi.NotAllowed(w, "GET, HEAD") },
			405, map[string]string{"Allow": "GET, HEAD"}, map[string]any{"title": "Method Not Allowed", "status": 405., "detail": "method not allowed: use GET, HEAD"}},
		{"what JSON cannot say", func(w http.ResponseWriter) { httpapi.Write(w, 200, math.NaN()) }, 500, nil, map[string]any{}},
	} {
		w := httptest.NewRecorder()
		test.write(w)
		var body map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if w.Code != test.status || !reflect.DeepEqual(body, test.body) {
			t.Errorf("%s: %d %v, want %d %v", test.name, w.Code, body, test.status, test.body)
		}
		for name, want := range test.header {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", test.name, name, got, want)
			}
		}
		if h := w.Header(); h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" || !strings.HasSuffix(w.Body.String(), "}\n") {
			t.Errorf("%s: %v %q", test.name, h, w.Body)
		}
	}
}

// A handler answers without the body, of which no more comes.
func TestLimitBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, conn := net.Pipe()
		defer client.Close()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			httpapi.LimitBody(w, r)
			httpapi.Unauthorized(w, "HTTP_INGEST_TOKEN")
		})}
		go func() { _ = server.Serve(&one{conn: conn}) }()
		defer server.Close()

		start := time.Now()
		if _, err := fmt.Fprint(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		if took := time.Since(start); answer.StatusCode != 401 || !answer.Close || took != httpapi.BodyTimeout {
			t.Errorf("answered %d after %v, close %v", answer.StatusCode, took, answer.Close)
		}
	})
}

// one is a listener with one connection.
type one struct{ conn net.Conn }

func (l *one) Accept() (net.Conn, error) {
	if l.conn == nil {
		return nil, net.ErrClosed
	}
	c := l.conn
	l.conn = nil
	return c, nil
}
func (l *one) Close() error   { return nil }
func (l *one) Addr() net.Addr { return &net.TCPAddr{} }

// A server has no more connections than it may, whatever its clients hold open: those are closed that have waited for a
// request longest, and none that is being answered.
func TestConnLimit(t *testing.T) {
	going := make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			going <- struct{}{}
			<-going
		}
		_, _ = io.WriteString(w, "hello")
	}))
	limit, waits := httpapi.NewConnLimit(4), make(chan struct{}, 10)
	srv.Config.ConnState = func(c net.Conn, is http.ConnState) {
		if limit.Changed(c, is); is == http.StateIdle {
			waits <- struct{}{}
		}
	}
	srv.Start()
	defer srv.Close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c net.Conn, path string) { _, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n") }
	isAnswered := func(c net.Conn) bool {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return false
		}
		body, _ := io.ReadAll(resp.Body)
		return string(body) == "hello"
	}

	slow := dial()
	ask(slow, "/slow")
	<-going
	idle := dial()
	if ask(idle, "/"); !isAnswered(idle) {
		t.Fatal("no answer")
	}
	<-waits
	conns := []net.Conn{idle}
	for range 8 { // no request comes
		conns = append(conns, dial())
	}
	last := dial()
	if ask(last, "/"); !isAnswered(last) {
		t.Error("with too many connections a new one has no answer")
	}
	for i, c := range conns[:len(conns)-2] { // all but two, beside slow and last
		if _, err := c.Read(make([]byte, 1)); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("connection %d: %v; want it closed", i, err)
		}
	}
	for i, c := range conns[len(conns)-2:] {
		if ask(c, "/"); !isAnswered(c) {
			t.Errorf("connection %d before the last has no answer", 2-i)
		}
	}
	if going <- struct{}{}; !isAnswered(slow) {
		t.Error("a request that was being answered is cut off")
	}
}
