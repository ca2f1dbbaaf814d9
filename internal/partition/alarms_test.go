package partition_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/lease"
	"alertworker/internal/lease/memlease"
	"alertworker/internal/ledger"
	"alertworker/internal/notify"
	partitions "alertworker/internal/partition"
	"alertworker/internal/records"
	"alertworker/internal/rules"
	"alertworker/internal/telemetry"
)

// notified returns what r took of a device: for each alert and recovery the level, what it is
// and the sequence number of its reading.
func (r *receiver) notified(device string) string {
	var all []string
	for _, a := range r.alerts(device) {
		what := "alert"
		if a.Resolved {
			what = "recovery"
		}
		all = append(all, strings.TrimSpace(fmt.Sprint(a.Level, " ", what, " ", a.Sequence)))
	}
	return strings.Join(all, ", ")
}

// with returns a setup whose one rule has been changed.
func with(t *testing.T, change func(*rules.Rule), receivers ...*receiver) *setup {
	s := newSetup(t, receivers...)
	r := &s.config.Rules.Rules[0]
	r.Resolved = true
	if change != nil {
		change(r)
	}
	return s
}

// say publishes messages of a device every step.
func (p *partition) say(device string, step time.Duration, bodies ...string) {
	for _, body := range bodies {
		p.publishBody(device, body)
		synctest.Wait()
		time.Sleep(step)
	}
}

// feed publishes values of a device every step.
func (p *partition) feed(device string, step time.Duration, values ...float64) {
	for _, v := range values {
		p.publish(device, v)
		synctest.Wait()
		time.Sleep(step)
	}
}

