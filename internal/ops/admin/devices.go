package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"alertworker/internal/httpapi"
	"alertworker/internal/humanize"
	"alertworker/internal/muting"
	"alertworker/internal/partition"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
	"alertworker/internal/throttle"
)

const (
	deviceTimeout  = 10 * time.Second // for all store calls of one request
	inspectTimeout = 8 * time.Second  // for all calls of the throttle store that look up a device
	inspectAtOnce  = 16
)

// retrySending is the Retry-After, in seconds, while an alert is being sent.
const retrySending = 5

// serveDevice serves the paths below /devices/.
func (a *Admin) serveDevice(w http.ResponseWriter, r *http.Request) {
	device, action, ok := httpapi.Device(r)
	of := sensor.ID{Device: sensor.Device(device), Name: sensor.Name(r.URL.Query().Get("sensor"))}

	switch {
	case ok && action == "telemetry" && a.options.Ingest != nil:
		a.options.Ingest.ServeHTTP(w, r)

	case ok && action == "telemetry":
		fail(w, http.StatusNotFound, "the HTTP trigger is off: set HTTP_INGEST_TOKEN to turn it on")

	case a.options.Token == "":
		fail(w, http.StatusNotFound, "the device endpoints are off: set HTTP_ADMIN_TOKEN to turn them on")

	case !ok, action != "":
		fail(w, http.StatusNotFound, "not found: the paths are /devices/{id} and /devices/{id}/telemetry; write a / in the id as %2F")

	case !httpapi.Authorized(r, a.options.Token):
		httpapi.Unauthorized(w, "HTTP_ADMIN_TOKEN")

	case isRead(r): // what is known without the store, if that does not respond
		f := a.findings(r.Context(), of, Readings{})
		status, lines := f.why()
		httpapi.Write(w, http.StatusOK, deviceView{
			Device:      of.Device,
			Sensor:      of.Name,
			Status:      status,
			Why:         strings.Join(lines, "\n"),
			Replica:     a.options.Replica,
			DeviceState: f.state,
			Receivers:   f.gates,
			Silences:    f.silences,
		})

	case r.Method == http.MethodDelete:
		a.forget(w, r, of)

	default:
		httpapi.NotAllowed(w, "DELETE, GET, HEAD")
	}
}

