package ledger

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"alertworker/internal/records"
	"alertworker/internal/sensor"
	"alertworker/internal/telemetry"
)

// A Content is what a ledger holds: the alarms at Position, as the log up to there gives
// them. Its times are in UTC, to the nanosecond; their years must have four digits.
type Content struct {
	Position telemetry.Position `json:"-"` // the zero Position: nothing has been kept yet
	// those that Alarms are of; no two of the same rule, name, kind and Measured
	Levels []Level `json:"levels,omitempty"`
	// in no particular order; no two of the same device, rule and level
	Alarms []Alarm `json:"alarms,omitempty"`

	// Removed is what earlier versions kept of devices that operators had removed. It is ignored.
	Removed json.RawMessage `json:"forgotten,omitempty"`

	Ends []End `json:"ends,omitempty"` // of incidents; no two of the same level and value
}

// An End is one of an incident: see package incident. It is due, unless it has no id: then the record of the incident may lack
// that its last member of this partition has ended, and is to be written before anybody knows.
type End struct {
	Rule     string    `json:"rule"`
	Level    string    `json:"level,omitempty"`
	Measured string    `json:"measured,omitempty"` // of its level
	Per      string    `json:"per"`                // likewise
	Silence  bool      `json:"silence,omitempty"`  // likewise
	Value    Text      `json:"value"`              // that its members share
	Incident string    `json:"incident"`           // its id; empty: not known, as are Began and Overs
	Began    time.Time `json:"began"`
	Overs    int       `json:"overs"` // how often it was over
	// the last member that ended, and its reading
	Device  Text    `json:"device"`
	Sensor  Text    `json:"sensor,omitempty"`
	Reading Reading `json:"reading"`
}

// A Level is one of a rule's, as it was when it was configured: what its recoveries need, also once it is not.
type Level struct {
	Rule     string        `json:"rule"`
	Name     string        `json:"level,omitempty"`
	Resolved bool          `json:"resolved,omitempty"` // the rule sends recoveries
	Below    bool          `json:"below,omitempty"`
	Field    string        `json:"field,omitempty"`
	Window   time.Duration `json:"window,omitempty"` // in ns
	// in ns. Of a rule about silence: after how long. A rule that is about readings is another one
	Silent time.Duration `json:"silent,omitempty"`
	Is     []string      `json:"is,omitempty"` // of a rule that compares words
	// tells the rule from one of that name that takes messages apart otherwise: see rules.Rule.Measured
	Measured string `json:"measured,omitempty"`
	Per      string `json:"per,omitempty"` // its alarms are members of incidents, by what devices share under this name
	// For people, as in rules.Rule.
	Title   string `json:"title,omitempty"`
	Unit    string `json:"unit,omitempty"`
	Runbook string `json:"runbook,omitempty"`
	// Removed is when an owner first found that the level is not configured any more, by the store's clock: see
	// Ledger.Opened. It is zero while it is configured.
	Removed time.Time `json:"removed,omitzero"`
}

// An Alarm is the state of one level of one device that is not normal, or has a recovery that is due.
type Alarm struct {
	Device Text   `json:"device"`
	Sensor Text   `json:"sensor,omitempty"` // of the device; empty: the alarm is the device's own
	Rule   string `json:"rule"`
	Level  string `json:"level,omitempty"`
	// of its level
	Measured string `json:"measured,omitempty"`
	Per      string `json:"per,omitempty"`   // likewise
	Group    Text   `json:"group,omitempty"` // the value that it shares with other members of an incident; empty: it is no member
	Open     bool   `json:"open,omitempty"`
	Value    Number `json:"value,omitzero"` // of the reading that opened it, or made it pending; 0 if it is neither
	Limit    Number `json:"limit,omitzero"`
	// when the hub took the first reading of those that reached the limit; zero if it is neither pending nor open
	Since time.Time `json:"since,omitzero"`
	// when the device took it, by its own clock; zero if that is not known
	DeviceSince time.Time `json:"deviceSince,omitzero"`
	// by the device's clock, when the last reading was taken that the alarm has seen; zero if that is not known
	DeviceNewest time.Time `json:"deviceNewest,omitzero"`
	// of an open alarm whose last readings were clear: when the hub took the first of these, and when the device did;
	// zero if the last one was not, or if that is not known. No recovery is due then
	Cleared       time.Time `json:"cleared,omitzero"`
	DeviceCleared time.Time `json:"deviceCleared,omitzero"`
	// what a notice is due about: the reading that cleared the last alarm, or while it is Open, the silence, or of a member of
	// an incident what cleared an alarm of its own before; nil if none is
	Due *Reading `json:"due,omitempty"`
	// of an open alarm: its next reading alerts, whatever its value, because a higher level of the rule that was open, or
	// a mute, has held an alert back
	Exposed bool `json:"exposed,omitempty"`

	// Of a rule about silence: Since and the place here are what an open alarm is about, Limit is in seconds, and Value
	// is 0. Of another rule that says how often an open alarm is sent again, the place is that of the reading that
	// opened it.
	Silence  bool   `json:"silence,omitempty"`
	Log      string `json:"log,omitempty"` // names the log that numbered the event; opaque
	Sequence int64  `json:"sequence,omitempty"`
	Element  int    `json:"element,omitempty"` // of the message of that number
}

