package partition_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	"alertworker/internal/records"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

const silent = 15 * time.Minute

// silence returns a setup with one rule about silence.
func silence(t *testing.T, change func(*rules.Rule), receivers ...*receiver) *setup {
	s := newSetup(t, receivers...)
	r := rules.Rule{
		Name: "offline", Window: window, Resolved: true, Forget: rules.DefaultForget, Silent: silent, Levels: []rules.Level{{}},
	}
	if change != nil {
		change(&r)
	}
	s.config.Rules.Rules = []rules.Rule{r}
	return s
}

// talk has a device send an event at each of these times from now on.
func (p *partition) talk(device string, at ...time.Duration) {
	start := time.Now()
	for _, d := range at {
		time.Sleep(time.Until(start.Add(d)))
		p.publishBody(device, `{"hello":1}`)
		synctest.Wait()
	}
}

func TestSilence(t *testing.T) {
	const m = time.Minute
	for _, tt := range []struct {
		name   string
		change func(*rules.Rule)
		oven   []time.Duration // when it sends
		other  time.Duration   // how often another device does, for three hours; 0: never
		want   string
	}{
		{"heard in time", nil, []time.Duration{0, 14 * m, 28 * m, 42 * m, 56 * m, 70 * m, 84 * m, 98 * m, 112 * m, 126 * m, 140 * m, 154 * m, 168 * m}, m, ""},
		{"dies, and another device proves it", nil, []time.Duration{0, 5*m + m/2}, m, "alert 7"},
		{"dies, and nothing else comes", nil, []time.Duration{0, 5 * m}, 0, "alert 2"},
		{"dies and comes back", nil, []time.Duration{0, 60 * m, 70 * m, 80 * m, 90 * m, 100 * m, 110 * m, 120 * m, 130 * m, 140 * m, 150 * m, 160 * m, 170 * m, 180 * m}, 0, "alert 1, recovery 2"},
		{"no recovery", func(r *rules.Rule) { r.Resolved = false }, []time.Duration{0, 90 * m, 100 * m, 110 * m, 120 * m, 130 * m, 140 * m, 150 * m, 160 * m, 170 * m, 180 * m}, 0, "alert 1"},
		{"comes back within the window and dies again", func(r *rules.Rule) { r.Window = time.Hour }, []time.Duration{0, 20 * m}, 0, "alert 1"},
		{"comes back within the window and dies after it", func(r *rules.Rule) { r.Window = 20 * m }, []time.Duration{0, 20 * m, 30 * m, 40 * m, 50 * m}, 0, "alert 1, recovery 2, alert 5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				s := silence(t, tt.change, r)
				s.start(p)
				if tt.other > 0 {
					s.work.Go(func() {
						for range 180 * m / tt.other {
							time.Sleep(tt.other)
							p.publishBody("other", "{}")
						}
					})
				}
				start := time.Now()
				p.talk("oven", tt.oven...)
				time.Sleep(time.Until(start.Add(181 * m)))
				open := len(s.open())
				s.end()
				if c := readLedger(t, s.ledgers); len(c.Alarms) != open {
					t.Errorf("the ledger has %+v, and %d are open", c.Alarms, open)
				}
				if got := r.notified("oven"); !sameSet(got, tt.want) {
					t.Errorf("notified of %s; want %s", got, tt.want)
				}
				if got := r.notified("other"); got != "" {
					t.Errorf("notified of the other device: %s", got)
				}
			})
		})
	}
}

// A silence is told within 15 s of its deadline, whenever that is, if nothing else comes to the partition: no answer of
// the hub is waited for that could prove nothing.
func TestSilenceIsToldSoon(t *testing.T) {
	for offset := range 20 {
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("0"), &receiver{}
			p.reached = true
			s := silence(t, nil, r)
			s.start(p)
			p.publishBody("oven", "{}")
			p.talk("kiln", time.Duration(offset)*700*time.Millisecond)
			var mu sync.Mutex
			var late []time.Duration
			r.set(func(_ context.Context, a notify.Alert) error {
				mu.Lock()
				defer mu.Unlock()
				late = append(late, time.Since(a.Enqueued))
				return nil
			})
			time.Sleep(silent + time.Minute)
			s.end()
			if len(late) != 2 || slices.Max(late) > 15*time.Second {
				t.Errorf("with %d00 ms between them two devices are told %v late", 7*offset, late)
			}
		})
	}
}

