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

	"alertworker/internal/httpapi"
	"alertworker/internal/muting"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

const (
	deviceTimeout  = 10 * time.Second // for all store calls that end windows
	inspectTimeout = 2 * time.Second  // for all calls of the throttle store that look up a device
	inspectAtOnce  = 16
)

// retrySending is the Retry-After, in seconds, while an alert is being sent.
const retrySending = 5

// serveDevice serves the paths below /devices/.
func (a *Admin) serveDevice(w http.ResponseWriter, r *http.Request) {
	device, action, ok := httpapi.Device(r)
	allow := map[string]string{"": "GET, HEAD, DELETE", "window": "DELETE"}[action]
	switch {
	case ok && action == "telemetry" && a.Ingest != nil:
		a.Ingest.ServeHTTP(w, r)
	case ok && action == "telemetry":
		httpapi.Fail(w, httpapi.Problem{Status: http.StatusNotFound, Detail: "the HTTP trigger is off: set HTTP_INGEST_TOKEN to turn it on"})
	case a.Token == "":
		httpapi.Fail(w, httpapi.Problem{Status: http.StatusNotFound, Detail: "the device endpoints are off: set HTTP_ADMIN_TOKEN to turn them on"})
	case !ok || allow == "":
		httpapi.Fail(w, httpapi.Problem{Status: http.StatusNotFound, Detail: "not found: the paths are /devices/{id}, /devices/{id}/window and /devices/{id}/telemetry; write a / in the id as %2F"})
	case !httpapi.Authorized(r, a.Token):
		httpapi.Unauthorized(w, "HTTP_ADMIN_TOKEN")
	case action == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		a.showDevice(w, r, device)
	case action == "" && r.Method == http.MethodDelete:
		a.forget(w, device)
	case action == "window" && r.Method == http.MethodDelete:
		a.endWindow(w, r, device)
	default:
		httpapi.NotAllowed(w, allow)
	}
}

