package throttle

import (
	"flag"
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"time"
)

// A step is one thing that happens in a model. Of two steps from one state, one field at least differs.
type step struct {
	name  string
	owner int8 // of a partition; -1: none
	arg   int8
}

func (s step) String() string {
	if s.owner < 0 {
		return fmt.Sprintf("%s (%d)", s.name, s.arg)
	}
	return fmt.Sprintf("%c: %s (%d)", 'A'+s.owner, s.name, s.arg)
}

// A system is a model as a search sees it: states, what can happen in each, and what must hold there.
type system[S comparable] struct {
	initial S
	next    func(s *S, emit func(step, *S)) // calls emit for each successor, which may be kept
	check   func(s *S) string               // what is violated; empty: nothing
	stuck   func(s *S) string               // the same where nothing can happen; nil: nothing
	show    func(s *S) string               // for people
}

// A found is what a search found.
type found struct {
	states    int
	depth     int    // steps to the states that are furthest away
	violation string // with the shortest way to it; empty: there is none
	complete  bool   // no state was left out
}

// search visits the states that can be reached from the initial one, at most limit of them, the nearest first. Each is
// remembered by 64 bits of a hash: of 10⁸ states fewer than one in a thousand searches leaves one out.
func (m system[S]) search(limit int) found {
	seed := maphash.MakeSeed()
	seen := &hashes{}
	seen.add(maphash.Comparable(seed, m.initial))
	level := []S{m.initial}
	ways := []int32{0} // of the states of level, in steps
	steps := []step{{}}
	parents := []int32{0}
	result := found{states: 1, complete: true}

	for ; len(level) > 0; result.depth++ {
		var deeper []S
		var deeperWays []int32
		for i := range level {
			successors := 0
			m.next(&level[i], func(s step, after *S) {
				successors++
				if result.violation != "" || !seen.add(maphash.Comparable(seed, *after)) {
					return
				}
				result.states++
				steps = append(steps, s)
				parents = append(parents, ways[i])
				way := int32(len(steps) - 1)
				deeper = append(deeper, *after)
				deeperWays = append(deeperWays, way)
				if what := m.check(after); what != "" {
					result.violation = what + m.story(steps, parents, way)
				}
			})
			if successors == 0 && m.stuck != nil {
				if what := m.stuck(&level[i]); what != "" {
					result.violation = what + m.story(steps, parents, ways[i])
				}
			}
			if result.violation != "" {
				return result
			}
		}
		if result.states > limit {
			result.complete = false
			return result
		}
		level = deeper
		ways = deeperWays
	}
	return result
}

// story tells the steps that lead to one of them.
func (m system[S]) story(steps []step, parents []int32, last int32) string {
	var way []step
	for i := last; i != 0; i = parents[i] {
		way = append([]step{steps[i]}, way...)
	}
	var b strings.Builder
	state := m.initial
	for _, s := range way {
		m.next(&state, func(candidate step, after *S) {
			if candidate == s {
				defer func(after S) { state = after }(*after)
			}
		})
		// The deferred assignment ran when the callback returned, so that next still saw the state before.
		fmt.Fprintf(&b, "\n  %-44s %s", s, m.show(&state))
	}
	return b.String()
}

// hashes is a set of 64-bit hashes.
type hashes struct {
	slots []uint64 // 0: free
	count int
}

// add reports whether h was not in the set.
func (t *hashes) add(h uint64) bool {
	if h == 0 {
		h = 1
	}
	if 10*t.count >= 7*len(t.slots) {
		t.grow()
	}
	slot := t.find(h)
	if *slot == h {
		return false
	}
	*slot = h
	t.count++
	return true
}

func (t *hashes) find(h uint64) *uint64 {
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		if t.slots[i] == 0 || t.slots[i] == h {
			return &t.slots[i]
		}
	}
}

func (t *hashes) grow() {
	old := t.slots
	t.slots = make([]uint64, max(1<<12, 2*len(old)))
	for _, h := range old {
		if h != 0 {
			*t.find(h) = h
		}
	}
}

// everyDay is how many states each search visits unless -model.states says otherwise; with -short it is a tenth.
const everyDay = 20_000

var modelStates = flag.Int("model.states", 0, "how many states the searches of the protocol may visit; 0: some")

// searchAll runs searches of a model, the first ones to their end as long as the budget lasts.
func searchAll(t *testing.T, searches []func(limit int) found) {
	left := *modelStates
	least := everyDay
	if testing.Short() {
		least /= 10
	}
	for i, search := range searches {
		start := time.Now()
		limit := max(left/(len(searches)-i), least)
		r := search(limit)
		left -= r.states
		t.Logf("search %d: %d states, %d steps deep, complete: %v, %v",
			i+1, r.states, r.depth, r.complete, time.Since(start).Round(time.Millisecond))
		if r.violation != "" {
			t.Fatal(r.violation)
		}
	}
}

// mustFind fails unless search finds the bug that is planted in its model. A bug that is not near enough is left to runs
// without -short.
func mustFind(t *testing.T, search func(limit int) found) {
	t.Helper()
	limit := 1_000_000
	if testing.Short() {
		limit = everyDay / 10
	}
	r := search(limit)
	if r.violation == "" && testing.Short() && !r.complete {
		t.Skipf("not within %d states", limit)
	}
	if r.violation == "" {
		t.Fatalf("not found in %d states, %d steps deep; complete: %v", r.states, r.depth, r.complete)
	}
	t.Logf("found in %d states: %s", r.states, r.violation)
}

// The search finds the shortest way to a violation, and knows when it has seen everything.
func TestSearch(t *testing.T) {
	counter := system[int]{
		next: func(s *int, emit func(step, *int)) {
			for _, add := range []int8{1, 3} {
				if after := *s + int(add); after <= 10 {
					emit(step{name: "add", owner: -1, arg: add}, &after)
				}
			}
		},
		check: func(s *int) string {
			if *s == 7 {
				return "seven"
			}
			return ""
		},
		show: func(s *int) string { return fmt.Sprint(*s) },
	}
	if r := counter.search(100); !strings.HasPrefix(r.violation, "seven") || strings.Count(r.violation, "\n") != 3 {
		t.Errorf("found %+v, not seven in three steps", r)
	}
	counter.check = func(*int) string { return "" }
	if r := counter.search(100); r.states != 11 || !r.complete {
		t.Errorf("found %+v, not all 11 states", r)
	}
	if r := counter.search(5); r.complete {
		t.Errorf("found %+v, not that states were left out", r)
	}
}