// A new owner goes on where the last one stopped, whatever state the silence was in.
func TestSilenceTakeOver(t *testing.T) {
	const m = time.Minute
	for _, tt := range []struct {
		name          string
		before, after time.Duration // how long each owner works
		pause         time.Duration // between them
		unread        bool          // the device is heard at the end of the pause
		again         []time.Duration
		want          string
	}{
		{"before the deadline", 10 * m, 20 * m, m, false, nil, "alert 1"},
		{"over in the pause", 10 * m, 20 * m, 30 * m, false, nil, "alert 1"},
		{"told before", 20 * m, 60 * m, m, false, nil, "alert 1"},
		{"heard in the pause", 10 * m, 10 * m, 10 * m, true, nil, ""},
		{"told before, and heard again", 20 * m, 10 * m, m, false, []time.Duration{10 * m}, "alert 1, recovery 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, crash := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					p, r := newPartition("0"), &receiver{}
					s := silence(t, nil, r)
					s.start(p)
					p.talk("oven", 0)
					time.Sleep(tt.before)
					if crash {
						p.fail(errors.New("the process is gone"))
					}
					s.end()
					time.Sleep(tt.pause)
					next := silence(t, nil, r)
					next.store, next.ledgers = s.store, s.ledgers
					if tt.unread {
						p.publishBody("oven", "{}")
					}
					q := p.reopen()
					next.start(q)
					q.talk("oven", tt.again...)
					time.Sleep(tt.after)
					next.end()
					if got := r.notified("oven"); got != tt.want {
						t.Errorf("crash %v: notified of %s; want %s", crash, got, tt.want)
					}
				})
			}
		})
	}
}

// hasPrefixes compares lists of what was notified, of which want may leave out numbers.
func hasPrefixes(got, want string) bool {
	a, b := strings.Split(got, ", "), strings.Split(want, ", ")
	for i := range b {
		if len(a) != len(b) || !strings.HasPrefix(a[i], b[i]) || b[i] == "" && a[i] != "" {
			return false
		}
	}
	return true
}

// After a crash the next owner reads again what the roster does not have, and tells as if nothing had happened.
func TestSilenceAfterACrash(t *testing.T) {
	const m = time.Minute
	for _, tt := range []struct {
		name   string
		work   time.Duration // until the crash, while another device sends an event each minute
		pause  time.Duration
		refuse error                                   // what a checkpoint of the first owner gets
		check  func(t *testing.T, after time.Duration) // the alert, after the last event of the device
	}{
		{"the roster is seconds old", 5 * m, m, nil, func(t *testing.T, after time.Duration) {
			if after < silent || after > silent+m {
				t.Errorf("the alert came after %v", after)
			}
		}},
		{"no checkpoint", 5 * m, m, telemetry.ErrLost, func(t *testing.T, after time.Duration) {
			if after < silent || after > silent+m {
				t.Errorf("the alert came after %v", after)
			}
		}},
		{"a long pause", 5 * m, 40 * m, nil, func(t *testing.T, after time.Duration) {
			if after < silent || after > 5*m+40*m+silent+2*m {
				t.Errorf("the alert came after %v", after)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				p.generation, p.refuse = "a", tt.refuse
				s := silence(t, nil, r)
				s.start(p)
				p.talk("other", 0)
				start := time.Now()
				p.talk("oven", 2*m+30*time.Second)
				heard := time.Now()
				for time.Since(start) < tt.work {
					p.talk("other", m)
				}
				crash(s, p)
				for range tt.pause / m {
					p.talk("other", m)
				}
				var at time.Time
				r.set(func(context.Context, notify.Alert) error { at = time.Now(); return nil })
				next := silence(t, nil, r)
				next.store, next.ledgers = s.store, s.ledgers
				q := p.reopen()
				next.start(q)
				for range 70 {
					q.talk("other", m)
				}
				next.end()
				if got := r.notified("oven"); got != "alert 2" {
					t.Errorf("notified of %s", got)
				}
				tt.check(t, at.Sub(heard))
				counted := int64(0)
				for reason := range next.stats.Events {
					counted += next.stats.Events[reason].Load()
				}
				if want := int64(len(q.log)) - q.resumed.Sequence; counted != want {
					t.Errorf("%d events are counted after the checkpoint, of %d", counted, want)
				}
				if got := r.notified("other"); got != "" {
					t.Errorf("notified of the other device: %s", got)
				}
			})
		})
	}
}

