package devhub

import (
	"crypto/tls"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"alertworker/internal/lab/devhub/frames"
)

// faults is how the hub misbehaves at present.
type faults struct {
	latency   atomic.Int64 // in nanoseconds
	expiries  atomic.Int64 // times that all claims have expired
	longNames atomic.Bool  // are refused

	mu      sync.Mutex
	stalled chan struct{} // closed by Resume; nil if the hub is not stalled
	calls   callLimit
	// by what is refused: a node, a partition's links, links that begin after a value of an annotation, or what is choked
	refusals map[string]refusals
}

// refusals is how many requests or links more are refused, and how.
type refusals struct {
	n      int
	status int32  // of requests; 0 if there is no answer
	why    string // of links
}

// Reset drops all TCP connections without a word.
func (h *Hub) Reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		socket := c.socket
		if t, ok := socket.(*tls.Conn); ok {
			socket = t.NetConn()
		}

		if t, ok := socket.(*net.TCPConn); ok { // without its courtesies
			t.SetLinger(0)
		}

		c.kill()
	}
}

// Detach closes the links of all who read the partition, or any partition if it is
// "", with the error amqp:link:detach-forced. It returns how many there were.
func (h *Hub) Detach(partition string) int {
	return h.detach(partition, problem("amqp:link:detach-forced", "The link was closed by the service."))
}

// DetachWithoutError is Detach without an error, as the service does after hours.
func (h *Hub) DetachWithoutError(partition string) int { return h.detach(partition, nil) }

// detach closes the links of all who read the partition, or any partition if it is "", and says why.
func (h *Hub) detach(partition string, cause *frames.Error) int {
	links := h.readers(partition)
	for _, l := range links {
		l.conn.detach(l, cause)
	}

	return len(links)
}

// Stall makes the hub send nothing at all, heartbeats included, until Resume.
// It goes on receiving.
func (h *Hub) Stall() {
	h.faults.mu.Lock()
	defer h.faults.mu.Unlock()
	if h.faults.stalled == nil {
		h.faults.stalled = make(chan struct{})
	}
}

// Resume ends what Stall began.
func (h *Hub) Resume() {
	h.faults.mu.Lock()
	defer h.faults.mu.Unlock()
	if h.faults.stalled != nil {
		close(h.faults.stalled)
		h.faults.stalled = nil
	}
}

// SetLatency makes the hub wait for d before it looks at each frame it received;
// 0 ends that.
func (h *Hub) SetLatency(d time.Duration) { h.faults.latency.Store(int64(d)) }

// RefuseClaims makes the hub answer the next n claims with the given status,
// 401 for a key that is not valid or 500 for a service in trouble.
func (h *Hub) RefuseClaims(n int, status int) {
	h.faults.set(nodeCBS, refusals{n: n, status: int32(status)})
}

// Choke makes the hub take nothing more, be it a message or that the session ends, on the sessions on which the next n
// links are attached that send to a path: $cbs, $management or that of the hub. It says so by a window of 0.
func (h *Hub) Choke(path string, n int) { h.faults.set(choked+strings.ToLower(path), refusals{n: n}) }

const choked = "choked " // and the path

// DropClaims makes the hub take the next n claims for nothing, and not answer them.
func (h *Hub) DropClaims(n int) { h.faults.set(nodeCBS, refusals{n: n}) }

// ExpireClaims ends all claims, as if nobody had renewed them, and closes the links that they were for.
func (h *Hub) ExpireClaims() {
	h.faults.expiries.Add(1)
	h.detach("", problem("amqp:unauthorized-access", "ExpiredToken: The token is expired."))
}

// Expire drops all events of a partition, as retention does. Its last sequence number, offset and time stay.
func (h *Hub) Expire(partition string) { h.ExpireUpTo(partition, math.MaxInt64) }

// ExpireUpTo is Expire for the events up to a sequence number.
func (h *Hub) ExpireUpTo(partition string, sequence int64) {
	p := h.byID(partition)
	p.mu.Lock()
	defer p.mu.Unlock()

	last := p.last()
	p.newest = event{offset: last.offset, enqueued: last.enqueued}

	for len(p.events) > 0 && p.first <= sequence {
		p.bytes -= len(p.events[0].message)
		p.events = p.events[1:]
		p.first++
	}
}

