//go:build unix

package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
)

const (
	ingestToken = "sixteen-characters-or-more"
	adminToken  = "sixteen-other-characters"
)

// An operator looks at a replica, opens a window, feeds it by HTTP and stops it.
func TestOperator(t *testing.T) {
	t.Parallel()
	busytest.Run(t, operator)
}

func operator(t *busytest.Attempt) {
	w := newWorld(t, emulators.StartAzurite(t.T).ConnectionString, settings{window: time.Hour, env: []string{"HTTP_INGEST_TOKEN=" + ingestToken, "HTTP_ADMIN_TOKEN=" + adminToken}})
	w.sites["a"] = freeAddr(t.T)
	site := "http://" + w.sites["a"]
	w.start("a")
	within(t, startWithin, "the worker is ready", func() bool {
		w.alive()
		status, _ := try(http.MethodGet, site+"/readyz", "")
		return status == http.StatusOK
	})

	second := alertworker(t.T, "second", append(slices.Clone(w.env), "HTTP_ADDR="+w.sites["a"]))
	second.wait(exitWithin, 1)
	if said := second.stderr.String(); !strings.Contains(said, "HTTP_ADDR: ") || !strings.Contains(said, "set another one") {
		t.Errorf("at an address that is taken a worker says %q", said)
	}

	// An alert, and its window.
	const device, encoded = "line 3/oven#7 ü", "line%203%2Foven%237%20%C3%BC"
	taken := func(n int) {
		t.Helper()
		within(t, startWithin, fmt.Sprintf("%d alerts are taken", n), func() bool { w.alive(); return len(w.receiver.Taken()) >= n })
	}
	w.publish(device, 70)
	taken(1)
	eventually(startWithin, func() bool {
		_, body := try(http.MethodGet, site+"/devices/"+encoded, "")
		return strings.Contains(body, `"closed"`)
	})
	expect(t.T, http.MethodGet, site+"/devices/"+encoded, "", http.StatusOK, `"state":"closed"`, `"device":"`+device+`"`)

	// Who may send readings can neither look at devices nor remove them, and the other way about.
	for _, request := range []struct{ token, method, path, want string }{
		{ingestToken, http.MethodGet, "", "HTTP_ADMIN_TOKEN"},
		{ingestToken, http.MethodDelete, "", "HTTP_ADMIN_TOKEN"},
		{adminToken, http.MethodPost, "/telemetry", "HTTP_INGEST_TOKEN"},
	} {
		status, body := tryWith(request.token, request.method, site+"/devices/"+encoded+request.path, "")
		if status != http.StatusUnauthorized || !strings.Contains(body, request.want) {
			t.Errorf("%s %q with the other token: %d %s", request.method, request.path, status, body)
		}
	}

	// The HTTP trigger shares everything with the hub.
	eventually(startWithin, func() bool {
		_, body := try(http.MethodPost, site+"/devices/"+encoded+"/telemetry", `{"temperature":72}`)
		return strings.Contains(body, "throttled")
	})
	expect(t.T, http.MethodPost, site+"/devices/"+encoded+"/telemetry", `{"temperature":72}`, http.StatusOK, `{"status":"throttled"}`)
	expect(t.T, http.MethodPost, site+"/devices/other/telemetry", `{"temperature":29.9}`, http.StatusOK, `{"status":"normal"}`)
	expect(t.T, http.MethodPost, site+"/devices/other/telemetry", `{"temperature":30}`, http.StatusOK, `{"status":"ok"}`)
	expect(t.T, http.MethodPost, site+"/devices/other/telemetry", `{"temperature":"hot"}`, http.StatusUnprocessableEntity, `"reason":`)
	taken(2)

	expect(t.T, http.MethodGet, site+"/healthz", "", http.StatusOK, "alive")
	expect(t.T, http.MethodGet, site+"/", "", http.StatusOK, "line 3/oven#7 ü", "other")
	within(t, startWithin, "the duties have a leader", func() bool {
		_, body := try(http.MethodGet, site+"/metrics", "")
		return strings.Contains(body, "alertworker_duty_leader 1\n")
	})
	expect(t.T, http.MethodGet, site+"/metrics", "", http.StatusOK,
		`alertworker_events_total{reason="ok",result="reading"} `, `result="delivered"} 2`, "alertworker_partitions_owned 8\n")

	// It says that it stops for as long as it does, and lets nobody wait for it in vain.
	h := newHold(func(notify.Alert) bool { return true }, true)
	w.receiver.BehaveAlways(h.behave)
	w.publish("last", 90)
	posted := make(chan int, 1)
	go func() {
		status, _ := try(http.MethodPost, site+"/devices/posted/telemetry", `{"temperature":90}`)
		posted <- status
	}()
	within(t, startWithin, "both alerts arrive", func() bool { w.alive(); devices, _, _ := h.seen(); return devices == 2 })
	w.workers["a"].signal(syscall.SIGTERM)
	within(t, startWithin, "the worker says that it drains", func() bool {
		status, body := try(http.MethodGet, site+"/readyz", "")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "draining")
	})
	if status := <-posted; status != http.StatusServiceUnavailable {
		t.Errorf("whoever waits for an outcome is answered %d, want 503", status)
	}
	w.receiver.BehaveAlways(notifytest.Take)
	close(h.release)
	w.workers["a"].wait(drainTimeout+exitWithin, 0)
}

