// Package telemetry is the contract of what the worker reads: events of devices, in
// ordered partitions, from a source. It also decodes them.
package telemetry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"alertworker/internal/telemetry/amqpvalue"
)

// A Position is a place in a partition. The zero Position is before the first event.
type Position struct {
	// Generation identifies the hub that numbered the event: its namespace, its name and when it
	// was created. Positions of one generation are in the order of Sequence alone. Those of two
	// cannot be compared. It is empty if the hub is not known.
	Generation string
	Sequence   int64
	Offset     string    // as the hub gave it; opaque
	Time       time.Time // when the hub took the event there, by its clock; zero if it is not known
}

// NotAfter reports whether p is known not to be after q. It is false if the two are of different generations, or q is
// before the first event.
func (p Position) NotAfter(q Position) bool {
	return p.Generation == q.Generation && p.Sequence <= q.Sequence && q.Offset != ""
}

// An Event is one message as the hub delivered it. It is read-only, and valid
// until the next Receive.
type Event struct {
	Position
	Device        string // iothub-connection-device-id, as sensor.Device makes it: any string, case-sensitive; empty if the event has none
	Module        string // iothub-connection-module-id: the IoT Edge module that sent it; empty if the event has none
	Component     string // dt-subject: the component of a Plug and Play device; empty if the event has none
	Body          []byte
	Enqueued      time.Time // the hub's clock; of an event for an Intake, this machine's
	MessageSource string    // iothub-message-source: "Telemetry", "twinChangeEvents", …; empty means telemetry
	Properties    Properties

	// Undecodable is why the message could not be decoded, empty if it could. If it
	// could not, Body is the first 64 KiB of the message as it came, and only those
	// of the other fields are set that could be found in it.
	Undecodable string
}

// SourceExpired is the MessageSource of an event that stands for those up to it that the source has dropped unread.
// It has nothing but a Position.
const SourceExpired = "expired"

// ErrLost means that another replica owns the partition now.
var ErrLost = errors.New("partition lost")

// A Partition is one ordered stream that this replica owns at present. Receive
// and Checkpoint may be called concurrently, each by one goroutine at a time.
type Partition interface {
	ID() string

	// Receive returns the next events in order: at least one, as many as are
	// buffered, never waiting to fill a batch. ErrLost once another replica
	// owns the partition; ctx's error when ctx ends; any other error means that
	// this Partition is broken and its consumer should return.
	Receive(ctx context.Context) ([]Event, error)

	// Resumed returns the checkpoint after which Receive begins, one with nothing but a Generation if there is
	// none. The Generation is that of the events that come. over reports that the partition starts over although there
	// was one: it is of another hub, or cannot be read. What it was the checkpoint of says nothing about the events that
	// come.
	Resumed() (c Checkpoint, over bool)

	// Rewind has Receive begin after at instead, which is before the checkpoint. It is called before the first Receive,
	// if at all.
	Rewind(at Position)

	// Last returns the number and the time of the last event that the hub has taken, the number -1 if there was none. It
	// asks the hub, and the answer is of no earlier moment than the call.
	Last(ctx context.Context) (sequence int64, enqueued time.Time, err error)

	// Newest returns when the hub took the newest event of all its partitions, zero if it has never taken one; of those
	// that are no older than enough any. That was so at the time asked, by this machine's clock. It asks the hub for what
	// that has not said lately.
	Newest(ctx context.Context, enough time.Time) (newest, asked time.Time, err error)

	// Checkpoint records that every event up to and including c's position is settled. It
	// never moves a checkpoint back: an older position than the one recorded is not an
	// error and changes nothing, nor does a position of another generation. At the same position c's ledger is recorded.
	// ErrLost once another replica owns the partition.
	Checkpoint(ctx context.Context, c Checkpoint) error
}

// A Checkpoint is how far a partition is settled.
type Checkpoint struct {
	Position
	// Ledger is the id of the ledger that holds the alarms at Position, empty if alarms are not
	// kept: see package ledger.
	Ledger string
}

// A Source hands out partitions.
type Source interface {
	// Run calls consume, in a goroutine of its own, for every partition that this
	// replica comes to own. It returns when ctx has ended and every consume has
	// returned. consume's context ends when the partition is lost, with the cause
	// ErrLost, or when ctx does. In the second case consume still owns the
	// partition until it returns, to settle and checkpoint.
	//
	// Run recovers from failures by itself. It returns nil when ctx has ended, and
	// an error only if no retry can help.
	Run(ctx context.Context, consume func(context.Context, Partition) error) error
}

// SourceStats says what a Source has done and what it has.
type SourceStats struct {
	Running bool  // the hub and the checkpoint store have answered; false again while it reconnects
	Hub     Fault // why the hub last did not answer; zero once it has answered since

	Owned   int // partitions this replica owns
	Reading int // partitions whose link is open

	// Faults says why partitions that this replica owns are not read. Those that are just being
	// opened are not in it.
	Faults map[string]Fault

	// AtRisk says why partitions that are read may soon not be: the right to read them cannot be renewed, or another
	// program reads them too.
	AtRisk map[string]Fault

	Lost     int64 // partitions lost to another replica, or because the hub became another one
	Reopened int64 // links to partitions that failed and were opened again
	Stalled  int64 // those of them on which nothing came although the hub was ahead

	Moves       int64 // times the IoT Hub's events were found at another endpoint
	StartedOver int64 // partitions not resumed from their checkpoint: it was of another hub, or could not be read
	Expired     int64 // events that the hub had dropped before the partition was read from its checkpoint on
	Skipped     int64 // events missing between two that were read
}

