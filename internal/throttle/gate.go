package throttle

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"alertworker/internal/lease"
	"alertworker/internal/sensor"
)

// What a claim leaves, besides the time to send, for taking it and for
// recording what came of it.
const (
	acquireTimeout = 4 * time.Second
	settleTimeout  = 6 * time.Second
)

// recordTry is how long one attempt to record what came of a claim may take, with all that the store repeats. A slow
// store needs most of it.
const recordTry = 10 * time.Second

// How soon at the earliest to ask again about a key that somebody holds: one
// that should be free by now, and one whose end is not known.
const (
	pollHeld    = 250 * time.Millisecond
	pollUnknown = time.Second
)

// A Request asks to alert about one reading of one device, or of one of its sensors.
type Request struct {
	Device   string    // any string
	Sensor   string    // of the device, any string; empty: the reading is the device's own
	ID       string    // of the alert to send, if none is unresolved
	Enqueued time.Time // when the hub took the reading, by the hub's clock; of a silence, its deadline
	// AsOf, of a recovery, is the latest time for which its log says that the device is normal; zero: Enqueued
	AsOf time.Time
	// Arrived, if not zero, is when this process took the reading, with time.Now's
	// monotonic clock: then its age is what counts, and Enqueued does not.
	Arrived time.Time
	// Log names what numbered the reading: one partition of one generation of a hub. Sequence is its
	// number there. Numbers of different logs are not compared, but the times of their readings. Neither counts if Arrived
	// is set.
	Log      string
	Sequence int64
	Element  int  // of the message of that number: a message may have several readings
	Part     Part // of its place
	// At is when a silence was found, or when it ended by itself: Silences and Ends of one reading come in this order. Of
	// readings it does not count.
	At time.Time
	// Repeat, unless it is 0, is for how long an alert covers later readings of the alarm that it was about, counted from
	// its claim. Then OpenedBy is the number, in Log, of the reading that opened the alarm of this one, and OpenedByElement
	// that of its element.
	Repeat          time.Duration
	OpenedBy        int64
	OpenedByElement int
	// Recovery asks to say that the device is normal again, from this reading on. See Gate.Claim.
	Recovery bool
	// Incident, if not empty, is the id of one that the request is about, and Device is what its members share: an alert of
	// it, or of a Recovery its end. Whatever ID says, the ID of the alert is Incident, and that of the end names the alert,
	// too, which it ends. Readings' places do not count, and an alert covers its incident for Repeat.
	Incident string
}

// Of returns what r's reading is of.
func (r Request) Of() sensor.ID { return sensor.ID{Device: r.Device, Name: r.Sensor} }

// position returns where r's reading is among those of its device; none if it did not come
// from a partition.
func (r Request) position() position {
	if !r.Arrived.IsZero() || r.Incident != "" {
		return position{}
	}

	p := position{Log: r.Log, Sequence: r.Sequence, Element: r.Element, Part: r.Part}
	if p.Part != Event {
		p.At = millis(r.At)
	}

	return p
}

// A Grant permits sending one alert or recovery.
type Grant struct {
	// ID is the request's, or that of an earlier one of its kind which may have been taken
	// without our hearing of it: sent again, the receiver can drop it.
	ID        string
	Token     int64     // grows with every grant for the device
	Expires   time.Time // the end of the claim, by the store's clock
	Now       time.Time // when the claim was made, by the store's clock
	Ambiguous bool      // an earlier claim was left unresolved: this may be a second delivery
	Before    string    // Request.Log of the latest alert for which the key was claimed before; empty if none is known
	SendBy    time.Time // by this machine's clock, the end of the time that the claim leaves for sending

	timeout time.Duration // Config.SendTimeout
}

// Sending returns ctx for what is sent under g from now on: it ends after Config.SendTimeout, and at SendBy.
func (g Grant) Sending(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := min(g.timeout, time.Until(g.SendBy))
	late := fmt.Errorf("the receiver did not answer within %v (NOTIFY_TIMEOUT)", timeout.Round(time.Millisecond))
	return context.WithTimeoutCause(ctx, timeout, late)
}

// An Answer is what a sender knows about the alert it sent.
type Answer int

