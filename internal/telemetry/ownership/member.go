package ownership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/records"
)

const (
	retryMin      = 100 * time.Millisecond
	retryMax      = time.Second
	claimsAtATime = 8
	giveBackTime  = 10 * time.Second // to release all partitions
	warnEvery     = time.Minute
)

// A Config says what a Member takes part in.
type Config struct {
	Store records.Store // whose calls return by the time their context ends
	Scope string
	Owner string // different from every other's, now and later

	// Interval is how often a member writes its heartbeat and lists. Expiry is how
	// long one that writes none keeps its partitions: at least twice Interval.
	Interval time.Duration
	Expiry   time.Duration

	// Seen, if not nil, is called with the owner of each partition whenever the
	// member has read them. Calls come one at a time and must be short.
	Seen func(owners map[string]string)

	Logger *zap.Logger // default: none
}

// A Member is one replica among those that share partitions. Run may be called
// once; the other methods at any time.
//
// A failing store changes nothing: every owner keeps its partitions, and a heartbeat
// that was missed while the store did not answer does not count.
type Member struct {
	Config
	attempt time.Duration // for one answer of the store
	changed chan struct{}

	// Used by Run alone.
	nextBeat time.Time
	warned   time.Time
	listed   time.Time            // when the last successful listing began
	since    map[string]time.Time // when which heartbeat was first seen

	mu       sync.Mutex
	draining bool
	held     map[string]bool
	doubted  map[string]time.Time
	alive    time.Time // when the last successful heartbeat began
}

// New returns a Member, which takes part once Run is called.
func New(config Config) *Member {
	if config.Seen == nil {
		config.Seen = func(map[string]string) {}
	}
	if config.Logger == nil {
		config.Logger = zap.NewNop()
	}
	return &Member{
		Config:  config,
		attempt: min(max(config.Expiry/4, 2*time.Second), 10*time.Second),
		changed: make(chan struct{}, 1),
		held:    map[string]bool{},
		doubted: map[string]time.Time{},
	}
}

// Held returns the partitions that this member owns by the last listing. It returns
// none once its last heartbeat is as old as the expiry, since another replica may
// own them then.
func (m *Member) Held() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if elapsed(m.alive) >= m.Expiry {
		return nil
	}
	return slices.Sorted(maps.Keys(m.held))
}

// Changed receives after a partition was added to Held.
func (m *Member) Changed() <-chan struct{} { return m.changed }

// Doubt takes a partition out of Held until a listing that begins after this
// call says again that this member owns it.
func (m *Member) Doubt(partition string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, partition)
	m.doubted[partition] = time.Now()
}

// Drain makes the member keep what it owns and take no more.
func (m *Member) Drain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.draining = true
}

func (m *Member) isDraining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.draining
}

// Run shares these partitions with the other members until ctx ends, and then
// gives back what it owns. It retries what fails.
func (m *Member) Run(ctx context.Context, partitions []string) {
	partitions = slices.Sorted(slices.Values(partitions))
	for failures := 0; ctx.Err() == nil; {
		wait, err := m.round(ctx, partitions)
		if err == nil {
			failures = 0
		} else {
			m.since = nil // nobody else may have got through either
			failures++
			wait = backoff.Delay(failures, retryMin, retryMax)
			m.warn("ownership store failed; retrying until it answers", err)
		}
		backoff.Sleep(ctx, wait)
	}
	if err := m.giveBack(); err != nil {
		m.Logger.Warn("some partitions could not be released: other replicas take them over when this replica's heartbeat expires", zap.Error(err))
	}
}

// warn logs, at most every warnEvery.
func (m *Member) warn(what string, err error) {
	if time.Since(m.warned) > warnEvery {
		m.warned = time.Now()
		m.Logger.Warn(what, zap.Error(err))
	}
}