// forget has the worker end the alarms of a sensor, or of a device with all of its sensors, and expect nothing more of it.
func (a *Admin) forget(w http.ResponseWriter, r *http.Request, of sensor.ID) {
	why := fmt.Errorf("not kept in the checkpoint store within %v: try again", deviceTimeout)
	ctx, cancel := context.WithTimeoutCause(r.Context(), deviceTimeout, why)
	defer cancel()
	known, err := a.options.Worker.Forget(ctx, of)
	switch {
	case err != nil:
		w.Header().Set("Retry-After", strconv.Itoa(retrySending))
		fail(w, http.StatusServiceUnavailable, err.Error())

	case !known:
		fail(w, http.StatusNotFound,
			"this replica knows no alarm of the device and expects nothing of it: ask the replica that reads its partition")

	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// A deviceView is the response to GET /devices/{id}: what this replica and the throttle store
// know of a device, and what follows from it.
type deviceView struct {
	Device  string `json:"device"`
	Sensor  string `json:"sensor,omitempty"` // that was asked for; empty: the device with all of its sensors
	Status  string `json:"status"`           // one of the statuses in why.go
	Why     string `json:"why"`              // what `alertworker why` prints: facts, and what is to be done
	Replica string `json:"replica"`          // whose answer this is
	partition.DeviceState
	Receivers []gateState   `json:"receivers"`          // for each level of each rule
	Silences  []muting.Mute `json:"silences,omitempty"` // in force, that may be about the device
}

// findings looks everywhere for what is known of a sensor, or of a device with all of its sensors. hub is what that has of
// the device; the zero value if it was not asked.
func (a *Admin) findings(ctx context.Context, of sensor.ID, hub Readings) findings {
	f := findings{
		asked:  of,
		gates:  []gateState{},
		now:    a.now(),
		set:    &a.options.Rules,
		state:  a.options.Worker.Device(of),
		ended:  a.options.Recorder.last(func(d *pastDelivery) bool { return of.Covers(d.of()) }),
		hub:    hub,
		shared: map[string]string{},
	}
	f.similar = cmp.Or(f.state.Similar, hub.similar)
	f.state.Partitions = append([]string{}, f.state.Partitions...)
	slices.SortFunc(f.state.Partitions, telemetry.ComparePartitions)

	// What the device shares alerts by is what the hub says, else what its alarms and last alerts had.
	for _, e := range slices.Backward(f.ended) { // the latest comes last
		f.shared[e.Rule] = e.Shared
	}

	for _, s := range f.state.Alarms { // as of when it opened
		if s.Group != "" {
			f.shared[s.Rule] = s.Group
		}
	}

	maps.Copy(f.shared, hub.shared)

	var missing [2]error
	var asking sync.WaitGroup
	asking.Go(func() { missing[0] = a.options.Shared.look(ctx, of, &f) })
	asking.Go(func() { f.silences, missing[1] = a.silencesOf(ctx, of) })
	asking.Wait()

	sensors := f.sensors()
	if more := len(sensors) - shownSensors; more > 0 {
		missing[0] = errors.Join(missing[0], fmt.Errorf("not looked up: the windows of %s; ask about one, as %s/%s",
			humanize.Count(more, "other sensor"), of.Device, sensors[shownSensors].Name))
		sensors = sensors[:shownSensors]
	}

	unknown := f.windows(a.options.Receivers, append([]sensor.ID{of}, sensors...))
	f.inspect(ctx)
	if err := errors.Join(missing[0], missing[1], a.incidentsOf(ctx, &f), unknown); err != nil {
		f.missing = strings.Split(err.Error(), "\n")
	}

	slices.SortFunc(f.state.Alarms, func(x, y partition.AlarmState) int {
		return cmp.Or(cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Level, y.Level), cmp.Compare(x.Sensor, y.Sensor))
	})
	return f
}

// inspect adds to f what the store knows of its windows, of some at a time.
func (f *findings) inspect(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(
		ctx,
		inspectTimeout,
		fmt.Errorf("the throttle store did not answer within %v", inspectTimeout),
	)
	defer cancel()

	var asking errgroup.Group
	asking.SetLimit(inspectAtOnce)
	for i := range f.gates {
		g := &f.gates[i]
		asking.Go(func() error {
			var err error
			g.State, err = g.gate.Inspect(ctx, g.of)
			g.Suppressed = g.gate.Count(g.of)
			g.Notified = g.Notified && g.rule.Resolved // else nobody is notified
			if err != nil {
				g.Phase, g.Error = throttle.NotKnown, err.Error()
			}
			return nil
		})
	}

	_ = asking.Wait()
}

// shownSensors is of how many sensors windows are looked up when nobody asks for one.
const shownSensors = 8

// sensors returns those of the device that is asked for of which something is known that may have a window: a delivery,
// an alarm or a past delivery. It has none if a sensor is asked for.
func (f *findings) sensors() (all []sensor.ID) {
	known := map[string]bool{f.asked.Name: true}
	add := func(name string) {
		if f.asked.Name == "" && !known[name] {
			known[name] = true
			all = append(all, sensor.ID{Device: f.asked.Device, Name: name})
		}
	}

	for _, d := range f.state.Deliveries {
		add(d.Sensor)
	}

	for _, s := range f.state.Alarms {
		add(s.Sensor)
	}

	for _, e := range f.ended {
		add(e.Sensor)
	}

	return all
}

// windows adds to f those of a device or sensors at some receivers, not looked up yet. What the device shares is the
// device's. Its error says of which windows it is not known whose they are.
func (f *findings) windows(receivers []Receiver, of []sensor.ID) error {
	add := func(to Receiver, of sensor.ID, shared string) {
		f.gates = append(f.gates, gateState{
			Receiver: to.Name, Rule: to.Rule, Level: to.Level, Sensor: of.Name, Shared: shared,
			gate: to.Gate, of: of, rule: ruleOf(f.set, to.Rule),
		})
	}

	var unknown []string
	for _, to := range receivers {
		value, known := f.shared[to.Rule]
		switch {
		case to.Per == "" && (value == "" || ruleOf(f.set, to.Rule).Per == ""): // an alarm of before may have a value
			for _, one := range of {
				add(to, one, "")
			}
		case to.Per != "" && !known:
			unknown = append(unknown, to.Rule)
		case to.Per != "" && value != "":
			add(to, sensor.Of(value), to.Per+"="+value)
		}
	}

	if len(unknown) == 0 {
		return nil
	}

	slices.Sort(unknown)
	return fmt.Errorf("not looked up: the window of %s, which devices share; only the hub knows which this one has: "+
		"run `alertworker why %s --last 2h`", humanize.Or(slices.Compact(unknown)), f.asked.Device)
}
