// Package admin serves the state of a replica to people and probes: health, readiness,
// metrics and a status page. It also lets an operator look at a device, remove it, and mute alerts.
// It reads state; no event passes through it.
package admin

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/delivery"
	"alertworker/internal/httpapi"
	"alertworker/internal/ops/status"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

// A Worker is a [worker.Worker], as far as this package reads it.
type Worker interface {
	Stats() *worker.Stats
	Partitions() []partition.State
	Receivers() []delivery.ReceiverState
	Device(of sensor.ID) partition.DeviceState
	AlarmCounts() []partition.AlarmCounts
	Unreadable() partition.Unreadables
	Alarms(limit int) []partition.AlarmState
	Forget(ctx context.Context, of sensor.ID) (known bool, err error)
}

// A Gate is one receiver's, a *recent.Gate.
type Gate interface {
	Inspect(ctx context.Context, of sensor.ID) (throttle.State, error)
	Count(of sensor.ID) int64
}

// A Receiver is one whose gate can be inspected, for one level of one rule.
type Receiver struct {
	Name        string // as the worker's
	Rule, Level string
	Per         string // the rule's, if the gate is of what devices share by it; empty if it is of devices
	Gate        Gate
}

// Options say what to serve. All are required except those that say what nil or empty means.
type Options struct {
	Source    string // what is read, as shown to people: "<namespace>/<hub>"
	Replica   string
	Version   string
	Rules     rules.Set
	Zone      *time.Location // of times that people read; nil is UTC
	Started   time.Time      // the replica
	Worker    Worker         // nil while the replica is starting
	Receivers []Receiver
	Recorder  *Recorder    // has seen the alerts
	Metrics   http.Handler // GET /metrics
	Ingest    http.Handler // POST /devices/{id}/telemetry; nil turns it off
	Hosts     []string     // by which people reach the page, besides what httpapi.OwnHost knows
	// HTTP_ADMIN_TOKEN, for /silences, and for what /devices has besides telemetry; empty turns them off
	Token string

	Silences Silences // of all replicas; nil while the replica is starting

	Shared Shared // what replicas keep of devices; the zero Shared: nothing

	Incidents Incidents // of all replicas; nil while the replica is starting

	// Self is what this replica says about itself, such as whether alerts are going out.
	Self func() status.Statement

	// Partitions returns the status of all partitions. Run calls it while
	// the status page is open, at most every 4 s. Nil: only this
	// replica's partitions are shown.
	Partitions func(context.Context) ([]telemetry.PartitionStatus, error)

	// Others returns what Report returned on each other replica, of late, and is called likewise. Nil: there are none.
	Others func(context.Context) ([][]byte, error)

	Log *zap.Logger
}

// An Admin is an http.Handler. It must not be behind an http.ServeMux, which
// would clean the paths of devices. It is safe for concurrent use.
type Admin struct {
	options    Options
	starting   bool // there is no worker yet
	partitions *shared[[]telemetry.PartitionStatus]
	others     *shared[[]Snapshot]
	incidents  *shared[openIncidents]

	mu      sync.Mutex
	counted totals           // at the last sample
	minutes map[int64]totals // counts in each of the last minutes, by minutes since 1970
}

// New returns an Admin that has taken its first sample. While there is no worker it serves what a replica that starts
// has.
func New(o Options) *Admin {
	a := &Admin{
		options:    o,
		starting:   o.Worker == nil,
		minutes:    map[int64]totals{}, // what was counted before is part of this one
		partitions: newShared(o.Partitions),
		others:     newShared(readReports(o.Others)),
		incidents:  newShared(askIncidents(o.Incidents)),
	}
	if a.starting {
		a.options.Worker = worker.New(worker.Config{Partitions: partition.Config{Log: o.Log}}) // one that reads nothing
	}

	a.sample()
	return a
}

// Run records the history for the status page's plots, and asks what the page wants to know
// of services, until ctx ends.
func (a *Admin) Run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	for _, run := range []func(context.Context, *zap.Logger){a.partitions.run, a.others.run, a.incidents.run} {
		asking.Go(func() { run(ctx, a.options.Log) })
	}

	for backoff.Sleep(ctx, sampleEvery) {
		a.sample()
	}
}

// ServeHTTP serves devices and silences to whoever has the token, and the state to everybody.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	httpapi.LimitBody(w, r)
	path := r.URL.EscapedPath()
	isDevice := strings.HasPrefix(path, "/devices")
	isSilence := path == "/silences" || strings.HasPrefix(path, "/silences/")
	switch {
	case !isDevice && !isSilence:
		a.serveState(w, r)

	case a.starting:
		w.Header().Set("Retry-After", strconv.Itoa(retrySending))
		fail(w, http.StatusServiceUnavailable, "this replica is starting: try again")

	case isDevice:
		a.serveDevice(w, r)

	default:
		a.serveSilences(w, r)
	}
}

// serveState serves what anybody may read.
//
// /readyz says whether the replica does what it is for. It is not ready, 503, while it starts or drains, and while it
// cannot use the hub, the checkpoint store or the throttle store, or does not read a partition that it owns. A receiver
// that is down is named but does not change the status: its alerts wait, and another replica could not deliver them
// either. A replica that stands by is ready, or a rolling update would never stop those that it waits for.
func (a *Admin) serveState(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	// Probes and Prometheus come by whatever name, and what they get names no device.
	isForMachines := slices.Contains([]string{"/healthz", "/readyz", "/metrics"}, path)
	switch {
	case !isForMachines && path != "/" && path != "/status":
		fail(w, http.StatusNotFound,
			"not found: the paths are /, /healthz, /readyz, /status, /metrics, /silences and /devices/{id}")

	case !isRead(r):
		httpapi.NotAllowed(w, "GET, HEAD")

	case !isForMachines && !httpapi.OwnHost(r.Host, a.options.Hosts):
		fail(w, http.StatusMisdirectedRequest,
			"this is not served for the host name of the request, which may be that of another site: name it in PUBLIC_URL "+
				"or HTTP_HOSTS, or use an address")

	case path == "/":
		a.servePage(w, r)

	case path == "/healthz":
		// It succeeds as long as the process responds: a failure would mean a restart, which helps with nothing else.
		httpapi.Text(w, http.StatusOK, "alive\n")

	case path == "/readyz":
		report := a.options.Self().Status
		code := http.StatusOK
		if !report.Ready {
			code = http.StatusServiceUnavailable
		}
		httpapi.Text(w, code, report.Lines(a.now()))

	case path == "/status": // the same as JSON, always with 200
		httpapi.Write(w, http.StatusOK, struct {
			Replica string `json:"replica"`
			status.Report
		}{a.options.Replica, a.options.Self().Status})

	default:
		a.options.Metrics.ServeHTTP(w, r)
	}
}

// fail answers with a status and what is wrong.
func fail(w http.ResponseWriter, status int, detail string) {
	httpapi.Fail(w, httpapi.Problem{Status: status, Detail: detail})
}

// isRead reports whether r asks for something and changes nothing.
func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// now is the time in the zone of those who read it.
func (a *Admin) now() time.Time { return time.Now().In(cmp.Or(a.options.Zone, time.UTC)) }