func TestAlarms(t *testing.T) {
	const warm, hot = threshold - 2, threshold + 5 // between clear and limit, over the limit
	const cool = threshold - 10
	clear := func(r *rules.Rule) { r.Levels[0].Clear = threshold - 5 }
	levels := func(r *rules.Rule) {
		r.Levels = []rules.Level{{Name: "warning", Limit: threshold, Clear: threshold}, {Name: "critical", Limit: threshold + 50, Clear: threshold + 50}}
	}
	apart := func(r *rules.Rule) { levels(r); r.Levels[0].Clear = threshold - 5 }
	longer := func(r *rules.Rule) {
		levels(r)
		r.Levels[1].Limit, r.Levels[1].Clear = threshold, threshold
		r.Levels[0].For, r.Levels[1].For = 20*time.Second, time.Minute
	}
	settling := func(r *rules.Rule) { r.ClearedFor = time.Minute }
	const critical = threshold + 60
	for _, tt := range []struct {
		name   string
		change func(*rules.Rule)
		step   time.Duration
		values []float64
		want   string
	}{
		{"resolved when the window is over", nil, 10 * time.Second, []float64{hot, cool}, "alert 1, recovery 2"},
		{"resolved at once after the window", nil, 90 * time.Second, []float64{hot, cool}, "alert 1, recovery 2"},
		{"nothing to resolve", nil, 10 * time.Second, []float64{cool, cool}, ""},
		{"flapping within the window is one alert", nil, 5 * time.Second, []float64{hot, cool, hot, cool, hot, cool}, "alert 1, recovery 6"},
		{"hot again before the resolved", nil, 5 * time.Second, []float64{hot, cool, hot}, "alert 1"},
		{"an alert follows a resolved at once", nil, 70 * time.Second, []float64{hot, cool, hot}, "alert 1, recovery 2, alert 3"},
		{"between clear and limit nothing ends", clear, 70 * time.Second, []float64{hot, warm, warm}, "alert 1"},
		{"below clear it ends", clear, 70 * time.Second, []float64{hot, warm, cool}, "alert 1, recovery 3"},
		{"a reminder while it lasts", clear, 35 * time.Second, []float64{hot, hot, hot, hot, cool}, "alert 1, alert 3, recovery 5"},
		{"not for long enough", func(r *rules.Rule) { r.Levels[0].For = time.Minute }, 20 * time.Second, []float64{hot, hot, cool, hot, hot, cool}, ""},
		{"for long enough", func(r *rules.Rule) { r.Levels[0].For = time.Minute }, 20 * time.Second, []float64{hot, hot, hot, hot, hot, cool}, "alert 4, recovery 6"},
		{"far apart is sustained", func(r *rules.Rule) { r.Levels[0].For = time.Minute }, time.Hour, []float64{hot, hot}, "alert 2"},
		{"only sustained", func(r *rules.Rule) { r.Levels[0].For, r.Resolved = time.Minute, false }, 20 * time.Second, []float64{hot, hot, hot, hot, cool}, "alert 4"},
		{"a higher level keeps the lower one quiet", levels, 70 * time.Second, []float64{hot, critical, critical, hot, cool}, "warning alert 1, critical alert 2, critical alert 3, warning alert 4, critical recovery 4, warning recovery 5"},
		{"the milder level is still open when the higher one ends, though no reading reaches it any more", apart, 70 * time.Second, []float64{critical, warm, warm, cool}, "critical alert 1, critical recovery 2, warning alert 2, warning recovery 4"},
		{"the milder level was notified before", apart, 70 * time.Second, []float64{hot, critical, warm}, "warning alert 1, critical alert 2, warning alert 3, critical recovery 3"},
		{"the milder level was notified within its window", apart, 20 * time.Second, []float64{hot, critical, warm}, "warning alert 1, critical alert 2, critical recovery 3"},
		{"each level has a duration of its own", func(r *rules.Rule) { levels(r); r.Levels[0].For = time.Minute }, 20 * time.Second, []float64{hot, critical, hot, hot, hot, cool}, "critical alert 2, critical recovery 3, warning alert 4, warning recovery 6"},
		{"the higher level lasts longer", func(r *rules.Rule) { levels(r); r.Levels[1].For = time.Minute }, 70 * time.Second, []float64{critical, critical, hot, cool}, "warning alert 1, critical alert 2, critical recovery 3, warning alert 3, warning recovery 4"},
		{
			"the same limit for longer is the higher level", longer, 20 * time.Second, []float64{hot, hot, hot, hot, hot, cool},
			"warning alert 2, critical alert 4, critical recovery 6, warning recovery 6",
		},
		{"not clear for long enough", settling, 20 * time.Second, []float64{hot, cool, cool, hot, cool, cool}, "alert 1, alert 4"},
		{"clear for long enough", settling, 20 * time.Second, []float64{hot, cool, cool, cool, cool, hot}, "alert 1, recovery 5, alert 6"},
		{"clear and far apart", settling, time.Hour, []float64{hot, cool, cool}, "alert 1, recovery 3"},
		{
			"the milder level is open while the higher one is not clear for long enough", func(r *rules.Rule) { levels(r); settling(r) },
			35 * time.Second, []float64{critical, hot, hot, hot, cool, cool, cool},
			"critical alert 1, critical recovery 4, warning alert 4, warning recovery 7",
		},
		{"straight to the higher level", levels, 70 * time.Second, []float64{critical, cool}, "critical alert 1, critical recovery 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := newPartition("0"), &receiver{}
				s := with(t, tt.change, r)
				s.start(p)
				p.feed("oven", tt.step, tt.values...)
				time.Sleep(5 * time.Minute)
				s.end()
				if got := r.notified("oven"); !sameSet(got, tt.want) {
					t.Errorf("notified of %s; want %s", got, tt.want)
				}
				if n := int64(len(tt.values)); p.checkpoint() != n {
					t.Errorf("checkpoint %d of %d", p.checkpoint(), n)
				}
			})
		})
	}
}

// sameSet compares what was told, in any order of what was told at the same time.
func sameSet(got, want string) bool {
	if strings.Count(got, ",") != strings.Count(want, ",") {
		return false
	}
	for _, part := range strings.Split(want, ", ") {
		if !strings.Contains(got+",", part+",") {
			return false
		}
	}
	return true
}

func TestResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) { r.Levels[0].Clear = 25 }, r)
		start := time.Now()
		var at []time.Duration
		r.answer = func(context.Context, notify.Alert) error { at = append(at, time.Since(start)); return nil }
		s.start(p)
		p.feed("oven", 10*time.Second, 40, 20)
		time.Sleep(2 * time.Minute)
		s.end()
		all := r.alerts("oven")
		if len(all) != 2 {
			t.Fatalf("%+v", all)
		}
		a, b := all[0], all[1]
		if b.ID != fmt.Sprintf("ns/hub/0/2/%d/resolved", start.Add(10*time.Second).UnixMilli()) || b.Source != a.Source || b.Token <= a.Token {
			t.Errorf("resolved %+v after %+v", b, a)
		}
		if b.Temperature != 20 || b.Threshold != 25 || !b.Since.Equal(start) || !a.Since.Equal(start) || !b.Enqueued.Equal(start.Add(10*time.Second)) {
			t.Errorf("resolved %+v after %+v", b, a)
		}
		if at[1]-at[0] < window || at[1]-at[0] > window+2*time.Second {
			t.Errorf("resolved %v after the alert", at[1]-at[0])
		}
	})
}

