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
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/config"
	"alertworker/internal/delivery"
	"alertworker/internal/humanize"
	"alertworker/internal/incident"
	"alertworker/internal/lease"
	"alertworker/internal/notify"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/rules"
	"alertworker/internal/sensor"
	"alertworker/internal/throttle"
	"alertworker/internal/throttle/recent"
)

// A Replay sends dead letters again, by deliveries as a worker's, and prints the result of each. It is for one goroutine.
type Replay struct {
	Store     *deadletter.Store
	Receivers []receivers.Receiver
	Leases    lease.Store // of the workers' windows
	Incidents Incidents   // the workers'; nil: only the worker knows them
	Config    config.Config
	Rules     []rules.Rule // with the windows of their alerts; those of other rules have Config.ThrottleWindow
	To        string       // id or name of a receiver, for all; empty for each letter's own
	By        string       // who replays, as they say
	DryRun    bool
	Out       io.Writer

	Delivered, Failed int // so far

	dispatcher *delivery.Dispatcher
	windows    *recent.Windows
	alarms     map[alarmKey]bool // of a dry run: an alert would be sent
	storeDown  int               // failures of the throttle store
}

// Incidents are the records of those that alerts are about, an incident.Book.
type Incidents interface {
	Read(ctx context.Context, g incident.Group) (r incident.Record, now time.Time, err error)
}

// receiver returns which of rs has this id, or else this name.
func receiver(rs []receivers.Receiver, name string) (int, error) {
	i := slices.IndexFunc(rs, func(to receivers.Receiver) bool { return to.ID == name })
	if i < 0 {
		i = slices.IndexFunc(rs, func(to receivers.Receiver) bool { return to.Name == name })
	}
	if i >= 0 {
		return i, nil
	}

	var names []string
	for _, to := range rs {
		names = append(names, to.Name)
	}

	return -1, fmt.Errorf("NOTIFY_URLS has no receiver of this name, only %s", strings.Join(names, ", "))
}

// start makes what letters are sent by.
func (r *Replay) start() {
	r.alarms = map[alarmKey]bool{}
	r.windows = recent.NewWindows()
	c := delivery.Config{
		Concurrency: 1,              // beside what the workers send
		GiveUp:      24 * time.Hour, // what does not get through at once is withdrawn
		DeadLetters: others{r.Store},
		Stats:       &delivery.Stats{},
	}
	for _, to := range r.Receivers {
		c.Receivers = append(c.Receivers, delivery.Receiver{ID: to.ID, Name: to.Name, Limits: to.Limits, Notifier: to.Notifier})
	}

	r.dispatcher = delivery.New(c)
}

// others keeps the dead letters for recipients who did not get what others of the receiver did. The others are kept
// already.
type others struct{ store *deadletter.Store }

func (o others) Keep(ctx context.Context, d notify.DeadLetter) error {
	if d.Alert.To == "" {
		return nil
	}
	return o.store.Keep(ctx, d)
}

// A sending is a letter on its way.
type sending struct {
	letter  deadletter.Letter
	to      int // in Receivers
	key     delivery.Key
	notice  *delivery.Notice
	stopped string // why it was withdrawn
	outcome string // of its delivery: see delivery.Letter
	err     error
}

// An owner of letters says why one may not go, or none any more, which ended says.
type owner struct {
	*Replay
	ended func() error
}

func (o owner) MayClaim(delivery.Key, *delivery.Notice) error { return o.ended() }

// MaySend implements delivery.Owner. Under the id of another alert, which the receiver may have got, a letter would be
// dropped there. What a letter says of an incident must be true under the claim: its end is sent after that, if at all.
func (o owner) MaySend(ctx context.Context, key delivery.Key, n *delivery.Notice, g throttle.Grant) (*notify.Incident, error) {
	l := n.Letter
	if g.ID != l.Request.ID && !l.Request.Recovery { // two recoveries in a row say the same
		return nil, errors.New(unknownFate)
	}

	if err := o.ended(); err != nil {
		return nil, err
	}

	return o.incident(ctx, key.Topic.Message)
}

func (o owner) Pause() time.Duration { return 0 }

func (o owner) Settled(delivery.Key, *delivery.Notice) {}

const stopped = "stopped"

// maxFailures of the throttle store mean that it is down.
const maxFailures = 3

