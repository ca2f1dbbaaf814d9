// Package notify is the contract of receivers: an [Alert] goes to a [Notifier], and the result is
// nil or an [Error].
package notify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// DefaultRule is the name of the rule that TEMPERATURE_THRESHOLD makes.
const DefaultRule = "temperature"

// An Alert says that a device's reading reached a limit, or is normal again.
//
// Its JSON is what programs get of it, in the data of a webhook's event: fields may be added, never renamed.
// What has no name there is written in other words.
type Alert struct {
	// ID is the same in every attempt at one alert. A receiver may drop an alert if it took
	// the same ID within the last Window, or was sent a greater Token of the same Source and
	// Device within the last Remember.
	ID string `json:"-"`
	// where the reading came from, "/<namespace>/<hub>", followed by rule, level and sensor as in docs/receivers.md; a URI
	// reference
	Source string `json:"-"`
	Device string `json:"device"` // as the hub gave it
	// the device's sensor that the reading is of; empty: it is the device's own
	Sensor string `json:"sensor,omitempty"`
	// the application property that devices share it by; empty if they do not
	Per      string `json:"-"`
	PerValue string `json:"-"`              // the value of that property, empty without one
	Rule     string `json:"rule,omitempty"` // the rule's name
	// which of the rule's limits was reached; empty if it has only one, without a name
	Level string `json:"level,omitempty"`
	// the reading is normal again: it ends what earlier alerts of the device, rule and level said
	Resolved bool `json:"-"`
	// one that is Resolved follows in time: the rule tells when a device is normal again
	WillResolve bool `json:"willResolve,omitempty"`
	// of one that is Resolved: the rule is not configured any more. The reading and the limit are those of the alarm
	// that ends with it
	Removed bool `json:"removed,omitempty"`
	// readings at or below the limit are worth an alert, else those at or above it
	Below bool   `json:"below,omitempty"`
	Title string `json:"title,omitempty"` // of the rule, for people; empty if it has none
	// of the reading, for people, such as "°C"; empty if it has none
	Unit    string `json:"unit,omitempty"`
	Runbook string `json:"runbook,omitempty"`    // a URL that says what to do; empty if there is none
	Shown   Shown  `json:"properties,omitempty"` // application properties that people see
	// the message is damaged, and what could be read of it may not be what was measured
	Damaged bool `json:"damaged,omitempty"`
	// where in the message the reading is: the rule's field; empty for DefaultRule
	Field       string  `json:"field,omitempty"`
	Temperature float64 `json:"-"` // the reading, whatever it measures
	// of a rule that compares words: what the reading is, or of a recovery, what it no longer is; empty if the reading
	// is a number
	Word string `json:"word,omitempty"`
	// the limit; of a recovery, the value beyond which the reading is clear
	Threshold float64 `json:"-"`
	// limits are in messages, and those of other devices may be others
	OwnLimit bool `json:"ownLimit,omitempty"`
	// when the reading with which the alarm began was taken, by the device's clock if DeviceTime is known, else by the
	// hub's; zero if it is not known
	Since     time.Time `json:"since,omitzero"`
	Enqueued  time.Time `json:"enqueuedTime"` // when the hub got the reading, by the hub's clock
	Partition string    `json:"partition"`
	Sequence  int64     `json:"sequence"`
	// names the log that numbered the reading, for the gate; no payload has it
	Log string `json:"-"`
	// when the device took the reading, by its own clock; zero if that is not known, or not trusted
	DeviceTime time.Time `json:"deviceTime,omitzero"`
	// of a rule about silence: after how long a device is silent; 0 for other rules. Since is when it was last heard, as
	// far as it is known, and Enqueued when it should have been; there is no reading
	Silent time.Duration `json:"-"`
	// of a silent device: when the hub got the last event; earlier than Since if events may have been lost since
	LastHeard time.Time `json:"lastHeard,omitzero"`
	// of one that is Resolved: nothing is expected of the device any more, because it was silent for so long or an
	// operator has removed it
	Forgotten bool `json:"forgotten,omitempty"`
	// of an alert about the whole Hub
	Outage *Outage `json:"outage,omitempty"`
	// of an alert about an incident of the devices that share PerValue, and of its end, which is Resolved: what is said of
	// a device, a sensor or a reading is that of the first member. Else nil
	Incident *Incident `json:"-"`
	// of one that is Resolved, unless it is empty: the rule does not look at the device any more, and why, for people
	Excluded string        `json:"excluded,omitempty"`
	Window   time.Duration `json:"-"` // time without another alert of this device, rule and level
	// how long after it the next one comes while the alarm is open, if that is known and longer than Window; else 0
	Repeat time.Duration `json:"-"`
	// how long a receiver should remember the Token, and the ID of one that is Resolved: Window, or the length of a
	// claim if that is longer, and of one that is Resolved as long as it may be repeated besides; 0 is Window
	Remember time.Duration `json:"-"`
	// grows with every alert and recovery of the device, rule and level
	Token   int64     `json:"token"`
	Expires time.Time `json:"expires,omitzero"` // by the store's clock; an alert taken later may come twice
	// when it is sent, by the store's clock: no earlier than its claim was made; zero if no store was asked. What a
	// receiver compares with its own clock never follows this machine's
	Sent time.Time `json:"-"`
	// readings that reached the limit since the last alert, as far as this replica knows; with PerValue, devices with
	// such readings
	Suppressed int64  `json:"suppressed"`
	Replica    string `json:"replica"`
	// sent by `alertworker check --notify`, or about a device that IsTest
	Test bool `json:"test,omitempty"`
	// To has addresses, separated by commas: only these of the receiver's recipients get it; empty if all do.
	To string `json:"-"`
	// Refresh means that this is no alert: it says again what the receiver took, which it may have forgotten, because the
	// alarm is still open.
	Refresh bool `json:"-"`
	// Ambiguous means that the receiver may have taken this alert before. It is about the
	// attempt, not the alert, so no payload for programs has it: they compare the ID.
	Ambiguous bool `json:"-"`
}

