package admin

import (
	"context"
	"slices"
	"time"

	"alertworker/internal/lease"
)

// Calls of the store are remembered for so long, and so many of each operation.
const (
	callsFor = 5 * time.Minute
	maxCalls = 1000
)

// A call of an operation that has ended.
type call struct {
	at     time.Time
	took   time.Duration
	failed bool // it gave no usable answer
}

// Store returns what times a store's calls for the status page.
func (r *Recorder) Store() lease.Observer {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = map[lease.Operation]*ring[call]{lease.OpAcquire: {}, lease.OpExtend: {}, lease.OpRelease: {}}
	return func(ctx context.Context, op lease.Operation) (context.Context, func(lease.Call)) {
		if op == lease.OpRead || op == lease.OpBreak { // by hand
			return ctx, nil
		}
		start := time.Now()
		return ctx, func(c lease.Call) { r.called(op, start, c.Outcome == lease.OutcomeError) }
	}
}

func (r *Recorder) called(op lease.Operation, start time.Time, failed bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[op].add(call{at: now, took: now.Sub(start), failed: failed}, maxCalls)
}

// A latency is how an operation did of late.
type latency struct {
	calls    int
	more     bool // there were more calls than are remembered
	errors   int
	p50, p95 time.Duration // at most so long took half of the calls, and 95 %
}

// latencies returns how the operations did until now; nil if there is no store.
func (r *Recorder) latencies(now time.Time) map[lease.Operation]latency {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		return nil
	}
	all := make(map[lease.Operation]latency, len(r.calls))
	for op, calls := range r.calls {
		var l latency
		var took []time.Duration
		for c := range calls.latest() {
			if now.Sub(c.at) > callsFor {
				break
			}
			took = append(took, c.took)
			if c.failed {
				l.errors++
			}
		}
		if l.calls = len(took); l.calls > 0 {
			slices.Sort(took)
			l.p50, l.p95 = took[(l.calls*50+99)/100-1], took[(l.calls*95+99)/100-1]
		}
		l.more = l.calls == maxCalls
		all[op] = l
	}
	return all
}