const unknownFate = "it is not known whether another alert for the device has just been delivered; try again after " +
	"THROTTLE_WINDOW"

// Send sends dead letters again, and returns once it is known what came of each. Those that do not get through are not
// tried for long. A letter that is delivered is kept as one that was replayed.
func (r *Replay) Send(ctx context.Context, letters []deadletter.Letter) {
	if r.dispatcher == nil {
		r.start()
	}

	box := r.dispatcher.Open(ctx, context.WithoutCancel(ctx), delivery.Account{Owner: owner{r, ctx.Err}, Logger: zap.NewNop()})
	ended := make(chan *sending, len(letters))
	var given []*sending
	left := 0
	later := map[alarmKey][]deadletter.Letter{} // by alarms of which a letter is on its way: one after the other
	give := func(l deadletter.Letter) {
		to, why := r.barred(ctx, l)
		alarm := r.alarmOf(l, to)
		waiting, busy := later[alarm]
		if why == "" && busy {
			later[alarm] = append(waiting, l)
			return
		}

		if why == "" {
			why = r.declined(ctx, l.Alert, to)
		}

		switch {
		case why != "":
			r.stays("not sent: "+why, l)
		case r.DryRun:
			r.alarms[alarm] = true
			r.Delivered++
			r.line(l, r.Receivers[to].Name, "would be sent")
		default:
			later[alarm] = nil
			s := r.sending(l, to)
			s.notice.Letter.Ended = func(outcome string, err error) {
				s.outcome, s.err = outcome, err
				ended <- s
			}
			given = append(given, s)
			left++
			box.Give(s.key, s.notice)
		}
	}

	for _, l := range letters {
		give(l)
	}

	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for left > 0 {
		select {
		case s := <-ended:
			left--
			r.settle(ctx, s)
			alarm := r.alarmOf(s.letter, s.to)
			waiting := later[alarm]
			delete(later, alarm)
			for _, l := range waiting {
				give(l)
			}
		case <-look.C:
			for _, s := range given {
				r.withdraw(ctx, s, box)
			}
		}
	}

	box.Close()
	box.Wait()
}

const (
	lookEvery = backoff / 4      // so that what fails is not tried again before it is withdrawn
	backoff   = time.Second      // before a delivery's second attempt
	patience  = 90 * time.Second // with a receiver that is sent too much
)

// withdraw ends s unless it has ended, or waits only for its turn or for an answer: somebody waits for what comes of it.
func (r *Replay) withdraw(ctx context.Context, s *sending, box *delivery.Outbox) {
	states := box.States([]delivery.Key{s.key})
	if len(states) == 0 {
		return
	}

	switch waits := states[0].Waits; {
	case ctx.Err() != nil:
		s.stopped = stopped
	case waits.For == delivery.WaitAttempt, waits.For == delivery.WaitTurn, waits.For == delivery.WaitReceiver && r.down(s.to) == "":
		return
	case waits.For == delivery.WaitReceiver, waits.For == delivery.WaitStore:
		s.stopped = waits.Text
	}

	box.Withdraw(s.key, s.notice)
}

// down returns how a receiver is down, so that nothing more is sent to it; empty if it is not.
func (r *Replay) down(to int) string {
	s := r.dispatcher.Receivers()[to]
	isBusy := s.Fault == delivery.ReceiverLimited && time.Since(s.Since) < patience
	if !s.Down || isBusy || s.Fault == delivery.ReceiverRejects {
		return ""
	}

	return fmt.Sprintf("receiver %s %s (%v)", s.Name, s.Fault.Text(), s.Err)
}

// sending returns a letter that is to go to a receiver.
func (r *Replay) sending(l deadletter.Letter, to int) *sending {
	a := l.Alert
	a.WillResolve = a.WillResolve && a.Incident != nil // the alarm may have ended long ago; an incident has not
	a.Window = r.window(a)
	if l.Receiver != r.Receivers[to].ID { // whose recipients are others
		a.To = ""
	}

	// Each letter is of a topic of its own, so that none joins another one: the gate decides between them, one after the
	// other.
	topic := &delivery.Topic{
		Message:   a,
		Gates:     make([]delivery.Gate, len(r.Receivers)),
		Sent:      &atomic.Int64{},
		Recovered: &atomic.Int64{},
	}
	topic.Gates[to] = r.gate(to, a)
	n := &delivery.Notice{
		Reading: delivery.Reading{Enqueued: time.Now().UnixMicro(), More: &delivery.More{Alarm: &delivery.Alarm{}}},
		Letter:  &delivery.Letter{Request: r.request(a)},
	}
	n.SetReceivers(1 << to)

	return &sending{letter: l, to: to, key: delivery.Key{About: delivery.WindowOf(a), Topic: topic}, notice: n}
}