// Of returns what the alarm is of.
func (a Alarm) Of() sensor.ID { return sensor.ID{Device: string(a.Device), Name: string(a.Sensor)} }

// A Reading is one that cleared an alarm, or of a silence, its deadline.
type Reading struct {
	Log      string    `json:"log,omitempty"` // names the log that numbered it; opaque
	Sequence int64     `json:"sequence"`
	Element  int       `json:"element,omitempty"` // of the message of that number
	Enqueued time.Time `json:"enqueued,omitzero"`
	Value    Number    `json:"value"`
	Limit    Number    `json:"limit"` // that it cleared
	// of the alarm that it cleared, by the clock of DeviceTime if that is known
	Since time.Time `json:"since,omitzero"`
	// when the device took it, by its own clock; zero if that is not known
	DeviceTime time.Time `json:"deviceTime,omitzero"`

	// since when the notice is due, if that is another time; of a silence, when its alarm was opened
	RaisedAt time.Time `json:"opened,omitzero"`

	// About silence.
	Part      uint8     `json:"part,omitempty"`      // of the place that Sequence names: see throttle.Part
	Heard     time.Time `json:"heard,omitzero"`      // when the hub took the device's last event that counts
	Forgotten bool      `json:"forgotten,omitempty"` // the device is not known any more
	Excluded  Text      `json:"excluded,omitempty"`  // why the rule does not look at the device any more
	Outage    *Outage   `json:"outage,omitempty"`    // that the silence of the whole hub is about
}

// An Outage is when nothing comes to any partition of a hub.
type Outage struct {
	Devices int `json:"devices"` // from which rules about silence expect something

	// of version 1.0: which partitions most devices were not heard in, and how many the hub had
	Partitions []string `json:"partitions,omitempty"`
	Of         int      `json:"of,omitempty"`
}

// Within these bounds, and those of sensor.ID, a content always fits into [MaxBytes], whatever the texts say.
const (
	MaxAlarms   = 65_536 // in one ledger, at most half of them pending or open, and as many normal, with a recovery
	MaxEnds     = 10_000 // in one ledger
	MaxExcluded = 192    // bytes of Reading.Excluded
)

// MaxBytes bounds a content, both as it is stored and unpacked. Write refuses a larger one,
// and so does Open.
const MaxBytes = 136 << 20

// ErrLost says that another owner has taken the ledger over, or that its record was deleted.
var ErrLost = errors.New("ledger lost")

// ownerValue names the owner in a record, so that it can be asked for without the content.
const ownerValue = "owner"

// A Ledger is one owner's hold of a partition's ledger, from its take-over until another
// owner takes it. Calls come one at a time, except Check.
type Ledger struct {
	store     records.Store
	name      string
	id, owner string
	etag      string    // of the record that we wrote last; empty if it is not known
	TakenOver time.Time // when that was, by the store's clock
}

// rounds is how often one call writes. A conflict means that another owner has written, or
// that the answer to a write of ours was lost.
const rounds = 4

