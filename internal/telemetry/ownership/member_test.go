package ownership_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/telemetry/ownership"
)

// in runs a test in a world whose replicas have balanced the partitions.
func in(t *testing.T, partitions int, names []string, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, partitions)
		defer w.end()
		for _, name := range names {
			w.start(name)
			w.pass(time.Duration(rand.Int64N(int64(interval))))
		}
		w.until(time.Minute, "partitions are shared", w.balanced)
		w.pass(2 * interval)
		w.moved()
		test(w)
	})
}

// Half of the replicas are killed at once. The others do not compete for their
// partitions: next to none is claimed in vain or moves twice.
func TestTakeOver(t *testing.T) {
	for range 20 {
		in(t, 32, []string{"a", "b", "c", "d", "e", "f"}, func(w *world) {
			for _, r := range w.replicas {
				r.set(func() { r.delay = time.Duration(rand.Int64N(int64(200 * time.Millisecond))) })
			}
			w.pass(time.Duration(rand.Int64N(int64(interval))) + interval)
			w.moved()
			w.refused = 0
			for _, name := range []string{"a", "c", "e"} {
				w.replicas[name].kill()
			}
			// The store's clock rounds away two seconds at most, and then there are a
			// heartbeat, a listing and two claims one after the other. One in some hundred
			// times a survivor needs another round.
			took := w.until(expiry+2*time.Second+4*200*time.Millisecond+interval+2*look, "all partitions are owned again", w.read)
			w.pass(10 * interval)
			moves := len(w.moved())
			t.Logf("%v, %d moves, %d claims refused", took, moves, w.refused)
			if moves < 15 || moves > 20 || w.refused > 4 {
				t.Errorf("%d moves and %d refused claims for 15 to 18 partitions", moves, w.refused)
			}
			if !w.balanced() {
				t.Errorf("shares are %v", w.held())
			}
		})
	}
}

// A store that is slow delays a take-over, and prevents none.
func TestTakeOverOnASlowStore(t *testing.T) {
	in(t, 32, []string{"a", "b", "c"}, func(w *world) {
		for _, r := range w.replicas {
			r.set(func() { r.delay = 5 * time.Second })
		}
		w.pass(time.Minute)
		w.moved()
		w.replicas["b"].kill()
		took := w.until(time.Minute, "all partitions are owned again", func() bool {
			return len(w.replicas["a"].Member.Owned())+len(w.replicas["c"].Member.Owned()) == 32
		})
		t.Logf("after %v", took)
	})
}

// Three replicas with 32 partitions ask little of the store.
func TestOperations(t *testing.T) {
	in(t, 32, []string{"a", "b", "c"}, func(w *world) {
		w.count()
		w.pass(10 * time.Minute)
		requests := w.count()
		t.Logf("of three replicas in ten minutes: %v", requests)
		if beats, lists := requests["beat"], requests["list"]; beats > 600 || beats < 500 || lists > 380 || lists < 200 {
			t.Errorf("%v in ten minutes: want a heartbeat every 3 s and replica, and a listing every 5 to 8 s", requests)
		}
		if requests["claim"] > 0 || requests["delete"] > 0 {
			t.Errorf("%v: want no other writes than heartbeats", requests)
		}
	})
}

// Replicas and stores that are slow, or gone for a few seconds, lose nothing.
func TestNobodyStealsFromTheSlow(t *testing.T) {
	slow := func(d time.Duration) func(w *world) {
		return func(w *world) {
			for _, r := range w.replicas {
				r.set(func() { r.delay = d })
			}
			w.pass(time.Minute)
		}
	}
	for name, trouble := range map[string]func(w *world){
		"slow store":        slow(time.Second),
		"very slow store":   slow(1900 * time.Millisecond),
		"store slow by 2 s": slow(2 * time.Second),
		"store slow by 5 s": slow(5 * time.Second),
		"frozen for a moment": func(w *world) {
			for range 10 {
				w.replicas["b"].freeze()
				w.pass(4 * time.Second)
				w.replicas["b"].set(w.replicas["b"].thaw)
				w.pass(time.Duration(rand.Int64N(int64(10 * time.Second))))
			}
		},
		"store gone for a moment": func(w *world) {
			for range 10 {
				for _, r := range w.replicas {
					r.set(func() { r.fail = errOnPurpose })
				}
				w.pass(4 * time.Second)
				for _, r := range w.replicas {
					r.set(func() { r.fail = nil })
				}
				w.pass(time.Duration(rand.Int64N(int64(10 * time.Second))))
			}
		},
		"store gone for long": func(w *world) {
			for _, r := range w.replicas {
				r.set(func() { r.fail = errOnPurpose })
			}
			w.pass(5 * time.Minute)
			for _, r := range w.replicas {
				r.set(func() { r.fail = nil })
			}
			w.pass(time.Minute)
		},
		"all frozen for long": func(w *world) {
			for _, r := range w.replicas {
				r.freeze()
			}
			w.pass(5 * time.Minute)
			for _, r := range w.replicas {
				r.set(r.thaw)
			}
			w.pass(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, 32, []string{"a", "b", "c"}, func(w *world) {
				trouble(w)
				if moves := w.moved(); len(moves) > 0 {
					t.Errorf("%d moves, the first is %s", len(moves), moves[0])
				}
				// between two late heartbeats a replica may not hold what it owns for a moment
				w.until(2*expiry, "each holds its share", w.balanced)
			})
		})
	}
}

