//go:build unix

package e2e_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"

	"alertworker/internal/notify"
	"alertworker/internal/notify/webhook"
)

// A hold is a receiver's behaviour: it keeps workers waiting for the answers to
// some of their alerts.
type hold struct {
	which func(notify.Alert) bool // these; the others are taken and answered
	taken bool                    // these are taken at once, though not answered

	mu      sync.Mutex
	holders map[string]string // by device, the replica whose alert arrived last, held or not
	left    int               // requests whose client went away while they were held
	release chan struct{}     // closed: held alerts are taken, if they were not, and answered
}

func newHold(which func(notify.Alert) bool, taken bool) *hold {
	return &hold{which: which, taken: taken, holders: map[string]string{}, release: make(chan struct{})}
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
	if err != nil || !h.which(a) {
		take.ServeHTTP(w, again())
		h.arrived(a)
		return
	}
	if h.taken {
		take.ServeHTTP(httptest.NewRecorder(), again())
	}
	h.arrived(a)
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

func (h *hold) arrived(a notify.Alert) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holders[a.Device] = a.Replica
}

// arrivals returns how many devices' alerts arrived.
func (h *hold) arrivals() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.holders)
}

// busiest returns the replica that sent most of them.
func (h *hold) busiest() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, most := map[string]int{}, ""
	for _, replica := range h.holders {
		if n[replica]++; n[replica] > n[most] {
			most = replica
		}
	}
	return most
}

// held returns how many devices' alerts arrived last from the replica.
func (h *hold) held(replica string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, by := range h.holders {
		if by == replica {
			n++
		}
	}
	return n
}

// gone returns how many clients went away while they were held.
func (h *hold) gone() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.left
}