// Open takes over the ledger of name, creating it if there is none: it returns the content, after it has
// written it back under an owner name that nobody ever had. Of several that open it at once
// the last one holds it. A record that cannot be read is an *UnreadableError, never an
// empty ledger. Calls of the store must end by themselves, as those of records.Reliable do.
func Open(ctx context.Context, store records.Store, name string) (*Ledger, Content, error) {
	l := &Ledger{store: store, name: name, owner: rand.Text()}
	var failed error
	for range rounds {
		there, err := store.Read(ctx, name, MaxBytes)
		if err != nil && !errors.Is(err, records.ErrNotFound) {
			return nil, Content{}, fmt.Errorf("read ledger %s: %w", name, err)
		}

		var content Content
		l.TakenOver = there.Now.UTC()

		if there.ETag == "" {
			l.id = rand.Text()
			if there.Content, err = encode(l.id, content); err != nil {
				return nil, Content{}, err
			}
		} else if l.id, content, err = decode(there.Content); err != nil {
			return nil, Content{}, &UnreadableError{Name: name, Err: err}
		}

		if l.etag, failed = l.write(ctx, there.Content, there.ETag); failed == nil {
			return l, content, nil
		}
	}

	return nil, Content{}, failed
}

// ID names the ledger itself. It stays the same over all owners, until the record is deleted. A
// checkpoint that has it was written by somebody who held this ledger.
func (l *Ledger) ID() string { return l.id }

// Write replaces the content, which is then durable. ErrLost if another owner has taken the
// ledger over; any other error leaves the outcome unknown, and repeating the call, with the same
// or a later content, is safe.
func (l *Ledger) Write(ctx context.Context, c Content) error {
	content, err := encode(l.id, c)
	if err != nil {
		return fmt.Errorf("write ledger %s: %w", l.name, err)
	}

	for range rounds {
		if l.etag == "" {
			there, err := l.held(ctx, "write")
			if err != nil {
				return err
			}
			l.etag = there.ETag
		}

		// Until it is answered nobody knows which record there is.
		if l.etag, err = l.write(ctx, content, l.etag); !errors.Is(err, records.ErrConflict) {
			return err
		}
	}

	return err
}

// Check returns ErrLost if another owner has taken the ledger over. It may be called
// concurrently with everything. Any other error says that it is not known.
func (l *Ledger) Check(ctx context.Context) error {
	_, err := l.Now(ctx)
	return err
}

// Now is Check, and returns the store's clock.
func (l *Ledger) Now(ctx context.Context) (time.Time, error) {
	there, err := l.held(ctx, "check")
	return there.Now, err
}

// held returns the record, whose owner we are, without its content, or ErrLost.
func (l *Ledger) held(ctx context.Context, what string) (records.Record, error) {
	there, err := l.store.Stat(ctx, l.name)
	switch {
	case err != nil && !errors.Is(err, records.ErrNotFound):
		return records.Record{}, fmt.Errorf("%s ledger %s: %w", what, l.name, err)
	case there.Values[ownerValue] != l.owner:
		return records.Record{}, fmt.Errorf("%s ledger %s: %w", what, l.name, ErrLost)
	}

	return there, nil
}

func (l *Ledger) write(ctx context.Context, content []byte, over string) (etag string, err error) {
	etag, err = l.store.Write(ctx, records.Record{
		Name:    l.name,
		Values:  map[string]string{ownerValue: l.owner},
		Content: content,
		Type:    "application/gzip",
		ETag:    over,
	})
	if err != nil {
		return "", fmt.Errorf("write ledger %s: %w", l.name, err)
	}

	return etag, nil
}

// Look returns what the ledger of name holds, and takes nothing over. Without a ledger it is empty.
func Look(ctx context.Context, store records.Store, name string) (Content, error) {
	there, err := store.Read(ctx, name, MaxBytes)
	switch {
	case errors.Is(err, records.ErrNotFound):
		return Content{}, nil
	case err != nil:
		return Content{}, fmt.Errorf("read ledger %s: %w", name, err)
	}

	_, content, err := decode(there.Content)
	if err != nil {
		return Content{}, &UnreadableError{Name: name, Err: err}
	}

	return content, nil
}
