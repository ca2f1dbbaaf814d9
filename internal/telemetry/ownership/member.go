package ownership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"alertworker/internal/backoff"
	"alertworker/internal/records"
)

const (
	retryMin      = 100 * time.Millisecond
	retryMax      = time.Second
	claimsAtATime = 8
	giveBackTime  = 10 * time.Second // to release all partitions
	callTimeout   = 20 * time.Second // for a call of the store, with all its tries
	stopIn        = 2 * time.Second  // for the same, once Run is to end
	warnEvery     = time.Minute
	reportEvery   = time.Minute
	reportSoonest = 10 * time.Second
	stableAfter   = time.Minute // without a move
)

// A Config says what a Member takes part in.
type Config struct {
	Store records.Store // whose calls return by the time their context ends
	Scope string
	Owner string // different from every other's, now and later

	// Interval is how often a member writes its heartbeat, and lists while members come and go or partitions move. A
	// minute after the last move it lists only when another member would expire: a listing is what costs most. Expiry is
	// how long a member that writes no heartbeat keeps its partitions: at least twice Interval, so that one late heartbeat
	// loses none.
	Interval time.Duration
	Expiry   time.Duration

	Partitions []string // that are shared, until SetPartitions is called

	// Report, if not nil, returns what this member tells the others about itself, at most MaxReport bytes of JSON. A
	// heartbeat carries it every minute, and at once when Verdict changes, at most every 10 s: a store charges for such a
	// write what it charges for ten heartbeats. Verdict is what others act on; nil: nothing.
	Report  func() []byte
	Verdict func() string

	Logger *zap.Logger
}

// A Member is one replica among those that share partitions. Run may be called
// once; the other methods at any time.
//
// A failing store changes nothing: every owner keeps its partitions, and a heartbeat
// that was missed while the store did not answer does not count.
type Member struct {
	config  Config
	changed chan struct{}
	wanted  chan struct{} // somebody waits for a listing

	draining atomic.Bool

	// Used by Run alone.
	warned time.Time
	pause  time.Duration        // from the last listing to the next one
	seen   string               // what the last listing showed
	moved  time.Time            // when a listing last showed a move
	since  map[string]time.Time // when which heartbeat was first seen

	mu         sync.Mutex
	partitions []string // sorted
	held       map[string]bool
	share      int             // of partitions, by the last listing
	listed     time.Time       // when the last successful listing began, which held is by; written by Run alone
	live       map[string]bool // replicas, by that listing
	alive      time.Time       // when the last successful heartbeat began
	unbeaten   error           // why the last heartbeat failed; nil if it did not
	took       time.Duration   // how long the store has taken lately for a heartbeat or a listing
	reported   time.Time       // when the last heartbeat with a report began
	verdict    string          // what Verdict was then
}

// New returns a Member, which takes part once Run is called.
func New(config Config) *Member {
	if config.Verdict == nil {
		config.Verdict = func() string { return "" }
	}

	m := &Member{
		config:  config,
		changed: make(chan struct{}, 1),
		wanted:  make(chan struct{}, 1),
		held:    map[string]bool{},
	}
	m.SetPartitions(config.Partitions)

	return m
}

// Owned returns the set of partitions that this member owns by the last listing and by what it has
// claimed since. Once its last heartbeat is as old as the expiry, another member may own them: see Holds.
func (m *Member) Owned() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.held)
}

// Holds reports whether this member owns a partition by a listing that began after a time, which may be zero, and its
// last heartbeat is younger than the expiry, so that no other member can have taken what it owns. If there was no
// listing since then, the next one comes soon.
func (m *Member) Holds(partition string, since time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !since.IsZero() && !m.listed.After(since) {
		signal(m.wanted) // an interval after the last listing began, or now
		return false
	}

	return elapsed(m.alive) < m.config.Expiry && m.held[partition]
}

// Knows reports whether a member of that name was alive at the last listing. This one is.
func (m *Member) Knows(owner string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return owner == m.config.Owner || m.live[owner]
}

