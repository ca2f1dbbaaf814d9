package peers

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"alertworker/internal/lab/emulators"
	_ "alertworker/internal/lab/seeded"
	"alertworker/internal/records"
	"alertworker/internal/rules"

	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A blackboard is a store on the bubble's clock, which can be out of order.
type blackboard struct {
	records.Store
	memory records.Memory

	mu     sync.Mutex
	down   error
	writes int
}

func newBlackboard() *blackboard {
	b := &blackboard{}
	b.Store = records.Around(&b.memory, func(ctx context.Context, op records.Op, _ string, call func(context.Context) error) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.down != nil {
			return b.down
		}
		err := call(ctx)
		if op == records.OpWrite && err == nil {
			b.writes++
		}
		return err
	})
	return b
}

// write puts s into the record, whatever it is.
func (b *blackboard) write(t testing.TB, s Settings) {
	t.Helper()
	content, err := json.Marshal(s)
	if err == nil {
		_, err = b.memory.Write(t.Context(), records.Record{Name: group + "/settings", Content: content, ETag: records.Any})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (b *blackboard) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = err
}

const group = "ns/hub/$default"

var (
	inBlob   = Settings{Format: Format, Store: "blob", Place: "acc/throttle", Scope: "ns/hub/group", Rules: window(time.Minute)}
	inCosmos = Settings{Format: Format, Store: "cosmos", Place: "acc/db/leases", Scope: "ns/hub/group", Rules: window(2 * time.Minute)}
)

// window returns the only rule, with this window.
func window(d time.Duration) map[string]Rule {
	return map[string]Rule{rules.DefaultName: {Window: d}}
}

// A replica joins and then keeps until it is ended.
type replica struct {
	*Peer
	end  context.CancelFunc
	done sync.WaitGroup

	mu     sync.Mutex
	rounds []time.Time // in which refresh was called
	active bool
	since  time.Time
	until  time.Time
	reason string
	err    error
}

func start(t testing.TB, b *blackboard, s Settings) *replica {
	r := &replica{Peer: Open(b, group, s, zap.NewNop())}
	ctx, end := context.WithCancel(context.Background())
	r.end = end
	r.done.Go(func() {
		err := r.Join(ctx, func(reason string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reason = reason
		})
		if err == nil {
			r.mu.Lock()
			r.active, r.since = true, time.Now()
			r.mu.Unlock()
			err = r.Keep(ctx, r.refresh)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.active, r.err, r.until = false, err, time.Now()
	})
	return r
}

// refresh fails, which matters to nobody.
func (r *replica) refresh(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds = append(r.rounds, time.Now())
	return errors.New("what else is shared cannot be read")
}

func nothing(context.Context) error { return nil }

func (r *replica) stop() { r.end(); r.done.Wait() }

func (r *replica) is(t testing.TB, active bool) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active != active {
		t.Errorf("active is %t, want %t (%v)", r.active, active, r.err)
	}
}

func (r *replica) why() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reason
}

func TestSameSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlackboard()
		one, two := start(t, b, inBlob), start(t, b, inBlob)
		one.is(t, true)
		two.is(t, true)
		time.Sleep(time.Hour)
		one.is(t, true)
		two.is(t, true)
		if writes := b.writes; writes > 2*360 {
			t.Errorf("%d writes in an hour", writes)
		}
		one.stop()
		two.stop()
		for _, r := range []*replica{one, two} { // what else is shared is known within 15 s, whatever became of the round before
			last := r.since
			for _, at := range append(r.rounds, r.until) {
				if pause := at.Sub(last); pause > 15*time.Second {
					t.Errorf("nothing was read for %v", pause)
				}
				last = at
			}
		}
		if one.err != nil || two.err != nil {
			t.Errorf("%v, %v", one.err, two.err)
		}
		// All restart at once, with the same settings.
		again := start(t, b, inBlob)
		again.is(t, true)
		again.stop()
	})
}