// A new owner goes on where the last one stopped, whatever state the alarm was in.
func TestTakeOver(t *testing.T) {
	sustained := func(r *rules.Rule) { r.Levels[0].For = time.Minute }
	settling := func(r *rules.Rule) { r.ClearedFor = time.Minute }
	for _, tt := range []struct {
		name          string
		change        func(*rules.Rule)
		before, after []float64
		pause         time.Duration
		want          string
	}{
		{"pending", sustained, []float64{40, 40}, []float64{40}, 50 * time.Second, "alert 3"},
		{"pending and cool", sustained, []float64{40, 40}, []float64{20, 40}, 30 * time.Second, ""},
		{"open", nil, []float64{40}, []float64{20}, 0, "alert 1, recovery 2"},
		{"open with for", sustained, []float64{40, 40, 40, 40, 40, 40, 40}, []float64{20}, 0, "alert 7, recovery 8"},
		{"clear", settling, []float64{40, 20, 20}, []float64{20}, 50 * time.Second, "alert 1, recovery 4"},
		{"clear and hot again", settling, []float64{40, 20, 20}, []float64{40, 20}, 50 * time.Second, "alert 1, alert 4"},
		{"owed", nil, []float64{40, 20}, nil, 0, "alert 1, recovery 2"},
		{"owed and hot again", nil, []float64{40, 20}, []float64{40}, 0, "alert 1"},
		{"normal", nil, []float64{20}, []float64{20}, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, crash := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					p, r := newPartition("0"), &receiver{}
					s := with(t, tt.change, r)
					s.start(p)
					p.feed("oven", 10*time.Second, tt.before...)
					if crash {
						p.fail(errors.New("the process is gone"))
					}
					s.end()
					next := with(t, tt.change, r)
					next.store, next.ledgers = s.store, s.ledgers
					p = p.reopen()
					time.Sleep(tt.pause)
					next.start(p)
					p.feed("oven", 10*time.Second, tt.after...)
					time.Sleep(3 * time.Minute)
					next.end()
					if got := r.notified("oven"); got != tt.want {
						t.Errorf("crash %v: notified of %s; want %s", crash, got, tt.want)
					}
				})
			}
		})
	}
}

func (p *partition) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = err
}

// A partition whose ledger cannot be read is not read, and says so until it can.
func TestUnreadableLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		if _, err := s.ledgers.Write(t.Context(), records.Record{Name: "0", Content: []byte("garbage")}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s.start(p)
		p.feed("oven", time.Minute, 40)
		state := s.states()[0]
		if state.Ledger.Err == nil || !state.Ledger.Since.Equal(began) || state.Read.Sequence != 0 || len(r.alerts("")) != 0 {
			t.Errorf("%+v, alerts %v", state, r.alerts(""))
		}
		s.end() // as it waits
		wantCheckpoint(t, p, 0)

		next := with(t, nil, r)
		next.ledgers, s = s.ledgers, next
		p = p.reopen()
		s.start(p)
		pass(time.Minute)
		if err := s.ledgers.Delete(t.Context(), "0", records.Any); err != nil {
			t.Fatal(err)
		}
		p.hold(true)
		pass(2 * time.Minute)
		if state := s.states()[0].Ledger; state != (partitions.LedgerState{Writes: 1}) {
			t.Errorf("once it can be read: %+v", state)
		}
		p.hold(false)
		p.feed("kiln", interval, 20)
		s.end()
		wantCheckpoint(t, p, 2)
	})
}

// A partition that ends while its ledger is being read leaves everything as it is.
func TestEndWhileTheLedgerIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		s := silence(t, nil)
		written := 0
		s.ledgers = records.Around(s.ledgers, func(ctx context.Context, op records.Op, _ string, call func(context.Context) error) error {
			if op == records.OpWrite {
				written++
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		s.start(p)
		p.publish("oven", hot)
		pass(time.Second)
		s.end()
		if p.checkpoint() != 0 || written != 0 {
			t.Errorf("the checkpoint is at %d, and there were %d writes", p.checkpoint(), written)
		}
	})
}

