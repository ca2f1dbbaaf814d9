package delivery

import (
	"net/http"
	"time"

	"alertworker/internal/notify"
)

// A Wait is what a delivery waits for.
type Wait uint8

const (
	WaitAttempt    Wait = iota // an attempt to end, which is under way
	WaitTurn                   // other alerts to be sent
	WaitReceiver               // the receiver, which is down
	WaitStore                  // the throttle store, which cannot be used
	WaitClaim                  // the claim of another replica to end
	WaitPause                  // the next attempt: the last one failed
	WaitDeadLetter             // the dead letter to be written
	// its owner: before a recovery or a silence is sent, the ledger has to say that this replica still owns the partition
	WaitOwner
	WaitWindow // the window to end, before the recovery is sent
	WaitRepeat // an alarm that was sent to be open for long enough to be sent again
)

// String returns w for programs, in the words of package status and of a throttle.Phase where they have one.
func (w Wait) String() string {
	return [...]string{
		"attempt", "turn", "receiver", "throttle_store", "sending", "pause", "dead_letter", "ledger", "window", "repeat",
	}[w]
}

func (w Wait) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// A Condition is what a delivery waits for, and since when. All reports of a delivery that has not ended
// come from this value: by `why`, the status page, GET /devices/{id} and the log.
type Condition struct {
	For  Wait   `json:"for"`
	Text string `json:"text"` // the same for people: a clause with the receiver's last failure, without secrets
	// since when that is so, by this machine's clock; an outage may be older than the delivery
	Since time.Time `json:"since"`
	Next  time.Time `json:"next,omitzero"` // the earliest time of the next attempt, likewise; zero: not known
}

// A State is a delivery that has not ended.
type State struct {
	Receiver  string    `json:"receiver"`
	Sensor    string    `json:"sensor,omitempty"` // of the device; empty: it is about the device's own readings
	Rule      string    `json:"rule"`
	Level     string    `json:"level,omitempty"`
	Recovery  bool      `json:"resolved,omitempty"` // it says that the device is normal again
	Partition string    `json:"partition"`
	Since     time.Time `json:"since"`       // when the hub took the first reading that is not settled
	Value     float64   `json:"temperature"` // of the reading that the alert is about
	Joined    int64     `json:"suppressed"`  // readings since that one
	Waits     Condition `json:"waits"`
}

// A ReceiverFault says how a receiver is down.
type ReceiverFault int

const (
	ReceiverFails   ReceiverFault = iota // it does not answer, or not usefully
	ReceiverRejects                      // it refuses what it is sent for good: each notice becomes a dead letter
	ReceiverLimited                      // it says that it is sent too much, and takes nothing
)

// String returns f as a label of metrics.
func (f ReceiverFault) String() string { return [...]string{"failing", "rejecting", "rate_limited"}[f] }

// Text returns f for people, to follow the receiver's name.
func (f ReceiverFault) Text() string {
	return [...]string{"is down", "rejects every alert", "accepts nothing because of its rate limit"}[f]
}

// FaultOf returns how a receiver that answers with this is down. One that asks for a pause is limited only if it says that
// this is because of the number of messages.
func FaultOf(answer *notify.Error) ReceiverFault {
	switch {
	case answer.Refused:
		return ReceiverRejects
	case answer.Limited && (answer.Status == http.StatusTooManyRequests || answer.Status == 0):
		return ReceiverLimited
	}

	return ReceiverFails
}

// A ReceiverState is the health of one receiver.
type ReceiverState struct {
	Name    string
	Down    bool          // it has accepted nothing since it failed several times, or for long: see shortfall.outage
	Fault   ReceiverFault // how, if it is down
	Since   time.Time     // when it was first asked in vain since it accepted something; zero unless it is down
	Err     error         `json:"-"` // the last failure, which holds no secret; nil unless it is down
	Retry   time.Time     // earliest time of the next attempt while it is down; zero if one is under way
	Taken   int64         // alerts taken since the dispatcher was made
	TakenAt time.Time     `json:"-"` // the last of them; zero: none
	Waiting int           // alerts that have not been sent yet: they wait, for whatever reason, or are being tried

	Rate    float64       // messages a second at present; 0 if nothing limits them
	Limited bool          // it refused messages lately because of their number
	Left    time.Duration // about how long it takes to send what waits, at Rate; 0 if nothing limits it
}
