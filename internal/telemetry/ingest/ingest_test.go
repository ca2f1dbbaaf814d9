package ingest_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease/memlease"
	"alertworker/internal/notify"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

const (
	hot  = `{"temperature":99}`
	cold = `{"temperature":20}`
)

func TestReadings(t *testing.T) {
	r := &receiver{}
	g := onSockets(t, newIntake(t, memlease.New(), r))
	g.post("oven", cold).want(t, 200, "normal")
	g.post("oven", hot).want(t, 200, "ok")
	g.post("oven", hot).want(t, 200, "throttled")
	g.post("oven", cold).want(t, 200, "normal")
	g.post("kiln", hot).want(t, 200, "ok")
	if a := r.alerts(); len(a) != 2 || a[0].Device != "oven" || a[1].Device != "kiln" || a[0].Temperature != 99 || a[0].Partition != "http" || time.Since(a[0].Enqueued) > time.Hour {
		t.Errorf("alerts %+v", a)
	}
}

// Callers that race for one device make one alert, and each of them hears of it.
func TestReadingsAtOnce(t *testing.T) {
	r := &receiver{}
	g := onSockets(t, newIntake(t, memlease.New(), r))
	statuses := make(chan any, 50)
	var all sync.WaitGroup
	for range cap(statuses) {
		request := g.request("POST", "/devices/oven/telemetry", strings.NewReader(hot))
		all.Go(func() {
			a, err := g.do(request)
			if err != nil || a.code != 200 {
				t.Errorf("%+v, %v", a, err)
			}
			statuses <- a.Status
		})
	}
	all.Wait()
	close(statuses)
	count := map[any]int{}
	for s := range statuses {
		count[s]++
	}
	if n := len(r.alerts()); n != 1 || count["ok"] != 1 || count["throttled"] != cap(statuses)-1 {
		t.Errorf("%d alerts, answers %v", n, count)
	}
}

func TestAnyDevice(t *testing.T) {
	r := &receiver{}
	g := onSockets(t, newIntake(t, memlease.New(), r))
	ids := []string{
		"a/b", "a~1b", "/", "..", ".", "%", "%2F", "#", "?", "a b", "a+b", "-:.+%_#*?!(),=@;$'", "Oven", "oven", "OVEN",
		"Kühler 🔥", "telemetry", "window", `"quoted"`, "<b>", "null", "\xff\xfe", "\x00", "\n", strings.Repeat("ü", 512),
	}
	for i, id := range ids {
		g.post(id, hot).want(t, 200, "ok")
		g.post(id, hot).want(t, 200, "throttled")
		if a := r.alerts(); len(a) != i+1 || a[i].Device != sensor.Device(id) {
			t.Fatalf("%q: %+v", id, a[i:])
		}
	}
}