// forget has the worker expect nothing more of a device.
func (a *Admin) forget(w http.ResponseWriter, device string) {
	if !a.Worker.Forget(device) {
		httpapi.Fail(w, httpapi.Problem{Status: http.StatusNotFound, Detail: "no rule about silence knows this device here: ask the replica that reads its partition"})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// A deviceView is the response to GET /devices/{id}: what this replica and the throttle store
// know of a device, and what follows from it.
type deviceView struct {
	Device string `json:"device"`
	Status string `json:"status"` // one of the statuses in why.go
	Why    string `json:"why"`    // the same for people: why the device has not been alerted about

	Replica    string     `json:"replica"`         // whose answer this is
	Partitions []string   `json:"partitions"`      // that it reads
	Since      *time.Time `json:"since,omitempty"` // it has read nothing of the device since then but what lastSeen has

	LastSeen     *lastSeenView `json:"lastSeen,omitempty"`
	Alarms       []alarmView   `json:"alarms,omitempty"` // that are not normal, or owe a resolved
	Heard        []heardView   `json:"heard,omitempty"`  // for rules about silence
	Waiting      []waitingView `json:"waiting,omitempty"`
	DeadLetter   *letterView   `json:"deadLetter,omitempty"`   // the last one
	Receivers    []windowView  `json:"receivers"`              // for each level of each rule
	LastAlert    *alertView    `json:"lastAlert,omitempty"`    // if it is among the last ones of this replica
	LastResolved *alertView    `json:"lastResolved,omitempty"` // likewise: the device is normal again

	Silences []muting.Silence `json:"silences,omitempty"` // in force, that may be about the device
}

// A heardView says when a device was heard last, as a rule about silence counts it.
type heardView struct {
	Rule      string         `json:"rule"`
	Partition string         `json:"partition"`
	At        time.Time      `json:"at"`             // when the hub took the message
	AsOf      *time.Time     `json:"asOf,omitempty"` // the partition is known up to then; missing: it is being read
	Deadlines []deadlineView `json:"deadlines"`
}

type deadlineView struct {
	Level string     `json:"level,omitempty"`
	At    *time.Time `json:"at,omitempty"` // the device is silent from then on; missing: nothing is expected of it
}

// A limitView names a limit. It is empty if there is only one, without a name.
type limitView struct {
	Rule  string `json:"rule,omitempty"`
	Level string `json:"level,omitempty"`
}

// limitView returns the names of a level of a rule.
func (a *Admin) limitView(rule, level string) limitView {
	if a.plain {
		return limitView{}
	}
	return limitView{rule, level}
}

// An alarmView is the state of one limit.
type alarmView struct {
	limitView
	State     string     `json:"state"`           // pending, open or normal
	Since     *time.Time `json:"since,omitempty"` // when the hub took the first of the readings that reached the limit
	Value     *float64   `json:"value,omitempty"` // of the reading that opened it, or made it pending
	Limit     *float64   `json:"limit,omitempty"` // that it reached: the device's own, if it has one
	Due       *time.Time `json:"due,omitempty"`   // when the hub took the reading that ended the last alarm, while not every receiver has got the recovery
	Partition string     `json:"partition"`
}

// A lastSeenView is what this replica read last of the device.
type lastSeenView struct {
	Partition   string           `json:"partition"`
	At          time.Time        `json:"at"` // by this replica's clock
	Reading     *readingView     `json:"reading,omitempty"`
	Undecodable *undecodableView `json:"undecodable,omitempty"`
}

type readingView struct {
	Field       string    `json:"field,omitempty"` // if rules have different ones
	Temperature float64   `json:"temperature"`     // the value, whatever it measures
	Quiet       bool      `json:"quiet,omitempty"` // its message mutes it
	Enqueued    time.Time `json:"enqueuedTime"`
	Sequence    int64     `json:"sequence"`
}

type undecodableView struct {
	Reason   string    `json:"reason"` // as in the metrics
	Enqueued time.Time `json:"enqueuedTime"`
	Sequence int64     `json:"sequence"`
}

// A waitingView is an alert that is not settled.
type waitingView struct {
	Receiver string `json:"receiver"`
	limitView
	Resolved    bool        `json:"resolved,omitempty"` // it tells that the device is normal again
	For         worker.Wait `json:"for"`
	Detail      string      `json:"detail"` // the same for people
	Since       time.Time   `json:"since"`  // when the hub took the first reading that is not settled
	Next        *time.Time  `json:"next,omitempty"`
	Temperature float64     `json:"temperature"`
	Partition   string      `json:"partition"`
	Suppressed  int64       `json:"suppressed"` // readings since that the alert stands for
}

type letterView struct {
	ID       string `json:"id,omitempty"` // none: it is only in the log
	Receiver string `json:"receiver"`
	limitView
	Resolved    bool      `json:"resolved,omitempty"`
	Reason      string    `json:"reason"`
	Kept        time.Time `json:"kept"` // by this replica's clock
	AlertID     string    `json:"alertId"`
	Temperature float64   `json:"temperature"`
	Enqueued    time.Time `json:"enqueuedTime"`
}

type windowView struct {
	Receiver string `json:"receiver"`
	limitView
	Shared     string     `json:"shared,omitempty"`  // such as site=berlin: the window of all devices with that
	State      string     `json:"state"`             // open, sending or closed; unknown if the store does not respond
	Until      *time.Time `json:"until,omitempty"`   // all times are by the store's clock
	Seconds    *float64   `json:"seconds,omitempty"` // until then
	Quiet      *time.Time `json:"quiet,omitempty"`   // readings from before need no alert
	AlertID    string     `json:"alertId,omitempty"` // of the last alert sent
	Unresolved bool       `json:"unresolved,omitempty"`
	Resolved   bool       `json:"resolved,omitempty"` // alertId is that of a resolved
	Notified   bool       `json:"notified,omitempty"` // it may have got an alert since the last recovery
	Token      int64      `json:"token,omitempty"`
	Claimed    *time.Time `json:"claimed,omitempty"`
	Replica    string     `json:"replica,omitempty"` // that made the last claim: while an alert is being sent, the one that sends it
	StoreTime  *time.Time `json:"storeTime,omitempty"`
	Suppressed int64      `json:"suppressed"` // by this replica, since the last alert
	Error      string     `json:"error,omitempty"`
}

type alertView struct {
	ID       string `json:"id"`
	Receiver string `json:"receiver"`
	limitView
	Taken       time.Time `json:"taken"` // by this replica's clock
	Temperature float64   `json:"temperature"`
	Enqueued    time.Time `json:"enqueuedTime"`
	Partition   string    `json:"partition"`
	Sequence    int64     `json:"sequence"`
	Token       int64     `json:"token"`
}

// showDevice answers with what is known without the store if that does not respond.
func (a *Admin) showDevice(w http.ResponseWriter, r *http.Request, device string) {
	httpapi.Write(w, http.StatusOK, a.deviceView(device, a.findings(r.Context(), device, nil)))
}

// deviceView returns what is known of a device for programs.
func (a *Admin) deviceView(device string, f findings) deviceView {
	view := deviceView{
		Device: device, Replica: a.Replica, Partitions: append([]string{}, f.partitions...), Since: known(f.state.Since),
		Receivers: []windowView{},
	}
	view.Status, view.Why = f.why()
	if h := f.state.Last; h != nil {
		view.LastSeen = &lastSeenView{Partition: h.Partition, At: h.At}
		if r := h.Reading; r != nil {
			view.LastSeen.Reading = &readingView{Field: a.field(r.Field), Temperature: r.Value, Quiet: r.Decision == worker.Muted, Enqueued: r.Enqueued, Sequence: r.Sequence}
		}
		if u := h.Undecodable; u != nil {
			view.LastSeen.Undecodable = &undecodableView{Reason: u.Reason.String(), Enqueued: u.Enqueued, Sequence: u.Sequence}
		}
	}
	for _, s := range f.state.Alarms {
		alarm := alarmView{limitView: a.limitView(s.Rule, s.Level), State: s.Phase.String(), Since: known(s.Since), Due: known(s.Due), Partition: s.Partition}
		if s.Phase != rules.Normal && !s.Silence {
			alarm.Value, alarm.Limit = &s.Value, &s.Limit
		}
		view.Alarms = append(view.Alarms, alarm)
	}
	for _, h := range f.state.Heard {
		heard := heardView{Rule: h.Rule, Partition: h.Partition, At: h.At, AsOf: known(h.AsOf)}
		i := slices.IndexFunc(a.Rules.Rules, func(r rules.Rule) bool { return r.Name == h.Rule })
		for j, at := range h.Deadlines {
			heard.Deadlines = append(heard.Deadlines, deadlineView{a.Rules.Rules[i].Levels[j].Name, known(at)})
		}
		view.Heard = append(view.Heard, heard)
	}
	view.Silences = f.silences
	for _, d := range f.state.Deliveries {
		view.Waiting = append(view.Waiting, waitingView{
			Receiver: d.Receiver, limitView: a.limitView(d.Rule, d.Level), Resolved: d.Recovery, For: d.For, Detail: d.String(), Since: d.Since, Next: known(d.Until),
			Temperature: d.Value, Partition: d.Partition, Suppressed: d.Joined,
		})
	}
	if l := f.letter(); l != nil {
		view.DeadLetter = &letterView{
			ID: l.letter, Receiver: l.receiver, limitView: a.limitView(l.rule, l.level), Resolved: l.resolved, Reason: l.reason, Kept: l.at.UTC(),
			AlertID: l.alertID, Temperature: l.temperature, Enqueued: l.enqueued.UTC(),
		}
	}
	for _, g := range f.gates {
		view.Receivers = append(view.Receivers, a.windowView(g))
	}
	view.LastAlert, view.LastResolved = a.alertView(f.alert()), a.alertView(f.resolved())
	return view
}

// alertView returns e for people and programs; nil if it is.
func (a *Admin) alertView(e *ended) *alertView {
	if e == nil {
		return nil
	}
	return &alertView{
		ID: e.alertID, Receiver: e.receiver, limitView: a.limitView(e.rule, e.level), Taken: e.at.UTC(), Temperature: e.temperature,
		Enqueued: e.enqueued.UTC(), Partition: e.partition, Sequence: e.sequence, Token: e.token,
	}
}

// field returns the paths of the i-th field; empty if all rules have the same.
func (a *Admin) field(i int) string {
	for _, r := range a.Rules.Rules {
		if r.Field != a.Rules.Rules[0].Field {
			fields, _ := a.Rules.Fields()
			return fields[i].Paths
		}
	}
	return ""
}

// findings looks everywhere for what is known of a device. shared has by the names of rules what the device shares their alerts
// by, where the caller knows that.
func (a *Admin) findings(ctx context.Context, device string, shared map[string]string) findings {
	whole := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, inspectTimeout, fmt.Errorf("the throttle store did not answer within %v", inspectTimeout))
	defer cancel()
	f := findings{
		now: time.Now(), set: &a.Rules,
		state: a.Worker.Device(device), ended: a.Recorder.of(device), gates: make([]gateState, len(a.Receivers)),
	}
	f.partitions = slices.SortedFunc(slices.Values(f.state.Partitions), compareIDs)
	f.share(shared)
	var asking sync.WaitGroup
	asking.Go(func() { a.Shared.look(whole, device, &f) })
	asking.Go(func() { f.silences, f.silenceErr = a.silencesOf(whole, device) })
	turns := make(chan struct{}, inspectAtOnce)
	for i, to := range a.Receivers {
		per := a.rule(to.Rule).Per
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
			g, about := gateState{receiver: to.Name, rule: to.Rule, level: to.Level, window: a.rule(to.Rule).Window}, device
			if per != "" {
				if about = f.shared[to.Rule]; about == "" {
					g.err = unsharedError{per}
				} else if about != device { // which has no such property
					g.shared = per + "=" + about
				}
			}
			if g.err == nil {
				g.State, g.err = to.Gate.Inspect(ctx, about)
			}
			f.gates[i] = g
		})
	}
	asking.Wait()
	a.sortAlarms(f.state.Alarms)
	return f
}

