// Package telemetry is the contract of what the worker reads: events of devices, in
// ordered partitions, from a source. It also decodes them.
package telemetry

import (
	"context"
	"errors"
	"time"
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
	Device          string // iothub-connection-device-id, as sensor.Device makes it: any string, case-sensitive; empty if the event has none
	Module          string // iothub-connection-module-id: the IoT Edge module that sent it; empty if the event has none
	Component       string // dt-subject: the component of a Plug and Play device; empty if the event has none
	Body            []byte
	Enqueued        time.Time // the hub's clock; of an event for an Intake, this machine's
	MessageSource   string    // iothub-message-source: "Telemetry", "twinChangeEvents", …; empty means telemetry
	ContentType     string
	ContentEncoding string // a charset, for IoT Hub; devices also put compressions here
	Properties      Properties

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
