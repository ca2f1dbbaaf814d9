package caslease

import (
	"fmt"
	"math"
	"time"

	"alertworker/internal/lease"
)

// A Document is a record as services keep it, in JSON.
type Document struct {
	Key     string `json:"key"`
	LeaseID string `json:"leaseId"` // empty if nobody has had the key yet
	Phase   string `json:"phase"`   // held or free
	// Unix milliseconds at most: exact as the floating point number that it may be to the service
	Token   int64     `json:"token"`
	Claimed time.Time `json:"claimed"`
	HoldSec float64   `json:"holdSec"`
	Note    string    `json:"note"`
}

const (
	phaseHeld = "held"
	phaseFree = "free"
)

// Document returns r as a service keeps it for key.
func (r Record) Document(key string) Document {
	phase := phaseHeld
	if r.Released || r.ID == "" {
		phase = phaseFree
	}

	return Document{
		Key:     key,
		LeaseID: r.ID,
		Phase:   phase,
		Token:   r.Token,
		Claimed: r.Claimed,
		HoldSec: r.Hold.Seconds(),
		Note:    r.Note,
	}
}

// Record returns the record that d is, last written at written by the service's clock. Its error is a *lease.Failure.
func (d Document) Record(written time.Time) (Record, error) {
	unreadable := func(format string, args ...any) (Record, error) {
		return Record{}, lease.NewWrong("it is not a lease: " + fmt.Sprintf(format, args...))
	}
	switch {
	case d.Phase != phaseHeld && d.Phase != phaseFree:
		return unreadable("phase is neither %q nor %q: %q", phaseHeld, phaseFree, d.Phase)
	case d.LeaseID == "" && d.Phase == phaseHeld:
		return unreadable("leaseId is missing")
	case d.LeaseID == "":
		return Record{}, nil
	case !(d.HoldSec >= 0 && d.HoldSec <= math.MaxInt64/1e9/2):
		return unreadable("holdSec is not a duration: %v", d.HoldSec)
	}

	hold := time.Duration(math.Round(d.HoldSec * float64(time.Second)))
	return Record{
		Record:   lease.Record{Note: d.Note, Token: d.Token, Claimed: d.Claimed, Written: written, Hold: hold},
		ID:       d.LeaseID,
		Released: d.Phase == phaseFree,
	}, nil
}
