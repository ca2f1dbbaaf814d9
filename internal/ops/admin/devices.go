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

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"alertworker/internal/httpapi"
	"alertworker/internal/humanize"
	"alertworker/internal/muting"
	"alertworker/internal/partition"
	"alertworker/internal/rules"
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

// A deviceHandler serves a path below that of a device, about one of its sensors or all of it.
type deviceHandler func(w http.ResponseWriter, r *http.Request, of sensor.ID)

// serveDevice serves the paths below /devices/.
func (a *Admin) serveDevice(w http.ResponseWriter, r *http.Request) {
	device, action, ok := httpapi.Device(r)
	if ok && action == "telemetry" {
		a.serveTelemetry(w, r)
		return
	}

	if a.Token == "" {
		fail(w, http.StatusNotFound, "the device endpoints are off: set HTTP_ADMIN_TOKEN to turn them on")
		return
	}

	methods, known := map[string]map[string]deviceHandler{
		"":       {http.MethodGet: a.showDevice, http.MethodHead: a.showDevice, http.MethodDelete: a.forget},
		"window": {http.MethodDelete: a.endWindow},
	}[action]
	switch {
	case !ok || !known:
		fail(
			w,
			http.StatusNotFound,
			"not found: the paths are /devices/{id}, /devices/{id}/window and /devices/{id}/telemetry; write a / in "+
				"the id as %2F",
		)

	case !httpapi.Authorized(r, a.Token):
		httpapi.Unauthorized(w, "HTTP_ADMIN_TOKEN")

	case methods[r.Method] == nil:
		httpapi.NotAllowed(w, strings.Join(slices.Sorted(maps.Keys(methods)), ", "))

	default:
		methods[r.Method](w, r, sensor.ID{Device: sensor.Device(device), Name: sensor.Name(r.URL.Query().Get("sensor"))})
	}
}

// serveTelemetry serves the HTTP trigger, if it is on.
func (a *Admin) serveTelemetry(w http.ResponseWriter, r *http.Request) {
	if a.Ingest == nil {
		fail(w, http.StatusNotFound, "the HTTP trigger is off: set HTTP_INGEST_TOKEN to turn it on")
		return
	}
	a.Ingest.ServeHTTP(w, r)
}

