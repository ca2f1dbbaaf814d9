// Package admin shows people and probes how a replica does: health, readiness,
// metrics and a status page, and lets an operator look at one device's window
// and open it again. It reads state; it is never on the way of an event.
package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/httpapi"
	"alertworker/internal/ops/leader"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// sampleEvery is how often Run looks at the worker's counters.
const sampleEvery = 5 * time.Second

// A Worker is a [worker.Worker], read.
type Worker interface {
	Stats() *worker.Stats
	Partitions() []worker.PartitionState
	Receivers() []worker.ReceiverState
}

// A Gate is one receiver's, a *throttle.Gate.
type Gate interface {
	Inspect(ctx context.Context, device string) (throttle.State, error)
	Reopen(ctx context.Context, device string) error
}

// A Receiver is one whose gate can be looked at.
type Receiver struct {
	Name string // as the worker's
	Gate Gate
}

// Options say what to show. All are required but those that say what nil or empty means.
type Options struct {
	Source    string // what is read, for people: "<namespace>/<hub>"
	Replica   string
	Version   string
	Threshold float64
	Window    time.Duration
	Worker    Worker
	Receivers []Receiver
	Recorder  *Recorder    // has seen the alerts
	Metrics   http.Handler // GET /metrics
	Ingest    http.Handler // POST /devices/{id}/telemetry; nil turns it off
	Token     string       // HTTP_ADMIN_TOKEN, for GET /devices/{id} and DELETE /devices/{id}/window; empty turns them off

	// Reading says what this replica reads.
	Reading func() telemetry.SourceStats

	// Standby says why this replica waits for others to stop before it reads anything;
	// empty if it does not. Nil: it never does.
	Standby func() string

	// Partitions asks what is shared about all partitions. It is called while
	// somebody looks at the status page, at most every 4 s. Nil: only this
	// replica's partitions are shown.
	Partitions func(context.Context) ([]telemetry.PartitionStatus, error)

	// Duties asks for the duties likewise. Nil: there are none.
	Duties func(context.Context) (leader.Status, error)

	Log *zap.Logger
}

// An Admin serves HTTP, and must be asked directly: an http.ServeMux before it
// would clean the paths of devices. It is safe for concurrent use.
type Admin struct {
	Options
	started    time.Time
	draining   atomic.Bool
	partitions shared[[]telemetry.PartitionStatus]
	duties     shared[leader.Status]

	mu      sync.Mutex
	history history
	read    rates // of this replica's partitions
	commit  rates // of all, by their checkpoints
}

func New(o Options) *Admin {
	a := &Admin{Options: o, started: time.Now(), read: rates{}, commit: rates{}}
	a.sample()
	return a
}

// Drain says that the replica stops: it is not ready any more.
func (a *Admin) Drain() { a.draining.Store(true) }

// Run keeps the history that the status page plots, until ctx ends.
func (a *Admin) Run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			a.sample()
		case <-ctx.Done():
			return
		}
	}
}

func (a *Admin) sample() {
	now, totals, states := time.Now(), a.totals(), a.Worker.Partitions()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.history.add(now, totals)
	a.read.forgetBefore(now)
	for _, s := range states {
		if !s.ReadUntil.IsZero() {
			a.read.observe(s.Partition, s.Read.Sequence, now)
		}
	}
}

// totals reads what the plots show, since the start.
func (a *Admin) totals() totals {
	stats := a.Worker.Stats()
	t := totals{readings: stats.Events[0].Load(), suppressed: stats.Suppressed.Load()}
	for _, r := range a.Worker.Receivers() {
		t.alerts += r.Taken
	}
	return t
}

func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	httpapi.LimitBody(w, r)
	path := r.URL.EscapedPath()
	if strings.HasPrefix(path, "/devices/") {
		a.serveDevice(w, r)
		return
	}
	var serve http.HandlerFunc
	switch path {
	case "/":
		serve = a.servePage
	case "/healthz":
		serve = serveAlive
	case "/readyz":
		serve = a.serveReady
	case "/metrics":
		serve = a.Metrics.ServeHTTP
	default:
		httpapi.Fail(w, httpapi.Problem{Status: http.StatusNotFound, Detail: "here are /, /healthz, /readyz, /metrics and /devices/{id}"})
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		httpapi.NotAllowed(w, "GET, HEAD")
		return
	}
	serve(w, r)
}

// serveAlive answers as long as the process does: nothing that a restart would not
// mend makes it fail.
func serveAlive(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "alive\n") }

// serveReady tells whether the replica reads what it owns. A receiver that is down is
// named and changes nothing: alerts wait for it, and no other replica would do better.
func (a *Admin) serveReady(w http.ResponseWriter, _ *http.Request) {
	var b strings.Builder
	status := http.StatusOK
	switch state, reason := a.state(); state {
	case ready:
		b.WriteString("ready\n")
	case standby: // or a rolling update would never stop those that this one waits for
		fmt.Fprintf(&b, "ready: standing by: %s\n", reason)
	default:
		status = http.StatusServiceUnavailable
		fmt.Fprintf(&b, "not ready: %s\n", reason)
	}
	for _, r := range a.Worker.Receivers() {
		if r.Down {
			fmt.Fprintf(&b, "receiver %s is down, its alerts wait: next attempt %s\n", r.Name, until(time.Until(r.Retry)))
		}
	}
	plain(w, status, b.String())
}

// States of a replica.
const (
	ready      = "ready"
	starting   = "starting"
	draining   = "draining"
	notReading = "not reading"
	standby    = "standing by"
)

// state says how the replica does and, unless it is ready, why.
func (a *Admin) state() (state, reason string) {
	r := a.Options.Reading()
	switch {
	case a.draining.Load():
		return draining, "draining: what is in flight is being settled"
	case a.Standby != nil && a.Standby() != "":
		return standby, a.Standby()
	case !r.Running:
		return starting, "starting: the hub and the checkpoint store have yet to answer"
	case r.Reading < r.Owned:
		return notReading, fmt.Sprintf("%d of %d owned partitions are not being read", r.Owned-r.Reading, r.Owned)
	}
	return ready, ""
}

func plain(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // a caller that has gone away does not listen
}
