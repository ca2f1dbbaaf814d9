// Package deadletters lists dead letters and sends them again, for `alertworker deadletters`.
package deadletters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"alertworker/internal/config"
	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/ops/checkup"
	"alertworker/internal/rules"
	"alertworker/internal/throttle"
)

// A Replay sends dead letters again and prints the result of each. It is for one goroutine.
type Replay struct {
	Store     *deadletter.Store
	Receivers []receivers.Receiver
	Leases    lease.Store // of the workers' windows; not used in a dry run
	Config    config.Config
	Rules     []rules.Rule // with the windows of their alerts; those of other rules have Config.ThrottleWindow
	To        string       // name or id of a receiver for all; "" for each letter's own
	DryRun    bool
	Out       io.Writer

	Delivered, Failed int // so far

	gates     map[gateKey]*throttle.Gate
	failures  map[string]int // of a receiver, in a row
	storeDown int            // failures of the throttle store in a row
}

// Check returns an error if there is no receiver To.
func (r *Replay) Check() error {
	if r.To != "" && find(r.To, r.Receivers) == nil {
		return r.unknown()
	}
	return nil
}

// ByID is One for the dead letter with this ID.
func (r *Replay) ByID(ctx context.Context, id string) {
	l, err := r.Store.Get(ctx, deadletter.Undelivered, id)
	switch {
	case errors.Is(err, deadletter.ErrNotFound):
		why := "no such dead letter"
		if l, err := r.Store.Get(ctx, deadletter.Replayed, id); err == nil {
			why = "already replayed at " + l.Replayed.Format(time.DateTime+"Z")
		}
		r.stays(deadletter.Letter{ID: id}, why)
	case err != nil:
		r.stays(deadletter.Letter{ID: id}, err.Error())
	default:
		r.One(ctx, l)
	}
}

// maxFailures in a row mean that a receiver or the store is down; the rest is not sent.
const maxFailures = 3

// A gateKey says whose alerts a gate is for.
type gateKey struct{ receiver, rule, level string }

// gate returns the gate of a receiver for a's rule and level, the same as the workers'.
func (r *Replay) gate(receiver string, a notify.Alert) *throttle.Gate {
	key := gateKey{receiver, a.Rule, a.Level}
	g := r.gates[key]
	if g == nil {
		g = throttle.New(throttle.Config{
			Store: r.Leases, Scope: r.Config.Scope(), Receiver: receiver, Rule: a.Rule, Level: a.Level, Window: r.window(a), SendTimeout: r.Config.NotifyTimeout,
		})
		r.gates[key] = g
	}
	return g
}

// window returns the window of a's rule.
func (r *Replay) window(a notify.Alert) time.Duration {
	name := cmp.Or(a.Rule, rules.DefaultName)
	if i := slices.IndexFunc(r.Rules, func(rule rules.Rule) bool { return rule.Name == name }); i >= 0 {
		return r.Rules[i].Window
	}
	return r.Config.ThrottleWindow
}

// One sends one dead letter again. If its alert is delivered, the dead letter is kept as one that was replayed.
func (r *Replay) One(ctx context.Context, l deadletter.Letter) {
	if r.gates == nil {
		r.gates, r.failures = map[gateKey]*throttle.Gate{}, map[string]int{}
	}
	to := withID(l.Receiver, r.Receivers)
	if r.To != "" {
		to = find(r.To, r.Receivers)
	}
	switch {
	case l.Broken != nil:
		r.stays(l, l.Broken.Error())
		return
	case to == nil:
		r.stays(l, r.unknown().Error()+"; use --to to send it to another one")
		return
	case ctx.Err() != nil:
		r.stays(l, "not sent: stopped")
		return
	case r.failures[to.ID] >= maxFailures:
		r.stays(l, fmt.Sprintf("not sent: the receiver failed %d times in a row", maxFailures))
		return
	case r.storeDown >= maxFailures:
		r.stays(l, fmt.Sprintf("not sent: the throttle store failed %d times in a row", maxFailures))
		return
	case r.DryRun:
		r.Delivered++
		r.line(l, to.Name, "would be sent")
		return
	}
	if why := r.send(ctx, *to, l); why != "" {
		r.stays(l, why)
		return
	}
	// It has been delivered, so that is recorded even after a request to stop.
	if err := r.Store.Replay(context.WithoutCancel(ctx), l, to.ID); err != nil && !errors.Is(err, deadletter.ErrNotFound) {
		r.stays(l, "delivered, but that could not be recorded; if it is sent again, it has the same id: "+err.Error())
		return
	}
	r.Delivered++
	r.line(l, to.Name, "delivered")
}