// gate returns the gate of a receiver for a's rule and level, the same as the workers'.
func (r *Replay) gate(to int, a notify.Alert) *recent.Gate {
	return recent.New(throttle.Config{
		Store:       r.Leases,
		Scope:       r.Config.Scope(),
		Receiver:    r.Receivers[to].ID,
		Rule:        a.Rule,
		Level:       a.Level,
		Per:         a.Per,
		Silence:     a.Silent > 0,
		Window:      r.window(a),
		SendTimeout: r.Config.NotifyTimeout,
	}, r.windows)
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
	receiver         int
	rule, level, per string
	silence          bool
	of               sensor.ID
}

// alarmOf says which alarm of a receiver a letter is about.
func (r *Replay) alarmOf(l deadletter.Letter, to int) alarmKey {
	a := l.Alert
	return alarmKey{to, a.Rule, a.Level, a.Per, a.Silent > 0, delivery.WindowOf(a)}
}

// barred returns to which receiver a letter goes, -1 if that is not known, and why it is not sent; empty if the gate may be
// asked.
func (r *Replay) barred(ctx context.Context, l deadletter.Letter) (to int, why string) {
	if l.Broken != nil {
		return -1, l.Broken.Error()
	}

	to, err := receiver(r.Receivers, cmp.Or(r.To, l.Receiver))
	if err != nil {
		return -1, err.Error() + "; use --to to send it to another one"
	}

	switch why = r.down(to); {
	case why != "":
	case ctx.Err() != nil:
		why = stopped
	case r.storeDown >= maxFailures:
		why = fmt.Sprintf("the throttle store failed %d times", maxFailures)
	case l.Alert.Silent > 0 && !l.Alert.Resolved && l.Alert.Incident == nil:
		why = "the device may have been heard since; the status page lists who is silent now"
	case r.alarms[r.alarmOf(l, to)]:
		why = "within THROTTLE_WINDOW of the alert for the device that would be sent before"
	}

	return to, why
}

// settle records and prints what became of s.
func (r *Replay) settle(ctx context.Context, s *sending) {
	ctx = context.WithoutCancel(ctx) // what was delivered is recorded also after a request to stop
	l, to := s.letter, r.Receivers[s.to]
	what := "delivered"
	var failure *notify.Error
	errors.As(s.err, &failure)

	switch outcome := s.outcome; {
	case failure != nil && failure.Left != "":
		rest := notify.DeadLetter{Alert: s.key.Topic.Message, Receiver: to.ID, Name: to.Name, Reason: failure.Error()}
		rest.Alert.To = failure.Left
		if err := r.Store.Keep(ctx, rest); err != nil {
			r.stays("delivered to some recipients only, and sent to all again if it is replayed: "+err.Error(), l)
			return
		}
		what += ", but not to " + failure.Left + ", for whom there is another dead letter now"
	case outcome == throttle.Sent.String(), outcome == throttle.SentLate.String(), outcome == throttle.Unconfirmed.String():
	case outcome == delivery.OutcomeDeadLetter:
		r.stays(fmt.Sprintf("refused: %v", s.err), l)
		return
	case failure != nil && failure.Untaken:
		r.stays("not delivered: "+failure.Error(), l)
		return
	case failure != nil:
		r.stays("may have been delivered, but there was no answer: "+failure.Error(), l)
		return
	case s.stopped != "":
		r.stays("not sent: "+s.stopped, l)
		return
	default:
		r.stays("not sent: "+cmp.Or(r.declined(ctx, l.Alert, s.to), outcome), l)
		return
	}

	err := r.Store.Replay(ctx, l, to.ID, r.By)
	if err != nil && !errors.Is(err, deadletter.ErrNotFound) {
		r.stays("delivered, but that could not be recorded; if it is sent again, it has the same id: "+err.Error(), l)
		return
	}

	r.Delivered++
	r.line(l, to.Name, what)
}

