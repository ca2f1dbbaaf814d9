//go:build unix

package e2e_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"alertworker/internal/lab/busytest"
	"alertworker/internal/lab/emulators"
	"alertworker/internal/notify/notifytest"
)

// Whatever would keep an alert from going out makes the heartbeat fail or stop, within a minute, and it
// comes back with what was broken.
func TestHeartbeat(t *testing.T) {
	busytest.Run(t, heartbeats)
}

// A monitor is a service that is called while all is well, and with /fail and why while it is not.
type monitor struct {
	*httptest.Server

	mu   sync.Mutex
	good time.Time // the last call that said so
	bad  time.Time
	why  string
}

func newMonitor(t *testing.T) *monitor {
	m := &monitor{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.mu.Lock()
		defer m.mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "/fail") {
			m.bad, m.why = time.Now(), string(body)
		} else {
			m.good = time.Now()
		}
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *monitor) last() (good, bad time.Time, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.good, m.bad, m.why
}

func heartbeats(t *busytest.Attempt) {
	azurite := emulators.StartAzurite(t.T)
	m := newMonitor(t.T)
	const interval = 4 * time.Second
	w := newWorld(t, azurite.ConnectionString, settings{env: []string{"HEARTBEAT_URL=interval=4s " + m.URL + "/token"}})
	w.sites["a"] = freeAddr(t.T)

	well := func(what string) {
		t.Helper()
		since := time.Now()
		within(t, startWithin, "the heartbeat says that all is well "+what, func() bool {
			good, bad, _ := m.last()
			return good.After(since) && good.After(bad)
		})
	}
	// ill waits until the heartbeat fails, or until three calls are missing.
	ill := func(what string, reasons ...string) {
		t.Helper()
		began := time.Now()
		within(t, startWithin, "the heartbeat fails "+what, func() bool {
			good, bad, why := m.last()
			if bad.After(began) {
				for _, r := range reasons {
					if strings.Contains(why, r) {
						return true
					}
				}
				t.Logf("%s: %s", what, why)
			}
			return len(reasons) == 0 && time.Since(good) > 3*interval
		})
		if took, limit := time.Since(began), t.Time(time.Minute); took > limit {
			t.Missed("the heartbeat failed only %v after %s, not within %v", took, what, limit)
		}
	}

	w.start("a", "b")
	w.ready()
	well("at the start")
	within(t, startWithin, "the page shows the heartbeat's calls", func() bool {
		_, page := try(http.MethodGet, "http://"+w.sites["a"]+"/", "")
		return strings.Contains(page, "heartbeat") && strings.Contains(page, "alerts go out")
	})

	w.receiver.BehaveAlways(notifytest.Status(503))
	stop := w.publishing(w.publish)
	ill("while the receiver is down", "receiver")
	w.receiver.BehaveAlways(notifytest.Take)
	well("when the receiver is back")
	stop()

	w.devhub.Stall()
	ill("while the hub is silent", "hub")
	w.devhub.Resume()
	w.devhub.Reset()
	well("when the hub is back")

	freeze(t.T, azurite.OS())
	ill("while the storage account is silent")
	_ = azurite.OS().Signal(syscall.SIGCONT)
	well("when the storage account is back")

	w.kill("a")
	w.kill("b")
	ill("after all workers were killed")
	w.start("a", "b")
	well("when workers are back")
}