// A ledger that cannot be written says so, and since when, until it can.
func TestUnwritableLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const m = time.Minute
		p := newPartition("0")
		s := with(t, nil)
		start := time.Now()
		s.ledgers = &refusing{Store: s.ledgers, from: start.Add(m), until: start.Add(5 * m)}
		s.start(p)
		defer s.end()
		pass(2 * m)
		for value := range 4 {
			p.feed("oven", 30*time.Second, []float64{hot, cool}[value%2])
		}
		if state := s.states()[0].Ledger; state.Err == nil || state.Since.Before(start.Add(2*m)) || state.Since.After(start.Add(2*m+interval)) {
			t.Errorf("while it cannot be written: %+v", state)
		}
		pass(2 * m)
		if state := s.states()[0].Ledger; state.Err != nil || !state.Since.IsZero() {
			t.Errorf("once it can be: %+v", state)
		}
	})
}

// An owner that has lost its ledger tells nobody that a device is normal again: the new owner
// may have read on.
func TestLostLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		s.start(p)
		p.feed("oven", 10*time.Second, 40, 20)
		if _, _, err := ledger.Open(t.Context(), s.ledgers, "0"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		s.work.Wait() // it has noticed
		if got := r.notified("oven"); got != "alert 1" {
			t.Errorf("notified of %s", got)
		}
		s.end()
	})
}

// Nor does it read on, if nobody is told of anything: it notices when it writes the ledger.
func TestLostLedgerIsNoticedAtAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		s := with(t, func(r *rules.Rule) { r.Levels[0].For = time.Hour })
		s.start(p)
		p.feed("oven", 10*time.Second, hot)
		if _, _, err := ledger.Open(t.Context(), s.ledgers, "0"); err != nil {
			t.Fatal(err)
		}
		p.feed("kiln", 10*time.Second, hot)
		if n := len(s.states()); n != 0 {
			t.Errorf("it still reads %d partitions", n)
		}
		s.end()
	})
}

// What is owed stays owed until every receiver has settled it.
func TestOwedToEachReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, a, b := newPartition("0"), &receiver{}, &receiver{}
		s := with(t, nil, a, b)
		s.start(p)
		p.feed("oven", 10*time.Second, 40, 20)
		b.set(func(context.Context, notify.Alert) error { return errBusy })
		time.Sleep(10 * time.Minute)
		if got := a.notified("oven") + "; " + b.notified("oven"); got != "alert 1, recovery 2; alert 1" {
			t.Errorf("notified of %s", got)
		}
		if n := s.counts()[0]; n != (partitions.AlarmCounts{Rule: "temperature", Due: 1}) {
			t.Errorf("%+v", n)
		}
		s.end()
		next := with(t, nil, a, b)
		next.store, next.ledgers = s.store, s.ledgers
		p = p.reopen()
		b.set(nil)
		next.start(p)
		time.Sleep(10 * time.Minute)
		if got := a.notified("oven") + "; " + b.notified("oven"); got != "alert 1, recovery 2; alert 1, recovery 2" {
			t.Errorf("notified of %s", got)
		}
		if n := next.counts()[0]; n != (partitions.AlarmCounts{Rule: "temperature"}) {
			t.Errorf("%+v", n)
		}
		next.end()
		if c := readLedger(t, next.ledgers); len(c.Alarms) != 0 {
			t.Errorf("the ledger has %+v", c.Alarms)
		}
	})
}