// One replica leads the duties, whatever happens to leaders. What their metrics say is
// asked of one after the other: two that lead in turn are seconds apart.
func TestLeader(t *testing.T) {
	t.Parallel()
	busytest.Run(t, leader)
}

func leader(t *busytest.Attempt) {
	w := newWorld(t, emulators.StartAzurite(t.T).ConnectionString, settings{})
	w.sites["a"], w.sites["b"] = freeAddr(t.T), freeAddr(t.T)
	w.start("a", "b")
	asked := func(name string) bool {
		_, body := try(http.MethodGet, "http://"+w.sites[name]+"/metrics", "")
		return strings.Contains(body, "alertworker_duty_leader 1\n")
	}
	leads := func(name string) {
		t.Helper()
		within(t, startWithin, name+" leads", func() bool { w.alive(); return asked(name) })
	}
	first := ""
	within(t, startWithin, "somebody leads", func() bool {
		w.alive()
		for name := range w.workers {
			if asked(name) {
				first = name
			}
		}
		return first != ""
	})
	second := map[string]string{"a": "b", "b": "a"}[first]
	if asked(second) {
		t.Fatal("both lead")
	}

	// The first is frozen. When it goes on, it is no leader any more, at once.
	w.workers[first].freeze()
	leads(second)
	w.workers[first].thaw()
	for range 50 {
		if asked(first) {
			t.Fatalf("%s leads again, and so does %s", first, second)
		}
		w.pass(poll)
	}

	w.kill(second)
	leads(first)
	w.stop(first)
}

// freeAddr is one on loopback that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// client keeps no connections, whose goroutines would outlive a test.
var client = http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: startWithin}

// try asks once, with the token that the path wants. The status is 0 if there was no answer, and the body then tells why.
func try(method, url, body string) (status int, answer string) {
	token := adminToken
	if strings.HasSuffix(url, "/telemetry") {
		token = ingestToken
	}
	return tryWith(token, method, url, body)
}

func tryWith(token, method, url, body string) (status int, answer string) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// expect asks and checks the answer.
func expect(t *testing.T, method, url, body string, status int, parts ...string) {
	t.Helper()
	got, answer := try(method, url, body)
	if got != status {
		t.Errorf("%s %s %s: status %d, want %d: %s", method, url, body, got, status, answer)
		return
	}
	for _, part := range parts {
		if !strings.Contains(answer, part) {
			t.Errorf("%s %s: no %q in\n%.3000s", method, url, part, answer)
		}
	}
}
