package delivery

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/throttle"
)

const (
	storeCalls = 16              // at a time, about the notices of a message
	gathering  = 2 * time.Second // after the first claim, no further one is made for a message
)

// A Claimed is a notice that may be sent.
type Claimed struct {
	Alert notify.Alert
	Grant throttle.Grant
	Under context.Context // once that of each notice has ended, the message is cancelled
}

// ErrLate says that the message went without a notice, about which the receiver was not asked.
var ErrLate = errors.New("the message went before the notice was claimed")

// Send brings n notices in one message to whoever send sends it to: each is claimed, the message goes, and each is settled.
//
// claim claims the ith notice, and returns false if it cannot be sent now. settle gets the receiver's answer to each that
// was claimed; ErrLate if the message had gone, also if nothing was claimed because it was too late for that. Of n = 1,
// nothing is late. Both may be called by several goroutines. Send returns once all have ended.
//
// The message goes once claim has answered about all. Of several notices it waits no longer than gathering after the first
// claim, nor than half the time that the claim of any of them leaves, so that a slow store leaves the receiver time to answer.
func Send(
	n int,
	claim func(i int) (Claimed, bool),
	send func(context.Context, ...notify.Alert) error,
	settle func(i int, err error),
) {
	if n == 1 {
		if c, ok := claim(0); ok {
			ctx, cancel := c.Grant.Sending(c.Under)
			err := send(ctx, c.Alert)
			cancel()
			settle(0, err)
		}
		return
	}

	m := message{goes: time.NewTimer(math.MaxInt64)}
	defer m.goes.Stop()
	asked := make(chan struct{}) // closed once claim has answered about all
	go func() {
		defer close(asked)
		inParallel(n, func(i int) {
			if !m.gathers() {
				settle(i, ErrLate)
			} else if c, ok := claim(i); ok && !m.join(i, c) {
				settle(i, ErrLate)
			}
		})
	}()

	select {
	case <-asked:
	case <-m.goes.C:
	}

	m.mu.Lock()
	m.gone = true
	together := m.members
	m.mu.Unlock()

	if len(together) > 0 {
		ctx, cancel := sending(together)
		alerts := make([]notify.Alert, len(together))
		for i, one := range together {
			alerts[i] = one.claimed.Alert
		}

		err := send(ctx, alerts...)
		cancel()
		inParallel(len(together), func(i int) { settle(together[i].index, err) })
	}

	<-asked
}

// inParallel calls do for 0 to n-1, for storeCalls of them at a time.
func inParallel(n int, do func(int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, storeCalls) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}

	all.Wait()
}

// A message is what gathers until it goes.
type message struct {
	goes *time.Timer // when it goes at the latest

	mu      sync.Mutex
	members []member
	first   time.Time     // when the first of them came
	leaves  time.Duration // from then until it goes at the latest
	gone    bool
}

// A member is one notice of a message.
type member struct {
	claimed Claimed
	index   int
}

// gathers reports whether one more notice may be claimed.
func (m *message) gathers() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.gone && (m.first.IsZero() || time.Since(m.first) < gathering)
}

// join adds a notice, unless the message has gone.
func (m *message) join(index int, c Claimed) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return false
	}

	if len(m.members) == 0 {
		m.first, m.leaves = time.Now(), gathering
	}

	waited := time.Since(m.first)
	m.members = append(m.members, member{c, index})
	m.leaves = min(m.leaves, waited+time.Until(c.Grant.SendBy)/2)
	m.goes.Reset(m.leaves - waited)

	return true
}

// sending returns the context for a message about together: it ends when the receiver must have answered so that the
// first claim still holds, and once nobody wants it any more.
func sending(together []member) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(together[0].claimed.Under)) // what ends one of them must not end all
	first := together[0].claimed.Grant
	var left atomic.Int64
	left.Store(int64(len(together)))
	stops := []func() bool{}
	for _, one := range together {
		if one.claimed.Grant.SendBy.Before(first.SendBy) {
			first = one.claimed.Grant
		}

		stops = append(stops, context.AfterFunc(one.claimed.Under, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		}))
	}

	ctx, end := first.Sending(ctx)

	return ctx, func() {
		end()
		cancel()
		for _, stop := range stops {
			stop()
		}
	}
}
