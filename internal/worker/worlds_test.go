package worker_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/rules"
)

var (
	worldPlans = flag.Int("worlds.plans", 0, "how many plans TestWorlds plays; 0: 300, or 30 with -short")
	worldFirst = flag.Uint64("worlds.first", 1, "the number of the first plan; 0: any")
	worldTrace = flag.Bool("worlds.trace", false, "write which plan begins: if a world crashes, it is one of the last")
)

// Whatever fails, wherever an owner dies, and however long one that was replaced goes on: what receivers hear is what
// the documents promise. -worlds.first=7 -worlds.plans=1 plays one plan again.
func TestWorlds(t *testing.T) {
	t.Parallel()
	first := *worldFirst
	if first == 0 {
		first = rand.Uint64() >> 20
	}
	plans := *worldPlans
	switch {
	case plans > 0:
	case testing.Short():
		plans = 30
	default:
		plans = 300
	}
	t.Logf("plans from %d on: -worlds.first=%d -worlds.plans=%d", first, first, plans)
	var next, failed atomic.Uint64
	for worker := range min(4, plans) {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			for {
				n := next.Add(1) - 1
				if n >= uint64(plans) || failed.Load() >= 1 {
					return
				}
				if *worldTrace {
					fmt.Printf("plan %d begins\n", n+1)
				}
				p := newPlan(first + n)
				wrong := p.play(t)
				if wrong == "" {
					continue
				}
				failed.Add(1)
				p, wrong = p.simplified(t, wrong)
				t.Errorf("plan %d, the %dth (-worlds.first=%d -worlds.plans=1):\n%s", p.number, n+1, p.number, wrong)
			}
		})
	}
}

// play returns what is wrong after p, and how it came; empty if nothing is.
func (p plan) play(t *testing.T) string {
	clock, err := rules.NewClock("body:at")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{plan: p, clock: clock}
	for _, version := range p.versions {
		set := rules.Set{Rules: version}
		decoder, err := set.Decoder()
		if err != nil {
			t.Fatal(err)
		}
		w.decoders = append(w.decoders, decoder)
	}
	synctest.Test(t, func(t *testing.T) { w.run(t.Context()) })
	if len(w.wrong) == 0 {
		return ""
	}
	return fmt.Sprintf("%s\n%s\n%s", strings.Join(w.wrong, "\n"), p, strings.Join(w.timeline, "\n"))
}

func (p plan) String() string {
	var b strings.Builder
	for i, version := range p.versions {
		fmt.Fprintf(&b, "version %d: %+v\n", i, version)
	}
	fmt.Fprintf(&b, "receivers: %+v\ngive up: %v, batch: %d, changes: %d, tail: %s\n"+
		"%s dies, compacted: %v\nfaults: %v\nmoves: %v\nmutes: %+v",
		p.receivers, p.giveUp, p.largest, p.changes, p.tail, p.dies, p.compacted, p.faults, p.moves, p.muteTimes)
	return b.String()
}

// kind is what is wrong, without particulars.
func kind(wrong string) string { return wrong[:min(2, len(wrong))] }

// simplified returns a plan that goes wrong in the same way, and of which nothing can be left out, with what is
// wrong. Pauses have jitter: what has failed once may need several tries.
func (p plan) simplified(t *testing.T, wrong string) (plan, string) {
	fails := func(p plan) bool {
		for range 3 {
			if got := p.play(t); got != "" && kind(got) == kind(wrong) {
				wrong = got
				return true
			}
		}
		return false
	}
	until := time.Now().Add(time.Minute)
	for again := true; again && time.Now().Before(until); {
		again = false
		for _, simpler := range p.simpler() {
			if fails(simpler) {
				p, again = simpler, true
				break
			}
		}
	}
	return p, wrong
}