// request returns what to ask the gate for. An alert's reading counts as one that comes by HTTP
// in a while, so that only a window in force suppresses it: it may be older than windows
// that are over and than recoveries since, but who replays it wants it sent. A
// recovery keeps its reading's place, because an alert after that makes it untrue.
func request(a notify.Alert) throttle.Request {
	if a.Resolved {
		return throttle.Request{Device: a.Device, ID: a.ID, Enqueued: a.Enqueued, Log: a.Log, Sequence: a.Sequence, Recovery: true}
	}
	return throttle.Request{Device: a.Device, ID: a.ID, Arrived: time.Now().Add(time.Hour)}
}

// resent is a kept alert as it is sent again. It does not say that its recovery follows: the alarm may have ended long ago.
func resent(a notify.Alert) notify.Alert {
	a.WillResolve = false
	return a
}

// send sends l through the gate and returns why it was not delivered; empty if it was.
func (r *Replay) send(ctx context.Context, to receivers.Receiver, l deadletter.Letter) (why string) {
	gate := r.gate(to.ID, l.Alert)
	result, err := gate.Do(ctx, request(l.Alert), func(ctx context.Context, g throttle.Grant) throttle.Answer {
		a := resent(l.Alert)
		if g.ID != a.ID && !a.Resolved { // two recoveries in a row say the same
			why = "not sent: it is not known whether another alert for the device has just been delivered; try again after THROTTLE_WINDOW"
			return throttle.NotTaken
		}
		a.ID = g.ID
		var answer throttle.Answer
		answer, why = r.notify(ctx, to, a, g)
		return answer
	})
	if result.Outcome == throttle.Unavailable {
		r.storeDown++
	} else {
		r.storeDown = 0
	}
	switch result.Outcome {
	case throttle.Throttled:
		return fmt.Sprintf("not sent: within THROTTLE_WINDOW of the device's last alert, for another %v", max(0, result.Quiet.Sub(result.Now)).Round(time.Second))
	case throttle.Busy:
		return "not sent: another process is sending an alert for the device, or its window has only just ended; try again in a minute"
	case throttle.Unneeded:
		return "not sent: the device was alerted again since, or the receiver has already got a recovery or never got an alert"
	case throttle.Unavailable:
		return "not sent: " + err.Error()
	case throttle.Unconfirmed:
		_ = gate.Confirm(ctx, result) // the alert is delivered, recorded or not
	}
	return why
}

// notify makes one attempt under g and returns why the alert was not delivered.
func (r *Replay) notify(ctx context.Context, to receivers.Receiver, a notify.Alert, g throttle.Grant) (answer throttle.Answer, why string) {
	a.Token, a.Expires, a.Window, a.Ambiguous = g.Token, g.Expires, r.window(a), g.Ambiguous
	err := to.Notifier.Notify(ctx, a)
	if err == nil {
		r.failures[to.ID] = 0
		return throttle.Taken, ""
	}
	failure := notify.AsError(err)
	switch {
	case failure.Refused:
		r.failures[to.ID] = 0
		return throttle.NotTaken, "refused: " + err.Error()
	case failure.Untaken:
		r.failures[to.ID]++
		return throttle.NotTaken, "not delivered: " + err.Error()
	}
	r.failures[to.ID]++
	return throttle.Unknown, "may have been delivered, but there was no answer: " + err.Error()
}

func (r *Replay) stays(l deadletter.Letter, why string) {
	r.Failed++
	r.line(l, nameOf(cmp.Or(r.To, l.Receiver), r.Receivers), why)
}

func (r *Replay) line(l deadletter.Letter, to, what string) {
	about := l.ID
	if l.Alert.Device != "" {
		about += " " + l.Alert.Device
	}
	if to != "" {
		about += " to " + to
	}
	fmt.Fprintln(r.Out, checkup.OneLine(about+": "+what))
}

// unknown is the error for a receiver that does not exist.
func (r *Replay) unknown() error {
	var names []string
	for _, to := range r.Receivers {
		names = append(names, to.Name)
	}
	return fmt.Errorf("NOTIFY_URLS has no receiver of this name, only %s", strings.Join(names, ", "))
}