func readLedger(t *testing.T, store records.Store) ledger.Content {
	t.Helper()
	_, c, err := ledger.Open(t.Context(), store, "0")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Rules with state that were off for a while: what was pending is forgotten, what was open
// stays open.
func TestStateTurnedOffAndOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		on := func(r *rules.Rule) { r.Levels[0].For = time.Minute }
		s := with(t, on, r)
		s.start(p)
		for range 8 {
			p.feed("open", 5*time.Second, 40)
			p.feed("cool", 5*time.Second, 20)
		}
		p.feed("pending", time.Second, 40)
		s.end()

		off := newSetup(t, r)
		off.store, off.ledgers = s.store, s.ledgers
		p = p.reopen()
		off.start(p)
		p.feed("cool", time.Second, 20)
		off.end()

		again := with(t, on, r)
		again.store, again.ledgers = s.store, s.ledgers
		p = p.reopen()
		again.start(p)
		time.Sleep(2 * time.Minute)
		p.feed("pending", time.Second, 40)
		p.feed("open", time.Second, 20)
		time.Sleep(2 * time.Minute)
		again.end()
		if got := r.notified("pending") + "; " + r.notified("open"); got != "; alert 13, recovery 20" {
			t.Errorf("notified of %s", got)
		}
	})
}

// A rule had no durations for a while, as another one had: what was pending before is forgotten, also in the ledger.
func TestStateOfOneRuleTurnedOffAndOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		owner := func(sustained time.Duration, from *setup) *setup {
			s := with(t, func(r *rules.Rule) { r.Name, r.Resolved, r.Levels[0].For = "hot", false, sustained }, r)
			other := rules.Threshold("humidity", 90, window).Rules[0]
			other.Name, other.Resolved = "humid", true
			s.config.Rules.Rules = append(s.config.Rules.Rules, other)
			if from != nil {
				s.store, s.ledgers = from.store, from.ledgers
				p = p.reopen()
			}
			s.start(p)
			return s
		}
		s := owner(time.Minute, nil)
		p.feed("oven", time.Second, hot)
		s.end()
		s = owner(0, s)
		pass(time.Minute)
		s.end()
		s = owner(time.Minute, s)
		p.feed("oven", time.Second, hot)
		s.end()
		if got := r.notified("oven"); got != "" {
			t.Errorf("notified of %s, which has lasted for a second", got)
		}
	})
}

// A rule that is not there any more resolves what it had opened.
func TestRemovedRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, func(r *rules.Rule) { r.Name, r.Levels[0].Name = "hot", "critical" }, r)
		s.start(p)
		p.feed("oven", 10*time.Second, 40)
		s.end()
		next := with(t, nil, r)
		next.store, next.ledgers = s.store, s.ledgers
		p = p.reopen()
		next.start(p)
		p.feed("kiln", 10*time.Second, 20)
		time.Sleep(9 * time.Minute)
		if got := r.notified("oven"); got != "critical alert 1" {
			t.Errorf("notified of %s before it is sure that the rule is removed", got)
		}
		time.Sleep(2 * time.Minute)
		next.end()
		if got := r.notified("oven"); got != "critical alert 1, critical recovery 2" {
			t.Errorf("notified of %s", got)
		}
		if all := r.alerts("oven"); all[1].Source != "/ns/hub/hot/critical" || all[1].Rule != "hot" ||
			!strings.HasSuffix(all[1].ID, "/hot/critical/oven/resolved") {
			t.Errorf("%+v", all[1])
		}
		if c := readLedger(t, next.ledgers); len(c.Alarms) != 0 {
			t.Errorf("the ledger has %+v", c.Alarms)
		}
	})
}

// Whoever was alerted gets a recovery, whatever it asks for by then: a receiver cannot go on to ask for a rule that is
// not configured any more, so that its filter changes with the rules.
func TestRecoveryAfterAFilterHasChanged(t *testing.T) {
	for name, test := range map[string]struct {
		before, after notify.Filter
		removed       bool
	}{
		"no filter":                       {notify.Filter{}, notify.Filter{}, true},
		"rule=hot|cold, then rule=cold":   {notify.Filter{Rules: []string{"hot", "cold"}}, notify.Filter{Rules: []string{"cold"}}, true},
		"the rule stays, the filter goes": {notify.Filter{Rules: []string{"hot", "cold"}}, notify.Filter{Rules: []string{"cold"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				named := func(name string) func(*rules.Rule) {
					return func(r *rules.Rule) { r.Name, r.Levels[0].Name = name, "critical" }
				}
				p, r := newPartition("0"), &receiver{level: "critical", only: test.before}
				s := with(t, named("hot"), r)
				s.start(p)
				p.feed("oven", 10*time.Second, 40)
				s.end()
				r.only = test.after
				rule := "cold"
				if !test.removed {
					rule = "hot"
				}
				next := with(t, named(rule), r)
				next.store, next.ledgers = s.store, s.ledgers
				p = p.reopen()
				next.start(p)
				p.feed("kiln", 10*time.Second, 20)
				time.Sleep(12 * time.Minute)
				if !test.removed {
					p.feed("oven", 10*time.Second, 20)
					time.Sleep(2 * time.Minute)
				}
				next.end()
				all := r.alerts("oven")
				if len(all) != 2 || !all[1].Resolved {
					t.Errorf("notified of %s", r.notified("oven"))
				}
			})
		})
	}
}

