package ingest_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"alertworker/internal/delivery"
	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
	"alertworker/internal/telemetry/ingest"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
	"alertworker/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token   = "0123456789abcdef"
	timeout = 30 * time.Second
)

// newIntake returns the intake of a worker with one receiver, which alerts at 30. Its windows are
// in store.
func newIntake(t *testing.T, store lease.Store, r notify.Notifier) *worker.Intake {
	t.Helper()
	set := rules.Threshold("temperature", 30, time.Minute)
	decoder, err := set.Decoder()
	if err != nil {
		t.Fatal(err)
	}
	gate := recent.New(throttle.Config{Store: store, Scope: "ns/hub/group", Receiver: "r", Window: time.Minute, SendTimeout: 10 * time.Second}, recent.NewWindows())
	in := worker.New(worker.Config{
		Rulebook: partition.Rulebook{
			Origin: "ns/hub", Replica: "a", Rules: set, Decoder: decoder,
			Receivers: []partition.Receiver{{
				To:   delivery.Receiver{Name: "r", Notifier: r},
				Gate: func(*rules.Rule, *rules.Level) delivery.Gate { return gate },
			}},
		},
		Deliveries: delivery.Config{Concurrency: 64, GiveUp: 12 * time.Hour},
		Partitions: partition.Config{Log: zap.NewNop()},
	}).NewIntake(t.Context(), "http")
	t.Cleanup(in.Cut)
	return in
}

// A receiver takes alerts, or answers with err, which is all that is seen of an alert that it takes if lost.
type receiver struct {
	mu    sync.Mutex
	err   error
	lost  bool
	taken []notify.Alert
}

func (r *receiver) Notify(_ context.Context, alerts ...notify.Alert) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil || r.lost {
		r.taken = append(r.taken, alerts...)
	}
	return r.err
}

func (r *receiver) alerts() []notify.Alert {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// intake is a telemetry.Intake that answers as it is told to.
type intake func(context.Context, telemetry.Event, string) (telemetry.Verdict, error)

func (i intake) Handle(ctx context.Context, e telemetry.Event, key string) (telemetry.Verdict, map[string]telemetry.Verdict, error) {
	v, err := i(ctx, e, key)
	return v, nil, err
}

// A trigger is a Handler and the server that it is asked through.
type trigger struct {
	t       *testing.T
	handler *ingest.Handler
	url     string
	client  *http.Client
	dial    func() net.Conn
}

func newHandler(in telemetry.Intake) *ingest.Handler {
	return ingest.New(ingest.Config{Intake: in, Token: token, Timeout: timeout})
}

// onSockets serves a trigger as the world would see it.
func onSockets(t *testing.T, in telemetry.Intake) *trigger {
	t.Helper()
	h := newHandler(in)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &trigger{t, h, s.URL, s.Client(), func() net.Conn {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}}
}

// onPipes serves a trigger to a bubble, whose clock only such connections follow.
func onPipes(t *testing.T, in telemetry.Intake) *trigger {
	t.Helper()
	h, l := newHandler(in), pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	var serving sync.WaitGroup
	s := &http.Server{Handler: h, ConnState: func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			serving.Add(1)
		case http.StateClosed:
			serving.Done()
		}
	}}
	go func() { _ = s.Serve(l) }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil }}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.Close()
		serving.Wait() // the server lingers on what it cuts
	})
	return &trigger{t, h, "http://pipe", &http.Client{Transport: transport}, func() net.Conn {
		c := l.dial()
		t.Cleanup(func() { c.Close() })
		return c
	}}
}

type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// An answer is what a trigger says.
type answer struct {
	code   int
	header http.Header
	Status any // text, or a problem's number
	Title  string
	Detail string
	Reason string
}

// request returns one that is in order but for what header, name by value, changes.
func (g *trigger) request(method, path string, body io.Reader, header ...string) *http.Request {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, g.url+path, body)
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = append(r.Header[header[i]], header[i+1])
		if header[i] == "Authorization" {
			r.Header[header[i]] = []string{header[i+1]}
		}
	}
	return r
}

func (g *trigger) do(r *http.Request) (answer, error) {
	response, err := g.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	return parse(response)
}

func parse(response *http.Response) (answer, error) {
	defer response.Body.Close()
	a := answer{code: response.StatusCode, header: response.Header}
	return a, json.NewDecoder(response.Body).Decode(&a)
}

func (g *trigger) ask(method, path string, body io.Reader, header ...string) answer {
	g.t.Helper()
	a, err := g.do(g.request(method, path, body, header...))
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// post sends a body from a device.
func (g *trigger) post(device, body string, header ...string) answer {
	g.t.Helper()
	return g.ask("POST", "/devices/"+url.PathEscape(device)+"/telemetry", strings.NewReader(body), header...)
}

// want checks an answer of {"status":…}.
func (a answer) want(t *testing.T, code int, status string) {
	t.Helper()
	if a.code != code || a.Status != status || a.header.Get("Content-Type") != "application/json" || (a.header.Get("Retry-After") != "") != (code == 503) {
		t.Errorf("%+v, want %d %q", a, code, status)
	}
}

// problem checks an answer that is one.
func (a answer) problem(t *testing.T, code int, reason string) {
	t.Helper()
	if a.code != code || a.Status != float64(code) || a.Title != http.StatusText(code) || a.Detail == "" || a.Reason != reason ||
		a.header.Get("Content-Type") != "application/problem+json" || (a.header.Get("Retry-After") != "") != (code == 429 || code == 503) {
		t.Errorf("%+v, want the problem %d %q", a, code, reason)
	}
}
