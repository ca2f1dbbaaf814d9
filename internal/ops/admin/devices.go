package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/httpapi"
	"alertworker/internal/throttle"
	"alertworker/internal/worker"
)

const (
	deviceTimeout  = 10 * time.Second // for all store calls that end windows
	inspectTimeout = 2 * time.Second  // for all store calls that look up a device
)

// retrySending is the Retry-After, in seconds, while an alert is being sent.
const retrySending = 5

// serveDevice serves the paths below /devices/.
func (a *Admin) serveDevice(w http.ResponseWriter, r *http.Request) {
	device, action, ok := httpapi.Device(r)
	allow := map[string]string{"": "GET, HEAD", "window": "DELETE"}[action]
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
	case action == "window" && r.Method == http.MethodDelete:
		a.endWindow(w, r, device)
	default:
		httpapi.NotAllowed(w, allow)
	}
}

// A deviceView is the response to GET /devices/{id}: what this replica and the throttle store
// know of a device, and what follows from it.
type deviceView struct {
	Device string `json:"device"`
	Status string `json:"status"` // one of the statuses in why.go
	Why    string `json:"why"`    // the same for people: why the device has not been alerted about

	Replica    string     `json:"replica"`         // whose answer this is
	Partitions []string   `json:"partitions"`      // that it reads
	Since      *time.Time `json:"since,omitempty"` // it has read nothing of the device since then but what heard tells of

	Heard      *heardView    `json:"heard,omitempty"`
	Waiting    []waitingView `json:"waiting,omitempty"`
	DeadLetter *letterView   `json:"deadLetter,omitempty"` // the last one
	Receivers  []windowView  `json:"receivers"`
	LastAlert  *alertView    `json:"lastAlert,omitempty"` // if it is among the last ones of this replica
}

// A heardView is what this replica read last of the device.
type heardView struct {
	Partition   string           `json:"partition"`
	At          time.Time        `json:"at"` // by this replica's clock
	Reading     *readingView     `json:"reading,omitempty"`
	Undecodable *undecodableView `json:"undecodable,omitempty"`
}

type readingView struct {
	Temperature float64   `json:"temperature"`
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
	Receiver    string      `json:"receiver"`
	For         worker.Wait `json:"for"`
	Detail      string      `json:"detail"` // the same for people
	Since       time.Time   `json:"since"`  // when the hub took the first reading that is not settled
	Next        *time.Time  `json:"next,omitempty"`
	Temperature float64     `json:"temperature"`
	Partition   string      `json:"partition"`
	Suppressed  int64       `json:"suppressed"` // readings since that the alert stands for
}

type letterView struct {
	ID          string    `json:"id,omitempty"` // none: it is only in the log
	Receiver    string    `json:"receiver"`
	Reason      string    `json:"reason"`
	Kept        time.Time `json:"kept"` // by this replica's clock
	AlertID     string    `json:"alertId"`
	Temperature float64   `json:"temperature"`
	Enqueued    time.Time `json:"enqueuedTime"`
}

type windowView struct {
	Receiver   string     `json:"receiver"`
	State      string     `json:"state"`             // open, sending or closed; unknown if the store does not respond
	Until      *time.Time `json:"until,omitempty"`   // all times are by the store's clock
	Seconds    *float64   `json:"seconds,omitempty"` // until then
	Quiet      *time.Time `json:"quiet,omitempty"`   // readings from before need no alert
	AlertID    string     `json:"alertId,omitempty"` // of the last alert sent
	Unresolved bool       `json:"unresolved,omitempty"`
	Token      int64      `json:"token,omitempty"`
	Claimed    *time.Time `json:"claimed,omitempty"`
	Replica    string     `json:"replica,omitempty"` // that made the last claim: while an alert is being sent, the one that sends it
	StoreTime  *time.Time `json:"storeTime,omitempty"`
	Suppressed int64      `json:"suppressed"` // by this replica, since the last alert
	Error      string     `json:"error,omitempty"`
}

type alertView struct {
	ID          string    `json:"id"`
	Receiver    string    `json:"receiver"`
	Taken       time.Time `json:"taken"` // by this replica's clock
	Temperature float64   `json:"temperature"`
	Enqueued    time.Time `json:"enqueuedTime"`
	Partition   string    `json:"partition"`
	Sequence    int64     `json:"sequence"`
	Token       int64     `json:"token"`
}

