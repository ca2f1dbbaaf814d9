package eventhubs

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"
	"time"

	"alertworker/internal/backoff"
	"alertworker/internal/telemetry"
)

const (
	historyPrefetch = 1000
	historyBytes    = 128 << 20        // on request
	historySilence  = 20 * time.Second // without an event that the hub has
	historyFailures = 5                // in a row
)

// A History is what a hub held when it was opened, from a time on: the events of all partitions in the order in which
// the hub took them. It takes partitions from no reader, and writes nothing. It is for one goroutine.
type History struct {
	look     *look
	began    time.Time // of reading
	from, to time.Time // of what is read
	at       time.Time // of the last event
	rate     float64   // events a second at most; 0 for as many as there are
	read     int

	stop       func()
	partitions []*past
}

// A past is what one partition held. Its goroutine reads it ahead, by few batches.
type past struct {
	id      string
	batches chan []telemetry.Event // closed at the end
	err     error                  // why it ended early, once batches is closed
	head    []telemetry.Event      // that have not been returned
}

// OpenHistory finds out what the hub that config names holds. A consumer group that others read is not disturbed, but a
// reader with an epoch, as a worker is, closes it to this one. Close it.
func OpenHistory(ctx context.Context, config Config, since time.Time, rate float64) (*History, error) {
	config.Prefetch, config.BufferBytes = historyPrefetch, historyBytes
	ctx, cancel := context.WithCancel(ctx)
	l, err := openLook(ctx, config, every)
	if err != nil {
		cancel()
		return nil, err
	}

	h := &History{look: l, began: time.Now(), from: since, to: time.Now(), at: since, rate: rate}
	var reading sync.WaitGroup
	h.stop = func() {
		cancel()
		reading.Wait()
		l.source.Close()
	}
	for id, end := range l.hub.ends {
		if end.IsEmpty || end.LastEnqueuedOn.Before(since) {
			continue
		}

		p := &past{id: id, batches: make(chan []telemetry.Event, 1)}
		h.partitions = append(h.partitions, p)
		reading.Go(func() {
			defer close(p.batches)
			p.err = p.readAhead(ctx, l, since, end.LastEnqueuedSequenceNumber)
		})
	}

	return h, nil
}

// Held returns how many events the hub holds in the partitions that h reads, and how long reading them all takes at
// least; 0 if nothing limits that.
func (h *History) Held() (events int64, takes time.Duration) {
	for _, p := range h.partitions {
		end := h.look.hub.ends[p.id]
		events += end.LastEnqueuedSequenceNumber - end.BeginningSequenceNumber + 1
	}

	return events, h.takes(int(events))
}

// takes returns how long reading events takes at least.
func (h *History) takes(events int) time.Duration {
	if h.rate <= 0 {
		return 0
	}
	return time.Duration(float64(events) / h.rate * float64(time.Second))
}

// readAhead sends the events from since on up to the one numbered last. It opens a link that fails again.
func (p *past) readAhead(ctx context.Context, l *look, since time.Time, last int64) error {
	position, at := cursorAt(Start{Time: since}), since
	generation, credit := l.hub.generation, l.source.config.credit(len(l.hub.ends))
	for failures := 0; ; failures++ {
		err := l.read(ctx, p.id, &position, credit, historySilence, func(events []telemetry.Event) bool {
			failures = 0
			for i := range events {
				e := &events[i]
				e.Generation = generation
				at = later(at, e.Enqueued) // of a message that cannot be decoded it is not known
				e.Enqueued = at
				if e.Sequence >= last {
					events = events[:i+1]
					break
				}
			}

			select {
			case p.batches <- events:
				return events[len(events)-1].Sequence < last
			case <-ctx.Done():
				return false
			}
		})
		if err == nil || busy(err) || noGroup(err) || failures >= historyFailures ||
			!backoff.Sleep(ctx, backoff.Delay(failures+1, openMin, openMax)) {
			return err
		}
	}
}

// Next returns the next events of a partition, and io.EOF after the last. It waits as long as the rate demands.
func (h *History) Next(ctx context.Context) (partition string, events []telemetry.Event, err error) {
	if err := h.fill(ctx); err != nil {
		return "", nil, err
	}
	if len(h.partitions) == 0 {
		return "", nil, io.EOF
	}

	slices.SortStableFunc(h.partitions, func(a, b *past) int { return a.head[0].Enqueued.Compare(b.head[0].Enqueued) })
	first := h.partitions[0]
	n := len(first.head)
	if len(h.partitions) > 1 {
		second := h.partitions[1].head[0].Enqueued
		n = max(1, sort.Search(n, func(i int) bool { return first.head[i].Enqueued.After(second) }))
	}

	events, first.head = first.head[:n], first.head[n:]
	h.at = events[n-1].Enqueued
	h.read += n

	// Not before as many events may have been read as were.
	backoff.Sleep(ctx, time.Until(h.began.Add(h.takes(h.read))))

	return first.id, events, ctx.Err()
}

// fill waits until the next event of every partition is known, and leaves those out that have no more.
func (h *History) fill(ctx context.Context) error {
	var left []*past
	for _, p := range h.partitions {
		more := true
		if len(p.head) == 0 {
			select {
			case p.head, more = <-p.batches:
			case <-ctx.Done():
				return ctx.Err()
			}
		}

		group := h.look.source.config.ConsumerGroup
		switch {
		case more:
			left = append(left, p)
		case p.err == nil:
		case busy(p.err):
			return fmt.Errorf("partition %s: a worker reads the consumer group %s: choose one that nobody reads", p.id, group)
		case noGroup(p.err):
			return fmt.Errorf("the hub has no consumer group %s: create it, or choose another one", group)
		default:
			return fmt.Errorf("partition %s: %w", p.id, h.look.source.explain(ctx, h.look.hub.at, p.err))
		}
	}

	h.partitions = left

	return nil
}

// Progress returns the share of the time that has been read.
func (h *History) Progress() float64 {
	return float64(h.at.Sub(h.from)) / float64(max(h.to.Sub(h.from), 1))
}

// Close disconnects.
func (h *History) Close() { h.stop() }
