// Package inbox is the receiving end of a webhook, an example for every receiver: it
// checks the signature and drops alerts that it has already taken.
package inbox

import (
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"sync"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/webhook"
)

const (
	maxBody   = 64 << 10
	maxMemory = 100_000 // alerts remembered; further ones are taken but not remembered
)

// A Delivery is one alert that arrived.
type Delivery struct {
	At      time.Time // by this machine's clock
	Alert   notify.Alert
	Dropped bool // it had been taken before, or a later one of its device had arrived
	Refused bool // as Refuse has asked for
}

// An Inbox is an [http.Handler] that takes alerts. It answers 204 to those it
// takes and to those it drops, and to events that are not alerts.
//
// It drops an alert if it remembers its id, or a greater token of its device. Ids of
// alerts that it took are remembered for their window, those of recoveries as long as tokens; the greatest token of a
// device, also of alerts that were dropped, for as long as the alert says (data.remember). Ids and devices of
// different sources are different.
type Inbox struct {
	secret webhook.Secret
	record func(Delivery)

	mu      sync.Mutex
	refuse  bool
	ids     map[origin]time.Time // until when each is remembered
	devices map[origin]memory
	sweepAt int // the size at which to look for what can be forgotten
}

// origin is an id or a device in its source.
type origin struct{ source, name string }

// memory is the greatest token of a device, and until when it is remembered.
type memory struct {
	token int64
	until time.Time
}

// New returns an empty Inbox. Unless secret is zero, alerts must be signed with it.
// record is called for every delivery before the answer, one at a time and in the order
// in which they were taken. It must not block.
func New(secret webhook.Secret, record func(Delivery)) *Inbox {
	return &Inbox{
		secret:  secret,
		record:  record,
		ids:     make(map[origin]time.Time),
		devices: make(map[origin]memory),
		sweepAt: 1024,
	}
}

func (in *Inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "want POST", http.StatusMethodNotAllowed)
		return
	}

	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != webhook.ContentType {
		http.Error(w, "want Content-Type: "+webhook.ContentType, http.StatusUnsupportedMediaType)
		return
	}

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}

	if err != nil {
		http.Error(w, "the body broke off", http.StatusRequestTimeout)
		return
	}

	// 401, not 400: with a wrong secret it is not the alert that is wrong.
	if err := Verify(in.secret, r.Header, body); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}

	a, err := webhook.Decode(body)
	if errors.Is(err, webhook.ErrNoAlert) { // what a later version sends: nothing to drop
		w.WriteHeader(http.StatusNoContent)
		return
	}

	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	if !in.take(a) {
		http.Error(w, "refused, as asked for", http.StatusUnprocessableEntity)
		return
	}

	w.WriteHeader(http.StatusNoContent)
}

// Refuse has the Inbox answer every alert with 422, but those that it has, or take alerts again.
func (in *Inbox) Refuse(all bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.refuse = all
}

// take records a delivery, and reports whether it is not refused.
func (in *Inbox) take(a notify.Alert) bool {
	in.mu.Lock()
	defer in.mu.Unlock()

	now := time.Now()
	id, device := origin{a.Source, a.ID}, origin{a.Source, a.About()}
	isKnown := now.Before(in.ids[id])

	d := Delivery{At: now, Alert: a, Refused: in.refuse && !isKnown}
	defer func() { in.record(d) }()
	if d.Refused {
		return false
	}

	last := in.devices[device]
	if !d.At.Before(last.until) {
		last = memory{}
	}

	d.Dropped = isKnown || last.token > a.Token

	end := d.At.Add(a.Window)
	if a.Resolved {
		end = d.At.Add(max(a.Window, a.Remember))
	}

	greatest := memory{a.Token, d.At.Add(max(a.Window, a.Remember))}
	if last.until.After(greatest.until) {
		greatest.until = last.until
	}

	switch {
	case !d.Dropped && in.room(d.At):
		in.ids[id], in.devices[device] = end, greatest
	case d.Dropped && last.token < a.Token: // the same alert by a later claim: older claims are over
		in.devices[device] = greatest
	}

	return true
}

// room reports whether there is room for one more alert. From time to time it removes
// those that need not be remembered any more.
func (in *Inbox) room(now time.Time) bool {
	if max(len(in.ids), len(in.devices)) < in.sweepAt {
		return true
	}

	maps.DeleteFunc(in.ids, func(_ origin, until time.Time) bool { return !now.Before(until) })
	maps.DeleteFunc(in.devices, func(_ origin, m memory) bool { return !now.Before(m.until) })
	size := max(len(in.ids), len(in.devices))
	in.sweepAt = min(max(2*size, 1024), maxMemory)

	return size < maxMemory
}
