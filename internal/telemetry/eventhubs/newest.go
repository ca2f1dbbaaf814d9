package eventhubs

import (
	"context"
	"slices"
	"time"
)

const (
	newestEvery   = 10 * time.Second // the hub is asked where a partition ends at most so often for newest
	newestAtATime = 8                // partitions that are asked about at a time: the first event that is enough ends that
)

// newest is telemetry.Partition.Newest. All replicas may ask: together they take half of the pace that questions have.
func (h *hub) newest(ctx context.Context, enough time.Time) (newest, asked time.Time, err error) {
	if newest, asked = h.newestRead(enough); !newest.IsZero() {
		return newest, asked, nil
	}

	state, err := h.check(ctx, toDecide, none)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}

	n := len(state.partitions)
	replicas := n / max(1, h.member.Share())
	since := time.Now().Add(-max(newestEvery, time.Duration(2*replicas)*shownAfter(n)))
	asked = time.Now()
	for some := range slices.Chunk(state.partitions, newestAtATime) {
		ends, err := h.source.questions.endsSince(ctx, since, some)
		if err != nil {
			return time.Time{}, time.Time{}, err
		}

		for _, e := range ends {
			newest = latest(newest, e.newest())
			if e.sent.Before(asked) {
				asked = e.sent
			}
		}

		if !newest.IsZero() && !newest.Before(enough) {
			break
		}
	}

	return newest, asked, nil
}

// endsSince returns where partitions end. It asks about those whose end the hub has not reported since a time.
func (q *questions) endsSince(ctx context.Context, since time.Time, partitions []string) (ends []knownEnd, err error) {
	answers := q.answers()
	var asked []*question
	for _, id := range partitions {
		if e := answers[id]; e.sent.Before(since) {
			asked = append(asked, q.put(toDecide, id))
		} else {
			ends = append(ends, e)
		}
	}

	for _, o := range asked {
		if failed := q.await(ctx, o); failed != nil {
			err = failed
			continue
		}
		ends = append(ends, o.end)
	}

	return ends, err
}

// newestRead returns the time of an event that is no older than enough, and was read by this replica or that the hub has
// told of; zero if there is none.
func (h *hub) newestRead(enough time.Time) (newest, asked time.Time) {
	for _, p := range h.read() {
		if at := p.newest(); !at.Before(enough) {
			return at, time.Now()
		}
	}

	for _, e := range h.source.questions.answers() {
		if at := e.newest(); !at.IsZero() && !at.Before(enough) {
			return at, e.sent
		}
	}

	return time.Time{}, time.Time{}
}

// newest returns when the hub took the last event of a partition, zero if it has never taken one. Those that it took may
// have expired since.
func (e *knownEnd) newest() time.Time {
	if e.end.LastEnqueuedSequenceNumber < 0 {
		return time.Time{}
	}
	return e.end.LastEnqueuedOn
}

// newest returns when the hub took the last event that came, zero if none has.
func (p *partition) newest() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cursor.last.Time
}