// round writes the heartbeat if it is due, lists the records, and claims the
// partitions of this member's share. It returns the pause until the next round.
func (m *Member) round(ctx context.Context, partitions []string) (time.Duration, error) {
	began := time.Now()
	beat := !began.Before(m.nextBeat)
	if beat {
		if err := m.call(ctx, func(ctx context.Context) error { return Beat(ctx, m.Store, m.Scope, m.Owner, m.isDraining()) }); err != nil {
			return 0, err
		}
		m.nextBeat = began.Add(m.Interval + time.Duration(rand.Float64()*float64(m.Interval)/5))
		m.mu.Lock()
		m.alive = began
		m.mu.Unlock()
	}
	listed, began, err := m.list(ctx)
	if err != nil {
		return 0, err
	}
	if elapsed(m.listed) > 2*m.Interval {
		m.since = nil // this machine or process was suspended
	}
	m.listed = began

	view := m.interpret(listed)
	m.publish(listed, began)
	m.Seen(view.claimed)
	claims := view.claims(m.Owner, partitions)
	if len(claims) > 0 {
		taken, err := m.claim(ctx, claims)
		m.Seen(with(view.claimed, taken, m.Owner))
		if err != nil {
			return 0, err
		}
		if len(taken) < len(claims) { // another replica was first, or there was no time: there may be more to claim
			return min(m.Interval/5+rand.N(m.Interval/10), time.Until(m.nextBeat)), nil
		}
	}
	m.forgetOne(ctx, view, listed)
	return max(m.Interval/20, min(view.expires, time.Until(m.nextBeat))), nil
}

// A view is a listing as a member interprets it.
type view struct {
	claimed map[string]string // partition to owner, live or not
	owners  map[string]string // partition to live owner
	version map[string]string // partition to version
	sharing []string          // replicas that take partitions, this one included
	live    map[string]bool   // replicas
	expires time.Duration     // until the first of them dies if it writes no heartbeat; the expiry if there is none
}

// interpret decides which replicas are live. One is dead if its heartbeat is as old as the
// expiry, by the store's clock, and this member has seen it unchanged for an interval in
// which the store has answered: after the store has been down all heartbeats are old, and
// live replicas need a moment to write them. An owner without a heartbeat is dead.
func (m *Member) interpret(listed Records) view {
	v := view{
		claimed: map[string]string{}, owners: map[string]string{}, version: map[string]string{},
		live: map[string]bool{m.Owner: true}, expires: m.Expiry,
	}
	if !m.isDraining() {
		v.sharing = append(v.sharing, m.Owner)
	}
	since, now := map[string]time.Time{}, time.Now()
	for _, b := range listed.Heartbeats {
		beat := b.Owner + "/" + b.Version
		first, ok := m.since[beat]
		if !ok {
			first = now
		}
		since[beat] = first
		left := max(m.Expiry-b.Age, m.Interval-now.Sub(first))
		if b.Owner == m.Owner || left <= 0 {
			continue
		}
		v.expires = min(v.expires, left)
		v.live[b.Owner] = true
		if late := b.Age > m.Expiry/2; !b.Leaving && !late {
			v.sharing = append(v.sharing, b.Owner)
		}
	}
	m.since = since
	for _, p := range listed.Partitions {
		v.claimed[p.Partition], v.version[p.Partition] = p.Owner, p.Version
		if v.live[p.Owner] {
			v.owners[p.Partition] = p.Owner
		}
	}
	return v
}

// A claim is a partition to take, if its record has this version.
type claim struct{ partition, version string }

// claims returns what the member should claim now.
func (v view) claims(me string, partitions []string) (claims []claim) {
	for _, p := range share(me, partitions, v.owners, v.sharing) {
		claims = append(claims, claim{p, v.version[p]})
	}
	return claims
}