// request returns what to ask the gate for. An alert's reading counts as one that comes over HTTP
// in a while, so that only a window in force suppresses it: it may be older than windows
// that are over and than recoveries since, but who replays it wants it sent. A
// recovery keeps its reading's place, because an alert after that makes it untrue.
func (r *Replay) request(a notify.Alert) throttle.Request {
	of := delivery.WindowOf(a)
	switch {
	case a.Incident != nil:
		return throttle.Request{
			Device:   of.Device,
			ID:       a.ID,
			Incident: a.Incident.ID,
			Repeat:   r.window(a),
			Recovery: a.Resolved,
			Arrived:  time.Now().Add(time.Hour),
		}
	case !a.Resolved:
		return throttle.Request{Device: of.Device, Sensor: of.Name, ID: a.ID, Arrived: time.Now().Add(time.Hour)}
	}

	q := throttle.Request{
		Device:   a.Device,
		Sensor:   a.Sensor,
		ID:       a.ID,
		Enqueued: a.Enqueued,
		Log:      a.Log,
		Sequence: a.Sequence,
		Recovery: true,
	}

	if a.Forgotten { // another partition may know more of the device since
		q.AsOf = a.Since
	}

	if a.Silent > 0 && (a.Forgotten || a.Removed) {
		q.Part = throttle.End
		q.At = a.Enqueued
	}

	return q
}

// incident returns what there is to say of a's incident, nil if it is about none, or why a is not true: an alert once the
// incident is over, an end while it goes on.
func (r *Replay) incident(ctx context.Context, a notify.Alert) (*notify.Incident, error) {
	switch {
	case a.Incident == nil:
		return nil, nil
	case r.Incidents == nil:
		return nil, errors.New("CHECKPOINT_STORE is memory: only the worker knows whether the incident goes on")
	}

	group := incident.Group{Rule: a.Rule, Level: a.Level, Silence: a.Silent > 0, Per: a.Per, Value: a.PerValue}
	record, now, err := r.Incidents.Read(ctx, group)
	if err != nil {
		return nil, err
	}

	about := *a.Incident
	runs := record.State == incident.Running && record.ID == about.ID
	if runs == a.Resolved {
		return nil, errors.New(map[bool]string{true: "the incident goes on", false: "the incident is over"}[runs])
	}
	if runs {
		about.Members, about.AtLeast = record.Members(now.Add(-r.window(a)))
		about.First = record.First().First
	}

	return &about, nil
}

// declined returns why a letter would not go now; empty if it would.
func (r *Replay) declined(ctx context.Context, a notify.Alert, to int) string {
	if _, err := r.incident(ctx, a); err != nil {
		return err.Error()
	}

	q := r.request(a)
	result, id, err := r.gate(to, a).Predict(ctx, q)
	switch {
	case result.Outcome == throttle.Throttled:
		return fmt.Sprintf(
			"within THROTTLE_WINDOW of the device's last alert, for another %v",
			max(0, result.Quiet.Sub(result.Now)).Round(time.Second),
		)

	case result.Outcome == throttle.Unavailable:
		r.storeDown++
		return err.Error()

	case id != q.ID && !a.Resolved:
		return cmp.Or(declines[result.Outcome], unknownFate)
	}

	return declines[result.Outcome]
}

// declines says why the gate does not let a letter go.
var declines = map[throttle.Outcome]string{
	throttle.Busy:     "another process is sending an alert for the device, or its window has only just ended; try again in a minute",
	throttle.Unneeded: "the device was alerted again since, or the receiver has already got a recovery or never got an alert",
}

// stays says why a letter is not delivered.
func (r *Replay) stays(why string, l deadletter.Letter) {
	r.Failed++
	r.line(l, nameOf(cmp.Or(r.To, l.Receiver), r.Receivers), why)
}

// line prints what became of a letter.
func (r *Replay) line(l deadletter.Letter, to, what string) {
	about := strings.TrimSpace(l.ID + " " + l.Alert.From().String())
	if to != "" {
		about += " to " + to
	}

	fmt.Fprintln(r.Out, humanize.OneLine(about+": "+what))
}
