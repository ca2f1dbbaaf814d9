package delivery

import (
	"fmt"
	"time"
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
)

// String returns w for programs, in the words of package status and of a throttle.Phase where they have one.
func (w Wait) String() string {
	return [...]string{
		"attempt", "turn", "receiver", "throttle_store", "sending", "pause", "dead_letter", "ledger", "window",
	}[w]
}

func (w Wait) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// A Condition is what a delivery waits for, and since when. All that anybody is told of a delivery that has not ended
// is this value: by `why`, the status page, GET /devices/{id}, the HTTP trigger and the log.
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
	Rule      string    `json:"rule"`
	Level     string    `json:"level,omitempty"`
	Recovery  bool      `json:"resolved,omitempty"` // it says that the device is normal again
	Partition string    `json:"partition"`
	Since     time.Time `json:"since"`       // when the hub took the first reading that is not settled
	Value     float64   `json:"temperature"` // of the reading that the alert is about
	Joined    int64     `json:"suppressed"`  // readings since that one
	Waits     Condition `json:"waits"`
}

// state returns the state of d. The caller holds box.mu.
func (q *queue) state(d *delivery) State {
	state := State{
		Receiver:  q.to.Name,
		Rule:      d.Message.Rule,
		Level:     d.Message.Level,
		Recovery:  d.recovers(),
		Partition: q.box.Name,
		Since:     fromMicros(d.head.Enqueued),
		Value:     d.head.Value,
		Joined:    int64(d.joined),
	}

	if d.held.index > 0 {
		state.Since = fromMicros(d.held.enqueued)
	}

	q.to.mu.Lock()
	defer q.to.mu.Unlock()
	state.Waits = q.condition(d)

	return state
}

// condition returns what d waits for: the store or the receiver, if everything waits for that. The caller holds to.mu.
func (q *queue) condition(d *delivery) Condition {
	r := q.to
	c := Condition{For: d.wait, Since: r.started.Add(d.from)}
	if d.state != attempting && d.state != ready {
		c.Next = r.started.Add(time.Duration(d.key))
	}

	fault, since, _, down := r.fault()
	if !down {
		since = r.shortfall.failed
	}

	switch {
	case r.store.probed():
		c.For, c.Next = WaitStore, r.nextAttempt()
		c.Since = r.started.Add(r.store.since)
	case d.state == givenUp:
	case r.health.probed(), d.state == attempting && r.health.down, down && fault == ReceiverLimited:
		c.For, c.Next = WaitReceiver, r.nextAttempt()
		c.Since = r.started.Add(since)
	case d.state == attempting && d.unanswered:
		c.For = WaitStore
	}

	c.Text = q.says(d, c.For)
	return c
}

// waitText is says, for a caller that does not hold to.mu.
func (q *queue) waitText(d *delivery, w Wait) string {
	q.to.mu.Lock()
	defer q.to.mu.Unlock()
	return q.says(d, w)
}

// says returns for people that d waits for w. The caller holds to.mu.
func (q *queue) says(d *delivery, w Wait) string {
	name := q.to.Name
	switch w {
	case WaitTurn:
		return "other alerts are being sent to receiver " + name + " first"
	case WaitReceiver:
		fault, _, _, _ := q.to.fault()
		return "receiver " + name + " " + fault.Text() + q.to.lastFailure()
	case WaitStore:
		return "the throttle store cannot be used, and without it nothing is sent"
	case WaitClaim:
		return "the device's key at receiver " + name + " is not free: another replica is sending an alert or has died, " +
			"or a window has only just ended"
	case WaitPause:
		return "the last attempt to alert receiver " + name + " failed" + q.to.lastFailure()
	case WaitWindow:
		return "receiver " + name + " gets the recovery when the window of the last alert is over"
	case WaitDeadLetter:
		return "the alert to receiver " + name + " was given up, and its dead letter cannot be written"
	case WaitOwner:
		if d.recovers() {
			return "receiver " + name + " gets the recovery once the checkpoint store says that this replica still owns the " +
				"partition"
		}
		return "receiver " + name + " gets the alert once it is certain that the device is still silent"
	default:
		return "an attempt to alert receiver " + name + " is under way"
	}
}

// lastFailure returns r's last failure in brackets, empty if there was none. The caller holds r.mu.
func (r *receiver) lastFailure() string {
	if r.health.failure == nil {
		return ""
	}
	return fmt.Sprintf(" (%v)", r.health.failure)
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

// A ReceiverState is the health of one receiver.
type ReceiverState struct {
	Name    string
	Down    bool          // it has accepted nothing since it failed or refused several times
	Fault   ReceiverFault // how, if it is down
	Since   time.Time     // of the first failure since it accepted something; zero unless it is down
	Err     error         `json:"-"` // the last failure, which holds no secret; nil unless it is down
	Retry   time.Time     // earliest time of the next attempt while it is down; zero if one is under way
	Taken   int64         // alerts taken since the dispatcher was made
	Waiting int           // alerts that have not been sent yet: they wait, for whatever reason, or are being tried

	Rate    float64       // messages a second at present; 0 if nothing limits them
	Limited bool          // it refused messages lately because of their number
	Left    time.Duration // about how long it takes to send what waits, at Rate; 0 if nothing limits it
}

// Receivers returns the state of each receiver, in the order of Config.
func (dp *Dispatcher) Receivers() (all []ReceiverState) {
	for _, r := range dp.receivers {
		all = append(all, r.state())
	}
	return all
}