// crash stops a worker with nothing written at its end but the checkpoint, which is further than the roster.
func crash(s *setup, p *partition) {
	store := s.ledgers
	frozen := &records.Memory{}
	all, _ := records.All(context.Background(), store, "")
	for _, r := range all {
		whole, _ := store.Read(context.Background(), r.Name, 1<<20)
		_, _ = frozen.Write(context.Background(), records.Record{Name: whole.Name, Values: whole.Values, Content: whole.Content})
	}
	s.end()
	s.ledgers = frozen
}

// An event that the hub has dropped may have been the device's: the deadline starts anew.
func TestSilenceAfterAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const m = time.Minute
		p, r := newPartition("0"), &receiver{}
		p.reached = true
		s := silence(t, nil, r)
		s.start(p)
		p.talk("oven", 0)
		p.talk("other", 10*m)
		p.skip(5)
		p.talk("other", m)
		gap := time.Now()
		var at time.Time
		r.set(func(_ context.Context, a notify.Alert) error {
			if a.Device == "oven" {
				at = time.Now()
			}
			return nil
		})
		time.Sleep(30 * m)
		s.end()
		if got := r.notified("oven"); got != "alert 8" || at.Sub(gap) < silent {
			t.Fatalf("notified of %s, %v after the gap", got, at.Sub(gap))
		}
		a := r.alerts("oven")[0]
		if a.Silent != silent || !a.Since.Equal(gap) || !a.LastHeard.Equal(gap.Add(-11*m)) || !a.Enqueued.Equal(gap.Add(silent)) {
			t.Errorf("%+v", a)
		}
	})
}

// skip numbers the next event as if the hub had dropped n before it.
func (p *partition) skip(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped += n
}

// A worker that lags says nothing of devices that were silent long ago.
func TestSilenceLagging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		p.largest, p.reached = 1, true
		s := silence(t, nil, r)
		s.start(p)
		p.talk("oven", 0)
		p.talk("other", time.Second)
		s.end() // there is a roster, so that nothing counts from the take-over on
		next := silence(t, nil, r)
		next.store, next.ledgers, s = s.store, s.ledgers, next
		p = p.reopen()
		p.largest = 1
		for i := range 40 { // hours of a backlog, in which the oven is silent for two of three
			if i%3 == 0 {
				p.publishBody("oven", "{}")
			}
			p.publishBody("other", "{}")
			time.Sleep(20 * time.Minute)
		}
		p.publishBody("oven", "{}")
		p.slow = 10 * time.Second
		s.start(p)
		time.Sleep(9 * time.Minute)
		if got := r.notified(""); got != "" {
			t.Errorf("notified of %s", got)
		}
		time.Sleep(12 * time.Minute)
		s.end()
		if got := r.notified("oven"); got != "alert 57" {
			t.Errorf("notified of %s", got)
		}
	})
}

// While the hub does not say what its last event is, nothing is proven.
func TestSilenceOfADeadHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.start(p)
		p.talk("oven", 0)
		p.mu.Lock()
		p.lastErr = errors.New("the hub does not answer")
		p.mu.Unlock()
		time.Sleep(3 * time.Hour)
		if got := r.notified("oven"); got != "" {
			t.Errorf("notified of %s", got)
		}
		p.mu.Lock()
		p.lastErr = nil
		p.mu.Unlock()
		time.Sleep(time.Minute)
		s.end()
		if got := r.notified("oven"); got != "alert 1" {
			t.Errorf("notified of %s", got)
		}
	})
}

// fast is a store whose clock is an hour ahead.
type fast struct{ records.Store }

func (s fast) Stat(ctx context.Context, name string) (records.Record, error) {
	r, err := s.Store.Stat(ctx, name)
	r.Now = r.Now.Add(time.Hour)
	return r, err
}

// By a store's clock that is ahead of all others nobody is silent early.
func TestSilenceWhenTheStoresClockIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		p.reached = true
		s := silence(t, nil, r)
		s.ledgers = fast{s.ledgers}
		s.start(p)
		for range 12 {
			p.talk("oven", 0)
			pass(10 * time.Minute)
		}
		s.end()
		if got := r.notified(""); got != "" {
			t.Errorf("notified of %s", got)
		}
	})
}

