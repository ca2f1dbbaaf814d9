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
)

const (
	retryMin      = 100 * time.Millisecond
	retryMax      = time.Second
	claimsAtATime = 8
	giveBackTime  = 10 * time.Second // for all that giving back takes
	warnEvery     = 10 * time.Second
)

// A Config says what a Member takes part in.
type Config struct {
	Store Store
	Scope string
	Owner string // different from every other's, now and later

	// Interval is how often a member writes its heartbeat and lists. Expiry is how
	// long one that writes none keeps its partitions: at least twice Interval.
	Interval time.Duration
	Expiry   time.Duration

	// Seen is told who owns which partition whenever the member learns of it. Nil:
	// nobody is. Calls come one at a time and must be short.
	Seen func(owners map[string]string)

	Logger *zap.Logger // default: none
}

// A Member is one replica among those that share partitions. Run may be called
// once; the other methods at any time.
//
// The store failing changes nothing: whoever owns a partition keeps it, and what
// was missed while the store did not answer counts against nobody.
type Member struct {
	Config
	attempt time.Duration // for one answer of the store
	changed chan struct{}

	// Run's own.
	nextBeat time.Time
	warned   time.Time
	listed   time.Time            // when the last successful listing began
	since    map[string]time.Time // when which sign of life was first seen; see sign

	mu       sync.Mutex
	draining bool
	held     map[string]bool
	doubted  map[string]time.Time
	alive    time.Time // when the last successful heartbeat began
}

// New returns a Member that does not take part before Run.
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

// Held returns the partitions that this member owns, as the last listing told;
// none once its last heartbeat is as old as the expiry, for then another replica
// may own them.
func (m *Member) Held() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if elapsed(m.alive) >= m.Expiry {
		return nil
	}
	return slices.Sorted(maps.Keys(m.held))
}

// Changed receives after Held has got longer.
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
	for pause := retryMin; ctx.Err() == nil; {
		wait, err := m.round(ctx, partitions)
		if err == nil {
			pause = retryMin
		} else {
			m.since = nil // nobody else may have got through either
			wait = jitter(pause)
			pause = min(2*pause, retryMax)
			m.warn("ownership store failed; trying again until it answers", err)
		}
		sleep(ctx, wait)
	}
	if err := m.giveBack(); err != nil {
		m.Logger.Warn("not all could be given back: others take partitions over once this replica's heartbeat expires", zap.Error(err))
	}
}

// warn logs, unless it has just done so.
func (m *Member) warn(what string, err error) {
	if time.Since(m.warned) > warnEvery {
		m.warned = time.Now()
		m.Logger.Warn(what, zap.Error(err))
	}
}

// round says that this member is alive, looks at who owns what and takes what is
// its own. It returns when to do so again.
func (m *Member) round(ctx context.Context, partitions []string) (time.Duration, error) {
	began := time.Now()
	beat := !began.Before(m.nextBeat)
	if beat {
		if err := m.call(ctx, func(ctx context.Context) error { return m.Store.Beat(ctx, m.Scope, m.Owner, m.isDraining()) }); err != nil {
			return 0, err
		}
		m.nextBeat = began.Add(m.Interval + time.Duration(rand.Float64()*float64(m.Interval)/5))
		m.mu.Lock()
		m.alive = began
		m.mu.Unlock()
	}
	records, began, err := m.list(ctx)
	if err != nil {
		return 0, err
	}
	if elapsed(m.listed) > 2*m.Interval {
		m.since = nil // this machine was asleep, or the process frozen
	}
	m.listed = began

	view := m.judge(records)
	m.publish(records, began)
	m.Seen(view.told)
	claims := m.claims(view, partitions, beat)
	if len(claims) > 0 {
		taken, err := m.claim(ctx, claims)
		m.Seen(with(view.told, taken, m.Owner))
		if err != nil {
			return 0, err
		}
		if len(taken) < len(claims) { // somebody was quicker, or there was no time: perhaps there is more to take
			return min(jitter(m.Interval/4), time.Until(m.nextBeat)), nil
		}
	}
	m.forgetOne(ctx, view, records)
	return max(m.Interval/20, min(view.expires, time.Until(m.nextBeat))), nil
}

// A view is what a member makes of a listing.
type view struct {
	told    map[string]string // partition to owner, alive or not
	owners  map[string]string // partition to live owner
	version map[string]string // partition to version
	sharing []string          // replicas that take partitions, this one included
	live    map[string]bool   // replicas
	earlier bool              // one of them has no heartbeat
	expires time.Duration     // until the first of them dies if it shows no sign of life; the expiry if there is none
}