// Changed receives after a listing and after a claim.
func (m *Member) Changed() <-chan struct{} { return m.changed }

// SetPartitions replaces the partitions that are shared.
func (m *Member) SetPartitions(partitions []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.partitions = slices.Sorted(slices.Values(partitions))
}

// Share returns how many partitions this member owns, or will if all members take their share.
func (m *Member) Share() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.share, len(m.held))
}

// Drain makes the member keep what it owns and take no more.
func (m *Member) Drain() { m.draining.Store(true) }

// Run shares the partitions with the other members until ctx ends, and then
// gives back what it owns. It retries what fails.
func (m *Member) Run(ctx context.Context) {
	var beating sync.WaitGroup
	beating.Go(func() { m.beats(ctx) })
	for failures := 0; ctx.Err() == nil; {
		wait, err := m.round(ctx)
		if err == nil {
			failures = 0
		} else {
			m.since = nil // nobody else may have got through either
			failures++
			wait = backoff.Delay(failures, retryMin, retryMax)
			m.warn("ownership store failed; retrying until it answers", err)
		}

		waiting, cancel := context.WithTimeout(ctx, wait)
		select {
		case <-m.wanted: // by somebody who waits for the next listing
			backoff.Sleep(waiting, m.config.Interval-elapsed(m.listed))
		case <-waiting.Done():
		}
		cancel()
	}

	beating.Wait()
	if err := m.giveBack(); err != nil {
		m.config.Logger.Warn("some partitions could not be released: other replicas will take them over when this replica's "+
			"heartbeat expires", zap.Error(err))
	}
}

// beats writes heartbeats until ctx ends: one every Interval, whether or not the ones before have been answered, so that
// a slow store does not make this member look dead. After one that fails the next one follows soon.
func (m *Member) beats(ctx context.Context) {
	var sending sync.WaitGroup
	defer sending.Wait()
	for failures := 0; ctx.Err() == nil; {
		next := time.Now().Add(m.config.Interval + rand.N(m.config.Interval/5))
		beaten := make(chan error, 1)
		sending.Go(func() { beaten <- m.beat(ctx) })
		select {
		case err := <-beaten:
			failures++
			wait := backoff.Delay(failures, retryMin, retryMax)
			if err == nil {
				failures, wait = 0, time.Until(next)
			}

			backoff.Sleep(ctx, wait)
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
		}
	}
}

// beat writes a heartbeat, if it is time with a report.
func (m *Member) beat(ctx context.Context) error {
	began := time.Now()
	var report []byte
	verdict := m.config.Verdict()
	m.mu.Lock()
	age := began.Sub(m.reported)
	due := age >= reportEvery || age >= reportSoonest && verdict != m.verdict
	m.mu.Unlock()
	if due && m.config.Report != nil {
		report = m.config.Report()
	}

	err := m.call(ctx, func(ctx context.Context) error {
		return Beat(ctx, m.config.Store, m.config.Scope, m.config.Owner, m.draining.Load(), report)
	})

	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if began.After(m.alive) { // and no later one was answered
			m.unbeaten = err
		}
		return err
	}

	m.unbeaten = nil
	m.took = max(time.Since(began), m.took*3/4)
	if began.After(m.alive) {
		m.alive = began
	}

	if report != nil {
		m.reported, m.verdict = began, verdict
	}

	return nil
}

// warn logs, at most every warnEvery.
func (m *Member) warn(what string, err error) {
	if time.Since(m.warned) > warnEvery {
		m.warned = time.Now()
		m.config.Logger.Warn(what, zap.Error(err))
	}
}

// beating returns an error while heartbeats do not get through, and false before the first one did.
func (m *Member) beating() (begun bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	begun = !m.alive.IsZero()
	silent := elapsed(m.alive)
	if begun && m.unbeaten == nil && silent > max(m.config.Expiry/2, 2*m.config.Interval)+2*m.took {
		return true, fmt.Errorf("no heartbeat was answered for %v", silent.Round(time.Second))
	}

	return begun, m.unbeaten
}