// An event that has come but was not read disproves a silence: the hub's last event is another one.
func TestSilenceUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.start(p)
		p.talk("oven", 0)
		time.Sleep(10 * time.Minute)
		p.hold(true)
		p.publishBody("oven", "{}")
		time.Sleep(time.Hour)
		if got := r.notified("oven"); got != "" {
			t.Errorf("notified of %s", got)
		}
		p.hold(false)
		p.publishBody("oven", "{}")
		time.Sleep(time.Minute)
		s.end()
		if got := r.notified("oven"); got != "" {
			t.Errorf("notified of %s", got)
		}
	})
}

// expire has what was not read be dropped by the hub: its last event stands for that.
func (p *partition) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = len(p.log) - 1
	last := p.log[p.next]
	p.log = slices.Clone(p.log)
	p.log[p.next] = telemetry.Event{Position: last.Position, Enqueued: last.Enqueued, MessageSource: telemetry.SourceExpired}
}

// What came while no replica ran has expired by the hub's retention, and the device has been silent since: it is silent.
func TestSilenceAfterRetention(t *testing.T) {
	for _, expired := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("0"), &receiver{}
			s := silence(t, nil, r)
			s.start(p)
			p.talk("oven", 0)
			time.Sleep(10 * time.Minute)
			s.end()
			time.Sleep(time.Minute)
			p.publishBody("oven", "{}")
			time.Sleep(25 * time.Hour)
			next := silence(t, nil, r)
			next.store, next.ledgers = s.store, s.ledgers
			q := p.reopen()
			if expired {
				q.expire()
			}
			next.start(q)
			time.Sleep(3 * time.Hour)
			next.end()
			if got := r.notified("oven"); got == "" {
				t.Errorf("expired %v: notified of nothing: the device has been silent for 28 hours", expired)
			}
			if got, want := q.checkpoint(), p.log[len(p.log)-1].Sequence; got != want {
				t.Errorf("expired %v: the checkpoint is at %d, want the end, %d", expired, got, want)
			}
		})
	}
}

// publishWith adds an event with an application property.
func (p *partition) publishWith(device, name, value string) {
	p.publishProperties(device, "{}", map[string]any{name: value})
}

// A device that is quiet is expected when that is over, and one that is forgotten is not expected at all.
func TestSilenceQuietAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const m = time.Minute
		p, r := newPartition("0"), &receiver{}
		p.reached = true
		s := silence(t, func(r *rules.Rule) { r.Forget = time.Hour }, r)
		s.config.Rules.Mutes = rules.Mutes{{Property: "mute", Value: "true"}, {UntilAt: "mute"}}
		start := time.Now()
		p.publishWith("oven", "mute", start.Add(40*m).Format(time.RFC3339Nano))
		p.publishWith("fridge", "mute", "true")
		p.publishBody("freezer", "{}")
		s.start(p)
		var times []string
		r.set(func(_ context.Context, a notify.Alert) error {
			what := "silent"
			if a.Forgotten {
				what = "forgotten"
			}
			times = append(times, fmt.Sprint(a.Device, " ", what, " ", time.Since(start).Truncate(m)))
			return nil
		})
		time.Sleep(3 * time.Hour)
		s.end()
		slices.Sort(times)
		if got, want := strings.Join(times, ", "), "freezer forgotten 1h0m0s, freezer silent 15m0s, oven forgotten 1h0m0s, oven silent 40m0s"; got != want {
			t.Errorf("notified of %s; want %s", got, want)
		}
		if n := s.stats.Forgotten.Load(); n != 3 {
			t.Errorf("%d devices are forgotten", n)
		}
	})
}

// Nobody waits for a device of alertworker test.
func TestSilenceOfATest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.start(p)
		p.talk(notify.TestDevice+"-1", 0)
		time.Sleep(time.Hour)
		s.end()
		if got := r.notified(""); got != "" {
			t.Errorf("notified of %s", got)
		}
	})
}

// With a field only messages with a reading there count.
func TestSilenceOfAField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const m = time.Minute
		p, r := newPartition("0"), &receiver{}
		s := silence(t, func(r *rules.Rule) {
			r.Field, r.Valid = "probe.temp", &telemetry.Range{From: -60, To: 60}
		}, r)
		s.start(p)
		p.publishBody("oven", `{"probe":{"temp":5}}`)
		for range 20 {
			time.Sleep(m)
			p.publishBody("oven", `{"probe":{"temp":-127},"hello":1}`)
			p.publishBody("never", `{"hello":1}`)
		}
		time.Sleep(2 * m)
		p.publishBody("oven", `{"probe":{"temp":6}}`)
		time.Sleep(m)
		s.end()
		if got := r.notified(""); got != "alert 1, recovery 42" {
			t.Errorf("notified of %s", got)
		}
	})
}

