package leader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/lease"
)

const (
	ttl         = 30 * time.Second // one that every lease.Store takes
	renewEvery  = ttl / 3
	margin      = 5 * time.Second // so long before the lease ends a leader stops acting; covers look
	look        = time.Second     // how often a leader looks at the clocks
	callTimeout = 4 * time.Second // for one call of the store
	poll        = 5 * time.Second // how often the others try, give or take a half
	maxBackoff  = time.Minute
)

// An Elector lets at most one of all Electors on one store and key lead at a
// time. One Run at a time; Leading may be called at any time.
type Elector struct {
	store lease.Store
	key   string
	log   *zap.Logger

	mu    sync.Mutex
	reign lease.Lease // zero while not leading
}

func NewElector(store lease.Store, key string, log *zap.Logger) *Elector {
	return &Elector{store: store, key: key, log: log}
}

// A Term is one time of leading.
type Term struct {
	// Token grows with every term, whoever leads. A duty whose effects might
	// arrive late sends it along, so that what has seen a greater one can refuse.
	Token int64

	mu      sync.Mutex
	note    string
	changed chan struct{}
}

// Note returns the note last set, by this leader or an earlier one.
func (t *Term) Note() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.note
}

// SetNote replaces the note, at most 1 KiB, that the next leader will find. It
// does not wait: the note is written at once if the store lets it, and again
// when the lease is handed back.
func (t *Term) SetNote(note string) {
	t.mu.Lock()
	t.note = note
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// Run calls lead whenever this replica is elected, and returns once ctx has
// ended, lead has returned and the lease is handed back. lead's context ends
// when ctx does or the lease is lost, and then always before anybody else's
// begins; a machine that was suspended notices within a second of waking.
// lead should run until its context ends. If it returns earlier the lease is handed back,
// and Run stands for election again: after an error later and later, up to a minute.
func (e *Elector) Run(ctx context.Context, lead func(context.Context, *Term) error) {
	failures := 0
	for ctx.Err() == nil {
		start := time.Now()
		err := e.stand(ctx, lead)
		if time.Since(start) > maxBackoff {
			failures = 0
		}
		wait := poll
		switch {
		case ctx.Err() != nil:
			return
		case err == nil, errors.Is(err, lease.ErrHeld):
			failures = 0
		default:
			wait = min(poll<<min(failures, 8), maxBackoff)
			failures++
			e.log.Warn("not leading", zap.String("key", e.key), zap.Error(err), zap.Duration("again_in", wait))
		}
		sleep(ctx, jitter(wait))
	}
}

// Leading returns the token of the term under way, if this replica leads.
func (e *Elector) Leading() (term int64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reign.Token, e.reign.Token != 0 && mayAct(e.reign)
}

func (e *Elector) setReign(l lease.Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reign = l
}

// stand tries once to be elected and, if it is, leads.
func (e *Elector) stand(ctx context.Context, lead func(context.Context, *Term) error) error {
	t := &Term{changed: make(chan struct{}, 1)}
	// Not cut short by ctx: a lease whose grant nobody heard of keeps all others
	// waiting until it ends.
	call, cancel := calling(ctx)
	l, err := e.store.Acquire(call, e.key, ttl, func(prev lease.Record) (string, error) {
		t.note = prev.Note
		return prev.Note, nil
	})
	cancel()
	if err != nil {
		return fmt.Errorf("stand for election: %w", err)
	}
	if !mayAct(l) { // suspended meanwhile
		e.handBack(ctx, l, t.note)
		return errors.New("stand for election: the answer came too late to lead")
	}
	t.Token = l.Token
	return e.reignOf(ctx, l, t, lead)
}

// handBack frees l for the others. It is harmless if l is another's by now; if
// it fails, l ends by itself.
func (e *Elector) handBack(ctx context.Context, l lease.Lease, note string) {
	call, cancel := calling(ctx)
	defer cancel()
	if err := e.store.Release(call, l, note); err != nil {
		e.log.Info("lease not handed back; it ends by itself", zap.String("key", e.key), zap.Error(err))
	}
}

// A renewal is what came of one Extend.
type renewal struct {
	lease lease.Lease
	err   error
}

// reignOf runs lead under l, renewing l until lead has returned, and hands l back.
func (e *Elector) reignOf(ctx context.Context, l lease.Lease, t *Term, lead func(context.Context, *Term) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		led     = make(chan error, 1)
		renewed = make(chan renewal, 1) // of the one Extend that may be under way
		clock   = time.NewTicker(look)
		due     = l.Until.Add(renewEvery - ttl)
		leading = true // lead has not returned
		busy    = false
		lost    error // the end of the reign, before lead's
		err     error
	)
	defer clock.Stop()
	defer e.setReign(lease.Lease{})
	e.setReign(l)
	e.log.Info("leading", zap.String("key", e.key), zap.Int64("term", l.Token))
	go func() { led <- lead(ctx, t) }()

	for leading || busy {
		changed := t.changed
		if busy {
			changed = nil // the next renewal takes the note
		}
		select {
		case err = <-led:
			leading = false
			e.setReign(lease.Lease{})
		case r := <-renewed:
			busy = false
			switch {
			case r.err == nil:
				l = r.lease
				due = l.Until.Add(renewEvery - ttl)
				if leading && lost == nil {
					e.setReign(l)
				}
			case errors.Is(r.err, lease.ErrLost) && lost == nil:
				lost = r.err
			default:
				due = time.Now().Add(look)
			}
		case <-changed:
			due = time.Now()
		case <-clock.C:
		}
		if lost == nil && !mayAct(l) {
			lost = fmt.Errorf("not renewed in time: %w", lease.ErrLost)
		}
		if lost != nil {
			e.setReign(lease.Lease{})
			cancel(lost)
		} else if leading && !busy && !time.Now().Before(due) {
			busy = true
			go func() {
				call, cancel := calling(ctx)
				defer cancel()
				l, err := e.store.Extend(call, l, t.Note(), ttl)
				renewed <- renewal{l, err}
			}()
		}
	}

	e.handBack(ctx, l, t.Note())
	e.log.Info("not leading any more", zap.String("key", e.key), zap.Int64("term", l.Token))
	if lost != nil {
		return lost
	}
	return err
}

// calling is for one call of the store, which goes on when ctx ends.
func calling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), callTimeout, fmt.Errorf("the store did not answer within %v", callTimeout))
}

// mayAct reports whether the holder of l may rely on it.
func mayAct(l lease.Lease) bool { return valid(time.Now(), l.Until.Add(-margin)) }

// valid reports whether end is still ahead. Both clocks of this machine must
// say so: the monotonic one stands still while the machine is suspended, the
// wall clock can be set.
func valid(now, end time.Time) bool {
	return now.Before(end) && now.Round(0).Before(end.Round(0))
}

// jitter spreads d over its half to one and a half.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// sleep waits until d has passed or ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