// Who has much to claim from a slow store lives on meanwhile.
func TestSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 64)
		defer w.end()
		w.start("a")
		w.replicas["a"].set(func() { w.replicas["a"].delay = 1900 * time.Millisecond })
		for range 600 {
			w.pass(100 * time.Millisecond)
			if listed, err := ownership.List(t.Context(), &w.store, scope); err != nil || len(listed.Heartbeats) > 0 && listed.Heartbeats[0].Age >= expiry {
				t.Fatalf("%+v, %v: it looks dead", listed.Heartbeats, err)
			}
		}
		if !w.balanced() {
			t.Errorf("held are %v", w.held())
		}
	})
}

// One that wakes up after the others gave it up does not believe for a moment
// that it still owns anything.
func TestAwakeHoldsNothing(t *testing.T) {
	in(t, 8, []string{"a", "b"}, func(w *world) {
		b := w.replicas["b"]
		b.freeze()
		w.until(expiry+2*time.Second+2*look, "a takes all", w.read)
		b.set(b.thaw)
		if held := b.Held(); len(held) > 0 {
			t.Errorf("it holds %v", held)
		}
		w.until(5*interval, "it gets its share again", w.balanced)
	})
}

// What a replica gives back is taken at the next listing of the others, and
// nothing of it is left. During a rollout that is soon; from a group that has been stable, within the expiry.
func TestGiveBack(t *testing.T) {
	for stable, within := range map[time.Duration]time.Duration{0: interval * 6 / 5, time.Hour: expiry} {
		in(t, 32, []string{"a", "b", "c"}, func(w *world) { giveBack(t, w, stable, within) })
	}
}

func giveBack(t *testing.T, w *world, stable, within time.Duration) {
	t.Helper()
	w.pass(stable)
	w.stop("b")
	w.pass(look)
	listed, err := ownership.List(t.Context(), &w.store, scope)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(listed.Partitions, func(p ownership.Record) bool { return p.Owner == "b" }) ||
		slices.ContainsFunc(listed.Heartbeats, func(b ownership.Heartbeat) bool { return b.Owner == "b" }) {
		t.Errorf("it left %+v", listed)
	}
	w.until(within+2*look, "the others take all", w.read)
	if !w.balanced() {
		t.Errorf("shares are %v", w.held())
	}
}

// While it drains a replica keeps what it has, and takes no more.
func TestDrain(t *testing.T) {
	in(t, 8, []string{"a", "b", "c"}, func(w *world) {
		a := w.replicas["a"]
		before := a.Held()
		a.Drain()
		w.pass(interval * 6 / 5) // the others know
		w.stop("b")
		w.until(interval*6/5+2*look, "the other takes what is given back", w.read)
		w.start("d")
		w.pass(5 * interval)
		if got := a.Held(); !slices.Equal(got, before) {
			t.Errorf("it had %v and has %v", before, got)
		}
	})
}

// The heartbeats of the dead do not pile up: each stays for an hour.
func TestDeadAreForgotten(t *testing.T) {
	in(t, 4, []string{"a"}, func(w *world) {
		for i := range 20 {
			name := fmt.Sprint("dead ", i)
			w.start(name)
			w.pass(interval)
			w.replicas[name].kill()
		}
		w.pass(time.Minute)
		if listed, err := ownership.List(t.Context(), &w.store, scope); err != nil || len(listed.Heartbeats) != 21 {
			t.Errorf("%+v, %v: want 21 heartbeats", listed.Heartbeats, err)
		}
		w.pass(time.Hour)
		w.pass(20 * interval)
		listed, err := ownership.List(t.Context(), &w.store, scope)
		if err != nil || len(listed.Heartbeats) != 1 {
			t.Errorf("%+v, %v: want one heartbeat", listed.Heartbeats, err)
		}
	})
}