// round lists the records, and claims the partitions of this member's share. It returns the pause until the next
// round. While heartbeats do not get through it does nothing: those of others may not either, and a member that
// claims something must be seen to live.
func (m *Member) round(ctx context.Context) (time.Duration, error) {
	begun, err := m.beating()
	if err != nil || !begun {
		return m.config.Interval / 20, err
	}

	due := time.Now().Add(m.config.Interval + rand.N(m.config.Interval/5)) // the next listing, while partitions move
	listed, began, err := m.list(ctx)
	if err != nil {
		return 0, err
	}

	m.mu.Lock()
	m.took = max(time.Since(began), m.took*3/4)
	slack := 2 * m.took // how much later than usual what a live member writes may arrive, because the store is slow
	m.mu.Unlock()
	if elapsed(m.listed) > m.pause+m.config.Interval+slack {
		m.since = nil // this machine or process was suspended
	}

	view := m.interpret(listed, slack)
	m.publish(view, began)

	m.mu.Lock()
	partitions := m.partitions
	m.mu.Unlock()

	var claims []Record
	for _, p := range share(m.config.Owner, partitions, view.records, view.sharing) {
		claims = append(claims, Record{Partition: p, Owner: m.config.Owner, Version: view.records[p].Version})
	}

	written, err := m.claim(ctx, claims)
	if err != nil {
		return 0, err
	}
	if written < int64(len(claims)) { // another replica was first: there may be more to claim
		return m.config.Interval/5 + rand.N(m.config.Interval/10), nil
	}

	m.forgetOne(ctx, view, listed)

	seen := fmt.Sprint(view.records, view.live, len(view.sharing))
	if len(claims) > 0 || seen != m.seen {
		m.moved = time.Now()
	}
	m.seen = seen

	m.pause = view.expires
	if elapsed(m.moved) < stableAfter {
		m.pause = min(m.pause, time.Until(due))
	}
	m.pause = max(m.pause, m.config.Interval/20)

	return m.pause, nil
}

// A view is a listing as a member interprets it.
type view struct {
	records map[string]Record // by partition; of those whose owner is dead without it
	sharing []string          // replicas that take partitions, this one included
	live    map[string]bool   // replicas
	expires time.Duration     // until the first of them dies if it writes no heartbeat; the expiry if there is none
}

// interpret decides which replicas are live. One is dead if its heartbeat is as old as the
// expiry, by the store's clock, and this member has seen it unchanged for an interval in
// which the store has answered: after the store has been down all heartbeats are old, and
// live replicas need a moment to write them. An owner without a heartbeat is dead. A store that is slow for this member
// is slow for the others, who get more time: slack.
func (m *Member) interpret(listed Records, slack time.Duration) view {
	v := view{records: map[string]Record{}, live: map[string]bool{m.config.Owner: true}, expires: m.config.Expiry}
	if !m.draining.Load() {
		v.sharing = append(v.sharing, m.config.Owner)
	}

	since, now := map[string]time.Time{}, time.Now()
	for _, b := range listed.Heartbeats {
		beat := b.Owner + "/" + b.Version
		first, ok := m.since[beat]
		if !ok {
			first = now
		}

		since[beat] = first
		left := max(m.config.Expiry-b.Age, m.config.Interval-now.Sub(first)) + slack
		//planted:dead-keep-partitions if b.Owner == m.config.Owner
		if b.Owner == m.config.Owner || left <= 0 {
			continue
		}

		v.expires = min(v.expires, left)
		v.live[b.Owner] = true
		if !b.Leaving && b.Age <= m.config.Expiry/2+slack { // and is not late
			v.sharing = append(v.sharing, b.Owner)
		}
	}

	m.since = since

	for _, p := range listed.Partitions {
		if !v.live[p.Owner] {
			p.Owner = ""
		}

		v.records[p.Partition] = p
	}

	return v
}

