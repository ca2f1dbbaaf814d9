package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

var (
	errDead = errors.New("this replica is dead")
	errAway = errors.New("connection refused")
)

// A body is a replica as the world sees it: what it is connected to, and what gets through.
type body struct {
	world *World
	name  string
	slot  int
	end   context.CancelFunc
	done  chan struct{} // closed when nothing of it runs any more

	mu       sync.Mutex
	dead     bool
	conns    []*conn               // to hubs
	links    []*link               // to all else
	away     map[Service]time.Time // nothing gets through until then
	refusing map[Service]refusal
	lossy    map[Service]time.Time // until then
	slow     map[Service]time.Time // likewise
	frozen   time.Time             // until then
}

// A refusal is how a service answers, until when.
type refusal struct {
	until  time.Time
	status int
	asks   time.Duration // to wait; 0: as services do
}

// A choking receiver answers so what is about a device.
type choking struct {
	device string
	refusal
}

// newBody returns a replica in a place, which end stops. Nothing befalls it yet.
func (w *World) newBody(name string, slot int, end context.CancelFunc) *body {
	return &body{
		world:    w,
		name:     name,
		slot:     slot,
		end:      end,
		done:     make(chan struct{}),
		away:     map[Service]time.Time{},
		refusing: map[Service]refusal{},
		lossy:    map[Service]time.Time{},
		slow:     map[Service]time.Time{},
	}
}

// dial connects the replica to a hub.
func (b *body) dial(ctx context.Context, l *listener) (net.Conn, error) {
	b.mu.Lock()
	refused := b.dead || time.Now().Before(b.away[Hub])
	frozen := time.Until(b.frozen)
	b.mu.Unlock()

	if frozen > 0 && !sleep(ctx, frozen) {
		return nil, ctx.Err()
	}

	if refused {
		return nil, fmt.Errorf("dial %s: %w", l.host, errAway)
	}

	c, err := l.dial(ctx, b.name)
	if err != nil {
		return nil, err
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	if b.dead {
		_ = c.Close()
		return nil, errDead
	}

	b.conns = append(b.conns, c.(*conn))

	return c, nil
}

// hold makes the replica's connections to services half open: nothing arrives on them until a time, and nothing at all
// any more on those that are not to a hub.
func (b *body) hold(f Fault, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if f.within(Hub) {
		for _, c := range b.conns {
			c.hold(until)
		}
	}

	for _, l := range b.links {
		if f.within(l.of) {
			l.isHeld = true
		}
	}
}

// freeze has nothing leave the replica and nothing arrive at it until a time, when everything does.
func (b *body) freeze(until time.Time) {
	b.hold(Fault{Services: []Service{Hub}}, until)
	b.mu.Lock()
	defer b.mu.Unlock()

	b.frozen = until

	for _, s := range services {
		if s != Hub {
			b.away[s] = until
		}
	}
}

// await waits while nothing gets through between the replica and the service, and reports whether the replica lives.
func (b *body) await(s Service) bool {
	for {
		b.mu.Lock()
		dead, wait := b.dead, time.Until(b.away[s])
		b.mu.Unlock()
		if dead || wait <= 0 {
			return !dead
		}

		time.Sleep(wait)
	}
}

// alive reports whether the replica has not been killed. It may have ended.
func (b *body) alive() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.dead
}

// kill ends the replica at once: nothing that it does from now on reaches anybody.
func (b *body) kill() {
	b.mu.Lock()
	b.dead = true
	for _, c := range b.conns {
		_ = c.Close()
	}

	b.breakLinks(func(*link) bool { return true })
	b.mu.Unlock()
	b.end()
}

// cut resets the replica's connections to a service.
func (b *body) cut(s Service) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.breakLinks(func(l *link) bool { return l.of == s })
	if s != Hub {
		return
	}

	for _, c := range b.conns {
		c.reset()
	}

	b.conns = nil
}

// breakLinks resets some links. b.mu is held.
func (b *body) breakLinks(some func(*link) bool) {
	b.links = slices.DeleteFunc(b.links, func(l *link) bool {
		if !some(l) {
			return false
		}

		close(l.cut)

		return true
	})
}

// disturb has a fault befall the services that it names.
func (b *body) disturb(f Fault, until time.Time) {
	for _, s := range services {
		if !f.within(s) {
			continue
		}

		b.suffer(f, s, until)
		if f.Do == Cut || s == Hub {
			b.cut(s)
		}
	}
}

// suffer notes how long a fault befalls one service.
func (b *body) suffer(f Fault, s Service, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()

	switch f.Do {
	case Away:
		b.away[s] = until
	case Refuse:
		b.refusing[s] = refusal{until, f.Status, f.Asks}
	case Lossy:
		b.lossy[s] = until
	case Slow:
		b.slow[s] = until
	}
}

// refused returns how a service answers the replica; its status is 0 if it does what it is asked.
func (b *body) refused(s Service) refusal {
	b.mu.Lock()
	defer b.mu.Unlock()

	r := b.refusing[s]
	if !time.Now().Before(r.until) {
		return refusal{}
	}

	return r
}

// isSlow reports whether requests of the replica to a service, and answers, take long at present.
func (b *body) isSlow(s Service) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Before(b.slow[s])
}

// isLossy reports whether requests of the replica to a service get lost at present.
func (b *body) isLossy(s Service) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Before(b.lossy[s])
}