// Stale makes the hub answer the next question about a partition as it was some events ago.
func (h *Hub) Stale(partition string, events int64) {
	p := h.byID(partition)
	p.mu.Lock()
	defer p.mu.Unlock()

	p.stale = events
}

// RefuseLongNames makes the hub refuse receivers whose name has more characters than some clients allow.
func (h *Hub) RefuseLongNames() { h.faults.longNames.Store(true) }

// RefuseManagement makes the hub answer the next n requests for the properties of the hub and its partitions
// with the given status.
func (h *Hub) RefuseManagement(n int, status int) {
	h.faults.set(nodeManagement, refusals{n: n, status: int32(status)})
}

// ManagementLimit is how many requests for the properties of the hub and its partitions the service documents to answer
// a second. That of a consumer group is here that of the hub: such requests name none.
const ManagementLimit = 50

// LimitManagement makes the hub answer no more than n requests a second for the properties of the hub and its
// partitions, in place of ManagementLimit; it refuses the others as busy, and counts them as well, so that who asks on
// gets no answer.
func (h *Hub) LimitManagement(n int) {
	h.faults.mu.Lock()
	defer h.faults.mu.Unlock()
	h.faults.calls = callLimit{perSecond: n}
}

// A callLimit bounds how many requests are answered a second.
type callLimit struct {
	perSecond int
	last      []time.Time // the requests within the last second
}

// limitManagement reports whether a request of now is one too many.
func (f *faults) limitManagement() bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	c := &f.calls
	now := time.Now()
	for len(c.last) > 0 && now.Sub(c.last[0]) >= time.Second {
		c.last = c.last[1:]
	}

	c.last = append(c.last, now)

	return len(c.last) > c.perSecond
}

// RefuseLinks makes the hub refuse the next n links to a partition, and say why.
func (h *Hub) RefuseLinks(partition string, n int, why string) {
	h.faults.set(partition, refusals{n: n, why: why})
}

func (f *faults) set(what string, r refusals) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.refusals[what] = r
}

// refuse takes one of the refusals that are due, and reports whether there was one.
func (f *faults) refuse(what string) (r refusals, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()

	r = f.refusals[what]
	if r.n == 0 {
		return refusals{}, false
	}

	r.n--
	f.refusals[what] = r

	return r, true
}

// RefuseOffsets makes the hub refuse links that begin after an offset, as after
// geo-replication has changed their form.
func (h *Hub) RefuseOffsets() { h.faults.set(annotationOffset, refusals{n: math.MaxInt}) }

// RefuseSequences makes the hub refuse links that begin after a sequence number.
func (h *Hub) RefuseSequences() { h.faults.set(annotationSequence, refusals{n: math.MaxInt}) }

// Mute makes the hub send nothing more on the links that read a partition now, as a relay does
// that drops what comes on one channel. It returns how many there were.
func (h *Hub) Mute(partition string) int {
	links := h.readers(partition)
	for _, l := range links {
		l.conn.mu.Lock()
		l.muted = true
		l.conn.mu.Unlock()
	}

	return len(links)
}

// maxName is how many characters the name of a receiver may have.
const maxName = 64

// refuseLink returns why the link of a receiver, which begins where selector says, is refused, nil if it is not.
func (f *faults) refuseLink(partition, receiver, selector string) *frames.Error {
	if len(receiver) > maxName && f.longNames.Load() {
		return problem(condArgument, "The receiver name '%s' is longer than %d characters.", receiver, maxName)
	}

	annotation, value, _ := strings.Cut(strings.TrimPrefix(selector, "amqp.annotation."), " > ")
	isPosition := value != "'-1'" && value != "'@latest'"
	if isPosition {
		if _, ok := f.refuse(annotation); ok {
			return problem("com.microsoft:georeplication:invalid-offset", "The supplied position is invalid: %s", selector)
		}
	}

	if r, ok := f.refuse(partition); ok {
		return problem("com.microsoft:server-busy", "%s", r.why)
	}

	return nil
}

// stall returns a channel that is closed when the stall ends, nil if there is none.
func (f *faults) stall() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stalled
}