const (
	Unknown  Answer = iota // the receiver may have taken it
	Taken                  // the receiver has taken it
	NotTaken               // the receiver has certainly not taken it
)

// An Outcome says what became of a request.
type Outcome int

const (
	// Unavailable: the store gave no usable answer. Nothing was sent. Ask again.
	Unavailable Outcome = iota
	// Busy: another claim is in force, or a window that proves nothing. Ask again at Result.Retry.
	Busy
	// Failed: the answer was not Taken. The claim was given back. Ask again.
	Failed
	// Throttled: a recorded window, or what was recorded after it, covers the request, and
	// any other that Result.Covers.
	Throttled
	// Sent: taken, and the window, or of a recovery its end, recorded in time. It covers the
	// request and all of the device that were made before it was settled.
	Sent
	// SentLate: taken, but another claim may have been made before that
	// was recorded. It covers the request alone.
	SentLate
	// Unconfirmed: taken, but the window could not be recorded. It covers the
	// request alone, once Confirm has returned.
	Unconfirmed
	// Unneeded, of a recovery alone: there is nothing to say, because the receiver got no alert,
	// got the recovery already, or got another alert since.
	Unneeded
)

// A Result is the outcome of a Claim that was not made, or of one that was settled.
type Result struct {
	Outcome Outcome
	Quiet   time.Time // Throttled: the end of the recorded window, by the store's clock
	Retry   time.Time // Busy: when to ask again, by this machine's clock
	Now     time.Time // the store's clock early in the call; zero if it gave no answer
	Window  Window    // that holds the key, if the call has shown one: the recorded one, or of Sent the new one
	asked   time.Time // when the call began, by this machine's clock
	pending *Claim    // Unconfirmed

	through, recovered position // Throttled: readings up to either are covered too

	// Throttled or Sent: of the last alert that was taken, if the rule has a Repeat
	sent   position
	sentAt time.Time // by the store's clock

	// Throttled or Sent: of the incident whose alert was taken last, unless its end may have been since
	told   string
	toldAt time.Time // by the store's clock
}

// A Window is one in force, by this machine's clocks counted from before the call that has shown it. The zero Window is
// none.
type Window struct {
	Ends  time.Time // not after it ends
	Frees time.Time // not before its key does, which a store with a coarse clock frees late
}

func (o Outcome) String() string {
	return [...]string{"unavailable", "busy", "failed", "throttled", "sent", "sent_late", "unconfirmed", "unneeded"}[o]
}

// Covers reports whether what a Throttled result says covers r, a request for an alert of the
// same device: its reading was taken before the end of the recorded window, or less than its Repeat after an alert
// about its alarm, or is not after one whose recovery was sent or whose alert was given up. Of an incident it is covered
// until its Repeat after the incident's alert, and if it was taken before then.
func (res Result) Covers(r Request) bool {
	at, until := r.Enqueued, res.repeatsAt(r) // by the store's clock
	if !r.Arrived.IsZero() {
		at = res.Now.Add(r.Arrived.Sub(res.asked))
	}

	if r.Incident != "" {
		return res.Now.Before(until) || at.Before(until)
	}

	p := r.position()
	return at.Before(res.Quiet) || p.upTo(res.through) || p.upTo(res.recovered) || at.Before(until)
}

// repeatsAt returns until when, by the store's clock, the last alert covers the alarm or the incident of r; the zero time if
// it was about another one.
func (res Result) repeatsAt(r Request) time.Time {
	switch {
	//planted:any-incident-covers case r.Incident != "" && res.told != ""
	case r.Incident != "" && r.Incident == res.told:
		return res.toldAt.Add(r.Repeat)
	//planted:alert-covers-later-alarms case r.Repeat > 0 && res.sent != (position{})
	case r.Repeat > 0 && position{Log: r.Log, Sequence: r.OpenedBy, Element: r.OpenedByElement}.upTo(res.sent):
		return res.sentAt.Add(r.Repeat)
	}

	return time.Time{}
}

// NextReminder returns before when, by this machine's clock, no alert is due about the alarm or the incident of r, a
// request for an alert of the same device; the zero time if the result does not say.
func (res Result) NextReminder(r Request) time.Time {
	until := res.repeatsAt(r)
	if until.IsZero() {
		return until
	}
	return res.asked.Add(until.Sub(res.Now))
}

