//go:build unix

package e2e_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"

	"alertworker/internal/notify"
	"alertworker/internal/notify/webhook"
)

// A hold is a receiver's behaviour: it keeps workers waiting for the answers to
// some of their alerts.
type hold struct {
	which   func(notify.Alert) bool // these; the others are taken and answered
	taken   bool                    // these are taken at once, though not answered
	release chan struct{}           // closed: they are taken, if they were not, and answered

	mu      sync.Mutex
	devices map[string]bool // whose alerts arrived, held or not
	held    map[string]int  // alerts that were held, by replica
	left    int             // of these, whose client went away
}

func newHold(which func(notify.Alert) bool, taken bool) *hold {
	return &hold{which: which, taken: taken, release: make(chan struct{}), devices: map[string]bool{}, held: map[string]int{}}
}

func (h *hold) behave(w http.ResponseWriter, r *http.Request, take http.Handler, stop <-chan struct{}) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	again := func() *http.Request {
		r.Body = io.NopCloser(bytes.NewReader(body))
		return r
	}
	a, err := webhook.Decode(body)
	held := err == nil && h.which(a)
	if !held {
		take.ServeHTTP(w, again())
	} else if h.taken {
		take.ServeHTTP(httptest.NewRecorder(), again())
	}
	h.arrived(a, held)
	if !held {
		return
	}
	select {
	case <-h.release:
		if h.taken {
			w.WriteHeader(http.StatusNoContent)
		} else {
			take.ServeHTTP(w, again())
		}
	case <-r.Context().Done():
		h.mu.Lock()
		defer h.mu.Unlock()
		h.left++
	case <-stop:
	}
}

func (h *hold) arrived(a notify.Alert, held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.devices[a.Device] = true
	if held {
		h.held[a.Replica]++
	}
}

// seen returns of how many devices alerts arrived, held or not, how many alerts of
// which replicas were held, and of how many of them the client went away.
func (h *hold) seen() (devices int, held map[string]int, left int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.devices), maps.Clone(h.held), h.left
}

// holding returns a replica that has had an alert held, the one that had most;
// empty if there is none.
func (h *hold) holding() (replica string) {
	_, held, _ := h.seen()
	for name, n := range held {
		if n > held[replica] {
			replica = name
		}
	}
	return replica
}
