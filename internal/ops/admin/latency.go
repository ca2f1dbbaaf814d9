package admin

import (
	"context"
	"slices"
	"time"

	"alertworker/internal/humanize"
	"alertworker/internal/lease/observe"
)

// Calls of the store are remembered for so long, and so many of each operation.
const (
	callsFor = 5 * time.Minute
	maxCalls = 1000
)

type operation struct {
	observe.Operation
	help string
}

// operations are those that are timed, in the order of the page, with what they are for.
var operations = [...]operation{
	{observe.OpAcquire, "acquires the right to alert about a device, or to lead"},
	{observe.OpExtend, "records the start of a device's window, or renews the leader's lease"},
	{observe.OpRelease, "releases that right after a failed alert, or when the leader stops"},
}

// A call of an operation that has ended.
type call struct {
	at     time.Time
	took   time.Duration
	failed bool // it gave no usable answer
}

// Store returns what times a store's calls for the status page.
func (r *Recorder) Store() observe.Observer {
	return func(ctx context.Context, op observe.Operation) (context.Context, func(observe.Call)) {
		i := slices.IndexFunc(operations[:], func(o operation) bool { return o.Operation == op })
		if i < 0 { // by hand
			return ctx, nil
		}

		start := time.Now()
		return ctx, func(c observe.Call) { r.called(i, start, c.Outcome == observe.OutcomeError) }
	}
}

// called records a call of an operation that began at start and has just ended.
func (r *Recorder) called(operation int, start time.Time, failed bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[operation].add(call{at: now, took: now.Sub(start), failed: failed}, maxCalls)
}

// A latency is how an operation did of late.
type latency struct {
	Operation, Help string
	Calls, Errors   int64
	More            bool          // there were more calls than are remembered
	P50, P95        time.Duration // at most so long took half of the calls, and 95 %
}

// latencies returns how the operations that were called did until now.
func (r *Recorder) latencies(now time.Time) []latency {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []latency
	for i, op := range operations {
		l := latency{Operation: humanize.Capital(string(op.Operation)), Help: op.help}
		var took []time.Duration
		for c := range r.calls[i].latest() {
			if now.Sub(c.at) > callsFor {
				break
			}

			took = append(took, c.took)
			if c.failed {
				l.Errors++
			}
		}

		n := len(took)
		if n == 0 {
			continue
		}

		slices.Sort(took)
		l.Calls = int64(n)
		l.More = n == maxCalls
		l.P50 = took[(n*50+99)/100-1]
		l.P95 = took[(n*95+99)/100-1]
		all = append(all, l)
	}

	return all
}