// forget has the worker end the alarms of a sensor, or of a device with all of its sensors, and expect nothing more of it.
func (a *Admin) forget(w http.ResponseWriter, r *http.Request, of sensor.ID) {
	why := fmt.Errorf("not kept in the checkpoint store within %v: try again", deviceTimeout)
	ctx, cancel := context.WithTimeoutCause(r.Context(), deviceTimeout, why)
	defer cancel()
	known, err := a.Worker.Forget(ctx, of)
	switch {
	case err != nil:
		w.Header().Set("Retry-After", strconv.Itoa(retrySending))
		fail(w, http.StatusServiceUnavailable, err.Error())

	case !known:
		fail(
			w,
			http.StatusNotFound,
			"this replica knows no alarm of the device and expects nothing of it: ask the replica that reads its partition",
		)

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

// showDevice answers with what is known without the store if that does not respond.
func (a *Admin) showDevice(w http.ResponseWriter, r *http.Request, of sensor.ID) {
	httpapi.Write(w, http.StatusOK, a.deviceView(a.findings(r.Context(), of, a.sharedIn(r))))
}

// sharedIn returns by the names of rules what a device shares their alerts by, as far as the query of r says:
// site=berlin, or site= if it has none.
func (a *Admin) sharedIn(r *http.Request) map[string]string {
	shared, query := map[string]string{}, r.URL.Query()
	for i := range a.Rules.Rules {
		rule := &a.Rules.Rules[i]
		if rule.Per != "" && query.Has(rule.Per) {
			shared[rule.Name] = query.Get(rule.Per)
		}
	}

	return shared
}

// deviceView returns what is known of a device or sensor for programs.
func (a *Admin) deviceView(f findings) deviceView {
	status, lines := f.why()
	return deviceView{
		Device:      f.asked.Device,
		Sensor:      f.asked.Name,
		Status:      status,
		Why:         strings.Join(lines, "\n"),
		Replica:     a.Replica,
		DeviceState: f.state,
		Receivers:   f.gates,
		Silences:    f.silences,
	}
}

// findings looks everywhere for what is known of a sensor, or of a device with all of its sensors. shared has by the names of rules what the device shares
// their alerts by, where the caller knows that: empty if nothing.
func (a *Admin) findings(ctx context.Context, of sensor.ID, shared map[string]string) findings {
	f := a.local(of, shared)
	var missing [2]error
	var asking sync.WaitGroup
	asking.Go(func() { missing[0] = a.Shared.look(ctx, of, &f) })
	asking.Go(func() { f.silences, missing[1] = a.silencesOf(ctx, of) })
	asking.Wait()

	sensors := f.sensors()
	if more := len(sensors) - shownSensors; more > 0 {
		missing[0] = errors.Join(missing[0], fmt.Errorf("not looked up: the windows of %s; ask about one, as %s/%s",
			humanize.Count(more, "other sensor"), of.Device, sensors[shownSensors].Name))
		sensors = sensors[:shownSensors]
	}

	f.inspect(ctx, f.windows(a.Receivers, append([]sensor.ID{of}, sensors...)))
	if err := errors.Join(missing[0], missing[1], a.incidentsOf(ctx, &f)); err != nil {
		f.missing = strings.Split(err.Error(), "\n")
	}

	slices.SortFunc(f.state.Alarms, func(x, y partition.AlarmState) int {
		return cmp.Or(cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Level, y.Level), cmp.Compare(x.Sensor, y.Sensor))
	})
	return f
}

// inspect adds to f what the store knows of windows, of some at a time.
func (f *findings) inspect(ctx context.Context, all []window) {
	ctx, cancel := context.WithTimeoutCause(
		ctx,
		inspectTimeout,
		fmt.Errorf("the throttle store did not answer within %v", inspectTimeout),
	)
	defer cancel()

	f.gates = make([]gateState, len(all))
	var asking errgroup.Group
	asking.SetLimit(inspectAtOnce)
	for i, w := range all {
		asking.Go(func() error {
			rule, _ := level(f.set, w.at.Rule, w.at.Level)
			g := gateState{
				Receiver: w.at.Name, Rule: w.at.Rule, Level: w.at.Level, Sensor: w.of.Name, Shared: w.shared,
				isUnknown: w.unknown != nil, of: w.of, window: rule.Window, repeat: rule.Repeat,
			}
			err := w.unknown
			if err == nil {
				g.State, err = w.at.Gate.Inspect(ctx, w.of)
				g.Suppressed = w.at.Gate.Count(w.of)
				g.Notified = g.Notified && rule.Resolved // else it tells nobody
			}

			if err != nil {
				g.Phase, g.Error = throttle.NotKnown, err.Error()
			}

			f.gates[i] = g
			return nil
		})
	}

	_ = asking.Wait()
}

// shownSensors is of how many sensors windows are looked up when nobody asks for one.
const shownSensors = 8

// A window is that of a device, a sensor, or what the device shares, at a receiver.
type window struct {
	at      Receiver
	of      sensor.ID
	shared  string // such as site=berlin; empty if it is the device's or the sensor's own
	unknown error  // why nobody here knows whose it is; of is nothing then
}

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

// windows returns those of a device or sensors at some receivers. What the device shares is the device's.
func (f *findings) windows(receivers []Receiver, of []sensor.ID) (all []window) {
	for _, to := range receivers {
		value, known := f.shared[to.Rule]
		switch {
		case to.Per == "" && value == "":
			for _, one := range of {
				all = append(all, window{at: to, of: one})
			}
		case to.Per != "" && !known:
			all = append(all, window{at: to, unknown: fmt.Errorf("devices with the same %[1]s share it, and only the hub knows "+
				"which this one has: run `alertworker why DEVICE --last 2h`, or add ?%[1]s=VALUE", to.Per)})
		case to.Per != "" && value != "":
			all = append(all, window{at: to, of: sensor.Of(value), shared: to.Per + "=" + value})
		}
	}

	return all
}

// local returns what this replica knows of a sensor, or of a device with all of its sensors, by itself. What the device shares alerts by is what the caller
// knows, else what its alarms and last alerts had.
func (a *Admin) local(of sensor.ID, shared map[string]string) findings {
	f := findings{
		asked:  of,
		now:    a.now(),
		set:    &a.Rules,
		state:  a.Worker.Device(of),
		shared: map[string]string{},
		ended:  a.Recorder.last(maxDeliveries, func(d *pastDelivery) bool { return of.Covers(d.of()) }),
	}
	f.similar = f.state.Similar
	f.state.Partitions = append([]string{}, f.state.Partitions...)
	slices.SortFunc(f.state.Partitions, telemetry.ComparePartitions)
	for _, e := range slices.Backward(f.ended) { // the latest comes last
		f.shared[e.Rule] = e.Shared
	}

	for _, s := range f.state.Alarms { // as of when it opened
		if s.Group != "" {
			f.shared[s.Rule] = s.Group
		}
	}

	maps.Copy(f.shared, shared)

	return f
}

// endWindow ends the windows of a sensor, or of a device and all its sensors.
func (a *Admin) endWindow(w http.ResponseWriter, r *http.Request, of sensor.ID) {
	ctx, cancel := context.WithTimeout(r.Context(), deviceTimeout)
	defer cancel()
	answer, err := a.endWindows(ctx, of, a.sharedIn(r))
	status := http.StatusServiceUnavailable
	if errors.Is(err, throttle.ErrSending) {
		status = http.StatusConflict
	}

	switch {
	case err != nil:
		w.Header().Set("Retry-After", strconv.Itoa(retrySending))
		fail(w, status, strings.ReplaceAll(err.Error(), "\n", "; "))
	case len(answer.Sensors)+len(answer.Shared)+len(answer.NotEnded) == 0:
		w.WriteHeader(http.StatusNoContent)
	default:
		httpapi.Write(w, http.StatusOK, answer)
	}
}

// endedWindows is what there is to say about windows that were ended; a list is empty if there is nothing.
type endedWindows struct {
	Sensors  []string `json:"sensors,omitempty"`  // of the device
	Shared   []string `json:"shared,omitempty"`   // such as site=berlin: ended for all devices with that
	NotEnded []string `json:"notEnded,omitempty"` // sentences about rules
}

// endWindows ends the windows of a sensor, or of a device and all its sensors of which something is known, here or in what
// replicas share, at all receivers, of all rules and levels. It names these sensors, and what the device shares; it also
// says which windows it does not know of. After a failure it continues with the next one; a repeated call does the rest.
func (a *Admin) endWindows(ctx context.Context, of sensor.ID, shared map[string]string) (answer endedWindows, err error) {
	f := a.local(of, shared)
	hasSensors := slices.ContainsFunc(a.Rules.Rules, func(r rules.Rule) bool { return len(r.Sensor) > 0 && r.Per == "" })
	if hasSensors && of.Name == "" {
		answer.NotEnded = append(answer.NotEnded, "windows of sensors without an alarm, a delivery or a dead letter that is known: for one add ?sensor=NAME")
		if err := a.Shared.look(ctx, of, &f); err != nil {
			answer.NotEnded = append(answer.NotEnded, "of sensors "+strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}

	sensors := f.sensors()
	for _, one := range sensors {
		answer.Sensors = append(answer.Sensors, one.Name)
	}

	all := f.windows(a.Receivers, append([]sensor.ID{of}, sensors...))
	errs := make([]error, len(all))
	var ending errgroup.Group
	ending.SetLimit(inspectAtOnce)
	for i, w := range all {
		if w.unknown != nil {
			answer.NotEnded = append(answer.NotEnded, fmt.Sprintf("rule %s: %v", w.at.Rule, w.unknown))
			continue
		}

		if w.shared != "" {
			answer.Shared = append(answer.Shared, w.shared)
		}

		ending.Go(func() error {
			if errs[i] = w.at.Gate.Reopen(ctx, w.of); errs[i] == nil {
				a.Log.Info("window ended on request", zap.Stringer("device", w.of), zap.String("receiver", w.at.Name),
					zap.String("rule", w.at.Rule), zap.String("alert_level", w.at.Level), zap.String("shared", w.shared))
			}
			return nil
		})
	}

	_ = ending.Wait()
	slices.Sort(answer.Shared)
	answer.Shared, answer.NotEnded = slices.Compact(answer.Shared), slices.Compact(answer.NotEnded)
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if n := len(failed); n > saidErrors {
		failed = append(failed[:saidErrors], fmt.Errorf("and %d more", n-saidErrors))
	}

	return answer, errors.Join(failed...)
}

// saidErrors is how many of the windows that could not be ended an error names.
const saidErrors = 5