// Config says what a Gate is for. All fields but Replica are required.
type Config struct {
	Store lease.Store
	// Scope and Receiver name who shares windows: gates with the same two, in any process.
	Scope, Receiver string
	// whose alerts these are; both empty, or the rule rules.DefaultName without a level: the keys of every version
	Rule, Level string
	// the alerts are about silence: a rule of another kind with the same name has keys of its own
	Silence     bool
	Per         string        // see rules.Rule: then what a Request calls the device is the value of this property
	Replica     string        // shown to people while it holds a claim; at most 200 bytes, may be empty
	Window      time.Duration // from the moment the receiver has taken an alert
	SendTimeout time.Duration // for one message
}

// A Gate is safe for concurrent use, and remembers nothing: see package recent. Several claims for one device are
// kept apart by the store alone; callers that want fewer store calls make one at a time.
type Gate struct {
	store       lease.Store
	scope       string
	prefix      string // of the keys
	replica     string
	window      time.Duration
	sendTimeout time.Duration
}

// A Claim holds a key for one send. It is to be settled, once; a claim that is not ends by itself.
type Claim struct {
	Grant   Grant
	request Request
	lease   lease.Lease
	note    note
	asked   time.Time // when the call that made it began
	taken   time.Time // when the receiver had taken its message
}

// Of returns the device or sensor that c was claimed for.
func (c *Claim) Of() sensor.ID { return c.request.Of() }

func New(c Config) *Gate {
	return &Gate{
		store:       c.Store,
		scope:       c.Scope,
		prefix:      prefix(c),
		replica:     c.Replica,
		window:      c.Window,
		sendTimeout: c.SendTimeout,
	}
}

// ClaimTTL is how long a claim holds a key whose send may take sendTimeout.
func ClaimTTL(sendTimeout time.Duration) time.Duration {
	return acquireTimeout + sendTimeout + settleTimeout
}

// Remember is how long a receiver must remember what it was sent: the window, or a claim if
// that lasts longer.
func (g *Gate) Remember() time.Duration { return max(g.window, ClaimTTL(g.sendTimeout)) }

// errDeclined is how the gate declines to take a key.
var errDeclined = errors.New("there is nothing to send now")

// Claim claims the key of r's device for one send. Without a claim the result says why, and the error explains
// Unavailable. Claim never waits for others: see Busy.
//
// A recovery is sent only if the receiver may have got an alert since the last one, and
// never within that alert's window: until it is over, the outcome is Busy. It ends what the
// window covered: readings after that of the recovery can alert at once.
func (g *Gate) Claim(ctx context.Context, r Request) (*Claim, Result, error) {
	start := time.Now()
	ttl := ClaimTTL(g.sendTimeout)
	var d decision
	before := ""
	l, err := g.acquire(ctx, r.Of(), func(prev lease.Record) (string, error) {
		last := parseNote(prev.Note)
		before = last.About.Log
		if d = decide(last, prev, false, r, start); d.Outcome != Sent {
			return "", errDeclined
		}

		d.claim.Replica = g.replica
		d.claim.Proof = (ttl + g.window).Milliseconds()

		return d.claim.String(), nil
	})

	// The key is free, and there is nothing to claim it for; or it is held, which its holder may change at any time; or the
	// store gave no answer.
	var held *lease.HeldError
	switch {
	case errors.Is(err, errDeclined):
		if d.Outcome == Busy {
			d.Retry = time.Now().Add(d.wait)
		}
		return nil, d.Result, nil

	case errors.As(err, &held):
		n := parseNote(held.Record.Note)
		d = decide(n, held.Record, true, r, start)
		quiet := n.quietUntil(held.Record)
		if n.Phase == phaseWindow && !held.Until.IsZero() && held.Record.Now.Before(quiet) {
			// What the record proves may end before its hold, by so much.
			early := held.Record.Written.Add(held.Record.Hold).Sub(quiet)
			d.Window = Window{Ends: held.Until.Add(-early), Frees: held.Frees}
		}

		if d.Outcome == Busy {
			wait := pollHeld
			if held.Frees.IsZero() {
				wait = pollUnknown
			}

			d.Retry = time.Now().Add(wait + rand.N(wait/2))
			if held.Frees.After(d.Retry) {
				d.Retry = held.Frees
			}
		}
		return nil, d.Result, nil

	case err != nil:
		return nil, Result{Outcome: Unavailable}, fmt.Errorf("claim the window of device %q: %w", r.Of(), err)
	}

	n := parseNote(l.Note) // what is granted: the key may have been asked for again after an answer was lost
	c := &Claim{request: r, lease: l, note: n, asked: start, Grant: Grant{
		ID:        n.sends(),
		Token:     l.Token,
		Expires:   l.Claimed.Add(ttl),
		Now:       l.Claimed,
		Ambiguous: n.Again,
		Before:    before,
		SendBy:    l.Until.Add(-settleTimeout / 2),
		timeout:   g.sendTimeout,
	}}

	// The store may have been slow, and a machine that was suspended since start may hold a claim that is long over.
	if !lease.Ahead(c.Grant.SendBy.Add(-g.sendTimeout)) {
		_, _ = g.Settle(ctx, c, NotTaken)
		return nil, Result{Outcome: Unavailable, Now: c.Grant.Now}, fmt.Errorf(
			"claim the window of device %q: the answer took %v, which leaves too little time to send",
			r.Of(),
			time.Since(start).Round(time.Millisecond),
		)
	}

	return c, Result{}, nil
}