// An Outage is when nothing comes to any partition of a hub.
type Outage struct {
	Devices int `json:"devices"` // from which a rule about silence expects something
}

// An Incident is what alarms of a rule and level are that share a value. Alerts about it and its end have the same ID.
//
// Its JSON is a part of that of an Alert, and likewise.
type Incident struct {
	ID      string    `json:"incident"`          // no other incident has it
	Began   time.Time `json:"began,omitzero"`    // by the store's clock
	Members int       `json:"members"`           // devices or sensors with an open alarm, in all partitions; 0 once it is over
	AtLeast bool      `json:"atLeast,omitempty"` // there may be more
	First   string    `json:"first,omitempty"`   // the member whose alarm began first, as sensor.ID.String; empty if that is not known, or it is over
}

// A TokenSource returns an access token of an Azure identity. Its errors hold no secrets.
type TokenSource func(ctx context.Context) (string, error)

// A DeadLetter is an alert that could not be delivered to a receiver.
type DeadLetter struct {
	Alert    Alert
	Receiver string // its id, the same in every version
	Name     string // the receiver's, for people
	Reason   string // for people
}

// A Notifier delivers alerts to one receiver.
type Notifier interface {
	// Notify delivers alerts, of which there is at least one, and no more than the receiver's
	// Limits.Batch, in one message. It returns nil only once the receiver has taken all of them; an
	// error is about each. A message about several that is Refused may be refused for one of them: then
	// each can still be tried alone. Notify makes one attempt and returns by the time ctx ends, with an
	// error unless the alerts were taken. An error that is not an *Error is treated like the zero
	// Error. Errors contain no secrets. Safe for concurrent use.
	Notify(ctx context.Context, alerts ...Alert) error
}

// A Tryable is a Notifier whose credentials can be tried without telling anybody anything.
type Tryable interface {
	// Try returns nil if the receiver accepts the credentials. It makes one attempt and returns by the time ctx ends.
	// Errors contain no secrets.
	Try(ctx context.Context) error
}

// An Error says what is known of an alert that was not taken, or may not have been. The
// zero value, but for Err, is the cautious one: transient, and the receiver may have
// taken the alert.
type Error struct {
	// Refused means that the receiver works but will never take this alert.
	Refused bool
	// Untaken means that the receiver has certainly not taken the alert.
	Untaken bool
	// Limited means that the receiver takes fewer messages than it is sent: 429, or any other answer
	// with Retry-After. It is no fault of the alert, and others wait with it.
	Limited bool
	// RetryAfter is how long the receiver asked us to wait, if it is Limited; 0 if it did not say.
	RetryAfter time.Duration
	// Left has the recipients who have not got the alert, as in Alert.To, of a receiver with several of whom all others have.
	// If it is Refused they never will, and a dead letter of each alert for them is due; the alert is delivered then. Else
	// it is to be tried again: the notifier remembers who has got it.
	Left string
	// Status is the HTTP status that the receiver answered; 0 if there was no answer.
	Status int
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// OwnFault reports whether the failure may be that of the message, which others need not share:
// a 4xx, but not one about credentials, time or rate.
func (e *Error) OwnFault() bool {
	ofOthers := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests}
	return e.Status/100 == 4 && !e.Limited && !slices.Contains(ofOthers, e.Status)
}

// AsError returns the *Error in err's chain, or else the cautious one around err.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Err: err}
}

// Ended returns the error of an attempt whose ctx has ended, with the cause.
func Ended(ctx context.Context, what string) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%s: %w: %w", what, ctx.Err(), cause)
	}
	return fmt.Errorf("%s: %w", what, ctx.Err())
}

// What is known after an attempt, in metrics.
const (
	ResultDelivered = "delivered"
	ResultRefused   = "refused"   // for good
	ResultNotTaken  = "not_taken" // certainly; it is tried again
	ResultUnknown   = "unknown"   // the receiver may have taken it
)

// Result says what is known after an attempt that ended with err.
func Result(err error) string {
	e := AsError(err)
	switch {
	case err == nil:
		return ResultDelivered
	case e.Refused:
		return ResultRefused
	case e.Untaken:
		return ResultNotTaken
	}

	return ResultUnknown
}

// TestDevice begins the names of devices that nobody needs to look after: `alertworker test` makes them up.
const TestDevice = "alertworker-test"

// IsTest reports whether alerts of device are tests.
func IsTest(device string) bool { return strings.HasPrefix(device, TestDevice) }