// An owner dies before it writes that it has alerted, and the next one, which reads that again, alerts another receiver.
// Both get the recovery.
func TestRecoveryAfterACrashAndAnotherFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, a, b := newPartition("0"), &receiver{level: "critical"}, &receiver{level: "critical", only: notify.Filter{Rules: []string{"none"}}}
		named := func(r *rules.Rule) { r.Name, r.Levels[0].Name = "hot", "critical" }
		s := with(t, named, a, b)
		s.start(p)
		p.publish("oven", 40)
		pass(time.Second)
		s.end()
		a.only, b.only = b.only, a.only
		next := with(t, named, a, b)
		next.store, next.ledgers = s.store, &records.Memory{} // as before the alert
		p = p.reopen()
		p.next, p.written, p.resumed = 0, telemetry.Checkpoint{}, telemetry.Checkpoint{}
		next.start(p)
		p.feed("oven", 10*time.Second, 20)
		time.Sleep(5 * time.Minute)
		next.end()
		if got := a.notified("oven"); got != "critical alert 1, critical recovery 2" {
			t.Errorf("who was alerted was notified of %s", got)
		}
	})
}

// During a rollout a partition may go back to a replica that does not have a rule yet: it leaves
// the rule's alarms as they are, for the next that has it.
func TestRolloutOfARule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		hot := func(r *rules.Rule) { r.Name = "hot" }
		first := with(t, hot, r)
		first.start(p)
		p.feed("oven", 10*time.Second, 40)
		first.end()
		for _, change := range []func(*rules.Rule){nil, hot} {
			next := with(t, change, r)
			next.store, next.ledgers = first.store, first.ledgers
			p = p.reopen()
			next.start(p)
			p.feed("oven", 10*time.Second, 29)
			p.feed("kiln", 5*time.Minute, 20)
			next.end()
		}
		if got := r.notified("oven"); got != "alert 1, recovery 4" {
			t.Errorf("notified of %s", got)
		}
	})
}

// However many devices flap, a partition's ledger is written at most once in
// CheckpointInterval, and not while nothing changes.
func TestLedgerWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		devices := 200
		if testing.Short() {
			devices = 20
		}
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		s.start(p)
		for minute := range 60 {
			for d := range devices {
				p.publish(fmt.Sprint("device-", d), float64(20+40*((minute+d)%2)))
				if d%(devices/10) == 0 {
					time.Sleep(6 * time.Second)
				}
			}
		}
		state := s.states()[0]
		counts := s.counts()[0]
		t.Logf("%d devices that go over the limit and back every minute: %d writes of the ledger in an hour; %d alarms are open, %d resolved are owed",
			devices, state.Ledger.Writes, counts.Open, counts.Due)
		if most := int64(time.Hour/interval) + 1; state.Ledger.Writes > most || state.Ledger.Writes < most/3 {
			t.Errorf("%d writes, want at most %d", state.Ledger.Writes, most)
		}
		time.Sleep(10 * time.Minute)
		before := s.states()[0].Ledger.Writes
		for range 100 {
			p.feed("cool", 10*time.Second, 20)
		}
		if n := s.states()[0].Ledger.Writes; n != before {
			t.Errorf("%d writes while nothing changed", n-before)
		}
		s.end()
	})
}

// A hub that was created anew is read from some time before the old one's end: its first events
// may be enqueued before the ledger's position, and nobody has read them.
func TestAnotherHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		p := newPartition("0") // of the new hub
		old.generation, p.generation = "old", "new"
		s.start(old)
		p.publish("kiln", 40)
		old.feed("oven", time.Second, 40, 40, 40)
		time.Sleep(2 * window)
		s.end()

		for range 2 { // the first owner is killed before it has read on
			next := with(t, nil, r)
			next.store, next.ledgers = s.store, s.ledgers
			next.start(p)
			p.feed("oven", 10*time.Second, 40)
			next.end()
			p = p.reopen()
		}
		if c := readLedger(t, s.ledgers); c.Position.Sequence != 1 || c.Position.Generation != "new" || len(c.Alarms) != 2 || p.checkpoint() != 3 {
			t.Errorf("the ledger has %+v, the checkpoint is %d", c, p.checkpoint())
		}
		if got := r.notified("kiln"); got != "alert 1" {
			t.Errorf("notified of %s of the new hub's first event", got)
		}
	})
}