// share sets what the device shares its alerts by: what the caller knows, else what its last readings and alerts had.
func (f *findings) share(known map[string]string) {
	f.shared = map[string]string{}
	for _, e := range slices.Backward(f.ended) { // the latest comes last
		if e.shared != "" {
			f.shared[e.rule] = e.shared
		}
	}
	if h := f.state.Last; h != nil && h.Reading != nil && h.Reading.Shared != "" {
		f.shared[h.Reading.Rule] = h.Reading.Shared
	}
	maps.Copy(f.shared, known)
}

// sortAlarms puts alarms into the order of the rules and levels, those of former rules last.
func (a *Admin) sortAlarms(all []worker.AlarmState) {
	place := func(s worker.AlarmState) int {
		n := 0
		for _, r := range a.Rules.Rules {
			for _, l := range r.Levels {
				if r.Name == s.Rule && l.Name == s.Level {
					return n
				}
				n++
			}
		}
		return n
	}
	slices.SortFunc(all, func(x, y worker.AlarmState) int {
		return cmp.Or(cmp.Compare(place(x), place(y)), cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Level, y.Level))
	})
}

// rule returns a rule by its name; a zero one if it is not configured.
func (a *Admin) rule(name string) (found rules.Rule) {
	for _, r := range a.Rules.Rules {
		if r.Name == name {
			return r
		}
	}
	return found
}