// claim claims partitions, as many as there is time for, and returns those it got.
func (m *Member) claim(ctx context.Context, claims []claim) (taken []string, err error) {
	var mu sync.Mutex
	var claiming sync.WaitGroup
	var errs []error
	slots := make(chan struct{}, claimsAtATime)
	for i, c := range claims {
		slots <- struct{}{}
		if late := time.Now().After(m.nextBeat); ctx.Err() != nil || late && i >= claimsAtATime {
			break // a heartbeat is more important; the next round claims the rest
		}
		claiming.Go(func() {
			defer func() { <-slots }()
			var ok bool
			err := m.call(ctx, func(ctx context.Context) (err error) {
				ok, err = Claim(ctx, m.Store, m.Scope, c.partition, m.Owner, c.version)
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
			}
			if ok {
				taken = append(taken, c.partition)
				m.hold(c.partition)
			}
		})
	}
	claiming.Wait()
	return taken, errors.Join(errs...)
}

// forgetOne removes the heartbeat of a replica that is dead and owns nothing. It
// may fail: that heartbeat does no harm.
func (m *Member) forgetOne(ctx context.Context, v view, listed Records) {
	for _, b := range listed.Heartbeats {
		if v.live[b.Owner] || slices.ContainsFunc(listed.Partitions, func(p Record) bool { return p.Owner == b.Owner }) {
			continue
		}
		if err := m.call(ctx, func(ctx context.Context) error { return forget(ctx, m.Store, m.Scope, b.Owner, b.Version) }); err != nil {
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
	ctx, cancel := context.WithTimeoutCause(context.Background(), giveBackTime, fmt.Errorf("not done within %v", giveBackTime))
	defer cancel()
	for {
		err := m.giveBackOnce(ctx)
		if err == nil {
			return m.call(ctx, func(ctx context.Context) error { return forget(ctx, m.Store, m.Scope, m.Owner, records.Any) })
		}
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		backoff.Sleep(ctx, retryMin)
	}
}

var errNotYet = errors.New("another replica wrote a partition's record at the same time")

func (m *Member) giveBackOnce(ctx context.Context) error {
	listed, _, err := m.list(ctx)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var giving sync.WaitGroup
	var errs []error
	slots := make(chan struct{}, claimsAtATime)
	for _, p := range listed.Partitions {
		if p.Owner != m.Owner {
			continue
		}
		slots <- struct{}{}
		giving.Go(func() {
			defer func() { <-slots }()
			err := m.call(ctx, func(ctx context.Context) error {
				ok, err := Claim(ctx, m.Store, m.Scope, p.Partition, "", p.Version)
				if err == nil && !ok {
					return errNotYet
				}
				return err
			})
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	giving.Wait()
	return errors.Join(errs...)
}

func (m *Member) list(ctx context.Context) (listed Records, began time.Time, err error) {
	began = time.Now()
	err = m.call(ctx, func(ctx context.Context) (err error) {
		listed, err = List(ctx, m.Store, m.Scope)
		return err
	})
	return listed, began, err
}

// call calls the store once. It does not end with Run's context, which would leave its
// outcome unknown.
func (m *Member) call(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), m.attempt, fmt.Errorf("no answer within %v", m.attempt))
	defer cancel()
	err := call(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return err
}

// publish sets what this member holds to what it owns by the listing.
func (m *Member) publish(listed Records, began time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.held
	m.held = map[string]bool{}
	for _, p := range listed.Partitions {
		if p.Owner != m.Owner || m.doubted[p.Partition].After(began) {
			continue
		}
		m.held[p.Partition] = true
		if !before[p.Partition] {
			m.notify()
		}
	}
	maps.DeleteFunc(m.doubted, func(_ string, at time.Time) bool { return !at.After(began) })
}

func (m *Member) hold(partition string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, doubted := m.doubted[partition]; !doubted && !m.held[partition] {
		m.held[partition] = true
		m.notify()
	}
}

func (m *Member) notify() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

func with(owners map[string]string, partitions []string, owner string) map[string]string {
	owners = maps.Clone(owners)
	for _, p := range partitions {
		owners[p] = owner
	}
	return owners
}

// elapsed returns the time since t, by the clock that says more: the monotonic one
// stops while the machine is suspended, and the wall clock can be set.
func elapsed(t time.Time) time.Duration {
	return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0)))
}
