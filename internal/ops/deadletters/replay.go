// Package deadletters lists dead letters, sends them again and discards them, for `alertworker deadletters`.
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
	"alertworker/internal/delivery"
	"alertworker/internal/humanize"
	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/pace"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
)

// A Replay sends dead letters again, at the pace of their receivers, and prints the result of each. It is for one
// goroutine.
type Replay struct {
	Store     *deadletter.Store
	Receivers []receivers.Receiver
	Leases    lease.Store // of the workers' windows
	Config    config.Config
	Rules     []rules.Rule        // with the windows of their alerts; those of other rules have Config.ThrottleWindow
	To        *receivers.Receiver // for all; nil for each letter's own
	By        string              // who replays, as they say
	DryRun    bool
	Out       io.Writer

	Delivered, Failed int // so far

	start     time.Time
	targets   map[string]*target // by the ids of receivers
	alarms    map[alarmKey]bool  // of a dry run: an alert would be sent
	storeDown int                // failures of the throttle store in a row
}

// Receiver returns the one of rs with an id or, if there is none, with a name.
func Receiver(rs []receivers.Receiver, name string) (*receivers.Receiver, error) {
	if to := receivers.WithID(rs, name); to != nil {
		return to, nil
	}

	var names []string
	for i, to := range rs {
		if to.Name == name {
			return &rs[i], nil
		}
		names = append(names, to.Name)
	}

	return nil, fmt.Errorf("NOTIFY_URLS has no receiver of this name, only %s", strings.Join(names, ", "))
}

// ByID is Send for the dead letter with this ID.
func (r *Replay) ByID(ctx context.Context, id string) {
	l, err := r.Store.Get(ctx, deadletter.Undelivered, id)
	switch {
	case errors.Is(err, deadletter.ErrNotFound):
		why := "no such dead letter"
		if l, err := r.Store.Get(ctx, deadletter.Replayed, id); err == nil {
			why = "already " + endOf(l, r.Config.Zone())
		} else if l, err := r.Store.Get(ctx, deadletter.Discarded, id); err == nil {
			why = "already " + endOf(l, r.Config.Zone())
		}
		r.stays(why, deadletter.Letter{ID: id})

	case err != nil:
		r.stays(err.Error(), deadletter.Letter{ID: id})

	default:
		r.Send(ctx, []deadletter.Letter{l})
	}
}

// maxFailures in a row mean that a receiver or the store is down; the rest is not sent.
const maxFailures = 3

// maxRefusals in a row mean that a receiver takes nothing, though it is given the time that it asks for.
const maxRefusals = 4

// A target is a receiver that letters are sent to, and how it answers.
type target struct {
	receivers.Receiver
	pace     *pace.Pace
	failures int // in a row
}

// gate returns the gate of a receiver for a's rule and level, the same as the workers'. It remembers nothing.
func (r *Replay) gate(receiver string, a notify.Alert) *throttle.Gate {
	return throttle.New(throttle.Config{
		Store:       r.Leases,
		Scope:       r.Config.Scope(),
		Receiver:    receiver,
		Rule:        a.Rule,
		Level:       a.Level,
		Per:         a.Per,
		Silence:     a.Silent > 0,
		Window:      r.window(a),
		SendTimeout: r.Config.NotifyTimeout,
	})
}

// window returns the window of a's rule.
func (r *Replay) window(a notify.Alert) time.Duration {
	name := cmp.Or(a.Rule, rules.DefaultName)
	if i := slices.IndexFunc(r.Rules, func(rule rules.Rule) bool { return rule.Name == name }); i >= 0 {
		return r.Rules[i].Window
	}
	return r.Config.ThrottleWindow
}

// An alarmKey says which alarm of a receiver a letter is about.
type alarmKey struct {
	receiver, rule, level, per string
	silence                    bool
	of                         sensor.ID
}

// Send sends dead letters again, those of a receiver that takes many at a time together, if each is about another alarm.
// What bars a letter is asked of each. The dead letter of an alert that is delivered is kept as one that was replayed.
func (r *Replay) Send(ctx context.Context, letters []deadletter.Letter) {
	if r.targets == nil {
		r.start = time.Now()
		r.targets = map[string]*target{}
		r.alarms = map[alarmKey]bool{}
	}

	var to *target // of batch
	var batch []deadletter.Letter
	flush := func() {
		if len(batch) > 0 {
			r.deliver(ctx, to, batch)
			batch = nil
		}
	}

	for _, l := range letters {
		next, err := r.targetOf(l)
		if next != to || slices.ContainsFunc(batch, func(b deadletter.Letter) bool { return sameAlarm(b, l) }) {
			flush()
		}

		to = next

		switch why := r.barred(ctx, l, to, err); {
		case why != "":
			r.stays(why, l)
		case r.DryRun:
			r.dryRun(ctx, l, to)
		default:
			batch = append(batch, l)
			if len(batch) >= to.Limits.Batch {
				flush()
			}
		}
	}

	flush()
}

