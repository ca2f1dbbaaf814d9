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
	WaitStore                  // the throttle store, which does not respond
	WaitClaim                  // the claim of another replica to end
	WaitPause                  // the next attempt: the last one failed
	WaitDeadLetter             // the dead letter to be written
	// its owner: before a recovery or a silence is sent, the ledger has to say that this replica still owns the partition
	WaitOwner
	WaitWindow // the window to end, before the recovery is sent
)

func (w Wait) String() string {
	return [...]string{"attempt", "turn", "receiver", "store", "claim", "pause", "dead_letter", "ledger", "window"}[w]
}

func (w Wait) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

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
	For       Wait      `json:"for"`
	From      time.Time `json:"forSince,omitzero"` // since when it waits for that, by this machine's clock
	// the earliest time of the next attempt, by this machine's clock; zero: not known
	Until   time.Time `json:"next,omitzero"`
	Failure error     `json:"-"` // the receiver's last failure, if it matters; no secrets
}

// String says what the delivery waits for, as part of a sentence.
func (d State) String() string {
	switch d.For {
	case WaitTurn:
		return fmt.Sprintf("other alerts are being sent to receiver %s first", d.Receiver)

	case WaitReceiver:
		return fmt.Sprintf("receiver %s is down%s", d.Receiver, d.failure())

	case WaitStore:
		return "the throttle store is not responding, and without it nothing is sent"

	case WaitClaim:
		return fmt.Sprintf(
			"the device's key at receiver %s is not free: another replica is sending an alert or has died, or a window has "+
				"only just ended",
			d.Receiver,
		)

	case WaitPause:
		return fmt.Sprintf("the last attempt to alert receiver %s failed%s", d.Receiver, d.failure())

	case WaitWindow:
		return fmt.Sprintf("receiver %s gets the recovery when the window of the last alert is over", d.Receiver)

	case WaitOwner:
		if !d.Recovery {
			return fmt.Sprintf("receiver %s gets the alert once it is certain that the device is still silent", d.Receiver)
		}

		return fmt.Sprintf(
			"receiver %s gets the recovery once the checkpoint store says that this replica still owns the partition",
			d.Receiver,
		)

	case WaitDeadLetter:
		return fmt.Sprintf("the alert to receiver %s was given up, and its dead letter cannot be written", d.Receiver)
	}

	return fmt.Sprintf("an attempt to alert receiver %s is under way", d.Receiver)
}

func (d State) failure() string {
	if d.Failure == nil {
		return ""
	}
	return fmt.Sprintf(" (%v)", d.Failure)
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
	state.For = d.wait
	state.From = q.to.started.Add(d.from)
	if d.state != attempting && d.state != ready {
		state.Until = q.to.started.Add(time.Duration(d.key))
	}

	q.to.holds(d, &state)
	if state.For == WaitPause || state.For == WaitReceiver {
		state.Failure = q.to.health.failure
	}

	return state
}

// holds sets what d waits for if that is the store or the receiver, which everything waits for. The caller holds r.mu.
func (r *receiver) holds(d *delivery, state *State) {
	switch {
	case r.store.probed():
		state.For = WaitStore
		state.From = r.started.Add(r.store.since)
		state.Until = r.nextAttempt()
	case d.wait == WaitDeadLetter:
	case r.health.probed(), d.state == attempting && r.health.down:
		state.For = WaitReceiver
		state.From = r.started.Add(r.shortfall.failed)
		state.Until = r.nextAttempt()
	case d.state == attempting && d.unanswered:
		state.For = WaitStore
	}
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
