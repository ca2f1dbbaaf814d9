// Package notify tells people. An [Alert] goes to a [Notifier], a [Summary] to a
// [Reporter]; what came of it is nil or an [Error].
package notify

import (
	"context"
	"errors"
	"time"
)

// An Alert says that a device was too hot.
type Alert struct {
	// ID is the same in every attempt at one alert. A receiver may drop an
	// alert if it took the same ID, or one of the same device with a
	// greater Token, within the last Window.
	ID          string
	Source      string // where the reading came from: "/<namespace>/<hub>", a URI reference
	Device      string // as the hub gave it
	Temperature float64
	Threshold   float64
	Enqueued    time.Time // when the hub got the reading, by the hub's clock
	Partition   string
	Sequence    int64
	Window      time.Duration // no other alert of this device for so long
	Token       int64         // grows with every alert of the device
	Expires     time.Time     // by the store's clock; taken later, the alert may come twice
	Suppressed  int64         // readings over the threshold kept quiet since the device's last alert, as far as this replica knows
	Replica     string
	Test        bool // sent by `alertworker check --notify`
}

// A DeadLetter is an alert that a receiver will not get.
type DeadLetter struct {
	Alert    Alert
	Receiver string
	Reason   string // for people
}

// A Notifier delivers alerts to one receiver.
type Notifier interface {
	// Notify returns nil only once the receiver has taken the alert. It returns
	// by the time ctx ends, and then with an error. It makes one attempt;
	// retrying is the caller's. What it returns is an *Error, or is
	// treated as the zero one. It never contains secrets. Safe for
	// concurrent use.
	Notify(ctx context.Context, a Alert) error
}

// A Summary tells of two days: the day before its making, and that day so far.
type Summary struct {
	// ID is the same in every attempt at one summary, by any replica, though the
	// figures may differ. A receiver may drop a summary if it took the same ID.
	ID     string
	Source string // where the readings came from: "/<namespace>/<hub>", a URI reference
	Scope  string // whose alerts these are
	Due    time.Time
	Made   time.Time // by the clock of the replica that made it
	Days   [2]Day    // the day before, and the day so far
	// More says that there were more devices than could be counted: figures are too low.
	More bool
}

// A Day is what happened on one UTC day. A device with several receivers counts
// once, as the receiver with the most has it.
type Day struct {
	Date time.Time // its beginning
	// Unknown: the figures from Alerts to MostSuppressed could not be read.
	Unknown    bool
	Alerts     int64 // of all devices
	Suppressed int64 // readings kept quiet before these alerts
	Devices    int64 // that alerted
	// At most ten devices each, the first with the most.
	MostAlerts, MostSuppressed []DeviceCount
	// DeadLetters is how many alerts about readings of that day a receiver did not get; nil if nobody counts them
	// or they could not be counted.
	DeadLetters *int
}

// A DeviceCount is one device on one day.
type DeviceCount struct {
	Device             string
	Alerts, Suppressed int64
}

// A Reporter is a Notifier that delivers summaries too.
type Reporter interface {
	// Report returns nil only once the receiver has taken the summary. For the rest it
	// is as Notify.
	Report(ctx context.Context, s Summary) error
}

// An Error says what is known of an alert that was not taken, or may not have
// been. The zero value, but for Err, is the cautious one: transient, and the receiver may
// have taken the alert although we did not hear of it.
type Error struct {
	// Refused: this alert will never be taken, while the receiver is well.
	Refused bool
	// Untaken: the receiver has certainly not taken the alert.
	Untaken bool
	// RetryAfter is how long the receiver asked to be left alone; 0 if it did not.
	RetryAfter time.Duration
	Err        error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// AsError returns the *Error in err's chain, or else the cautious one around err.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Err: err}
}