// acquire takes the key of a device or sensor for a claim.
func (g *Gate) acquire(ctx context.Context, of sensor.ID, next func(lease.Record) (string, error)) (lease.Lease, error) {
	late := fmt.Errorf("the store did not answer within %v", lease.CallLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, lease.CallLimit, late)
	defer cancel()
	return g.store.Acquire(ctx, g.key(of), ClaimTTL(g.sendTimeout), next)
}

// Settle records what the receiver answered to what was sent under c: the window starts if it took an alert, ends if it
// took a recovery, and else the key is free again. It does not end with ctx, but by the end of the claim. The
// error explains Unconfirmed.
func (g *Gate) Settle(ctx context.Context, c *Claim, answer Answer) (Result, error) {
	if answer != Taken {
		// Another attempt need not wait for the claim to end then. The ID of what may have been taken stays behind. Failure is
		// harmless: the claim ends by itself and its ID stays.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTry)
		defer cancel()
		//planted:unknown-under-new-id if answer == Unknown { answer = NotTaken }
		_ = g.store.Release(ctx, c.lease, c.note.givenBack(answer).String())

		return Result{Outcome: Failed, Now: c.Grant.Now}, nil
	}

	c.taken = time.Now()
	if c.request.Recovery {
		c.note = c.note.afterRecovery(c.request)
	} else {
		taken := c.Grant.Now.Add(c.taken.Sub(c.asked)) // by the store's clock: not earlier, but for the store's resolution
		c.note = c.note.afterAlert(c.request, c.Grant.Now, taken)
	}

	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), c.lease.Until)
	defer cancel()
	l, err := g.record(ctx, c)
	result := Result{Outcome: SentLate, Now: c.Grant.Now, asked: c.asked, pending: c}
	switch {
	case err == nil && lease.Ahead(c.lease.Until):
		result.Outcome = Sent
		result.sent, result.sentAt = c.note.Sent, time.UnixMilli(c.note.SentAt)
		result.told, result.toldAt = c.note.Told, time.UnixMilli(c.note.ToldAt)
		if !c.request.Recovery {
			result.Window = Window{Ends: c.taken.Add(g.window), Frees: l.Frees}
			if l.Until.Before(result.Window.Ends) { // no longer than the store grants by this machine's clock
				result.Window.Ends = l.Until
			}
		}

	case err != nil && !errors.Is(err, lease.ErrLost) && !c.request.Recovery:
		result.Outcome = Unconfirmed
		return result, err
	}

	return result, nil
}

// Confirm goes on recording the window of an Unconfirmed result until it is
// recorded, another claim was made, or the window would be over. The alert counts as SentLate
// then. An error says that ctx ended first.
func (g *Gate) Confirm(ctx context.Context, r Result) error {
	_, err := g.record(ctx, r.pending)
	if errors.Is(err, lease.ErrLost) {
		return nil
	}
	return err
}