// simpler returns plans that have something less than p.
func (p plan) simpler() (all []plan) {
	less := func(change func(q *plan)) {
		q := p
		change(&q)
		all = append(all, q)
	}
	for i := range p.faults {
		less(func(q *plan) { q.faults = slices.Delete(slices.Clone(q.faults), i, i+1) })
	}
	for i := range p.moves {
		less(func(q *plan) { q.moves = slices.Delete(slices.Clone(q.moves), i, i+1) })
	}
	for i := range p.muteTimes {
		less(func(q *plan) { q.muteTimes = slices.Delete(slices.Clone(q.muteTimes), i, i+1) })
	}
	for i := range p.readings {
		if len(p.readings) > 1 {
			less(func(q *plan) { q.readings = slices.Delete(slices.Clone(q.readings), i, i+1) })
		}
	}
	for i := range p.receivers {
		if len(p.receivers) > 1 && !slices.ContainsFunc(p.moves, func(m move) bool { return m.receiver > 0 }) {
			less(func(q *plan) { q.receivers = slices.Delete(slices.Clone(q.receivers), i, i+1) })
		}
	}
	if len(p.versions) > 1 {
		for i := range p.versions {
			less(func(q *plan) { q.version(i) })
		}
	} else if set := p.versions[0]; len(set) > 1 {
		for i := range set {
			less(func(q *plan) { q.versions = [][]rules.Rule{slices.Delete(slices.Clone(set), i, i+1)} })
		}
	}
	return all
}

// version leaves only one version of the rules.
func (p *plan) version(i int) {
	p.versions = p.versions[i : i+1]
	p.partitions = slices.Clone(p.partitions)
	for i := range p.partitions {
		p.partitions[i] = slices.Clone(p.partitions[i])
		for j := range p.partitions[i] {
			p.partitions[i][j].version = 0
		}
	}
}

// Histories that chance finds seldom, each of which broke a promise when a line that it guards was taken out.
func TestRareHistories(t *testing.T) {
	one := []rules.Level{{Limit: 30, Clear: 25}}
	two := []rules.Level{{Name: "warning", Limit: 30, Clear: 25}, {Name: "critical", Limit: 80, Clear: 75}}
	oven := func(value float64, gap, lag time.Duration) reading {
		return reading{device: "oven", value: value, gap: gap, lag: lag, late: -1, mode: "run"}
	}
	for _, tt := range []struct {
		name   string
		for_   time.Duration
		levels []rules.Level
		plan   plan
	}{
		{"the ledger is asked under the claim: what opened was covered by the window that had just ended", 0, one, plan{
			readings:   []reading{oven(35, 0, 0), oven(20, 20*second, 0), oven(35, 39*second, 1500*time.Millisecond)},
			partitions: [][]takeover{{{}, {slot: 1, after: second}}},
			faults:     []fault{{call: callAcquire, nth: 1, what: slow, for_: 2 * second}},
			moves:      []move{{at: 60_200 * time.Millisecond, what: steal, for_: 50 * second, deaf: true}},
		}},
		{"the claim for a recovery covers the readings before it", 0, one, plan{
			readings:   []reading{oven(35, 0, 0), oven(20, second, 0)},
			partitions: [][]takeover{{{}, {slot: 1, after: second}}},
			faults: []fault{{call: callAcquire, nth: 0, what: frozenBefore, for_: 100 * second}, {call: callSend, nth: 1,
				what: slow, for_: 6 * second}},
			moves: []move{{at: 64 * second, what: storeDown, for_: 30 * second}},
		}},
		{"a recovery of unknown fate keeps its id", 0, two, plan{
			readings: []reading{oven(35, 0, 0), oven(20, 70*second, 0), oven(90, second/5, 0), oven(20, second/5, 0)},
			faults:   []fault{{call: callSend, nth: 1, what: answerLost}},
		}},
		{"an alert that was given up is not told to somebody who did not hear that it is over", 0, one, plan{
			readings:   []reading{oven(35, 0, 0), oven(20, second, 0)},
			partitions: [][]takeover{{{}, {slot: 1, after: second}}},
			faults: []fault{{call: callAcquire, nth: 0, what: frozenBefore, for_: 100 * second}, {call: callSend, nth: 0,
				what: refused}},
		}},
		{"what the ledger has settled is skipped before the first checkpoint", 20 * second, two, plan{
			readings: []reading{oven(90, 0, 26*second), oven(90, 20*second, 6*second), oven(27, 0, 6*second)},
			faults:   []fault{{call: callLedgerWrite, nth: 1, what: killedAfter}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := tt.plan
			r := rules.Rule{Name: rules.DefaultName, Field: "temperature", Window: window, Resolved: true,
				Levels: slices.Clone(tt.levels)}
			for i := range r.Levels {
				r.Levels[i].For = tt.for_
			}
			p.versions, p.devices, p.receivers = [][]rules.Rule{{r}}, []string{"oven"}, []planned{{}}
			p.giveUp, p.largest, p.changes, p.tail = 12*time.Hour, 5, 5, "nothing"
			if p.partitions == nil {
				p.partitions = [][]takeover{{}}
			}
			if wrong := p.play(t); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}
