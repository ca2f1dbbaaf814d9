package eventhubs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// A link is one opening of a partition. azeventhubs attaches it, again too after the hub has
// detached it, inside ReceiveEvents and only there. So ReceiveEvents never gets a context that
// ends: under one, azeventhubs goes on opening, ends a session that it has not begun, and the hub
// closes the connection with all its links. It returns because the link is closed, or because it
// was asked for events that have come.
type link struct {
	client     *azeventhubs.PartitionClient
	connection *connection
	opened     func(is bool) // called when the link is attached and when it no longer is; short
	openLimit  time.Duration // to attach
	closeLimit time.Duration // to close

	// passed counts, in its lower bits, the events that the filter has passed to azeventhubs since
	// the link was last attached, and in the others how often that was.
	passed  atomic.Uint64
	waiting atomic.Bool // for an event to come

	// Used by receive alone.
	attached uint64 // the upper bits of passed
	taken    uint64 // how many of the lower ones azeventhubs has returned

	closing chan struct{} // closed once close was called
	once    sync.Once
	why     atomic.Pointer[error] // it was closed, unless that was asked for

	mu     sync.Mutex
	is     bool        // attached
	expiry *time.Timer // of the time to attach
}

const countBits = 40 // of link.passed

// open prepares a link. It is attached when receive is first called.
func (c *connection) open(partition string, options azeventhubs.PartitionClientOptions, opened func(bool), openLimit, closeLimit time.Duration) (*link, error) {
	client, err := c.client.NewPartitionClient(partition, &options)
	if err != nil {
		return nil, err
	}
	l := &link{client: client, connection: c, opened: opened, openLimit: openLimit, closeLimit: closeLimit, closing: make(chan struct{})}
	l.mu.Lock()
	l.expiry = time.AfterFunc(openLimit, func() { l.fail(errors.New("the hub has not opened the link in time")) })
	l.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading[partition] = l
	return l, nil
}

// Attached implements [amqpfilter.Watcher].
func (l *link) Attached() {
	l.passed.Store((l.passed.Load()>>countBits + 1) << countBits)
	l.set(true)
}

// Passed implements [amqpfilter.Watcher].
func (l *link) Passed() { l.passed.Add(1) }

// Detached implements [amqpfilter.Watcher].
func (l *link) Detached() { l.set(false) }

func (l *link) set(attached bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.is == attached {
		return
	}
	l.is = attached
	if attached {
		l.expiry.Stop()
	} else {
		l.expiry.Reset(l.openLimit)
	}
	l.opened(attached)
}

// wait returns the next event.
func (l *link) wait() ([]*azeventhubs.ReceivedEventData, error) {
	l.waiting.Store(true)
	defer l.waiting.Store(false)
	return l.receive(1)
}

// more returns the events that have come besides, at most n, without waiting for others.
func (l *link) more(n int) ([]*azeventhubs.ReceivedEventData, error) {
	passed := l.passed.Load()
	if passed>>countBits != l.attached {
		return nil, nil
	}
	if n = min(n, int(passed&(1<<countBits-1)-l.taken)); n <= 0 {
		return nil, nil
	}
	return l.receive(n)
}

func (l *link) receive(n int) ([]*azeventhubs.ReceivedEventData, error) {
	events, err := l.ask(n)
	if why := l.why.Load(); why != nil && err != nil {
		err = *why
	}
	if attached := l.passed.Load() >> countBits; attached != l.attached {
		l.attached, l.taken = attached, 0 // all of them came since
	}
	l.taken += uint64(len(events))
	return events, err
}

// ask is ReceiveEvents. If the link is closed just before azeventhubs begins to open it, azeventhubs opens it all the same,
// writes it into a nil map (Links.GetLink of v2.0.2), and nobody has it any more: the connection has to end with it.
func (l *link) ask(n int) (events []*azeventhubs.ReceivedEventData, err error) {
	defer func() {
		select {
		case <-l.closing:
			if p := recover(); p != nil {
				l.connection.kill()
				events, err = nil, fmt.Errorf("the link was closed while it was being opened: %v", p)
			}
		default: // a defect: it panics
		}
	}()
	return l.client.ReceiveEvents(context.Background(), n, nil)
}

// fail closes the link for a reason.
func (l *link) fail(why error) {
	l.why.CompareAndSwap(nil, &why)
	l.close()
}

// close returns when the link is closed. Until then the hub may still send, so that the partition
// must not be opened again.
func (l *link) close() {
	l.once.Do(func() {
		close(l.closing)
		// azeventhubs waits for whoever is opening, whatever the context.
		defer time.AfterFunc(l.closeLimit, l.connection.kill).Stop()
		ctx, cancel := context.WithTimeout(context.Background(), l.closeLimit)
		defer cancel()
		_ = l.client.Close(ctx)
		l.set(false)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.expiry.Stop()
	})
}