// What waits for the watermark does not hold up a silence.
func TestSilenceBehindTheWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, down, r := newPartition("0"), &receiver{}, &receiver{}
		p.reached = true
		down.set(func(context.Context, notify.Alert) error { return errBusy })
		s := silence(t, nil, down, r)
		s.config.Rules.Rules = append(s.config.Rules.Rules, rules.Threshold("temperature", threshold, window).Rules...)
		s.start(p)
		p.publish("kiln", 40)
		time.Sleep(time.Minute)
		p.publish("oven", 20)
		time.Sleep(silent + time.Minute)
		s.end()
		if got := r.notified("oven"); got != "alert 2" {
			t.Errorf("notified of %s", got)
		}
	})
}

// An owner that was replaced and did not know of the alarm has read the event that ended it, and its checkpoint has passed it.
func TestSilenceEndedByAFormerOwner(t *testing.T) {
	t.Run("heard", func(t *testing.T) { silenceEndedByAFormerOwner(t, `{"kind":"frozen"}`, "") })
	t.Run("excluded", func(t *testing.T) {
		silenceEndedByAFormerOwner(t, `{"kind":"chilled"}`, "a condition of the rule does not hold")
	})
}

// silenceEndedByAFormerOwner has a frozen oven fall silent and then send a body. excluded is what the recovery says of that.
func silenceEndedByAFormerOwner(t *testing.T, body, excluded string) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		p.generation = "a"
		s := silence(t, frozen, r)
		s.start(p)
		p.publishBody("oven", `{"kind":"frozen"}`)
		time.Sleep(silent + time.Minute)
		open, err := s.ledgers.Read(t.Context(), "0", 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		r.set(func(context.Context, notify.Alert) error { return errBusy })
		p.publishBody("oven", body)
		time.Sleep(2 * time.Minute)
		s.end() // the roster and the checkpoint are at 2
		if _, err := s.ledgers.Write(t.Context(), records.Record{Name: "0", Values: open.Values, Content: open.Content, ETag: records.Any}); err != nil {
			t.Fatal(err)
		}
		r.set(nil)
		next := silence(t, frozen, r)
		next.store, next.ledgers = s.store, s.ledgers
		next.start(p.reopen())
		time.Sleep(2 * time.Minute)
		next.end()
		if got := r.notified("oven"); got != "alert 1, recovery 2" {
			t.Errorf("notified of %s", got)
		}
		for _, a := range r.alerts("oven") {
			if a.Resolved && a.Excluded != excluded {
				t.Errorf("the recovery says %q; want %q", a.Excluded, excluded)
			}
		}
	})
}

// A hub is recreated, and numbers its events from 0: whoever is silent is heard by its first event there.
func TestSilenceEndsWithTheFirstEventOfAnotherHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		p.generation, p.reached = "a", true
		s := silence(t, nil, r)
		s.start(p)
		p.talk("oven", 0)
		pass(silent + time.Minute)
		s.end()
		p = newPartition("0")
		p.generation, p.reached, p.dropped = "b", true, -1
		next := silence(t, nil, r)
		next.store, next.ledgers = s.store, s.ledgers
		next.start(p)
		p.talk("oven", 0)
		pass(2 * time.Minute)
		next.end()
		if got := r.notified("oven"); got != "alert 1, recovery 0" {
			t.Errorf("notified of %s", got)
		}
	})
}

// Where the hub's clock jumps forward, that time counts as passed: who is not heard since is silent, until it is.
func TestSilenceWhenTheHubsClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const m = time.Minute
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.start(p)
		p.talk("oven", 0)
		p.talk("other", m)
		p.mu.Lock()
		p.ahead = time.Hour
		p.mu.Unlock()
		p.talk("other", m)
		time.Sleep(10 * time.Second)
		for range 10 {
			p.talk("oven", m)
			p.talk("other", 0)
		}
		s.end()
		if got := r.notified(""); got != "" { // every device has its time once more
			t.Errorf("notified of %s", got)
		}
	})
}

