package simulation

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"alertworker/internal/lease/caslease"
)

// maxBody is more than any request has, in bytes.
const maxBody = 8 << 20

// A door is what requests to a service come through, with all that befalls them on the way.
type door struct {
	world   *World
	at      string // its host
	service Service
	name    string
	next    http.Handler
}

// answer returns the service's answer to a request of a replica, nil if there is none.
func (d *door) answer(b *body, r *http.Request, body []byte) *httptest.ResponseRecorder {
	step := d.step(r, body)
	p := passage{
		door:    d,
		of:      b,
		service: d.of(r),
		step:    step,
		request: r,
		body:    body,
		began:   time.Now(),
	}

	h := p.pass()
	if h == nil {
		d.world.say(b.name, "%s %s: no answer", step, r.URL.Path)
		return nil
	}

	if step != Other || h.Code >= 400 {
		d.world.say(b.name, "%s %s: %d", step, r.URL.Path, h.Code)
	}

	return h
}

// latest is the most that a request takes to be done. What takes longer than a claim and a window may break the
// promise, which says so.
const latest = claimFor + minWindow - time.Second

// A passage is a request on its way to a service and back.
type passage struct {
	*door
	of      *body
	service Service
	step    Step
	request *http.Request
	body    []byte
	began   time.Time
	status  atomic.Int32 // of the answer; 0 before there is one
}

// pass takes the request to the service and its answer back. It returns nil if either gets lost.
func (p *passage) pass() *httptest.ResponseRecorder {
	w := p.world
	p.travel()
	_, isLossy := p.of.suffers(p.service, Lossy)
	lost := isLossy && w.chance(4)
	lostBefore := w.chance(2) && lost

	if !p.of.await(p.service) || !p.arrives(false, lostBefore) || time.Since(p.began) > latest {
		return nil
	}

	if r := p.refused(p.of, p.service); r.status != 0 {
		return p.refuse(r)
	}

	if h := p.unauthorized(); h != nil {
		return h
	}

	h := p.do(p.request, p.body)
	if status := w.chokesOn(p.name, p.body); status != 0 {
		h = p.refuse(refusal{status: status})
	}

	p.status.Store(int32(h.Code))
	if h.Code < http.StatusMultipleChoices {
		p.took()
	}

	if !p.arrives(true, lost) {
		return nil
	}

	p.travel()
	if !p.of.await(p.service) {
		return nil
	}

	return h
}

// travel takes as long as the request, or its answer, is on its way.
func (p *passage) travel() {
	w := p.world
	if slices.Contains(w.plan.Crawls, p.service) {
		time.Sleep(w.plan.CrawlsBy / 2)
	}

	longest := latency
	if _, isSlow := p.of.suffers(p.service, Slow); isSlow {
		longest = slowest
	}

	w.mu.Lock()
	takes := time.Duration(w.rng.Int64N(int64(longest)))
	w.mu.Unlock()
	time.Sleep(takes)
}

// took notes what the service has done, if the judge has to know of it.
func (p *passage) took() {
	switch p.step {
	case Checkpoint:
		p.world.checkpointed(p.request)
	case Claim, Record, GiveBack:
		p.world.windowWritten(p.step, leaseOf(p.request, p.body))
	}
}

// arrives has happen what befalls the request, or its answer after it was done, and reports whether it arrives.
func (p *passage) arrives(after, lost bool) bool {
	f := p.world.befalls(p.of, p.step, after)
	if lost {
		return false
	}

	switch f.Do {
	case Lose:
		return false
	case Late:
		time.Sleep(f.For)
	case Orphan:
		p.world.replace(p.of, restarts, p.of.kill)
		time.Sleep(f.For)
	case Twice:
		p.again(f.For)
	}

	return true
}

// again has the service do once more what is asked, after a time, unless it has refused it: a receiver that rejects an
// alert for good rejects its copy. A receiver remembers an id for a window.
func (p *passage) again(after time.Duration) {
	after = min(after, latest-time.Since(p.began), p.world.plan.Window-time.Second)
	p.world.later(after, func() {
		if p.status.Load() < http.StatusBadRequest {
			p.do(p.request, p.body)
		}
	})
}

// do has the service do what is asked.
func (d *door) do(r *http.Request, body []byte) *httptest.ResponseRecorder {
	again := *r
	again.Body = io.NopCloser(bytes.NewReader(body))
	h := httptest.NewRecorder()
	d.next.ServeHTTP(h, &again)

	return h
}

// of returns which service a request is for.
func (d *door) of(r *http.Request) Service {
	container, _ := blobOf(r)
	if d.service == Blobs && container == throttleContainer {
		return Windows
	}

	return d.service
}

// blobOf returns the container and the name of the blob that a request is about.
func blobOf(r *http.Request) (container, name string) {
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	container, name, _ = strings.Cut(path, "/")
	return container, name
}

// refused returns how the service answers the replica, or everybody; its status is 0 if it does what it is asked.
func (d *door) refused(b *body, s Service) refusal {
	if r, ok := b.suffers(s, Refuse); ok {
		return r
	}

	d.world.mu.Lock()
	defer d.world.mu.Unlock()

	r := d.world.downs[d.name]
	if !time.Now().Before(r.until) {
		return refusal{}
	}

	return r
}

// refuse answers as a service does that is in trouble.
func (d *door) refuse(r refusal) *httptest.ResponseRecorder {
	h := httptest.NewRecorder()
	date(h, d.world.now())
	if r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable {
		r.asks = cmp.Or(r.asks, time.Second)
	}

	if r.asks > 0 {
		h.Header().Set("Retry-After", strconv.Itoa(int(r.asks/time.Second)))
	}

	h.WriteHeader(r.status)
	fmt.Fprint(h, `{"code":"ServerBusy","message":"later"}`)

	return h
}

// date writes the time of a service.
func date(w http.ResponseWriter, now time.Time) {
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
}

// step says what a request does.
func (d *door) step(r *http.Request, body []byte) Step {
	asks := r.Method == http.MethodGet || r.Method == http.MethodHead
	container, name := blobOf(r)
	switch {
	case d.name == forgetter:
		return Other
	case d.service == Receivers:
		return Send
	case d.service == Items:
		return leaseStep(asks, leaseOf(r, body))
	case container == throttleContainer && r.URL.Query().Get("comp") == "lease":
		return Lock
	case container == throttleContainer && name != "": // whose record is in the metadata
		return leaseStep(asks, leaseOf(r, nil))
	case container == letterContainer && !asks:
		return Letter
	case container == checkpointContainer:
		return recordStep(asks, name)
	}

	return Other
}

// leaseStep says what becomes of a lease whose record is replaced by another.
func leaseStep(asks bool, of caslease.Document) Step {
	switch {
	case asks:
		return Ask
	case of.Key == "":
		return Other
	case of.Phase == "free":
		return GiveBack
	case of.HoldSec == claimFor.Seconds():
		return Claim
	}

	return Record
}

// recordStep says what is done with a record beside the checkpoints, by what is in its name.
func recordStep(asks bool, name string) Step {
	for _, s := range []struct {
		part          string
		asks, changes Step
	}{
		{"/ledger/", AskLedger, Ledger},
		{"/roster/", AskRoster, Roster},
		{"/checkpoint/", Other, Checkpoint},
		{"/ownership/", Other, Ownership},
		{"", Other, Settings},
	} {
		if strings.Contains(name, s.part) {
			if asks {
				return s.asks
			}

			return s.changes
		}
	}

	return Other
}
