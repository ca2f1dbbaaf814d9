package delivery

import (
	"context"
	"errors"
	"math"
	"slices"
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
// claim claims the ith notice, and returns false if it cannot be sent now. send gets which notices go, and settle the
// receiver's answer to each that was claimed; ErrLate if the message had gone, also if nothing was claimed because it was
// too late for that. Both may be called by several goroutines. Send returns once all have ended.
//
// The message goes once claim has answered about all. Of several notices it waits no longer than gathering after the first
// claim, nor than half the time that the claim of any of them leaves, so that a slow store leaves the receiver time to answer.
func Send(
	n int,
	claim func(i int) (Claimed, bool),
	send func(ctx context.Context, which []int, alerts ...notify.Alert) error,
	settle func(i int, err error),
) {
	if n == 1 {
		if c, ok := claim(0); ok {
			ctx, cancel := c.Grant.Sending(c.Under)
			err := send(ctx, []int{0}, c.Alert)
			cancel()
			settle(0, err)
		}
		return
	}

	m := message{timer: time.NewTimer(math.MaxInt64)}
	defer m.timer.Stop()
	asked := make(chan struct{}) // closed once claim has answered about all
	go func() {
		defer close(asked)
		inParallel(n, func(i int) {
			if m.gone.Load() {
				settle(i, ErrLate)
			} else if c, ok := claim(i); ok && !m.join(i, c) {
				settle(i, ErrLate)
			}
		})
	}()

	select {
	case <-asked:
	case <-m.timer.C:
	}

	m.mu.Lock()
	m.gone.Store(true)
	m.mu.Unlock()

	if len(m.which) > 0 {
		ctx, cancel := sending(m.claims)
		alerts := make([]notify.Alert, len(m.claims))
		for i, c := range m.claims {
			alerts[i] = c.Alert
		}

		err := send(ctx, m.which, alerts...)
		cancel()
		inParallel(len(m.which), func(i int) { settle(m.which[i], err) })
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
	timer *time.Timer // when it goes at the latest

	mu     sync.Mutex
	which  []int // the notices in it
	claims []Claimed
	goes   time.Time   // once it has a notice: when it goes at the latest
	gone   atomic.Bool // set under mu
}

// join adds a notice, unless the message has gone.
func (m *message) join(i int, c Claimed) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone.Load() {
		return false
	}

	if len(m.which) == 0 {
		m.goes = time.Now().Add(gathering)
	}

	m.which, m.claims = append(m.which, i), append(m.claims, c)
	if half := time.Now().Add(time.Until(c.Grant.SendBy) / 2); half.Before(m.goes) {
		m.goes = half
	}
	m.timer.Reset(time.Until(m.goes))

	return true
}

// sending returns the context for a message about together: it ends when the receiver must have answered so that the
// first claim still holds, and once nobody wants it any more.
func sending(together []Claimed) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(together[0].Under)) // what ends one of them must not end all
	var left atomic.Int64
	left.Store(int64(len(together)))
	stops := []func() bool{}
	for _, c := range together {
		stops = append(stops, context.AfterFunc(c.Under, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		}))
	}

	first := slices.MinFunc(together, func(a, b Claimed) int { return a.Grant.SendBy.Compare(b.Grant.SendBy) })
	ctx, end := first.Grant.Sending(ctx)

	return ctx, func() {
		end()
		cancel()
		for _, stop := range stops {
			stop()
		}
	}
}