// Replicas that may not remove blobs take over all the same, and end.
func TestHeartbeatsThatStay(t *testing.T) {
	in(t, 8, []string{"a", "b", "c"}, func(w *world) {
		for _, r := range w.replicas {
			r.set(func() { r.keep = true })
		}
		w.replicas["b"].kill()
		w.until(expiry+2*time.Second+2*look, "the others take over", w.read)
		w.pass(time.Minute)
		w.replicas["c"].kill()
		w.until(expiry+2*time.Second+2*look, "the last one takes over", w.read)
	})
}

// Who has lost its link to another reader asks who owns the partition now, not who did.
func TestHolds(t *testing.T) {
	in(t, 2, []string{"a"}, func(w *world) {
		a := w.replicas["a"]
		a.set(func() { a.delay = time.Second })
		w.count()
		w.until(interval*2, "a listing is under way", func() bool { return w.count()["list"] > 0 })
		now := time.Now()
		w.pass(600 * time.Millisecond)
		if !a.Holds("0", time.Time{}) || a.Holds("0", now) {
			t.Error("a listing from before says what is now")
		}
		w.until(interval*2, "the next listing", func() bool { return a.Holds("0", now) })
		if a.Holds("2", time.Time{}) {
			t.Error("it holds what there is not")
		}
	})
}

// More partitions are shared as soon as they are known.
func TestSetPartitions(t *testing.T) {
	in(t, 2, []string{"a", "b"}, func(w *world) {
		w.partitions = []string{"0", "1", "2", "3"}
		for _, r := range w.replicas {
			r.SetPartitions(w.partitions)
		}
		w.until(5*interval, "all are shared", w.balanced)
	})
}

// Whatever happens to replicas and their links, no two that are alive hold a
// partition for longer than it takes to look, and in the end all partitions are
// shared.
func TestModel(t *testing.T) {
	type step struct {
		action  string
		replica int // of those not killed
		delay   time.Duration
		pass    time.Duration
	}
	rapid.Check(t, func(r *rapid.T) {
		partitions := rapid.IntRange(1, 12).Draw(r, "partitions")
		steps := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) step {
			return step{
				rapid.SampledFrom([]string{"start", "stop", "kill", "freeze", "thaw", "slow", "fail", "lose answers", "mend"}).Draw(r, "action"),
				rapid.IntRange(0, 5).Draw(r, "replica"),
				time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(r, "delay")),
				time.Duration(rapid.Int64Range(0, int64(15*time.Second)).Draw(r, "pass")),
			}
		}), 1, 25).Draw(r, "steps")

		failed := ""
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, partitions)
			w.t = violations{}
			defer w.end()
			defer func() {
				switch v := recover().(type) {
				case nil:
				case violation:
					failed = string(v)
				default:
					panic(v)
				}
			}()
			w.start("0")
			for i, s := range steps {
				w.do(s.action, s.replica, s.delay, fmt.Sprint(i+1))
				w.pass(s.pass)
			}
			for _, one := range w.replicas {
				one.set(func() {
					one.fail, one.lose, one.delay = nil, false, 0
					if !one.killed {
						one.thaw()
					}
				})
			}
			w.start("last")
			w.until(time.Minute, "partitions are shared", w.balanced)
		})
		if failed != "" {
			r.Fatal(failed)
		}
	})
}

// do changes something about one of the replicas that were not killed, or starts another.
func (w *world) do(action string, replica int, delay time.Duration, name string) {
	var left []string
	for name, one := range w.replicas {
		if !one.killed {
			left = append(left, name)
		}
	}
	slices.Sort(left)
	if action == "start" && len(left) < 6 {
		w.start(name)
	}
	if action == "start" || len(left) == 0 {
		return
	}
	one := w.replicas[left[replica%len(left)]]
	switch {
	case action == "stop" && one.alive():
		w.stop(one.name)
	case action == "kill":
		one.kill()
	case action == "freeze":
		one.freeze()
	case action == "thaw":
		one.set(one.thaw)
	case action == "slow":
		one.set(func() { one.delay = delay })
	case action == "fail":
		one.set(func() { one.fail, one.lose = errOnPurpose, false })
	case action == "lose answers":
		one.set(func() { one.fail, one.lose = errOnPurpose, true })
	case action == "mend":
		one.set(func() { one.fail, one.lose, one.delay = nil, false, 0 })
	}
}

var errOnPurpose = errors.New("on purpose")

// A violation ends the run of a model.
type violation string

type violations struct{}

func (violations) Helper() {}

func (violations) Fatalf(format string, args ...any) { panic(violation(fmt.Sprintf(format, args...))) }