// An owner whose take-over another one's overtook learns of it, though nothing changes that its ledger would have to hold: the other
// may have opened a silence, of which nobody else would tell the end.
func TestSilenceOfAnOverlappingOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.start(p)
		p.talk("oven", 0)
		if _, _, err := ledger.Open(t.Context(), s.ledgers, "0"); err != nil {
			t.Fatal(err)
		}
		p.talk("oven", 2*time.Minute)
		time.Sleep(10 * time.Second)
		if n := len(s.states()); n != 0 {
			t.Errorf("it still reads %d partitions", n)
		}
		s.end()
	})
}

// So it is if nothing comes any more, and nothing is to be written.
func TestOverlappingOwnerInASilentHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.start(p)
		p.talk("oven", 0)
		pass(silent + 5*time.Minute)
		if _, _, err := ledger.Open(t.Context(), s.ledgers, "0"); err != nil {
			t.Fatal(err)
		}
		pass(30 * time.Second)
		if n := len(s.states()); n != 0 {
			t.Errorf("it still reads %d partitions", n)
		}
		s.end()
	})
}

// The hub's times may go back a little within a partition: an event that was taken just after a deadline does not prove that none
// before it is still to come.
func TestSilenceWhenTheHubsTimesGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		p.lastErr = errors.New("the hub does not answer")
		s := silence(t, nil, r)
		s.start(p)
		p.talk("oven", 0)
		p.talk("other", silent+time.Second)
		time.Sleep(10 * time.Second)
		p.mu.Lock()
		p.ahead = -11*time.Second - 500*time.Millisecond // half a second before the deadline
		p.mu.Unlock()
		p.talk("oven", 0)
		time.Sleep(time.Minute)
		s.end()
		if got := r.notified(""); got != "" {
			t.Errorf("notified of %s", got)
		}
	})
}

// Where the roster is missing, or too old to read on from there, a device may have been heard since what is known of it: its
// deadline starts anew.
func TestSilenceWithoutAGoodRoster(t *testing.T) {
	const m = time.Minute
	for name, old := range map[string]bool{"missing": false, "too old": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				p.generation = "a"
				both := func() *setup {
					s := silence(t, nil, r)
					gone := s.config.Rules.Rules[0]
					gone.Name, gone.Silent = "gone", 60*m
					s.config.Rules.Rules = append(s.config.Rules.Rules, gone)
					return s
				}
				told := func() (all []string) {
					for _, a := range r.alerts("oven") {
						all = append(all, a.Rule)
					}
					return all
				}
				s := both()
				s.start(p)
				p.talk("oven", 0)
				time.Sleep(16 * m)
				kept := map[string]records.Record{}
				for _, name := range []string{"0", "roster/0"} {
					record, err := s.ledgers.Read(t.Context(), name, 1<<20)
					if err != nil {
						t.Fatal(err)
					}
					kept[name] = record
				}
				r.set(func(context.Context, notify.Alert) error { return errBusy })
				p.talk("oven", 0)
				time.Sleep(2 * m)
				s.end()
				if !old {
					if err := s.ledgers.Delete(t.Context(), "roster/0", records.Any); err != nil {
						t.Fatal(err)
					}
					delete(kept, "roster/0")
				}
				for name, record := range kept {
					if _, err := s.ledgers.Write(t.Context(), records.Record{Name: name, Values: record.Values, Content: record.Content, ETag: records.Any}); err != nil {
						t.Fatal(err)
					}
				}
				r.set(nil)
				next := both()
				next.store, next.ledgers = s.store, s.ledgers
				next.start(p.reopen())
				time.Sleep(50 * m) // since the first event more than 60 minutes, since the second one less
				if got := told(); !slices.Equal(got, []string{"offline"}) {
					t.Errorf("notified by %s", got)
				}
				time.Sleep(12 * m)
				next.end()
				if got := told(); !slices.Equal(got, []string{"offline", "gone"}) {
					t.Errorf("notified by %s", got)
				}
			})
		})
	}
}

// An alarm about readings ends with what is expected of its device, and whoever was alerted hears that nobody watches it
// any more.
func TestHotDeviceIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, func(r *rules.Rule) { r.Forget = 40 * time.Minute }, r)
		hot := rules.Threshold("temperature", threshold, window).Rules[0]
		hot.Name, hot.Resolved = "hot", true
		s.config.Rules.Rules = append(s.config.Rules.Rules, hot)
		s.start(p)
		p.publish("oven", threshold+1)
		time.Sleep(2 * time.Hour)
		alarms := s.device("oven").Alarms
		s.end()

		last := map[string]notify.Alert{}
		for _, a := range r.alerts("oven") {
			last[a.Rule] = a
		}
		for _, rule := range []string{"hot", "offline"} {
			if a := last[rule]; !a.Resolved || !a.Forgotten {
				t.Errorf("of %s the last is %+v", rule, a)
			}
		}
		if len(alarms) > 0 {
			t.Errorf("it still has %+v", alarms)
		}
	})
}

