package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"alertworker/internal/backoff"
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
	conns    []*conn // to hubs
	links    []*link // to all else
	troubles map[trouble]refusal
	frozen   time.Time // until then
}

// A trouble is what befalls a replica on its way to a service: Away, Refuse, Lossy or Slow.
type trouble struct {
	on Service
	is Action
}

// A refusal is until when something lasts and, if a service answers, how.
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

// dial connects the replica to a hub.
func (b *body) dial(ctx context.Context, l *listener) (net.Conn, error) {
	b.mu.Lock()
	refused := b.dead || time.Now().Before(b.troubles[trouble{Hub, Away}].until)
	frozen := time.Until(b.frozen)
	b.mu.Unlock()

	if !backoff.Sleep(ctx, frozen) {
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
			b.troubles[trouble{s, Away}] = refusal{until: until}
		}
	}
}

// await waits while nothing gets through between the replica and the service, and reports whether the replica lives.
func (b *body) await(s Service) bool {
	for {
		b.mu.Lock()
		dead, wait := b.dead, time.Until(b.troubles[trouble{s, Away}].until)
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

		b.mu.Lock()
		b.troubles[trouble{s, f.Do}] = refusal{until, f.Status, f.Asks}
		b.mu.Unlock()
		if f.Do == Cut || s == Hub {
			b.cut(s)
		}
	}
}

// suffers returns what befalls the replica on its way to a service at present, and whether it does.
func (b *body) suffers(s Service, is Action) (r refusal, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	r = b.troubles[trouble{s, is}]

	return r, time.Now().Before(r.until)
}