// targetOf returns where a letter goes.
func (r *Replay) targetOf(l deadletter.Letter) (*target, error) {
	to := r.To
	if to == nil {
		var err error
		if to, err = Receiver(r.Receivers, l.Receiver); err != nil {
			return nil, err
		}
	}

	known := r.targets[to.ID]
	if known == nil {
		known = &target{Receiver: *to, pace: pace.New(to.Limits)}
		r.targets[to.ID] = known
	}

	return known, nil
}

// barred returns why l is not sent to a receiver, or to none because of err; empty if it may be.
func (r *Replay) barred(ctx context.Context, l deadletter.Letter, to *target, err error) string {
	switch {
	case l.Broken != nil:
		return l.Broken.Error()
	case err != nil:
		return err.Error() + "; use --to to send it to another one"
	case ctx.Err() != nil:
		return "not sent: stopped"
	case to.failures >= maxFailures:
		return fmt.Sprintf("not sent: the receiver failed %d times in a row", maxFailures)
	case r.storeDown >= maxFailures:
		return fmt.Sprintf("not sent: the throttle store failed %d times in a row", maxFailures)
	case l.Alert.Silent > 0 && !l.Alert.Resolved:
		return "not sent: the device may have been heard since; the status page lists who is silent now"
	}

	return ""
}

// sameAlarm reports whether two letters are about the same alarm, so that they cannot go in one message: the gate lets
// one through at a time.
func sameAlarm(a, b deadletter.Letter) bool { return alarmOf("", a.Alert) == alarmOf("", b.Alert) }

// alarmOf says which alarm of a receiver an alert is about.
func alarmOf(receiver string, a notify.Alert) alarmKey {
	return alarmKey{receiver, a.Rule, a.Level, a.Per, a.Silent > 0, a.Of()}
}

// An attempt is what became of one letter.
type attempt struct {
	claim   *throttle.Claim // nil if there is none
	alert   notify.Alert    // to send, if there is
	result  throttle.Result
	err     error         // of the store
	late    bool          // the message went before this one could be claimed
	asked   bool          // the receiver was
	failure *notify.Error // its answer
	why     string        // it is not delivered; empty if it is
	left    string        // recipients who did not get it, for whom there is a dead letter now
}

// deliver sends letters to a receiver in one message, again for as long as it refuses them for rate; those of a message
// for many that is refused, one by one.
func (r *Replay) deliver(ctx context.Context, to *target, letters []deadletter.Letter) {
	for len(letters) > 0 {
		if !r.wait(ctx, to.pace) {
			r.stays("not sent: stopped", letters...)
			return
		}

		began := time.Since(r.start)
		to.pace.Begin(began, true)
		attempts := r.attempt(ctx, to, letters)
		again, refused := r.settleAll(ctx, to, letters, attempts)
		to.answered(time.Since(r.start), began, attempts)

		if to.pace.Refusals() >= maxRefusals {
			to.failures = maxFailures
			r.stays("not sent: the receiver refuses every message because of their number", again...)
			return
		}

		if refused {
			for _, l := range again {
				if why := r.barred(ctx, l, to, nil); why != "" {
					r.stays(why, l)
					continue
				}
				r.deliver(ctx, to, []deadletter.Letter{l})
			}
			return
		}

		letters = again
	}
}

// settleAll settles the letters of a message that need not go again, and returns the others. refused says that they
// have to go one by one, because the message was refused for good.
func (r *Replay) settleAll(
	ctx context.Context,
	to *target,
	letters []deadletter.Letter,
	attempts []attempt,
) (again []deadletter.Letter, refused bool) {
	for i, a := range attempts {
		isRefused := a.failure != nil && a.failure.Refused && len(letters) > 1
		isLimited := a.failure != nil && a.failure.Limited
		if a.late || isLimited || isRefused {
			again = append(again, letters[i])
			refused = refused || isRefused && !isLimited
			continue
		}

		r.settle(ctx, to, letters[i], a)
	}

	return again, refused
}

