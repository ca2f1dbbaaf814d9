package simulation

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"alertworker/internal/lease/caslease"
	"alertworker/internal/notify"
)

// rounds is by how much a window may be shorter by its store's clock, which counts in seconds.
const rounds = 3 * time.Second

// A window is what the store has recorded of one.
type window struct {
	token  int64     // of the claim that it began with
	covers time.Time // what the hub took before needs no alert, by the services' clock; zero: nothing is covered
	ended  time.Time // what it covered before somebody claimed it for a recovery, which may not have been sent
}

// A grant is a claim, as a receiver gets to know it.
type grant struct {
	receiver, id string
	token        int64
}

// A claim is what is known of one.
type claim struct {
	key        string // of the window
	isOperator bool   // that it was made for
}

// A note is what the world has to know of that of a window.
type note struct {
	Phase      string
	Replica    string
	ID         string
	RecoveryID string
	Notified   bool
	Proof      int64 // how long after its claim a record covers anything, in ms
}

// leaseOf returns the record of a window that a request writes, one without a key if it writes none.
func leaseOf(r *http.Request, body []byte) (d caslease.Document) {
	text := body
	if encoded := r.Header.Get("X-Ms-Meta-Record"); encoded != "" {
		text, _ = base64.StdEncoding.DecodeString(encoded)
	}

	if json.Unmarshal(text, &d) != nil {
		return caslease.Document{}
	}

	return d
}

// windowWritten notes what the store has recorded of a window.
func (w *World) windowWritten(step Step, d caslease.Document) {
	var n note
	if d.Key == "" || json.Unmarshal([]byte(d.Note), &n) != nil {
		return
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	if step == Claim {
		// The receiver is before the device, and may be followed by the rule.
		parts := strings.Split(d.Key, "/")
		receiver, _, _ := strings.Cut(parts[max(0, len(parts)-2)], "~")
		w.grants[grant{receiver, cmp.Or(n.RecoveryID, n.ID), d.Token}] = claim{d.Key, n.Replica == ""}
	}

	of := w.windows[d.Key]
	switch {
	case step == Claim && n.RecoveryID != "": // it ends with that already: the recovery may be taken
		of.ended = of.covers
		of.covers = time.Time{}

	case step == Claim: // the recovery before it, if there was one, may have been taken
		of.ended = time.Time{}

	case n.Phase == "window":
		of.record(d, n, w.now())

	case step == GiveBack && n.Notified && n.RecoveryID == "" && !of.ended.IsZero(): // it certainly was not
		of.covers = of.ended
		of.ended = time.Time{}
	}

	w.windows[d.Key] = of
}

// record notes that a window was recorded, for the first time or more exactly. Whose claim is over must not.
func (of *window) record(d caslease.Document, n note, now time.Time) {
	if d.Token < of.token {
		return
	}

	until := now.Add(time.Duration(d.HoldSec * float64(time.Second)))
	if proves := d.Claimed.Add(time.Duration(n.Proof) * time.Millisecond); proves.Before(until) {
		until = proves
	}

	of.token = d.Token
	of.covers = until.Add(-rounds)
}

// claimOf returns the claim under which a message was sent, an empty one if that is not known.
func (w *World) claimOf(receiver string, a notify.Alert) claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grants[grant{receiver, a.ID, a.Token}]
}

// covered returns before when readings are covered by a window that was recorded before the claim for the alert a, zero
// if there is none.
func (w *World) covered(c claim, a notify.Alert) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()

	of := w.windows[c.key]
	if a.Token <= of.token {
		return time.Time{}
	}

	return of.covers
}
