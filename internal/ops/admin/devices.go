package admin

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/httpapi"
	"alertworker/internal/throttle"
)

// deviceTimeout bounds all store calls of one request.
const deviceTimeout = 10 * time.Second

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

// A deviceView is the response to GET /devices/{id}.
type deviceView struct {
	Device    string       `json:"device"`
	Receivers []windowView `json:"receivers"`
	LastAlert *alertView   `json:"lastAlert,omitempty"` // if it is among the last ones of this replica
}

type windowView struct {
	Receiver   string     `json:"receiver"`
	State      string     `json:"state"`             // open, sending or closed
	Until      *time.Time `json:"until,omitempty"`   // all times are by the store's clock
	Seconds    *float64   `json:"seconds,omitempty"` // until then
	Quiet      *time.Time `json:"quiet,omitempty"`   // readings from before need no alert
	AlertID    string     `json:"alertId,omitempty"` // of the last alert sent
	Unresolved bool       `json:"unresolved,omitempty"`
	Token      int64      `json:"token,omitempty"`
	Claimed    *time.Time `json:"claimed,omitempty"`
	Replica    string     `json:"replica,omitempty"` // that made the last claim: while an alert is being sent, the one that sends it
	StoreTime  time.Time  `json:"storeTime"`
	Suppressed int64      `json:"suppressed"` // by this replica, since the last alert
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

func (a *Admin) showDevice(w http.ResponseWriter, r *http.Request, device string) {
	ctx, cancel := context.WithTimeout(r.Context(), deviceTimeout)
	defer cancel()
	view := deviceView{Device: device, Receivers: []windowView{}}
	for _, to := range a.Receivers {
		s, err := to.Gate.Inspect(ctx, device)
		if err != nil {
			httpapi.Fail(w, httpapi.Problem{Status: http.StatusServiceUnavailable, Detail: err.Error()})
			return
		}
		view.Receivers = append(view.Receivers, windowOf(to.Name, s))
	}
	for _, t := range a.Recorder.alerts() {
		if t.Device == device {
			view.LastAlert = &alertView{
				ID: t.ID, Receiver: t.receiver, Taken: t.at.UTC(), Temperature: t.Temperature,
				Enqueued: t.Enqueued.UTC(), Partition: t.Partition, Sequence: t.Sequence, Token: t.Token,
			}
			break
		}
	}
	httpapi.Write(w, http.StatusOK, view)
}

func windowOf(receiver string, s throttle.State) windowView {
	v := windowView{
		Receiver: receiver, State: s.Phase.String(), Until: known(s.Until), Quiet: known(s.Quiet),
		AlertID: s.AlertID, Unresolved: s.Unresolved, Token: s.Token, Claimed: known(s.Claimed), Replica: s.Replica,
		StoreTime: s.Now.UTC(), Suppressed: s.Suppressed,
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