// judge tells who is alive. An owner is dead if its last sign of life is as old
// as the expiry, by the store's clock, and this member has seen it unchanged for
// an interval in which the store has answered: after a time without a store all
// signs are old, and who is alive needs a moment to show it.
func (m *Member) judge(records Records) view {
	v := view{
		told: map[string]string{}, owners: map[string]string{}, version: map[string]string{},
		live: map[string]bool{m.Owner: true}, expires: m.Expiry,
	}
	since, now := map[string]time.Time{}, time.Now()
	dead := func(s sign) bool {
		first, ok := m.since[s.name]
		if !ok {
			first = now
		}
		since[s.name] = first
		left := max(s.expiry-s.age, m.Interval-now.Sub(first))
		if left > 0 {
			v.expires = min(v.expires, left)
		}
		return left <= 0
	}

	if !m.isDraining() {
		v.sharing = append(v.sharing, m.Owner)
	}
	for _, b := range records.Heartbeats {
		if s := signOfBeat(b, m.Expiry); b.Owner != m.Owner && !dead(s) {
			v.live[b.Owner] = true
			if late := s.age > s.expiry/2; !b.Leaving && !late {
				v.sharing = append(v.sharing, b.Owner)
			}
		}
	}
	beats := records.beats()
	for _, p := range records.Partitions {
		v.told[p.Partition], v.version[p.Partition] = p.Owner, p.Version
		if p.Owner == "" {
			continue
		}
		if s := signOf(p, beats, m.Expiry); p.Owner != m.Owner && !s.beat {
			if dead(s) {
				continue
			}
			v.earlier = true
			if !v.live[p.Owner] {
				v.live[p.Owner] = true
				v.sharing = append(v.sharing, p.Owner)
			}
		}
		if v.live[p.Owner] {
			v.owners[p.Partition] = p.Owner
		}
	}
	m.since = since
	return v
}

// A claim is a partition to take, if its record has this version.
type claim struct{ partition, version string }

// claims returns what this member should claim now. Owners without a heartbeat
// judge others by when they renewed their records; while there is one, this
// member renews its own too, as often as its heartbeat.
func (m *Member) claims(v view, partitions []string, renew bool) []claim {
	var claims []claim
	if renew && v.earlier {
		for p, owner := range v.owners {
			if owner == m.Owner {
				claims = append(claims, claim{p, v.version[p]})
			}
		}
	}
	for _, p := range share(m.Owner, partitions, v.owners, v.sharing) {
		claims = append(claims, claim{p, v.version[p]})
	}
	return claims
}

// claim claims partitions, perhaps not all, and returns those it got.
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
				ok, err = m.Store.Claim(ctx, m.Scope, c.partition, m.Owner, c.version)
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
func (m *Member) forgetOne(ctx context.Context, v view, records Records) {
	for _, b := range records.Heartbeats {
		if v.live[b.Owner] || slices.ContainsFunc(records.Partitions, func(p Record) bool { return p.Owner == b.Owner }) {
			continue
		}
		if err := m.call(ctx, func(ctx context.Context) error { return m.Store.Forget(ctx, m.Scope, b.Owner, b.Version) }); err != nil {
			m.warn("the heartbeat of a replica that is gone could not be removed", err)
		}
		return
	}
}

// giveBack gives up what the store says is this member's until that is nothing,
// and then its heartbeat. A claim without an answer may have succeeded.
func (m *Member) giveBack() error {
	m.mu.Lock()
	m.held = map[string]bool{}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(context.Background(), giveBackTime, fmt.Errorf("not done within %v", giveBackTime))
	defer cancel()
	for {
		err := m.giveBackOnce(ctx)
		if err == nil {
			return m.call(ctx, func(ctx context.Context) error { return m.Store.Forget(ctx, m.Scope, m.Owner, "") })
		}
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		sleep(ctx, retryMin)
	}
}

var errNotYet = errors.New("somebody else wrote the records of partitions at the same time")

func (m *Member) giveBackOnce(ctx context.Context) error {
	records, _, err := m.list(ctx)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var giving sync.WaitGroup
	var errs []error
	slots := make(chan struct{}, claimsAtATime)
	for _, p := range records.Partitions {
		if p.Owner != m.Owner {
			continue
		}
		slots <- struct{}{}
		giving.Go(func() {
			defer func() { <-slots }()
			err := m.call(ctx, func(ctx context.Context) error {
				ok, err := m.Store.Claim(ctx, m.Scope, p.Partition, "", p.Version)
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

func (m *Member) list(ctx context.Context) (records Records, began time.Time, err error) {
	began = time.Now()
	err = m.call(ctx, func(ctx context.Context) (err error) {
		records, err = m.Store.List(ctx, m.Scope)
		return err
	})
	return records, began, err
}

// call calls the store once. The end of Run's context does not cut it off: what
// it was about would then be unknown.
func (m *Member) call(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), m.attempt, fmt.Errorf("no answer within %v", m.attempt))
	defer cancel()
	err := call(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return err
}

// publish makes what the listing says is this member's what it holds.
func (m *Member) publish(records Records, began time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.held
	m.held = map[string]bool{}
	for _, p := range records.Partitions {
		if p.Owner != m.Owner || m.doubted[p.Partition].After(began) {
			continue
		}
		m.held[p.Partition] = true
		if !before[p.Partition] {
			m.tell()
		}
	}
	maps.DeleteFunc(m.doubted, func(_ string, at time.Time) bool { return !at.After(began) })
}

func (m *Member) hold(partition string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, doubted := m.doubted[partition]; !doubted && !m.held[partition] {
		m.held[partition] = true
		m.tell()
	}
}

func (m *Member) tell() {
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

// elapsed is the time since t, by whichever clock says more: the monotonic one
// stands still while the machine sleeps, the wall clock may be set.
func elapsed(t time.Time) time.Duration {
	return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0)))
}

// jitter is d, give or take a fifth.
func jitter(d time.Duration) time.Duration {
	return time.Duration((0.8 + 0.4*rand.Float64()) * float64(d))
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