// claim writes records until ctx ends, and returns how many it could.
func (m *Member) claim(ctx context.Context, claims []Record) (written int64, err error) {
	var n atomic.Int64
	var claiming errgroup.Group
	claiming.SetLimit(claimsAtATime)
	for _, r := range claims {
		claiming.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}

			return m.call(ctx, func(ctx context.Context) error {
				ok, err := Claim(ctx, m.config.Store, m.config.Scope, r)
				if !ok {
					return err
				}

				n.Add(1)
				m.mu.Lock()
				defer m.mu.Unlock()
				if r.Owner == m.config.Owner { // else it gives it back
					m.held[r.Partition] = true
				}
				m.Recheck()

				return nil
			})
		})
	}

	err = claiming.Wait()

	return n.Load(), err
}

// rememberFor is how long the heartbeat of a replica that died stays, in case that it was only cut off. One that stops removes its own.
const rememberFor = time.Hour

// forgetOne removes the heartbeat of a replica that has been dead for long. It
// may fail: that heartbeat does no harm.
func (m *Member) forgetOne(ctx context.Context, v view, listed Records) {
	for _, b := range listed.Heartbeats {
		if v.live[b.Owner] || b.Age < rememberFor {
			continue
		}

		err := m.call(ctx, func(ctx context.Context) error {
			return forget(ctx, m.config.Store, m.config.Scope, b.Owner, b.Version)
		})
		if err != nil {
			m.warn("the heartbeat of a replica that is gone could not be removed", err)
		}

		return
	}
}

// giveBack releases the partitions that are this member's by the store's records until
// there are none, because a claim without an answer may have succeeded, and then
// removes its heartbeat.
func (m *Member) giveBack() error {
	m.mu.Lock()
	m.held = map[string]bool{}
	m.mu.Unlock()
	late := fmt.Errorf("not finished within %v", giveBackTime)
	ctx, cancel := context.WithTimeoutCause(context.Background(), giveBackTime, late)
	defer cancel()

	for {
		listed, _, err := m.list(ctx)
		var given []Record
		for _, p := range listed.Partitions {
			if p.Owner == m.config.Owner {
				given = append(given, Record{Partition: p.Partition, Version: p.Version})
			}
		}

		if err == nil && len(given) == 0 {
			return m.call(ctx, func(ctx context.Context) error {
				return forget(ctx, m.config.Store, m.config.Scope, m.config.Owner, records.Any)
			})
		}
		if err == nil {
			_, err = m.claim(ctx, given)
		}
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		if err != nil {
			backoff.Sleep(ctx, retryMin)
		}
	}
}

func (m *Member) list(ctx context.Context) (listed Records, began time.Time, err error) {
	began = time.Now()
	err = m.call(ctx, func(ctx context.Context) (err error) {
		listed, err = List(ctx, m.config.Store, m.config.Scope)
		return err
	})
	return listed, began, err
}

// call calls the store once. It does not end with Run's context, but stopIn later: its outcome would be unknown.
func (m *Member) call(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := backoff.Lasting(ctx, callTimeout, stopIn)
	defer cancel()

	err := call(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}

	return err
}

// publish sets what this member owns by the listing.
func (m *Member) publish(v view, began time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = map[string]bool{}
	for id, r := range v.records {
		if r.Owner == m.config.Owner {
			m.held[id] = true
		}
	}

	members := max(1, len(v.sharing))
	m.share = (len(m.partitions) + members - 1) / members
	m.listed, m.live = began, v.live
	m.Recheck()
}

// Recheck makes Changed receive.
func (m *Member) Recheck() { signal(m.changed) }

// signal makes whoever receives from c go on, now or soon.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// elapsed returns the time since t, by the clock that says more: the monotonic one
// stops while the machine is suspended, and the wall clock can be set.
func elapsed(t time.Time) time.Duration {
	return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0)))
}
