// Package admin serves the state of a replica to people and probes: health, readiness,
// metrics and a status page. It also lets an operator look at a device's window
// and end it. It reads state; no event passes through it.
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

// sampleEvery is how often Run reads the worker's counters.
const sampleEvery = 5 * time.Second

// A Worker is a [worker.Worker], as far as this package reads it.
type Worker interface {
	Stats() *worker.Stats
	Partitions() []worker.PartitionState
	Receivers() []worker.ReceiverState
	Device(device string) worker.DeviceState
}

// A Gate is one receiver's, a *throttle.Gate.
type Gate interface {
	Inspect(ctx context.Context, device string) (throttle.State, error)
	Reopen(ctx context.Context, device string) error
}

// A Receiver is one whose gate can be inspected.
type Receiver struct {
	Name string // as the worker's
	Gate Gate
}

// Options say what to serve. All are required except those that say what nil or empty means.
type Options struct {
	Source    string // what is read, as shown to people: "<namespace>/<hub>"
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

	// Standby returns why this replica waits for others to stop before it reads anything;
	// empty if it does not wait. Nil: it never waits.
	Standby func() string

	// Missing returns what the store lacks, for as long as no alert can leave; empty if it
	// lacks nothing. Nil: it never does.
	Missing func() string

	// Partitions returns the status of all partitions. It is called while
	// the status page is open, at most every 4 s. Nil: only this
	// replica's partitions are shown.
	Partitions func(context.Context) ([]telemetry.PartitionStatus, error)

	// Duties returns the status of the duties, and is called likewise. Nil: there are none.
	Duties func(context.Context) (leader.Status, error)

	Log *zap.Logger
}

// An Admin is an http.Handler. It must not be behind an http.ServeMux, which
// would clean the paths of devices. It is safe for concurrent use.
type Admin struct {
	Options
	started    time.Time
	draining   atomic.Bool
	partitions shared[[]telemetry.PartitionStatus]
	duties     shared[leader.Status]

	mu      sync.Mutex
	history history
	read    rates // of reading, for this replica's partitions
	commit  rates // of checkpoints, for all partitions
}

func New(o Options) *Admin {
	a := &Admin{Options: o, started: time.Now(), read: rates{}, commit: rates{}}
	a.sample()
	return a
}

// Drain reports that the replica is stopping: from now on it is not ready.
func (a *Admin) Drain() { a.draining.Store(true) }

// Run records the history for the status page's plots until ctx ends.
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

// totals returns the plotted counters, since the start.
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
		httpapi.Fail(w, httpapi.Problem{Status: http.StatusNotFound, Detail: "not found: the paths are /, /healthz, /readyz, /metrics and /devices/{id}"})
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		httpapi.NotAllowed(w, "GET, HEAD")
		return
	}
	serve(w, r)
}

// serveAlive succeeds as long as the process responds: a failure here would mean a
// restart, which helps with nothing else.
func serveAlive(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "alive\n") }

// serveReady reports whether the replica reads what it owns. A receiver that is down is
// named but does not change the status: its alerts wait, and another replica could not deliver them either.
func (a *Admin) serveReady(w http.ResponseWriter, _ *http.Request) {
	var b strings.Builder
	status := http.StatusOK
	switch state, reason := a.state(); state {
	case ready:
		b.WriteString("ready\n")
	case standby: // ready, or a rolling update would never stop the replicas that this one waits for
		fmt.Fprintf(&b, "ready: standing by: %s\n", reason)
	default:
		status = http.StatusServiceUnavailable
		fmt.Fprintf(&b, "not ready: %s\n", reason)
	}
	for _, r := range a.Worker.Receivers() {
		if r.Down {
			fmt.Fprintf(&b, "receiver %s is down and its alerts are waiting; next attempt %s\n", r.Name, until(time.Until(r.Retry)))
		}
	}
	plain(w, status, b.String())
}

// States of a replica.
const (
	ready      = "ready"
	starting   = "starting"
	draining   = "draining"
	missing    = "container missing"
	notReading = "not reading"
	standby    = "standing by"
)

// state returns the state of the replica and, unless it is ready, why.
func (a *Admin) state() (state, reason string) {
	r := a.Options.Reading()
	switch {
	case a.draining.Load():
		return draining, "draining: alerts in progress are being settled"
	case a.Standby != nil && a.Standby() != "":
		return standby, a.Standby()
	case a.Missing != nil && a.Missing() != "":
		return missing, a.Missing()
	case !r.Running:
		return starting, "starting: waiting for the hub and the checkpoint store to respond"
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
	_, _ = w.Write([]byte(text)) // fails only if the caller has gone
}
