// Package notify tells people. An [Alert] goes to a [Notifier]; what came of it
// is nil or an [Error].
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

// A Notifier delivers alerts to one receiver.
type Notifier interface {
	// Notify returns nil only once the receiver has taken the alert. It returns
	// by the time ctx ends, and then with an error. It makes one attempt;
	// retrying is the caller's. What it returns is an *Error, or is
	// treated as the zero one. It never contains secrets. Safe for
	// concurrent use.
	Notify(ctx context.Context, a Alert) error
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
