package incident

import (
	"maps"
	"time"
)

// A State is that of an incident.
type State string

const (
	None    State = ""        // there was none
	Running State = "running" // a partition has a member
	Over    State = "over"    // none has, and not everybody who was told of it has its end
	Closed  State = "closed"  // they have
)

// A Record is what is known of the latest incident of a group. It is a value: what changes it returns another one.
type Record struct {
	ID      string           `json:"id"` // of the incident; empty if there was none
	State   State            `json:"state"`
	Began   time.Time        `json:"began"`           // by the store's clock
	Overs   int              `json:"overs,omitempty"` // how often it was over
	Entries map[string]Entry `json:"partitions"`      // by partition
}

// A Position is that of the last event that an owner had read, in the log that numbers it.
type Position struct {
	Log      string `json:"log"`
	Sequence int64  `json:"seq"`
}

// An Entry is what a partition says. It stays without members, because its position does.
type Entry struct {
	Members  int       `json:"members,omitempty"`
	First    string    `json:"first,omitempty"` // device or sensor of the first member, for people
	Since    time.Time `json:"since,omitzero"`  // when the first member's alarm began
	Written  time.Time `json:"written"`         // by the store's clock
	Position Position  `json:"position"`
}

// An End is one of an incident, which may be over several times. The zero End is none.
type End struct {
	Incident string
	Overs    int
}

// A Result is what an owner knows once the record has what it wrote, or needs nothing of it.
type Result struct {
	Incident string    // under which the partition has members in the record; empty if it has none there
	Began    time.Time // of the record's incident
	End      End       // that is due because the incident is over
	// A former owner was further: nothing was written. Without Incident, what is due about a member is settled.
	Behind bool
}

// Sync returns the record after the owner of a partition has written e, its members as of a position, at a time by the
// store's clock, and what the owner knows then. id is that of the incident, if it begins.
func (r Record) Sync(partition string, e Entry, id string, now time.Time) (Record, Result) {
	was := r.Entries[partition]
	isFurther := was.Position.Log == e.Position.Log && was.Position.Sequence > e.Position.Sequence // of two logs nobody knows
	if isFurther {
		result := Result{Behind: true, Began: r.Began}
		if was.Members > 0 {
			result.Incident = r.ID
		} else if e.Members == 0 {
			result.End = r.End()
		}
		return r, result
	}

	next := r
	next.Entries = maps.Collect(maps.All(r.Entries))
	e.Written = now
	if e.Members == 0 {
		e.First, e.Since = "", time.Time{}
		next.Entries[partition] = e
		next = next.afterLeaving()
		return next, Result{Began: next.Began, End: next.End()}
	}

	next.Entries[partition] = e
	switch r.State {
	case Running:
	case Over: // it goes on: not everybody knows of its end
		//planted:over-incident-begins-anew next.ID, next.Began, next.Overs = id, now, 0
		next.State = Running
	default:
		next.ID, next.State, next.Began, next.Overs = id, Running, now, 0
	}

	return next, Result{Incident: next.ID, Began: next.Began}
}

// afterLeaving returns r after an entry has lost its members, if it had any.
func (r Record) afterLeaving() Record {
	if r.State == Running && r.Partitions() == 0 {
		r.State = Over
		r.Overs++
	}
	return r
}

// End returns the end that is due: zero unless the incident is over.
func (r Record) End() End {
	if r.State != Over {
		return End{}
	}
	return End{Incident: r.ID, Overs: r.Overs}
}

// Closed returns the record once every receiver has settled an end, and whether that changes it: not if the incident
// runs again, or was over once more.
func (r Record) Closed(e End) (Record, bool) {
	if !r.MayEnd(e) {
		return r, false
	}
	r.State = Closed
	return r, true
}

// Without returns the record without the entry of a partition that is no more, and whether that changes it.
func (r Record) Without(partition string) (Record, bool) {
	if _, ok := r.Entries[partition]; !ok {
		return r, false
	}

	r.Entries = maps.Clone(r.Entries)
	delete(r.Entries, partition)

	return r.afterLeaving(), true
}

// MayAlert reports whether an alert about the members of a partition, under an incident's id, is still true.
func (r Record) MayAlert(partition, id string) bool {
	return r.State == Running && r.ID == id && r.Entries[partition].Members > 0
}

// MayEnd reports whether an end is still true.
func (r Record) MayEnd(e End) bool { return e != (End{}) && r.End() == e }

// Partitions returns how many partitions have members.
func (r Record) Partitions() (n int) {
	for _, e := range r.Entries {
		if e.Members > 0 {
			n++
		}
	}
	return n
}

// Members returns how many there are. They are at least as many if an entry was written before a time: owners correct
// their numbers now and then.
func (r Record) Members(since time.Time) (n int, atLeast bool) {
	for _, e := range r.Entries {
		n += e.Members
		atLeast = atLeast || e.Members > 0 && e.Written.Before(since)
	}
	return n, atLeast
}

// First returns the entry of the member whose alarm began first.
func (r Record) First() (first Entry) {
	for _, e := range r.Entries {
		if e.Members > 0 && (first.Members == 0 || e.Since.Before(first.Since)) {
			first = e
		}
	}
	return first
}
