package throttle

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/sensor"
)

// A Phase says whether the next reading of a device makes an alert. Its names are
// those of a gate that lets an alert through or does not; a window is in force or over.
type Phase int

const (
	Open    Phase = iota // no window is in force: the next reading over the threshold makes an alert
	Sending              // a claim holds the key: an alert is being sent, or its sender has died
	Closed               // a recorded window is in force

	NotKnown Phase = -1 // the store did not answer
)

func (p Phase) String() string               { return [...]string{"unknown", "open", "sending", "closed"}[p+1] }
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// A State is what the store knows of one device. Its times are the
// store's clock; zero where there is none.
type State struct {
	Phase Phase     `json:"state"`
	Until time.Time `json:"until,omitzero"` // if Sending or Closed: when the claim or the window ends by itself
	Quiet time.Time `json:"quiet,omitzero"` // readings that the hub took before need no alert any more
	// of the last alert that was sent, or of a recovery after it whose fate is not known
	AlertID string `json:"alertId,omitempty"`
	// Unresolved: that alert, or recovery, may have been taken or not. The next one has its ID.
	Unresolved bool `json:"unresolved,omitempty"`
	// Recovery: AlertID is that of a recovery.
	Recovery bool `json:"resolved,omitempty"`
	// Notified: the receiver may have got an alert since the last recovery that it took.
	Notified bool      `json:"notified,omitempty"`
	Incident string    `json:"incident,omitempty"` // that the receiver was told of, and not of its end
	Sent     time.Time `json:"sent,omitzero"`      // when the last alert was claimed that counts for Request.Repeat, or Incident's taken
	Token    int64     `json:"token,omitzero"`     // of the last claim
	Claimed  time.Time `json:"claimed,omitzero"`   // when it was made
	Replica  string    `json:"replica,omitempty"`  // that made it; empty if it is not known
	Now      time.Time `json:"storeTime,omitzero"`
}

// Inspect returns the state of a device or sensor. It takes nothing and changes nothing; it
// costs the store one call, and returns by the time ctx ends.
func (g *Gate) Inspect(ctx context.Context, of sensor.ID) (State, error) {
	r, n, err := g.read(ctx, of)
	if err != nil {
		return State{Phase: NotKnown}, err
	}

	s := State{
		Quiet:      n.quietUntil(r),
		AlertID:    n.sends(),
		Unresolved: n.unresolved(r) || n.RecoveryID != "",
		Recovery:   n.ID == "" && n.RecoveryID != "",
		Notified:   n.notified(),
		Token:      r.Token,
		Claimed:    r.Claimed,
		Replica:    n.Replica,
		Now:        r.Now,
	}

	if n.Sent != (position{}) {
		s.Sent = time.UnixMilli(n.SentAt)
	}

	if n.Told != "" {
		s.Incident, s.Sent = n.Told, time.UnixMilli(n.ToldAt)
	}

	if end := r.Written.Add(r.Hold); r.Now.Before(end) {
		switch n.Phase {
		case phaseClaim:
			s.Phase, s.Until = Sending, end
		case phaseWindow:
			s.Phase, s.Until = Closed, end
		}
	}

	return s, nil
}

// read returns the record of a device or sensor, and the note in it.
func (g *Gate) read(ctx context.Context, of sensor.ID) (lease.Record, note, error) {
	r, err := g.store.Read(ctx, g.key(of))
	if err != nil {
		err = fmt.Errorf("look up the window of device %q: %w", of, err)
	}
	return r, parseNote(r.Note), err
}

// Predict returns what Claim would answer for r at this moment, where Sent says that it would be made, and the ID that it
// would be for. It takes nothing and changes nothing; it costs the store one call.
func (g *Gate) Predict(ctx context.Context, r Request) (Result, string, error) {
	start := time.Now()
	record, n, err := g.read(ctx, r.Of())
	if err != nil {
		return Result{Outcome: Unavailable}, "", err
	}

	d := decide(n, record, holds(record), r, start)
	if d.Outcome == Busy {
		d.Retry = start.Add(cmp.Or(d.wait, pollUnknown))
	}

	return d.Result, d.claim.sends(), nil
}

// A Proof is what a record says of a notice that should have been sent.
type Proof int

const (
	Unproven Proof = iota // nothing
	Sends                 // a claim is in force: it may be on its way
	Proven                // it was sent, covered by a window, given up after a dead letter, or overtaken
)

// Prove returns what the device's record says of r. It changes nothing, and costs the store one call. What came
// within a second after a window, or a Request.Repeat, counts as covered: nothing in the record says whether it was.
func (g *Gate) Prove(ctx context.Context, r Request) (Proof, error) {
	record, n, err := g.read(ctx, r.Of())
	if err != nil {
		return Unproven, err
	}
	if record.Token == 0 {
		return Unproven, nil // there is none
	}

	if !r.Recovery { // the replica that sent the alert counted its window from then, and the record from the whole second before
		r.Enqueued = r.Enqueued.Add(-time.Second)
	}

	held := holds(record)
	inWindow := !r.Recovery && r.Incident == "" && r.Enqueued.Before(n.quietUntil(record)) // also while the next alert is claimed
	switch d := decide(n, record, held, r, time.Now()); {
	case inWindow, d.Outcome == Throttled, d.Outcome == Unneeded:
		return Proven, nil
	case held && n.Phase == phaseClaim:
		return Sends, nil
	}

	return Unproven, nil
}