// A rule expects to hear from more devices than before. One of those that it expected before, and that died then, is
// reported all the same.
func TestDeadBeforeOnlyChanges(t *testing.T) {
	const m = time.Minute
	for _, tt := range []struct {
		name string
		next []string
	}{{"the same", []string{"frozen"}}, {"one more value", []string{"frozen", "fresh"}}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				only := func(values ...string) func(*rules.Rule) {
					return func(r *rules.Rule) { r.Only = []rules.Condition{{Name: "kind", Values: values}} }
				}
				p, r := newPartition("0"), &receiver{}
				s := silence(t, only("frozen"), r)
				s.start(p)
				p.publishBody("dead", `{"kind":"frozen"}`)
				p.publishBody("alive", `{"kind":"frozen"}`)
				pass(5 * m)
				s.end()
				next := silence(t, only(tt.next...), r)
				next.store, next.ledgers = s.store, s.ledgers
				q := p.reopen()
				next.start(q)
				for range 24 * 60 {
					q.publishBody("alive", `{"kind":"frozen"}`)
					pass(m)
				}
				next.end()
				if got := r.notified("dead"); got != "alert 1" {
					t.Errorf("a day later people were notified of %q", got)
				}
			})
		})
	}
}

// A device that is silent when its quiet time or a mute ends is reported then, also if that is longer than forget.
func TestQuietForLongerThanForget(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name         string
		quiet, muted time.Duration
	}{
		{"quiet for less", 5 * day, 0}, {"quiet for more", 8 * day, 0}, {"muted for less", 0, 5 * day}, {"muted for more", 0, 8 * day},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				s := silence(t, nil, r)
				s.config.Rules.Mutes = rules.Mutes{{UntilAt: "quietUntil"}}
				start := time.Now()
				s.config.Mutes = func() rules.Mutes {
					return rules.Mutes{{Device: "oven", From: start, Until: start.Add(tt.muted)}}
				}
				s.start(p)
				properties := map[string]any{}
				if tt.quiet > 0 {
					properties["quietUntil"] = start.Add(tt.quiet).UTC().Format(time.RFC3339)
				}
				p.publishProperties("oven", "{}", properties)
				for range 10 * day / (10 * time.Minute) {
					p.publishBody("other", "{}")
					pass(10 * time.Minute)
				}
				s.end()
				if got := r.notified("oven"); !strings.HasPrefix(got, "alert 1") {
					t.Errorf("two days after that people were notified of %q", got)
				}
			})
		})
	}
}

// A rule about silence is removed, and comes back an hour later. Its alarm ended with a recovery meanwhile. The device is
// silent all the time, and people are told again, whether something else comes to its partition or not.
func TestSilenceRuleComesBack(t *testing.T) {
	const m = time.Minute
	for _, tt := range []struct {
		name   string
		events bool // of another device, all the time
		beside bool // another rule about silence goes on
	}{
		{"others send", true, false},
		{"others send, another rule goes on", true, true},
		{"nothing else comes", false, false},
		{"nothing else comes, another rule goes on", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				beside := rules.Rule{
					Name: "gone", Window: window, Resolved: true, Forget: rules.DefaultForget, Silent: 72 * time.Hour, Levels: []rules.Level{{}},
				}
				owner := func(rule bool) *setup {
					s := silence(t, nil, r)
					offline := s.config.Rules.Rules[0]
					s.config.Rules.Rules = nil
					if rule {
						s.config.Rules.Rules = append(s.config.Rules.Rules, offline)
					}
					if tt.beside {
						s.config.Rules.Rules = append(s.config.Rules.Rules, beside)
					}
					if len(s.config.Rules.Rules) == 0 {
						s.config.Rules = rules.Threshold("temperature", threshold, window)
					}
					return s
				}
				play := func(d time.Duration) {
					for range d / m {
						if tt.events {
							p.publishBody("other", "{}")
						}
						pass(m)
					}
				}
				last := owner(true)
				last.start(p)
				p.publishBody("dead", "{}")
				play(30 * m)
				last.end()
				for _, rule := range []bool{false, true} {
					next := owner(rule)
					next.store, next.ledgers = last.store, last.ledgers
					p = p.reopen()
					next.start(p)
					if !rule {
						play(60 * m)
					} else {
						play(24 * 60 * m)
					}
					next.end()
					last = next
				}
				if got := r.notified("dead"); !strings.HasPrefix(got, "alert 1, recovery ") || !strings.Contains(got, ", alert ") {
					t.Errorf("people were notified of %s", got)
				}
			})
		})
	}
}