// showDevice answers with what is known without the store if that does not respond.
func (a *Admin) showDevice(w http.ResponseWriter, r *http.Request, device string) {
	f := a.findings(r.Context(), device)
	view := deviceView{
		Device: device, Replica: a.Replica, Partitions: append([]string{}, f.partitions...), Since: known(f.state.Since),
		Receivers: []windowView{},
	}
	view.Status, view.Why = f.why()
	if h := f.state.Heard; h != nil {
		view.Heard = &heardView{Partition: h.Partition, At: h.At}
		if r := h.Reading; r != nil {
			view.Heard.Reading = &readingView{Temperature: r.Value, Enqueued: r.Enqueued, Sequence: r.Sequence}
		}
		if u := h.Undecodable; u != nil {
			view.Heard.Undecodable = &undecodableView{Reason: u.Reason.String(), Enqueued: u.Enqueued, Sequence: u.Sequence}
		}
	}
	for _, d := range f.state.Deliveries {
		view.Waiting = append(view.Waiting, waitingView{
			Receiver: d.Receiver, For: d.For, Detail: d.String(), Since: d.Since, Next: known(d.Until),
			Temperature: d.Value, Partition: d.Partition, Suppressed: d.Joined,
		})
	}
	if l := f.letter(); l != nil {
		view.DeadLetter = &letterView{
			ID: l.letter, Receiver: l.receiver, Reason: l.reason, Kept: l.at.UTC(),
			AlertID: l.alertID, Temperature: l.temperature, Enqueued: l.enqueued.UTC(),
		}
	}
	for _, g := range f.gates {
		view.Receivers = append(view.Receivers, windowOf(g))
	}
	if t := f.alert(); t != nil {
		view.LastAlert = &alertView{
			ID: t.alertID, Receiver: t.receiver, Taken: t.at.UTC(), Temperature: t.temperature,
			Enqueued: t.enqueued.UTC(), Partition: t.partition, Sequence: t.sequence, Token: t.token,
		}
	}
	httpapi.Write(w, http.StatusOK, view)
}

// findings looks everywhere for what is known of a device.
func (a *Admin) findings(ctx context.Context, device string) findings {
	ctx, cancel := context.WithTimeoutCause(ctx, inspectTimeout, fmt.Errorf("the throttle store did not answer within %v", inspectTimeout))
	defer cancel()
	f := findings{
		now: time.Now(), threshold: a.Threshold, window: a.Window,
		state: a.Worker.Device(device), ended: a.Recorder.of(device), gates: make([]gateState, len(a.Receivers)),
	}
	f.partitions = slices.SortedFunc(slices.Values(f.state.Partitions), compareIDs)
	var asking sync.WaitGroup
	for i, to := range a.Receivers {
		asking.Go(func() {
			s, err := to.Gate.Inspect(ctx, device)
			f.gates[i] = gateState{receiver: to.Name, State: s, err: err}
		})
	}
	asking.Wait()
	return f
}

func windowOf(g gateState) windowView {
	s := g.State
	v := windowView{
		Receiver: g.receiver, State: s.Phase.String(), Until: known(s.Until), Quiet: known(s.Quiet),
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

// endWindow ends the device's windows at all receivers. After a failure it continues with the
// next receiver; a repeated request does the rest.
func (a *Admin) endWindow(w http.ResponseWriter, r *http.Request, device string) {
	ctx, cancel := context.WithTimeout(r.Context(), deviceTimeout)
	defer cancel()
	var all []error
	for _, to := range a.Receivers {
		if err := to.Gate.Reopen(ctx, device); err != nil {
			all = append(all, err)
			continue
		}
		a.Log.Info("window ended on request", zap.String("device", device), zap.String("receiver", to.Name))
	}
	err := errors.Join(all...)
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	detail := strings.ReplaceAll(err.Error(), "\n", "; ")
	switch {
	case errors.Is(err, throttle.ErrSending):
		w.Header().Set("Retry-After", strconv.Itoa(retrySending))
		httpapi.Fail(w, httpapi.Problem{Status: http.StatusConflict, Detail: detail})
	default:
		w.Header().Set("Retry-After", strconv.Itoa(retrySending))
		httpapi.Fail(w, httpapi.Problem{Status: http.StatusServiceUnavailable, Detail: detail})
	}
}