func TestRefusals(t *testing.T) {
	g := onSockets(t, newIntake(t, memlease.New(), &receiver{}))
	const path = "/devices/oven/telemetry"
	bearer := func(value string) []string { return []string{"Authorization", value} }
	key := func(values ...string) (header []string) {
		for _, v := range values {
			header = append(header, "Idempotency-Key", v)
		}
		return header
	}
	for _, test := range []struct {
		name, method, path, body string
		header                   []string
		code                     int
		reason                   string
	}{
		{"no token", "POST", path, hot, bearer(""), 401, ""},
		{"wrong token", "POST", path, hot, bearer("Bearer " + token + "x"), 401, ""},
		{"other scheme", "POST", path, hot, bearer("Basic " + token), 401, ""},
		{"no token, other method", "GET", path, "", bearer(""), 401, ""},

		{"no device", "POST", "/devices//telemetry", hot, nil, 404, ""},
		{"no action", "POST", "/devices/oven", hot, nil, 404, ""},
		{"other action", "POST", "/devices/oven/window", hot, nil, 404, ""},
		{"action of other case", "POST", "/devices/oven/Telemetry", hot, nil, 404, ""},
		{"slash at the end", "POST", path + "/", hot, nil, 404, ""},
		{"slash in the id", "POST", "/devices/a/b/telemetry", hot, nil, 404, ""},
		{"elsewhere", "POST", "/", hot, nil, 404, ""},

		{"GET", "GET", path, "", nil, 405, ""},
		{"PUT", "PUT", path, hot, nil, 405, ""},
		{"DELETE", "DELETE", path, "", nil, 405, ""},

		{"long id", "POST", "/devices/" + strings.Repeat("x", 1025) + "/telemetry", hot, nil, 414, ""},

		{"empty key", "POST", path, hot, key(""), 400, ""},
		{"empty quoted key", "POST", path, hot, key(`""`), 400, ""},
		{"key with a space", "POST", path, hot, key("a b"), 400, ""},
		{"key with a quote", "POST", path, hot, key(`a"b`), 400, ""},
		{"half a quoted key", "POST", path, hot, key(`"a`), 400, ""},
		{"key with a backslash", "POST", path, hot, key(`a\b`), 400, ""},
		{"key beyond ASCII", "POST", path, hot, key("ü"), 400, ""},
		{"long key", "POST", path, hot, key(strings.Repeat("x", 256)), 400, ""},
		{"two keys", "POST", path, hot, key("a", "a"), 400, ""},

		{"empty", "POST", path, "", nil, 422, "empty"},
		{"white space", "POST", path, " \n", nil, 422, "empty"},
		{"no JSON", "POST", path, "hot", nil, 422, "malformed"},
		{"half a body", "POST", path, `{"temperature":9`, nil, 422, "malformed"},
		{"no field", "POST", path, `{"humidity":9}`, nil, 422, "missing"},
		{"null", "POST", path, `{"temperature":null}`, nil, 422, "null"},
		{"no number", "POST", path, `{"temperature":"hot"}`, nil, 422, "not_a_number"},
		{"NaN", "POST", path, `{"temperature":NaN}`, nil, 422, "not_finite"},
		{"deep", "POST", path, strings.Repeat("[", 100) + strings.Repeat("]", 100), nil, 422, "malformed"},
		{"broken gzip", "POST", path, packed(t, hot)[:12], []string{"Content-Encoding", "gzip"}, 422, "malformed"},

		{"CBOR", "POST", path, "\xa1\x6btemperature\xf9\x56\x30", nil, 415, "unsupported_encoding"},
		{"brotli", "POST", path, "\x0b\x02\x80hot\x03", []string{"Content-Encoding", "br"}, 415, "unsupported_encoding"},
		{"bomb", "POST", path, packed(t, strings.Repeat(" ", 2<<20)+hot), []string{"Content-Encoding", "gzip"}, 413, "too_large"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := g.ask(test.method, test.path, strings.NewReader(test.body), test.header...)
			a.problem(t, test.code, test.reason)
			if (a.header.Get("WWW-Authenticate") != "") != (test.code == 401) || test.code == 405 && a.header.Get("Allow") != "POST" {
				t.Errorf("header %v", a.header)
			}
			if strings.Contains(a.Detail, token) {
				t.Errorf("the detail contains the token: %s", a.Detail)
			}
		})
	}
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A body is read as the hub's are, whatever its headers say.
func TestEncodings(t *testing.T) {
	g := onSockets(t, newIntake(t, memlease.New(), &receiver{}))
	for name, test := range map[string]struct {
		body   string
		header []string
	}{
		"gzip":               {packed(t, hot), []string{"Content-Encoding", "gzip"}},
		"gzip without label": {packed(t, hot), nil},
		"label without gzip": {hot, []string{"Content-Encoding", "gzip"}},
		"other label":        {hot, []string{"Content-Encoding", "br", "Content-Type", "text/plain"}},
		"base64":             {"eyJ0ZW1wZXJhdHVyZSI6OTl9", nil},
		"UTF-16":             {"\xff\xfe" + strings.Join(strings.Split(hot, ""), "\x00") + "\x00", nil},
		"array":              {"[" + cold + "," + hot + "]", nil},
		"text":               {`{"temperature":"99.5"}`, nil},
		"256 KiB":            {hot + strings.Repeat(" ", 256<<10-len(hot)), nil},
	} {
		t.Run(name, func(t *testing.T) { g.post(name, test.body, test.header...).want(t, 200, "ok") })
	}
	t.Run("chunked", func(t *testing.T) {
		g.ask("POST", "/devices/chunked/telemetry", io.MultiReader(strings.NewReader(hot))).want(t, 200, "ok")
	})
}

// What the handler hands on is what came.
func TestEvent(t *testing.T) {
	events := make(chan telemetry.Event, 1)
	g := onSockets(t, intake(func(_ context.Context, e telemetry.Event, _ string) (telemetry.Verdict, error) {
		events <- e
		return telemetry.VerdictNormal, nil
	}))
	start := time.Now()
	g.post("oven", hot).want(t, 200, "normal")
	e := <-events
	if e.Device != "oven" || string(e.Body) != hot || e.Enqueued.Before(start) || e.MessageSource != "" {
		t.Errorf("%+v", e)
	}
}