// A rolling update: the new ones wait until the last old one has stopped and its last
// window is over.
func TestRollingChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlackboard()
		old := []*replica{start(t, b, inBlob), start(t, b, inBlob)}
		synctest.Wait()
		time.Sleep(5 * time.Minute)
		young := []*replica{start(t, b, inCosmos), start(t, b, inCosmos)}
		old[0].stop()
		time.Sleep(10 * time.Minute)
		old[1].is(t, true)
		for _, y := range young {
			y.is(t, false)
			for _, want := range []string{"THROTTLE_STORE is blob there and cosmos here", "the window of the rule temperature is 1m0s there and 2m0s here", "run with different settings (", "2m30s after they stop"} {
				if reason := y.why(); !strings.Contains(reason, want) {
					t.Errorf("the reason %q lacks %q", reason, want)
				}
			}
		}
		old[1].stop()
		ended := time.Now()
		time.Sleep(2 * time.Minute) // the longer of the two windows
		young[0].is(t, false)
		young[1].is(t, false)
		time.Sleep(time.Minute)
		for _, y := range young {
			y.is(t, true)
			if waited := y.since.Sub(ended); waited < 2*time.Minute+15*time.Second || waited > 2*time.Minute+50*time.Second {
				t.Errorf("took over %v after the last one had stopped", waited)
			}
			y.stop()
		}
	})
}

// An old one that was frozen finds out, and ends.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlackboard()
		old := start(t, b, inBlob)
		old.is(t, true)
		b.write(t, inCosmos)
		time.Sleep(10 * time.Second)
		old.is(t, false)
		if !errors.Is(old.err, ErrReplaced) || !strings.Contains(old.err.Error(), "THROTTLE_STORE is cosmos there and blob here") {
			t.Errorf("ended with %v", old.err)
		}
		old.stop()
	})
}

// While the store is down nobody renews; when it is back, those who were active go on.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlackboard()
		old := start(t, b, inBlob)
		old.is(t, true)
		time.Sleep(3 * time.Second)
		young := start(t, b, inCosmos)
		young.is(t, false)
		b.fail(errors.New("outage"))
		time.Sleep(time.Hour)
		b.fail(nil)
		time.Sleep(10 * time.Minute)
		old.is(t, true)
		young.is(t, false)
		young.stop()
		old.stop()

		// A start in an outage fails.
		b.fail(errors.New("outage"))
		late := start(t, b, inBlob)
		late.done.Wait()
		if late.err == nil || late.err.Error() != "outage" {
			t.Errorf("ended with %v", late.err)
		}
		late.end()
	})
}

// Whatever starts and stops, in whatever outages of the store: replicas with different
// settings are never active at once, and a window lies between them.
func TestNeverSideBySide(t *testing.T) {
	type step struct{ Do, Who, Pause int }
	steps := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) step {
		return step{rapid.IntRange(0, 4).Draw(r, "do"), rapid.IntRange(0, 9).Draw(r, "who"), rapid.IntRange(0, 400).Draw(r, "pause")}
	}), 1, 12)
	rapid.Check(t, func(r *rapid.T) {
		script := steps.Draw(r, "steps")
		synctest.Test(t, func(*testing.T) {
			b := newBlackboard()
			var running, all []*replica
			for _, s := range script {
				switch {
				case s.Do <= 1:
					p := start(t, b, []Settings{inBlob, inCosmos}[s.Do])
					running, all = append(running, p), append(all, p)
				case s.Do <= 3 && len(running) > 0:
					i := s.Who % len(running)
					running[i].stop()
					running = slices.Delete(running, i, i+1)
				case s.Do == 4 && b.down == nil:
					b.fail(errors.New("outage"))
				case s.Do == 4:
					b.fail(nil)
				}
				time.Sleep(time.Duration(s.Pause) * time.Second)
			}
			for _, p := range running {
				p.stop()
			}
			for _, p := range all {
				for _, q := range all {
					if p.settings.Store != q.settings.Store && !p.since.IsZero() && q.since.After(p.since) && q.since.Sub(p.until) < 2*time.Minute {
						r.Errorf("%s was active until %v, %s from %v", p.settings.Store, p.until, q.settings.Store, q.since)
					}
				}
			}
		})
	})
}