// answered takes note of the answer to a message that began then, which is that to each of its letters.
func (to *target) answered(now, began time.Duration, attempts []attempt) {
	i := slices.IndexFunc(attempts, func(a attempt) bool { return a.asked && !a.late })
	if i < 0 {
		to.pace.Cancel()
		return
	}

	failure := attempts[i].failure
	to.pace.Answered(now, began, failure)

	switch {
	case failure == nil, failure.Refused:
		to.failures = 0
	case !failure.Limited:
		to.failures++
	}
}

// wait waits for p. It returns false if ctx ends first.
func (r *Replay) wait(ctx context.Context, p *pace.Pace) bool {
	now := time.Since(r.start)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(p.Next(true) - now):
		return ctx.Err() == nil
	}
}

// attempt sends letters in one message, each under a claim of its own.
func (r *Replay) attempt(ctx context.Context, to *target, letters []deadletter.Letter) []attempt {
	attempts := make([]attempt, len(letters))
	delivery.Send(
		len(letters),
		func(i int) (delivery.Claimed, bool) {
			a := &attempts[i]
			*a = r.claim(ctx, to, letters[i])
			if a.claim == nil {
				return delivery.Claimed{}, false
			}
			return delivery.Claimed{Alert: a.alert, Grant: a.claim.Grant, Under: ctx}, true
		},
		to.Notifier.Notify,
		func(i int, err error) { r.settleClaim(ctx, to, &attempts[i], err) },
	)

	return attempts
}

// settle records and prints what became of l.
func (r *Replay) settle(ctx context.Context, to *target, l deadletter.Letter, a attempt) {
	r.storeDown++
	if a.result.Outcome != throttle.Unavailable {
		r.storeDown = 0
	}

	if a.why != "" {
		r.stays(a.why, l)
		return
	}

	// It has been delivered, so that is recorded even after a request to stop.
	err := r.Store.Replay(context.WithoutCancel(ctx), l, to.ID, r.By)
	if err != nil && !errors.Is(err, deadletter.ErrNotFound) {
		r.stays("delivered, but that could not be recorded; if it is sent again, it has the same id: "+err.Error(), l)
		return
	}

	r.Delivered++
	what := "delivered"
	if a.left != "" {
		what += ", but not to " + a.left + ", for whom there is another dead letter now"
	}
	r.line(l, to.Name, what)
}

// dryRun says what would become of l after those before it. It takes nothing and changes nothing.
func (r *Replay) dryRun(ctx context.Context, l deadletter.Letter, to *target) {
	key := alarmOf(to.ID, l.Alert)
	if r.alarms[key] {
		r.stays("would not be sent: within THROTTLE_WINDOW of the alert for the device that would be sent before", l)
		return
	}

	q := request(l.Alert)
	result, id, err := r.gate(to.ID, l.Alert).Predict(ctx, q)
	why := declined(result, err)
	if why == "" && id != q.ID && !l.Alert.Resolved {
		why = unknownFate
	}

	if why != "" {
		r.stays("would not be sent: "+why, l)
		return
	}

	r.alarms[key] = true
	r.Delivered++
	r.line(l, to.Name, "would be sent")
}

// request returns what to ask the gate for. An alert's reading counts as one that comes over HTTP
// in a while, so that only a window in force suppresses it: it may be older than windows
// that are over and than recoveries since, but who replays it wants it sent. A
// recovery keeps its reading's place, because an alert after that makes it untrue.
func request(a notify.Alert) throttle.Request {
	if !a.Resolved {
		of := a.Of()
		return throttle.Request{Device: of.Device, Sensor: of.Name, ID: a.ID, Arrived: time.Now().Add(time.Hour)}
	}

	r := throttle.Request{
		Device:   a.Device,
		Sensor:   a.Sensor,
		ID:       a.ID,
		Enqueued: a.Enqueued,
		Log:      a.Log,
		Sequence: a.Sequence,
		Recovery: true,
	}

	if a.Forgotten { // another partition may know more of the device since
		r.AsOf = a.Since
	}

	if a.Silent > 0 && (a.Forgotten || a.Removed) {
		r.Part = throttle.End
		r.At = a.Enqueued
	}

	return r
}

// resent is a kept alert as it is sent again. It does not say that its recovery follows: the alarm may have ended
// long ago.
func resent(a notify.Alert) notify.Alert {
	a.WillResolve = false
	return a
}