func TestTooLarge(t *testing.T) {
	for _, test := range []struct{ name, head, piece string }{
		{"by its length", "Content-Length: 262145", strings.Repeat(" ", 32<<10)},
		{"by far", "Content-Length: 1000000000000", strings.Repeat(" ", 32<<10)},
		{"chunked, for ever", "Transfer-Encoding: chunked", "8000\r\n" + strings.Repeat(" ", 32<<10) + "\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := onPipes(t, intake(func(context.Context, telemetry.Event, string) (telemetry.Verdict, error) {
					t.Error("it was handed on")
					return telemetry.VerdictNormal, nil
				}))
				conn := g.dial()
				var sent int
				var sending sync.WaitGroup
				sending.Go(func() { // until nobody reads any more
					_, err := io.WriteString(conn, strings.Replace(head(0), "Content-Length: 0", test.head, 1))
					for ; err == nil; sent++ {
						_, err = io.WriteString(conn, test.piece)
					}
				})
				receive(t, conn).problem(t, 413, "")
				conn.Close()
				sending.Wait()
				if most := 20; sent > most {
					t.Errorf("%d pieces were read, want %d at most", sent, most)
				}
			})
		})
	}
}

// head begins a request whose body has length bytes.
func head(length int) string {
	return fmt.Sprintf("POST /devices/oven/telemetry HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", token, length)
}

// send writes a request by hand and returns its answer.
func send(t *testing.T, conn net.Conn, text string) answer {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return receive(t, conn)
}

func receive(t *testing.T, conn net.Conn) answer {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := parse(response)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// took checks how long something took of the bubble's time.
func took(t *testing.T, start time.Time, want time.Duration) {
	t.Helper()
	if got := time.Since(start); got != want {
		t.Errorf("it took %v, want %v", got, want)
	}
}

func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := onPipes(t, newIntake(t, memlease.New(), &receiver{}))
		start := time.Now()
		send(t, g.dial(), head(len(hot))+hot[:5]).problem(t, 408, "")
		took(t, start, 10*time.Second)

		// Nobody gets more time by being refused.
		start = time.Now()
		send(t, g.dial(), strings.Replace(head(len(hot)), token, "x", 1)+hot[:5]).problem(t, 401, "")
		took(t, start, 10*time.Second)
	})
}

// The time for a body is not that for an outcome, and a connection outlives both.
func TestSlowOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := onPipes(t, intake(func(ctx context.Context, _ telemetry.Event, _ string) (telemetry.Verdict, error) {
			select {
			case <-time.After(29 * time.Second):
				return telemetry.VerdictAlerted, nil
			case <-ctx.Done():
				return telemetry.VerdictFailed, nil
			}
		}))
		conn := g.dial()
		for range 2 {
			start := time.Now()
			if _, err := io.WriteString(conn, head(len(hot))+hot[:5]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(9 * time.Second)
			send(t, conn, hot[5:]).want(t, 200, "ok")
			took(t, start, 38*time.Second)
		}
	})
}

// A body that breaks off is no reading, whatever of it came.
func TestBrokenBody(t *testing.T) {
	g := onSockets(t, intake(func(context.Context, telemetry.Event, string) (telemetry.Verdict, error) {
		t.Error("it was handed on")
		return telemetry.VerdictNormal, nil
	}))
	for _, text := range []string{head(len(hot)+1) + hot, strings.Replace(head(0), "Content-Length: 0", "Transfer-Encoding: chunked", 1) + "12\r\n" + hot} {
		conn := g.dial().(*net.TCPConn)
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		receive(t, conn).problem(t, 400, "")
	}
	send(t, g.dial(), strings.Replace(head(0), "Content-Length: 0", "Transfer-Encoding: chunked", 1)+"no chunk\r\n").problem(t, 400, "")

	for range 20 { // gone altogether
		conn := g.dial().(*net.TCPConn)
		if _, err := io.WriteString(conn, head(len(hot)+1)+hot); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetLinger(0); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	g.handler.Close(t.Context()) // hangs if one of them still counts
}

// What a receiver did not accept is answered at once, and is the caller's to send again; nothing is sent without it.
func TestFailed(t *testing.T) {
	for name, lost := range map[string]bool{"not accepted": false, "accepted without an answer": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{err: &notify.Error{Untaken: !lost, Err: errors.New("503 of the receiver")}, lost: lost}
				g := onPipes(t, newIntake(t, memlease.New(), r))
				start := time.Now()
				a := g.post("oven", hot, "Idempotency-Key", "once")
				a.want(t, 503, "failed")
				took(t, start, 0)
				if want := "receiver r did not accept the alert: 503 of the receiver"; a.Reason != "receiver" || a.Detail != want {
					t.Errorf("%q, %q", a.Reason, a.Detail)
				}

				r.mu.Lock()
				r.err = nil
				r.mu.Unlock()
				time.Sleep(2 * time.Minute)
				before := len(r.alerts())
				g.post("oven", hot, "Idempotency-Key", "once").want(t, 200, "ok")
				all := r.alerts()
				if before > 0 != lost || len(all) != before+1 || all[0].ID != all[before].ID {
					t.Errorf("the receiver got %d alerts, and then %+v", before, all)
				}
			})
		})
	}
}

