package throttle

import (
	"encoding/json"
	"time"

	"alertworker/internal/lease"
)

// Phases of a key.
const (
	phaseFree   = ""
	phaseClaim  = "claim"
	phaseWindow = "window"
)

// A note is what the gate keeps in a lease record. Short names: a record is
// read with every call.
type note struct {
	Phase string `json:"phase,omitempty"`
	// Replica made the last claim.
	Replica string `json:"replica,omitempty"`
	// ID of the alert last sent; unless in phase window, it may have been taken or not.
	ID string `json:"id,omitempty"`
	// Again: in phase claim, the alert was sent under an earlier claim and may have been taken.
	Again bool `json:"again,omitempty"`
	// Quiet is the end of the last window before this record's own, in ms since 1970.
	Quiet int64 `json:"quiet,omitempty"`
	// Proof is claim + window in ms: how long after its claim was granted a
	// record still proves a delivery, or leaves it possible.
	Proof int64 `json:"proof,omitempty"`
}

// parseNote reads what String wrote. Anything else counts as no note: it
// proves nothing.
func parseNote(s string) note {
	var n note
	if json.Unmarshal([]byte(s), &n) != nil {
		return note{}
	}
	return n
}

func (n note) String() string {
	b, _ := json.Marshal(n) // strings and integers: cannot fail
	return string(b)
}

// proofEnds is when r stops to say anything about its alert.
func (n note) proofEnds(r lease.Record) time.Time {
	return r.Claimed.Add(time.Duration(n.Proof) * time.Millisecond)
}

// quietUntil returns the end of the last window that r, holding n, proves; zero
// if none. A reading that the hub took before it needs no alert of its own. A
// record written late proves nothing past the time at which a record written in
// time would have ended.
func (n note) quietUntil(r lease.Record) time.Time {
	if n.Phase == phaseWindow {
		end := r.Written.Add(r.Hold)
		if limit := n.proofEnds(r); limit.Before(end) {
			return limit
		}
		return end
	}
	if n.Quiet == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n.Quiet)
}

// unresolved reports whether n's alert may have been taken so recently that a
// receiver told to drop its ID would still be right to.
func (n note) unresolved(r lease.Record) bool {
	return n.Phase != phaseWindow && n.ID != "" && r.Now.Before(n.proofEnds(r))
}

// millis rounds down: a window must not be taken for longer than it was.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