// A Fault is a failure that lasts. The zero Fault is none.
type Fault struct {
	Since   time.Time // the first failure in a row
	Err     error     // the last one; it says what to do and holds no secret
	Refused bool      // the credentials were refused
}

// A PartitionStatus is a partition as all replicas see it.
type PartitionStatus struct {
	Partition  string
	Owner      string // the id under which a replica owns it; empty if none does
	Mine       bool   // that is this replica
	Checkpoint int64  // sequence number; -1 if there is none
	// Last is the sequence number of the last event. It is -1 if there never was one, if the hub does
	// not say, and if it is before the checkpoint: then the hub has been replaced.
	Last int64
}

// ComparePartitions orders the ids of partitions, which are numbers, by value; longer ones that are none come later.
func ComparePartitions(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// An Intake settles events one by one, for callers who wait for the outcome.
// It is safe for concurrent use.
type Intake interface {
	// Handle asks every receiver of an alert about e once, and returns what came of
	// it. ctx ends the wait for somebody else who is sending an alert about the same;
	// a send of its own that is under way ends by itself. e.Enqueued is the
	// time.Now of its arrival: the monotonic clock gives its age, the time of day is
	// only shown to people. key, unless empty, identifies the event and its alert
	// when the event is handed in again. The error is nil unless the verdict is
	// VerdictFailed. Then it is a *DecodeError, an *UnsettledError, or ErrBusy if
	// there is no room for a reading that has to wait: one over the threshold of a
	// device whose window is not known to be in force. sensors are the verdicts of those of its device's sensors that e has
	// readings of, by their names, and the verdict is the worst of all; nil if it has none with a name.
	Handle(ctx context.Context, e Event, key string) (v Verdict, sensors map[string]Verdict, err error)
}

// A Verdict is what became of an event that was handed to an Intake.
type Verdict int

// Worst returns the one of v and another verdict that matters more: what failed, and then what alerted.
func (v Verdict) Worst(other Verdict) Verdict {
	if v == VerdictFailed || other == VerdictFailed {
		return VerdictFailed
	}
	return max(v, other)
}

const (
	VerdictFailed    Verdict = iota // not settled, or refused for good by a receiver: it may be handed in again
	VerdictNormal                   // below the threshold
	VerdictThrottled                // its device was alerted within the window
	VerdictAlerted                  // an alert about it was taken
)

// ErrBusy means that too many events wait in an Intake.
var ErrBusy = errors.New("too many readings wait to be settled")

// An UnsettledError is why an event was not settled, or not with an alert that a receiver
// took.
type UnsettledError struct {
	Reason string // one of few, for programs: "dead_letter", or what stands in the way
	Detail string // for people; no secrets
}

func (e *UnsettledError) Error() string { return e.Detail }

// A DecodeError is why an event has no reading.
type DecodeError struct{ Reason Reason }

func (e *DecodeError) Error() string { return "no reading in the body: " + e.Reason.String() }

// Properties are an event's application properties: an encoded AMQP map, empty if there are none.
type Properties []byte

// A Property is the value of an application property, null if there is none.
type Property = amqpvalue.Value

// All iterates over the names and values, in the message's order. Of a name that comes twice the
// last value counts. A name that is no text is left out.
func (p Properties) All() iter.Seq2[[]byte, Property] {
	return func(yield func([]byte, Property) bool) {
		entries, _ := amqpvalue.Value(p).Entries()
		for {
			key, _ := entries.Next()
			value, ok := entries.Next()
			if !ok {
				return
			}
			if name, ok := key.Text(); ok && !yield(name, value) {
				return
			}
		}
	}
}

// Find returns the property of that name, in any case: of several that differ by case only, it returns the one that is
// written like name, else the last. It allocates nothing; the property aliases p.
func (p Properties) Find(name []byte) (found Property) {
	isExact := false
	for text, value := range p.All() {
		exact := bytes.Equal(text, name)
		if exact || !isExact && bytes.EqualFold(text, name) {
			found, isExact = value, exact
		}
	}
	return found
}

// EncodeProperties returns properties with these values, in the order of their names.
func EncodeProperties(all map[string]Property) Properties {
	if len(all) == 0 {
		return nil
	}

	var entries []byte
	for _, name := range slices.Sorted(maps.Keys(all)) {
		entries = append(append(entries, Text(name)...), all[name]...)
	}

	b := binary.BigEndian.AppendUint32([]byte{amqpvalue.Map32}, uint32(len(entries)+4))

	return append(binary.BigEndian.AppendUint32(b, uint32(2*len(all))), entries...)
}

// Text returns a property that is text, as those of an IoT Hub are.
func Text(s string) Property {
	return append(binary.BigEndian.AppendUint32([]byte{amqpvalue.String32}, uint32(len(s))), s...)
}