func TestFailures(t *testing.T) {
	for _, test := range []struct {
		verdict        telemetry.Verdict
		err            error
		code           int
		reason, detail string
	}{
		{telemetry.VerdictFailed, nil, 503, "", ""},
		{telemetry.VerdictFailed, errors.New("secret of the house"), 503, "", ""},
		{telemetry.VerdictFailed, fmt.Errorf("wrapped: %w", &telemetry.UnsettledError{Reason: "receiver", Detail: "it is down"}), 503, "receiver", "it is down"},
		{telemetry.VerdictFailed, fmt.Errorf("wrapped: %w", telemetry.ErrBusy), 429, "", ""},
		{telemetry.VerdictFailed, fmt.Errorf("wrapped: %w", &telemetry.DecodeError{Reason: telemetry.ReasonNoDevice}), 422, "", ""},
	} {
		g := onSockets(t, intake(func(context.Context, telemetry.Event, string) (telemetry.Verdict, error) {
			return test.verdict, test.err
		}))
		switch a := g.post("oven", hot); test.code {
		case 503:
			a.want(t, 503, "failed")
			if a.Reason != test.reason || a.Detail != test.detail {
				t.Errorf("%v: got %q, %q, want %q, %q", test.err, a.Reason, a.Detail, test.reason, test.detail)
			}
		case 422:
			a.problem(t, 422, "no_device")
		default:
			a.problem(t, test.code, "")
		}
	}
}

func TestIdempotencyKey(t *testing.T) {
	keys := make(chan string, 1)
	in := intake(func(_ context.Context, _ telemetry.Event, key string) (telemetry.Verdict, error) {
		keys <- key
		return telemetry.VerdictNormal, nil
	})
	replicas := []*trigger{onSockets(t, in), onSockets(t, in)}
	first := map[string]string{} // key by what should share it
	owner := map[string]string{} // the other way
	for _, test := range []struct{ same, device, header string }{
		{"oven's a", "oven", "a"},
		{"oven's a", "oven", `"a"`},
		{"oven's A", "oven", "A"},
		{"kiln's a", "kiln", "a"},
		{"a's b", "a", "b"},
		{"b's a", "b", "a"},
		{"bc's a", "bc", "a"},
		{"c's ab", "c", "ab"},
		{"long", "oven", strings.Repeat("x", 255)},
		{"long and quoted", "oven", `"` + strings.Repeat("y", 255) + `"`},
		{"UUID", "oven", "8e03978e-40d5-43e8-bc93-6894a57f9324"},
	} {
		for _, g := range replicas {
			g.post(test.device, hot, "Idempotency-Key", test.header).want(t, 200, "normal")
			key := <-keys
			if want, ok := first[test.same]; ok && key != want {
				t.Errorf("%s: %q once and %q then", test.same, want, key)
			}
			if other, ok := owner[key]; ok && other != test.same {
				t.Errorf("%s has the key of %s", test.same, other)
			}
			first[test.same], owner[key] = key, test.same
		}
	}
	for range 10 { // without one, every reading is another
		g := replicas[0]
		g.post("oven", hot).want(t, 200, "normal")
		key := <-keys
		if _, ok := owner[key]; ok {
			t.Errorf("the key %q again", key)
		}
		owner[key] = ""
	}
	for key := range owner { // it ends up in blobs' names and headers
		if !regexp.MustCompile(`^[0-9a-f-]{32,36}$`).MatchString(key) {
			t.Errorf("the key %q", key)
		}
	}
}

// waiting is an intake that settles nothing until release is closed.
type waiting struct{ entered, release chan struct{} }

func newWaiting() waiting { return waiting{make(chan struct{}, 1000), make(chan struct{})} }

func (i waiting) Handle(ctx context.Context, _ telemetry.Event, _ string) (telemetry.Verdict, map[string]telemetry.Verdict, error) {
	i.entered <- struct{}{}
	select {
	case <-i.release:
		return telemetry.VerdictAlerted, nil, nil
	case <-ctx.Done():
		return telemetry.VerdictFailed, nil, nil
	}
}

