package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"alertworker/internal/httpapi"
	"alertworker/internal/muting"
	"alertworker/internal/sensor"
)

const (
	silencesTimeout = 10 * time.Second // for all calls of the store
	silenceBytes    = 4 << 10          // of a request
)

// Silences are what people have silenced, a muting.Cache.
type Silences interface {
	Silences() []muting.Mute // that this replica knows, with those that have ended of late
	List(ctx context.Context) ([]muting.Mute, error)
	Add(ctx context.Context, s muting.Mute, lasts time.Duration) (muting.Mute, error)
	End(ctx context.Context, id, who string) (muting.Mute, error)
	Refresh(ctx context.Context) error // what is known
}

// inForce returns the silences that this replica knows to be in force, with the mute times of the rules.
func (a *Admin) inForce(now time.Time) []muting.Mute {
	all := muting.Planned(&a.options.Rules, now)
	if a.options.Silences != nil {
		all = append(all, a.options.Silences.Silences()...)
	}

	return slices.DeleteFunc(all, func(s muting.Mute) bool { return !now.Before(s.Until) })
}

// listSilences returns the silences that all replicas know to be in force, with the mute times of the rules.
func (a *Admin) listSilences(ctx context.Context) ([]muting.Mute, error) {
	all, err := a.options.Silences.List(ctx)
	return append(muting.Planned(&a.options.Rules, time.Now()), all...), err
}

// silencesOf returns the silences in force that may be about a sensor, or about a device with all of its sensors.
func (a *Admin) silencesOf(ctx context.Context, of sensor.ID) ([]muting.Mute, error) {
	if a.options.Silences == nil {
		return nil, nil
	}

	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	all, err := a.listSilences(ctx)
	if err != nil {
		err = fmt.Errorf("not all silences are known: %w", err)
	}

	now := time.Now()
	return slices.DeleteFunc(all, func(s muting.Mute) bool { return !s.Begun(now) || !s.MayMatch(of) }), err
}

// serveSilences serves /silences and /silences/{id}.
func (a *Admin) serveSilences(w http.ResponseWriter, r *http.Request) {
	id, one := strings.CutPrefix(r.URL.Path, "/silences/")
	ctx, cancel := context.WithTimeout(r.Context(), silencesTimeout)
	defer cancel()

	switch {
	case a.options.Token == "":
		fail(w, http.StatusNotFound, "silences are off here: set HTTP_ADMIN_TOKEN to turn them on")

	case !httpapi.Authorized(r, a.options.Token):
		httpapi.Unauthorized(w, "HTTP_ADMIN_TOKEN")

	case one && r.Method == http.MethodDelete:
		who := cmp.Or(r.URL.Query().Get("who"), "HTTP_ADMIN_TOKEN") // whose bearer it was
		if err := muting.CheckText(who); err != nil {
			fail(w, http.StatusBadRequest, "who: "+err.Error())
			return
		}

		s, err := a.options.Silences.End(ctx, id, who)
		_ = a.options.Silences.Refresh(ctx) // else the next round does it
		answerSilences(w, http.StatusOK, s, err)

	case one:
		httpapi.NotAllowed(w, "DELETE")

	case isRead(r):
		all, err := a.listSilences(ctx)
		answerSilences(w, http.StatusOK, append([]muting.Mute{}, all...), err)

	case r.Method == http.MethodPut:
		a.addSilence(ctx, w, r)

	default:
		httpapi.NotAllowed(w, "GET, HEAD, PUT")
	}
}

// addSilence silences what the body of r says.
func (a *Admin) addSilence(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	var body muting.Request
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, silenceBytes))
	decoder.DisallowUnknownFields()
	if decoder.Decode(&body) != nil {
		fail(w, http.StatusBadRequest,
			`want JSON such as {"device": "oven-*", "for": "2h", "why": "service", "who": "ann"}, `+
				"with device, rule or where")
		return
	}

	s, lasts, err := body.Mute(a.options.Rules, a.now().Location())
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}

	s, err = a.options.Silences.Add(ctx, s, lasts)
	_ = a.options.Silences.Refresh(ctx) // else the next round does it
	answerSilences(w, http.StatusCreated, struct {
		muting.Mute
		Text string `json:"text"` // when, for people
	}{s, s.Text(a.now().Location())}, err)
}

// answerSilences answers with v, or with what went wrong.
func answerSilences(w http.ResponseWriter, status int, v any, err error) {
	switch {
	case errors.Is(err, muting.ErrUnknown):
		fail(w, http.StatusNotFound, err.Error())
	case err != nil:
		fail(w, http.StatusServiceUnavailable, err.Error())
	default:
		httpapi.Write(w, status, v)
	}
}