func TestDifference(t *testing.T) {
	if d := inBlob.Difference(inBlob); d != "" {
		t.Errorf("%q", d)
	}
	other := Settings{Format: 2, Store: "blob-lease", Place: "acc/other", Scope: "s", Rules: window(time.Second)}
	want := "record format is 2 there and 1 here, THROTTLE_STORE is blob-lease there and blob here, the throttle store's location is acc/other there and acc/throttle here, " +
		"THROTTLE_SCOPE is s there and ns/hub/group here, the window of the rule temperature is 1s there and 1m0s here"
	if got := inBlob.Difference(other); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// ruled returns inBlob with these rules.
func ruled(all ...rules.Rule) Settings {
	s := inBlob
	s.Rules = Rules(rules.Set{Rules: all})
	return s
}

func TestDifferentRules(t *testing.T) {
	temperature, hot := rules.Rule{Name: "temperature", Window: time.Minute}, rules.Rule{Name: "hot", Window: 10 * time.Minute}
	longer, told, shared := temperature, temperature, temperature
	shared.Per = "site"
	longer.Window, told.Resolved = time.Hour, true
	for _, test := range []struct {
		theirs, ours Settings
		want         string
	}{
		{ruled(temperature), inBlob, ""},
		{ruled(temperature, hot), inBlob, ""},
		{ruled(hot), inBlob, ""},
		{ruled(told), ruled(told, hot), ""},
		{ruled(told), inBlob, "resolved of the rule temperature is true there and false here"},
		{inBlob, ruled(shared, hot), `per of the rule temperature is "" there and "site" here`},
		{inBlob, ruled(longer), "the window of the rule temperature is 1m0s there and 1h0m0s here"},
		{ruled(hot, longer), ruled(hot, told), "the window of the rule temperature is 1h0m0s there and 1m0s here, resolved of the rule temperature is false there and true here"},
	} {
		if got := test.ours.Difference(test.theirs); got != test.want {
			t.Errorf("%v beside %v: %q, want %q", test.ours.Rules, test.theirs.Rules, got, test.want)
		}
	}
	if got := ruled(hot, temperature).longest(); got != 10*time.Minute {
		t.Errorf("the longest window is %v", got)
	}
}

// A rule is added and removed by a rollout in which nobody waits, while one that somebody has with
// another window waits, whoever wrote the record last.
func TestRollingRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlackboard()
		hot, cold := rules.Rule{Name: "hot", Window: 10 * time.Minute, Resolved: true}, rules.Rule{Name: "cold", Window: time.Minute}
		one, two := start(t, b, ruled(hot)), start(t, b, ruled(cold))
		time.Sleep(time.Minute)
		one.is(t, true)
		two.is(t, true)
		other := cold
		other.Window = 2 * time.Minute
		for _, s := range []Settings{ruled(other), ruled(rules.Rule{Name: "hot", Window: 10 * time.Minute})} {
			young := start(t, b, s)
			time.Sleep(time.Hour)
			young.is(t, false)
			young.stop()
		}
		one.is(t, true)
		two.is(t, true)
		if writes := b.writes; writes > 2*720+60 {
			t.Errorf("%d writes in two hours: they overwrite each other", writes)
		}
		one.stop()
		two.stop()
		ended := time.Now()
		young := start(t, b, ruled(other))
		time.Sleep(time.Hour)
		young.is(t, true)
		if waited := young.since.Sub(ended); waited < 15*time.Second || waited > time.Minute {
			t.Errorf("took over %v after the last one had stopped", waited)
		}
		young.stop()
		r, err := young.read(t.Context())
		same := func(a, b Rule) bool { return a.Window == b.Window && a.Resolved == b.Resolved && a.Unseen == b.Unseen }
		if want := ruled(other).Rules; err != nil || !maps.EqualFunc(r.Rules, want, same) {
			t.Errorf("the record has %v, want %v: the others are gone (%v)", r.Rules, want, err)
		}
	})
}

