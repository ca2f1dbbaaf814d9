package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"alertworker/internal/backoff"
	"alertworker/internal/lease"
)

const (
	ttl        = 30 * time.Second // one that every lease.Store takes
	renewEvery = ttl / 3
	margin     = 5 * time.Second // a leader stops acting this long before the lease ends; more than look
	look       = time.Second     // how often a leader checks the clocks
	renewIn    = 8 * time.Second // for one attempt to renew: there is time for another one
	stopIn     = 4 * time.Second // for a call of the store, once its context has ended
	poll       = 7 * time.Second // the longest pause between two attempts of the others, on average 5 s
	maxBackoff = time.Minute
)

// An Elector campaigns for its replica: of all Electors on one store and key, at most one leads at a
// time. Run may be called once at a time, Leading at any time.
type Elector struct {
	store lease.Store
	key   string
	log   *zap.Logger

	mu   sync.Mutex
	held lease.Lease // zero while not leading
}

// NewElector returns an Elector. A term begins with the note that the last one left.
func NewElector(store lease.Store, key string, log *zap.Logger) *Elector {
	return &Elector{store: store, key: key, log: log}
}

// A Term is one period of leadership.
type Term struct {
	Token int64 // grows with every term, whoever leads

	mu   sync.Mutex
	note string
}

// Note returns the note that was set last, at first the one with which the term began.
func (t *Term) Note() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.note
}

// SetNote replaces the note for the next leader, at most lease.MaxNote. It
// does not block: the note is written with the next renewal, within 10 s if the store allows, and
// when the lease is released.
func (t *Term) SetNote(note string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note = note
}

// Run calls lead whenever this replica is elected, and returns once ctx has
// ended, lead has returned and the lease is released. lead's context ends
// when ctx does or the lease is lost, and always before another replica's
// begins; a machine that was suspended notices within a second of waking.
// lead should run until its context ends. If it returns earlier, the lease is released
// and Run campaigns again, after an error with growing delays of up to a minute.
func (e *Elector) Run(ctx context.Context, lead func(context.Context, *Term) error) {
	for failures := 0; ctx.Err() == nil; {
		start := time.Now()
		err := e.campaign(ctx, lead)
		if ctx.Err() != nil {
			return
		}

		failed := err != nil && !errors.Is(err, lease.ErrHeld)
		failures++
		if !failed || time.Since(start) > maxBackoff {
			failures = 1
		}

		wait := backoff.Delay(failures, poll, maxBackoff)

		if failed {
			e.log.Warn(
				"could not become or remain leader",
				zap.String("key", e.key),
				zap.Error(err),
				zap.Duration("again_in", wait),
			)
		}

		backoff.Sleep(ctx, wait)
	}
}

// Leading returns the token of the current term, if this replica leads.
func (e *Elector) Leading() (term int64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held.Token, e.held.Token != 0 && mayAct(e.held)
}

// hold says which lease is held. Once ctx, the term's, has ended there is none.
func (e *Elector) hold(ctx context.Context, l lease.Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held = l; ctx.Err() != nil {
		e.held = lease.Lease{}
	}
}

// campaign tries once to be elected and, if it is, leads.
func (e *Elector) campaign(ctx context.Context, lead func(context.Context, *Term) error) error {
	// ctx does not interrupt the call: a lease whose grant was not received would block all others
	// until it ends.
	call, cancel := backoff.Lasting(ctx, lease.CallLimit, stopIn)
	l, err := e.store.Acquire(call, e.key, ttl, func(prev lease.Record) (string, error) { return prev.Note, nil })
	cancel()
	if err != nil {
		return fmt.Errorf("acquire the leader's lease: %w", err)
	}

	if !mayAct(l) { // suspended meanwhile
		e.release(ctx, l, l.Note)
		return errors.New("acquire the leader's lease: the response arrived too late to lead")
	}

	return e.lead(ctx, l, &Term{Token: l.Token, note: l.Note}, lead)
}

// release frees l for the others. It does no harm if another has l by now; if
// it fails, l expires.
func (e *Elector) release(ctx context.Context, l lease.Lease, note string) {
	call, cancel := backoff.Lasting(ctx, lease.CallLimit, stopIn)
	defer cancel()
	if err := e.store.Release(call, l, note); err != nil {
		e.log.Info("leader lease not released; it will expire", zap.String("key", e.key), zap.Error(err))
	}
}

// lead runs lead under l, renewing l until lead has returned, and releases l.
func (e *Elector) lead(ctx context.Context, l lease.Lease, t *Term, lead func(context.Context, *Term) error) error {
	log := e.log.With(zap.String("key", e.key), zap.Int64("term", l.Token))
	leading, lose := context.WithCancelCause(ctx)
	term, end := context.WithCancel(context.WithoutCancel(ctx)) // a lead that takes long to return keeps its lease
	finish := func(why error) {
		lose(why)
		end()
		e.hold(term, lease.Lease{})
	}

	e.hold(term, l)
	log.Info("leading")
	var keeping sync.WaitGroup
	keeping.Go(func() { // a renewal that never returns does not keep it from this
		for backoff.Sleep(term, look) {
			if _, ok := e.Leading(); !ok {
				finish(fmt.Errorf("%w: not renewed in time", lease.ErrLost))
				return
			}
		}
	})
	keeping.Go(func() { l = e.renew(term, l, t, finish, log) })
	err := lead(leading, t)
	lost := context.Cause(leading)
	finish(nil)
	keeping.Wait()
	e.release(ctx, l, t.Note())
	if !errors.Is(lost, lease.ErrLost) {
		lost = nil
	}

	log.Info("no longer leading", zap.NamedError("why", lost))
	if lost != nil {
		return lost
	}

	return err
}

// renew renews l until ctx ends, and calls lose if another has it. It returns the last lease that was granted.
func (e *Elector) renew(ctx context.Context, l lease.Lease, t *Term, lose func(error), log *zap.Logger) lease.Lease {
	failures, wait := 0, renewEvery
	for backoff.Sleep(ctx, wait) {
		start := time.Now()
		call, cancel := backoff.Lasting(ctx, renewIn, stopIn)
		renewed, err := e.store.Extend(call, l, t.Note(), ttl)
		cancel()

		switch {
		case err == nil:
			if failures > 0 {
				log.Info("leader lease renewed after failures", zap.Int("failures", failures))
			}

			l = renewed
			failures = 0
			wait = renewEvery - time.Since(start)
			e.hold(ctx, l)

		case errors.Is(err, lease.ErrLost):
			lose(err)
			return l

		default:
			if failures++; failures == 1 {
				log.Warn(
					"leader lease not renewed; trying again",
					zap.Error(err),
					zap.Duration("stops_leading_in", time.Until(l.Until.Add(-margin)).Round(100*time.Millisecond)),
				)
			}

			wait = look
		}
	}

	return l
}

// mayAct reports whether the holder of l may rely on it.
func mayAct(l lease.Lease) bool { return lease.Ahead(l.Until.Add(-margin)) }