// record records that c's message was taken, and of an alert what is left of its window, with pauses between attempts, until
// ctx ends. ErrLost says that there is nothing left to record.
func (g *Gate) record(ctx context.Context, c *Claim) (l lease.Lease, err error) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		once, cancel := context.WithTimeout(ctx, recordTry)
		left := g.window - time.Since(c.taken)
		//planted:short-window left -= g.window / 3
		switch {
		case c.request.Recovery: // Release does not say whether c still was the last claim
			err = g.store.Release(once, c.lease, c.note.String())
		case left > 0:
			l, err = g.store.Extend(once, c.lease, c.note.String(), left)
		case c.request.Incident != "": // that the receiver was told of it counts for longer; its window is over, and was none
			err = cmp.Or(g.store.Release(once, c.lease, c.note.freed().String()), lease.ErrLost)
		default:
			err = lease.ErrLost
		}
		cancel()

		if err == nil || errors.Is(err, lease.ErrLost) {
			return l, err
		}

		select {
		case <-ctx.Done():
			return l, fmt.Errorf("record the window of device %q: %w", c.request.Of(), err)
		case <-time.After(wait/2 + rand.N(wait/2)):
		}
	}
}

// GiveUp notes that the alert of r's reading was given up, after its dead letter was kept: the
// device's readings up to that one are covered from now on, should they be read again. The ID
// of an alert that may have been taken stays. It does nothing for a recovery, for an incident, for a reading
// that did not come from a partition, and while the key is held. It costs the store two calls.
// After an error it may have been noted or not; repeating the call is safe.
func (g *Gate) GiveUp(ctx context.Context, r Request) error {
	at := r.position()
	if r.Recovery || at == (position{}) {
		return nil
	}

	next := func(prev lease.Record) (string, error) {
		last := parseNote(prev.Note)
		if at.upTo(last.Through) {
			return "", errDeclined
		}
		return last.givenUp(prev, at).String(), nil
	}
	l, err := g.acquire(ctx, r.Of(), next)
	switch {
	case errors.Is(err, lease.ErrHeld), errors.Is(err, errDeclined):
		return nil
	case err != nil:
		return fmt.Errorf("record that the alert of device %q was given up: %w", r.Of(), err)
	}

	_ = g.store.Release(ctx, l, l.Note) // else the key frees by itself

	return nil
}

const maxKey = 1024 // bytes, by lease.Store's contract

// part makes a text a part between slashes, as RFC 6901 does.
var part = strings.NewReplacer("~", "~0", "/", "~1")

// key names the lease of a device, or of one of its sensors. Distinct ones get distinct keys; usual ones
// can be read.
func (g *Gate) key(of sensor.ID) string {
	key := g.prefix + part.Replace(of.Device)
	//planted:key-without-sensor if false
	if of.Name != "" {
		key += "~n" + part.Replace(of.Name) // no part has ~n either
	}

	if len(key) <= maxKey && utf8.ValidString(key) {
		return key
	}

	sum := sha256.Sum256([]byte(key))
	return g.scope + "/~h/" + hex.EncodeToString(sum[:]) // no receiver is called ~h: see part
}

// defaultRule is rules.DefaultName. Its keys, without a level, are those of versions without
// rules.
const defaultRule = "temperature"

// prefix is what the keys of c's gate have before the device.
func prefix(c Config) string {
	of := part.Replace(c.Receiver)

	switch rule := cmp.Or(c.Rule, defaultRule); { // no part has ~r, ~s or ~l
	case c.Silence:
		of += "~s" + part.Replace(rule) + "~l" + part.Replace(c.Level)
	case rule != defaultRule || c.Level != "":
		of += "~r" + part.Replace(rule) + "~l" + part.Replace(c.Level)
	}

	if c.Per != "" {
		//planted:site-named-like-device skip
		of += "~p" + part.Replace(c.Per) // nor this
	}

	return c.Scope + "/" + of + "/"
}

// InScope returns whether a key is one of the gates of scope.
func InScope(scope string) func(key string) bool {
	prefix := scope + "/"
	return func(key string) bool {
		rest, ok := strings.CutPrefix(key, prefix)
		return ok && strings.Count(rest, "/") == 1 // between receiver and device; a longer scope has more
	}
}
