package simulation

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"alertworker/internal/lease/caslease"
)

// maxBody is more than any request has, in bytes.
const maxBody = 8 << 20

// A held answer is complete before it is sent.
type held struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *held) Header() http.Header { return h.header }

// WriteHeader sets the status, once.
func (h *held) WriteHeader(status int) {
	if h.status == 0 {
		h.status = status
	}
}

func (h *held) Write(b []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	return h.body.Write(b)
}

// A door is what requests to a service come through, with all that befalls them on the way.
type door struct {
	world   *World
	at      string // its host
	service Service
	name    string
	next    http.Handler
}

// answer returns the service's answer to a request of a replica, nil if there is none.
func (d *door) answer(b *body, r *http.Request, body []byte) *held {
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

	if step != Other || h.status >= 400 {
		d.world.say(b.name, "%s %s: %d", step, r.URL.Path, h.status)
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
func (p *passage) pass() *held {
	w := p.world
	p.travel()
	lost := p.of.isLossy(p.service) && w.chance(4)
	lostBefore := w.chance(2) && lost

	if !p.of.await(p.service) {
		return nil
	}

	if !p.arrives(false, lostBefore) {
		return nil
	}

	if time.Since(p.began) > latest {
		return nil
	}

	if r := p.refused(p.of, p.service); r.status != 0 {
		h := p.refuse(r.status)
		if r.asks > 0 {
			h.retryAfter(r.asks)
		}

		return h
	}

	if h := p.unauthorized(); h != nil {
		return h
	}

	h := p.do(p.request, p.body)
	if status := w.chokesOn(p.name, p.body); status != 0 {
		h = p.refuse(status)
	}

	p.status.Store(int32(h.status))
	if h.status < http.StatusMultipleChoices {
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
	if plan := p.world.plan; slices.Contains(plan.Crawls, p.service) {
		time.Sleep(plan.CrawlsBy / 2)
	}

	longest := latency
	if p.of.isSlow(p.service) {
		longest = slowest
	}

	p.world.pause(longest)
}

// took notes what the service has done, if the judge has to know of it.
func (p *passage) took() {
	p.beat()
	switch p.step {
	case Checkpoint:
		p.world.checkpointed(p.request)
	case Letter:
		p.world.gaveUp(p.body)
	case Claim, Record, GiveBack:
		p.world.windowWritten(p.step, leaseOf(p.request, p.body))
	}
}

// arrives has happen what befalls the request, or its answer after it was done, and reports whether it arrives.
func (p *passage) arrives(after, lost bool) bool {
	f, ok := p.world.befalls(p.of, p.step, after)
	if lost {
		return false
	}

	if !ok {
		return true
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
func (d *door) do(r *http.Request, body []byte) *held {
	again := *r
	again.Body = io.NopCloser(bytes.NewReader(body))
	h := &held{header: http.Header{}}
	d.next.ServeHTTP(h, &again)
	h.WriteHeader(http.StatusOK)

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
	if r := b.refused(s); r.status != 0 {
		return r
	}
	return d.world.down(d.name)
}

// refuse answers as a service does that is in trouble.
func (d *door) refuse(status int) *held {
	h := &held{header: http.Header{}, status: status}
	h.header.Set("Date", d.world.now().UTC().Format(http.TimeFormat))
	asksToWait := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	if asksToWait {
		h.header.Set("Retry-After", "1")
	}

	fmt.Fprint(&h.body, `{"code":"ServerBusy","message":"later"}`)

	return h
}

// step says what a request does.
func (d *door) step(r *http.Request, body []byte) Step {
	asks := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch d.service {
	case Receivers:
		if d.name == forgetter {
			return Other
		}
		return Send
	case Items:
		return leaseStep(asks, leaseOf(r, body))
	}

	container, name := blobOf(r)
	switch container {
	case throttleContainer:
		return windowStep(r, asks, name)
	case letterContainer:
		return letterStep(asks)
	case checkpointContainer:
		return recordStep(asks, name)
	}

	return Other
}

// windowStep says what is done with a window in blobs, whose record is in the metadata.
func windowStep(r *http.Request, asks bool, name string) Step {
	if r.URL.Query().Get("comp") == "lease" {
		return Lock
	}

	if name == "" {
		return Other
	}

	return leaseStep(asks, leaseOf(r, nil))
}

// letterStep says what is done with a dead letter.
func letterStep(asks bool) Step {
	if asks {
		return Other
	}

	return Letter
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

// recordSteps are what is done with records beside the checkpoints, by what is in their names; the last is for all
// others.
var recordSteps = []struct {
	part          string
	asks, changes Step
}{
	{"/ledger/", AskLedger, Ledger},
	{"/roster/", AskRoster, Roster},
	{"/checkpoint/", Other, Checkpoint},
	{"/ownership/", Other, Ownership},
	{"", Other, Settings},
}

// recordStep says what is done with a record beside the checkpoints.
func recordStep(asks bool, name string) Step {
	for _, s := range recordSteps {
		switch {
		case !strings.Contains(name, s.part):
		case asks:
			return s.asks
		default:
			return s.changes
		}
	}

	return Other
}