// A hub without a generation that starts over, as its numbers say, is read from its first event, whatever the ledger of the
// former one has.
func TestHubThatStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		s.start(p)
		p.feed("oven", interval, cool, hot, cool, hot)
		s.end()
		p = newPartition("0")
		p.over = true
		next := with(t, nil, r)
		next.store, next.ledgers = s.store, s.ledgers
		next.start(p)
		p.feed("kiln", interval, hot)
		next.end()
		if got := r.notified("kiln"); got != "alert 1" {
			t.Errorf("notified of %s", got)
		}
	})
}

// slowClaims is a store whose claims take a while from some time on.
type slowClaims struct {
	lease.Store
	take atomic.Int64 // in ns
}

func (l *slowClaims) Acquire(
	ctx context.Context,
	key string,
	ttl time.Duration,
	next func(lease.Record) (string, error),
) (lease.Lease, error) {
	time.Sleep(time.Duration(l.take.Load()))
	return l.Store.Acquire(ctx, key, ttl, next)
}

// A recovery for which its key is being claimed when the device is hot again is not sent.
func TestRecoveryThatIsNotDueAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r, store := newPartition("0"), &receiver{}, &slowClaims{Store: memlease.New()}
		s := with(t, nil, r)
		s.store = store
		s.start(p)
		defer s.end()
		p.publish("oven", hot)
		pass(window + time.Second)
		store.take.Store(int64(3 * time.Second))
		p.publish("oven", cool)
		pass(time.Second)
		p.publish("oven", hot)
		pass(time.Minute)
		if got := r.notified("oven"); got != "alert 1, alert 3" {
			t.Errorf("notified of %s", got)
		}
		wantCheckpoint(t, p, 3)
	})
}

// slowOwner is a store that takes a second to say who the owner is.
type slowOwner struct {
	records.Store
	asked atomic.Int64
}

func (s *slowOwner) Stat(ctx context.Context, name string) (records.Record, error) {
	s.asked.Add(1)
	time.Sleep(time.Second)
	return s.Store.Stat(ctx, name)
}

// A recovery that waits for the ledger is sent when that answers again.
func TestRecoveryIsSentWhenTheLedgerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		var down atomic.Bool
		var answered time.Time
		s.ledgers = records.Around(s.ledgers, func(ctx context.Context, op records.Op, _ string, call func(context.Context) error) error {
			if op == records.OpStat && down.Load() {
				return errors.New("503")
			}
			if op == records.OpStat && answered.IsZero() {
				answered = time.Now()
			}
			return call(ctx)
		})
		s.start(p)
		defer s.end()
		p.feed("oven", 2*window, hot)
		down.Store(true)
		p.feed("oven", 25*time.Second, cool)
		answered = time.Time{}
		down.Store(false)
		for began := time.Now(); len(r.alerts("oven")) < 2 && time.Since(began) < time.Minute; {
			pass(100 * time.Millisecond)
		}
		if late := time.Since(answered); late > 200*time.Millisecond {
			t.Errorf("sent %v after the answer", late)
		}
	})
}

// One answer to whose the partition is serves all recoveries that wait for it.
func TestOwnerIsAskedOnceForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		ledgers := &slowOwner{Store: s.ledgers}
		s.ledgers = ledgers
		s.start(p)
		defer s.end()
		const devices = 50
		for i := range devices {
			p.publish(fmt.Sprint("oven-", i), hot)
		}
		pass(2 * window)
		before := ledgers.asked.Load()
		for i := range devices {
			p.publish(fmt.Sprint("oven-", i), cool)
		}
		pass(window)
		if n, asked := len(r.alerts("")), ledgers.asked.Load()-before; n != 2*devices || asked > 5 {
			t.Errorf("%d notices, and the store was asked %d times", n, asked)
		}
	})
}