const unknownFate = "it is not known whether another alert for the device has just been delivered; try again after " +
	"THROTTLE_WINDOW"

// claim claims the key of l's alert at a receiver, and composes the alert. Without a claim it says why l is not sent.
func (r *Replay) claim(ctx context.Context, to *target, l deadletter.Letter) (a attempt) {
	gate := r.gate(to.ID, l.Alert)
	a.claim, a.result, a.err = gate.Claim(ctx, request(l.Alert))
	if a.claim == nil {
		a.why = "not sent: " + declined(a.result, a.err)
		return a
	}

	g := a.claim.Grant
	if g.ID != l.Alert.ID && !l.Alert.Resolved { // two recoveries in a row say the same
		a.result, a.err = gate.Settle(ctx, a.claim, throttle.NotTaken)
		a.claim, a.why = nil, "not sent: "+unknownFate
		return a
	}

	a.alert = resent(l.Alert)
	if l.Receiver != to.ID { // whose recipients are others
		a.alert.To = ""
	}

	a.alert.ID = g.ID
	a.alert.Token = g.Token
	a.alert.Expires = g.Expires
	a.alert.Sent = g.Now
	a.alert.Window = r.window(a.alert)
	a.alert.Ambiguous = g.Ambiguous

	return a
}

// settleClaim settles the claim of an attempt, if it has one, with the receiver's answer.
func (r *Replay) settleClaim(ctx context.Context, to *target, a *attempt, err error) {
	a.late = errors.Is(err, delivery.ErrLate)
	answer := throttle.NotTaken
	if !a.late {
		a.asked = true
		answer = r.answer(ctx, to, a, err)
	}

	if a.claim == nil {
		return
	}

	gate := r.gate(to.ID, a.alert)
	a.result, a.err = gate.Settle(ctx, a.claim, answer)
	if a.result.Outcome == throttle.Unconfirmed {
		_ = gate.Confirm(ctx, a.result) // the alert is delivered, recorded or not
	}
}

// answer takes a receiver's answer to an alert, and returns what it is to the gate. If only some of its recipients took the
// alert, it is delivered once a dead letter for the others is kept.
func (r *Replay) answer(ctx context.Context, to *target, a *attempt, err error) throttle.Answer {
	if err == nil {
		return throttle.Taken
	}

	a.failure = notify.AsError(err)
	if left := a.failure.Left; left != "" {
		alert := a.alert
		alert.To = left
		letter := notify.DeadLetter{Alert: alert, Receiver: to.ID, Name: to.Name, Reason: err.Error()}
		if keptErr := r.Store.Keep(ctx, letter); keptErr != nil {
			a.why = "delivered to some recipients only, and sent to all again if it is replayed: " + keptErr.Error()
			return throttle.Unknown
		}

		a.left = alert.To
		a.failure = nil

		return throttle.Taken
	}

	switch {
	case a.failure.Refused:
		a.why = "refused: " + err.Error()
		return throttle.NotTaken
	case a.failure.Untaken:
		a.why = "not delivered: " + err.Error()
		return throttle.NotTaken
	}

	a.why = "may have been delivered, but there was no answer: " + err.Error()

	return throttle.Unknown
}

// declined returns why the gate lets nothing through, empty if it does.
func declined(result throttle.Result, err error) string {
	switch result.Outcome {
	case throttle.Throttled:
		return fmt.Sprintf(
			"within THROTTLE_WINDOW of the device's last alert, for another %v",
			max(0, result.Quiet.Sub(result.Now)).Round(time.Second),
		)

	case throttle.Busy:
		return "another process is sending an alert for the device, or its window has only just ended; try again in a minute"

	case throttle.Unneeded:
		return "the device was alerted again since, or the receiver has already got a recovery or never got an alert"

	case throttle.Unavailable:
		return err.Error()
	}

	return ""
}

// stays says why letters are not delivered.
func (r *Replay) stays(why string, letters ...deadletter.Letter) {
	for _, l := range letters {
		to := nameOf(l.Receiver, r.Receivers)
		if r.To != nil {
			to = r.To.Name
		}

		r.Failed++
		r.line(l, to, why)
	}
}

// line prints what became of a letter.
func (r *Replay) line(l deadletter.Letter, to, what string) {
	about := l.ID
	if l.Alert.Device != "" {
		about += " " + l.Alert.From().String()
	}

	if to != "" {
		about += " to " + to
	}

	fmt.Fprintln(r.Out, humanize.OneLine(about+": "+what))
}