// Callers that wait for an outcome leave room for readings that have none to wait for.
func TestWaitingCallersLeaveRoom(t *testing.T) {
	r := &slow{release: make(chan struct{})}
	g := onSockets(t, newIntake(t, memlease.New(), r))
	close(r.release)
	g.post("warned", hot).want(t, 200, "ok")
	r.release = make(chan struct{})

	// Of so many at a time all are taken, and of more none.
	var all sync.WaitGroup
	statuses := make(chan answer, 300)
	for i := range cap(statuses) {
		request := g.request("POST", fmt.Sprintf("/devices/oven-%d/telemetry", i), strings.NewReader(hot))
		all.Go(func() {
			a, err := g.do(request)
			if err != nil {
				t.Error(err)
			}
			statuses <- a
		})
	}
	for range cap(statuses) - 256 {
		(<-statuses).problem(t, 429, "")
	}
	g.post("kiln", cold).want(t, 200, "normal")
	g.post("warned", hot).want(t, 200, "throttled")
	g.post("kiln", "no reading").problem(t, 422, "malformed")
	g.post("kiln", hot).problem(t, 429, "")
	close(r.release)
	all.Wait()
	for range 256 {
		(<-statuses).want(t, 200, "ok")
	}
	g.post("kiln", hot).want(t, 200, "ok")
}

// A slow receiver takes alerts once it is released.
type slow struct{ release chan struct{} }

func (r *slow) Notify(ctx context.Context, _ ...notify.Alert) error {
	select {
	case <-r.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Only so many bodies are in memory at a time.
func TestBodiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := onPipes(t, newIntake(t, memlease.New(), &receiver{}))
		conns := make([]net.Conn, 256)
		for i := range conns {
			conns[i] = g.dial()
			if _, err := io.WriteString(conns[i], head(len(cold))+cold[:5]); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		g.post("kiln", cold).problem(t, 429, "")
		for _, conn := range conns {
			send(t, conn, cold[5:]).want(t, 200, "normal")
		}
		g.post("kiln", cold).want(t, 200, "normal")
	})
}

// A caller that goes away is waited for no longer.
func TestCallerGone(t *testing.T) {
	in := newWaiting()
	g := onSockets(t, in)
	ctx, cancel := context.WithCancel(t.Context())
	request := g.request("POST", "/devices/oven/telemetry", strings.NewReader(hot)).WithContext(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := g.do(request); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	<-in.entered
	cancel()
	all.Wait()
	g.handler.Close(t.Context()) // hangs if it still counts
}

func TestClose(t *testing.T) {
	for _, test := range []struct {
		name   string
		text   string        // what a caller has sent
		settle time.Duration // after Close was called; 0: never
		took   time.Duration // by Close, which has 15 s
		check  func(*testing.T, answer)
	}{
		{"nobody", "", 0, 0, nil},
		{"waits for an outcome", head(len(hot)) + hot, 5 * time.Second, 5 * time.Second, func(t *testing.T, a answer) { a.want(t, 200, "ok") }},
		{"does not wait for ever", head(len(hot)) + hot, 0, 15 * time.Second, func(t *testing.T, a answer) { a.want(t, 503, "failed") }},
		{"waits for a body", head(len(hot)) + hot[:5], 0, 10 * time.Second, func(t *testing.T, a answer) { a.problem(t, 408, "") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := newWaiting()
				g := onPipes(t, in)
				var all sync.WaitGroup
				if test.text != "" {
					conn := g.dial()
					all.Go(func() { test.check(t, send(t, conn, test.text)) })
				}
				synctest.Wait()
				start := time.Now()
				if test.settle > 0 {
					time.AfterFunc(test.settle, func() { close(in.release) })
				}
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
					defer cancel()
					g.handler.Close(ctx)
					took(t, start, test.took)
				})
				synctest.Wait()
				g.post("oven", hot).problem(t, 503, "")
				took(t, start, 0)
				all.Wait()
				g.post("oven", hot).problem(t, 503, "")
			})
		})
	}
}

// A body on its way when the time is up gets no more of it.
func TestCloseCutsBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := onPipes(t, newWaiting())
		conn, start := g.dial(), time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			send(t, conn, head(len(hot))+hot[:5]).problem(t, 503, "")
			took(t, start, 3*time.Second)
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		g.handler.Close(ctx)
		took(t, start, 3*time.Second)
		all.Wait()
	})
}
