package httpapi

import (
	"net"
	"net/http"
	"sync"
)

// A ConnLimit bounds the connections of a server. Of too many, the one is closed that has waited longest for a request,
// so that probes still get an answer; if none waits, the new one.
type ConnLimit struct {
	max int

	mu      sync.Mutex
	open    int
	turn    uint64              // counts up
	waiting map[net.Conn]uint64 // for a request, and since which turn
}

// NewConnLimit returns a limit of max connections.
func NewConnLimit(max int) *ConnLimit { return &ConnLimit{max: max, waiting: map[net.Conn]uint64{}} }

// Changed is http.Server.ConnState.
func (l *ConnLimit) Changed(c net.Conn, is http.ConnState) {
	if excess := l.change(c, is); excess != nil {
		_ = excess.Close() // its server notices
	}
}

// change notes what c is now, and returns a connection that is too many.
func (l *ConnLimit) change(c net.Conn, is http.ConnState) (excess net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, c)
	switch is {
	case http.StateNew, http.StateIdle:
		l.turn++
		l.waiting[c] = l.turn
	case http.StateClosed, http.StateHijacked:
		l.open--
	}

	if is != http.StateNew {
		return nil
	}

	if l.open++; l.open <= l.max {
		return nil
	}

	excess = c
	for other, since := range l.waiting {
		if since < l.waiting[excess] {
			excess = other
		}
	}

	delete(l.waiting, excess) // it is not closed twice
	return excess
}