// A silence that waits for its receiver is sent only if it is certain once more that nothing of the device has come, and the
// hub is asked for that although nothing comes to the partition; also by the next owner, and also about an incident.
func TestSilenceIsProvenBeforeItIsSent(t *testing.T) {
	const m = time.Minute
	for _, per := range []string{"", "gateway"} {
		for _, takenOver := range []bool{false, true} {
			t.Run(fmt.Sprint(per, takenOver), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, r := newPartition("1"), &receiver{answer: failing(errBusy)}
					p.reached = true
					configure := func() *setup {
						return silence(t, func(r *rules.Rule) { r.Per = per }, r)
					}
					s := configure()
					s.start(p)
					defer func() { s.end() }()
					p.publishWith("oven", "gateway", "gw-12")
					pass(silent + m)
					if len(s.open()) != 1 || r.asked() == 0 {
						t.Fatalf("%d alarms are open, and %d attempts were made", len(s.open()), r.asked())
					}
					hubFails := func(err error) {
						p.mu.Lock()
						defer p.mu.Unlock()
						p.lastErr = err
					}
					if takenOver {
						s.end()
						next := configure()
						next.store, next.ledgers, s = s.store, s.ledgers, next
						p = p.reopen()
					}
					hubFails(errors.New("the hub does not answer"))
					if takenOver {
						s.start(p)
					}
					pass(10 * m) // nobody knows any more
					r.set(nil)
					pass(10 * m)
					if got := r.notified("oven"); got != "" {
						t.Errorf("notified of %s, and events may have come", got)
					}
					hubFails(nil)
					pass(2 * m)
					if got := r.notified("oven"); got != "alert 1" {
						t.Errorf("notified of %s", got)
					}
				})
			})
		}
	}
}

// refusing is a store that accepts no ledger from one time until another.
type refusing struct {
	records.Store
	from, until time.Time
}

func (s *refusing) Write(ctx context.Context, r records.Record) (etag string, err error) {
	if now := time.Now(); r.Name == "0" && now.After(s.from) && now.Before(s.until) {
		return "", errors.New("503 the store refuses")
	}
	return s.Store.Write(ctx, r)
}

// A silence that the ledger could not hold waits until one does, and is sent then.
func TestSilenceThatTheLedgerDidNotHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := silence(t, nil, r)
		s.ledgers = &refusing{Store: s.ledgers, from: time.Now().Add(time.Minute), until: time.Now().Add(silent + 2*time.Minute)}
		s.start(p)
		defer s.end()
		p.talk("oven", 0)
		pass(silent + time.Minute)
		if got := r.notified("oven"); got != "" {
			t.Errorf("notified of %s, and no ledger holds it", got)
		}
		pass(5 * time.Minute)
		if got := r.notified("oven"); got != "alert 1" {
			t.Errorf("notified of %q", got)
		}
	})
}

// Of an incident of which nobody wants to hear nothing has to be proven.
func TestNobodyWantsAnIncidentOfSilences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("1")
		p.reached = true
		s := silence(t, func(r *rules.Rule) { r.Per, r.Levels[0].Name = "gateway", "x" }, &receiver{only: notify.Filter{Rules: []string{"other"}}, level: "x"})
		var calls atomic.Int64
		s.ledgers = records.Around(s.ledgers, func(ctx context.Context, _ records.Op, _ string, call func(context.Context) error) error {
			calls.Add(1)
			return call(ctx)
		})
		s.start(p)
		p.publishWith("oven", "gateway", "gw-12")
		pass(silent + 5*time.Minute)
		before := calls.Load()
		pass(time.Hour)
		if n := calls.Load() - before; n > 0 {
			t.Errorf("%d calls to the store in an hour", n)
		}
		s.end()
	})
}