func (a *Admin) windowView(g gateState) windowView {
	s := g.State
	v := windowView{
		Receiver: g.receiver, limitView: a.limitView(g.rule, g.level), Shared: g.shared, Resolved: s.Recovery, Notified: s.Notified && a.rule(g.rule).Resolved, State: s.Phase.String(), Until: known(s.Until), Quiet: known(s.Quiet),
		AlertID: s.AlertID, Unresolved: s.Unresolved, Token: s.Token, Claimed: known(s.Claimed), Replica: s.Replica,
		StoreTime: known(s.Now), Suppressed: s.Suppressed,
	}
	if g.err != nil {
		v.State, v.Error = "unknown", g.err.Error()
	}
	if v.Until != nil {
		left := s.Until.Sub(s.Now).Round(time.Millisecond).Seconds()
		v.Seconds = &left
	}
	return v
}

// known returns t to the millisecond, nil if it is zero.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Round(time.Millisecond)
	return &t
}

// endWindow ends the device's windows at all receivers, of all rules and levels. After a failure it
// continues with the next one; a repeated request does the rest.
func (a *Admin) endWindow(w http.ResponseWriter, r *http.Request, device string) {
	ctx, cancel := context.WithTimeout(r.Context(), deviceTimeout)
	defer cancel()
	var all []error
	for _, to := range a.Receivers {
		if err := to.Gate.Reopen(ctx, device); err != nil {
			all = append(all, err)
			continue
		}
		a.Log.Info("window ended on request", zap.String("device", device), zap.String("receiver", to.Name), zap.String("rule", to.Rule), zap.String("alert_level", to.Level))
	}
	err := errors.Join(all...)
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	status := http.StatusServiceUnavailable
	if errors.Is(err, throttle.ErrSending) {
		status = http.StatusConflict
	}
	w.Header().Set("Retry-After", strconv.Itoa(retrySending))
	httpapi.Fail(w, httpapi.Problem{Status: status, Detail: strings.ReplaceAll(err.Error(), "\n", "; ")})
}
