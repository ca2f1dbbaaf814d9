package delivery

import (
	"fmt"
	"math"
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
	Down    bool          // it has accepted nothing since it failed several times, or for long: see receiver.outage
	Fault   ReceiverFault // how, if it is down
	Since   time.Time     // when it was first asked in vain since it accepted something; zero unless it is down
	Err     error         `json:"-"` // the last failure, which holds no secret; nil unless it is down
	Retry   time.Time     // earliest time of the next attempt while it is down; zero if one is under way
	Taken   int64         // alerts taken since the dispatcher was made
	TakenAt time.Time     `json:"-"` // the last of them; zero: none
	Waiting int           // alerts that have not been sent yet: they wait, for whatever reason, or are being tried
}

// report returns the state of d, which waits for the store or the receiver if everything does. The caller holds box.mu.
func (d *delivery) report() State {
	r := d.q.to
	state := State{
		Receiver:  r.to.Name,
		Sensor:    d.subject.About.Name,
		Rule:      d.subject.Topic.Message.Rule,
		Level:     d.subject.Topic.Message.Level,
		Recovery:  d.notice.recovers(),
		Partition: d.q.box.account.Name,
		Since:     fromMicros(d.head.Enqueued),
		Value:     d.head.Value,
		Joined:    int64(d.joined),
	}

	if d.held.index > 0 {
		state.Since = fromMicros(d.held.enqueued)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	down, isDown := r.outage()
	started := r.dispatcher.started
	c := Condition{For: d.wait, Since: started.Add(d.from)}
	failure := ""
	if r.failure != nil {
		failure = fmt.Sprintf(" (%v)", r.failure)
	}

	if d.state != attempting && d.state != ready {
		c.Next = started.Add(time.Duration(d.key))
	}

	switch {
	case r.store.probed():
		c.For, c.Since, c.Next = WaitStore, started.Add(r.store.failures.since), r.nextAttempt()
	case d.state == givenUp:
	case isDown && down.fault != ReceiverRejects: // d waits for r to work again, rather than for its own turn
		c.For, c.Since, c.Next = WaitReceiver, started.Add(down.since), r.nextAttempt()
	}

	c.Text = c.For.text(r.to.Name, down.fault, failure)
	state.Waits = c

	return state
}

// NextReminders returns when each receiver that got the alarm, of a topic with this Repeat, gets it again. The alarm may
// be nil.
func (o *Outbox) NextReminders(a *Alarm, repeat time.Duration) (all []Condition) {
	for i, q := range o.queues {
		if !a.Quiet(i) {
			continue
		}

		due := a.dueAt(i)
		c := Condition{For: WaitRepeat, Since: due.Add(-repeat)}
		c.Text = "receiver " + q.to.to.Name + " got its alarm, which is sent once"
		if repeat != math.MaxInt64 {
			c.Text = "receiver " + q.to.to.Name + " got its alarm, and gets it again if it stays open"
			c.Next = due
		}
		all = append(all, c)
	}

	return all
}

// text returns for people that a delivery to a receiver waits for w: for WaitReceiver how that is down, and with its last
// failure, if there is one, where that matters.
func (w Wait) text(name string, fault ReceiverFault, failure string) string {
	return map[Wait]string{
		WaitAttempt:  "an attempt to alert receiver " + name + " is under way",
		WaitTurn:     "other alerts are being sent to receiver " + name + " first",
		WaitReceiver: "receiver " + name + " " + fault.Text() + failure,
		WaitStore:    "the throttle store cannot be used, and without it nothing is sent",
		WaitClaim: "the device's key at receiver " + name + " is not free: another replica is sending an alert or has died, " +
			"or a window has only just ended",
		WaitPause:      "the last attempt to alert receiver " + name + " failed" + failure,
		WaitWindow:     "receiver " + name + " gets the recovery when the window of the last alert is over",
		WaitDeadLetter: "the alert to receiver " + name + " was given up, and its dead letter cannot be written",
		WaitOwner:      "receiver " + name + " gets the message once the partition's records, in the checkpoint store, say that it is still true",
	}[w]
}

// Receivers returns the state of each receiver, in the order of Config.
func (dp *Dispatcher) Receivers() (all []ReceiverState) {
	for _, r := range dp.receivers {
		r.mu.Lock()
		state := ReceiverState{Name: r.to.Name, Taken: r.taken, Waiting: r.sending}
		for _, q := range r.queues {
			state.Waiting += q.waiting()
		}

		if r.taken > 0 {
			state.TakenAt = dp.started.Add(r.takenAt)
		}

		if down, isDown := r.outage(); isDown {
			state.Down, state.Fault = true, down.fault
			state.Since, state.Err = dp.started.Add(down.since), down.last
			state.Retry = r.nextAttempt()
		}
		r.mu.Unlock()
		all = append(all, state)
	}

	return all
}

// nextAttempt returns the earliest time of the next attempt while r is probed; zero if one is
// under way. The caller holds r.mu.
func (r *receiver) nextAttempt() time.Time {
	if r.wake == 0 || r.probing {
		return time.Time{}
	}
	return r.dispatcher.started.Add(max(r.wake, r.nextProbe()))
}