// On Azure's emulator, with shorter times.
func TestBlob(t *testing.T) {
	azurite := emulators.StartAzurite(t)
	c := azurite.Container(t, azurite.NewContainer(), nil)
	blobs, err := records.OpenBlobs(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := records.Reliable(blobs)
	open := func(s Settings) *Peer {
		s.Rules = window(time.Second)
		m := Open(store, group, s, zap.NewNop())
		m.beat, m.expiry = time.Second, 4*time.Second
		return m
	}
	old, young := open(inBlob), open(inCosmos)
	if reason, err := young.Look(t.Context()); reason != "" || err != nil {
		t.Errorf("where nobody was: %q, %v", reason, err)
	}
	nobody := func(reason string) { t.Errorf("waits: %s", reason) }
	if err := old.Join(t.Context(), nobody); err != nil {
		t.Fatal(err)
	}
	if err := open(inBlob).Join(t.Context(), nobody); err != nil {
		t.Fatal(err)
	}
	if reason, err := young.Look(t.Context()); !strings.Contains(reason, "THROTTLE_STORE is blob there and cosmos here") || err != nil {
		t.Errorf("where others are: %q, %v", reason, err)
	}

	ctx, stop := context.WithCancel(t.Context())
	var kept sync.WaitGroup
	kept.Go(func() {
		if err := old.Keep(ctx, nothing); err != nil {
			t.Error(err)
		}
	})
	impatient, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := young.Join(impatient, func(string) {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beside one that keeps: %v", err)
	}
	stop()
	kept.Wait()
	if err := young.Join(t.Context(), func(string) {}); err != nil {
		t.Errorf("after it has stopped: %v", err)
	}
	if err := old.Keep(t.Context(), nothing); !errors.Is(err, ErrReplaced) {
		t.Errorf("the old one: %v", err)
	}

	if _, err := c.NewBlockBlobClient(group+"/settings").UploadBuffer(t.Context(), []byte("x"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := young.Look(t.Context()); err == nil || !strings.Contains(err.Error(), "does not contain settings: delete it") {
		t.Errorf("a foreign blob: %v", err)
	}
}

// A changed rule waits for the replicas that have the old one, and not for windows, which stay in force: both
// have the same keys in the same store.
func TestChangedRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlackboard()
		long := rules.Rule{Name: "hot", Window: 24 * time.Hour}
		short := rules.Rule{Name: "hot", Window: time.Hour, Resolved: true}
		old := start(t, b, ruled(long))
		old.is(t, true)
		young := start(t, b, ruled(short))
		time.Sleep(time.Hour)
		old.is(t, true)
		young.is(t, false)
		old.stop()
		stopped := time.Now()
		time.Sleep(time.Minute)
		young.is(t, true)
		if waited := young.since.Sub(stopped); waited < 15*time.Second {
			t.Errorf("took over %v after the old one had stopped", waited)
		}
		young.stop()
	})
}

// A rule that no replica has any more is forgotten, although others go on, also when the store was down for
// longer than it is remembered.
func TestRemovedRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlackboard()
		cold, hot := rules.Rule{Name: "cold", Window: time.Minute}, rules.Rule{Name: "hot", Window: 24 * time.Hour}
		changed := rules.Rule{Name: "hot", Window: time.Hour}
		one := start(t, b, ruled(cold))
		time.Sleep(4 * time.Second)
		two := start(t, b, ruled(hot))
		time.Sleep(65 * time.Second)
		b.fail(errors.New("outage"))
		time.Sleep(time.Hour)
		b.fail(nil)
		time.Sleep(2 * time.Second) // one has renewed the record, and two has not
		three := start(t, b, ruled(changed))
		time.Sleep(time.Hour)
		one.is(t, true)
		two.is(t, true)
		three.is(t, false)
		two.stop()
		stopped := time.Now()
		time.Sleep(time.Minute)
		three.is(t, true)
		if waited := three.since.Sub(stopped); waited < 15*time.Second {
			t.Errorf("took over %v after the old one had stopped", waited)
		}
		one.is(t, true)
		one.stop()
		three.stop()
	})
}

// The record says since when each rule is in force: one that was added later is not expected to have sent anything before.
func TestRulesAreInForceSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlackboard()
		began := time.Now()
		round := func(names ...string) *Peer {
			t.Helper()
			s := inBlob
			s.Rules = map[string]Rule{}
			for _, name := range names {
				s.Rules[name] = Rule{Window: time.Minute}
			}
			m := Open(b, group, s, zap.NewNop())
			r, err := m.read(t.Context())
			if err == nil {
				err = m.renew(t.Context(), r)
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			return m
		}
		round("hot")
		round("hot")
		round("hot", "cold")
		m := round("hot", "cold")
		round("hot") // an older replica does not know it, which makes it no younger
		round("hot", "cold")
		since, err := m.Since(t.Context())
		if want := map[string]time.Time{"hot": began, "cold": began.Add(20 * time.Second)}; err != nil || !maps.EqualFunc(since, want, time.Time.Equal) {
			t.Errorf("%v, %v, want %v", since, err, want)
		}
	})
}
