package partition_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"alertworker/internal/notify"
	"alertworker/internal/records"
	"alertworker/internal/rules"
)

// A device that an operator removed stays so, whatever becomes of the replica once it has answered, until it is heard again.
func TestForgottenForGood(t *testing.T) {
	for name, isHeard := range map[string]bool{"not heard": false, "heard": true} {
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("0"), &receiver{}
			p.reached = true
			s := silence(t, nil, r)
			s.start(p)
			p.talk("oven", 0)
			p.talk("kiln", 0)
			pass(2 * time.Minute) // the roster has both
			late, err := s.ledgers.Stat(t.Context(), "roster/0")
			if err != nil {
				t.Fatal(err)
			}
			p.talk("oven", 0)
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			known, err := s.forget(ctx, "oven")
			if !known || err != nil {
				t.Errorf("known %v, %v", known, err)
			}
			if known, err := s.forget(ctx, "stranger"); known || err != nil {
				t.Errorf("a stranger: known %v, %v", known, err)
			}
			synctest.Wait() // he is answered before the checkpoint is written
			p.fail(errors.New("the process is gone"))
			s.end()
			if _, err = s.ledgers.Write(t.Context(), records.Record{Name: "roster/0", ETag: late.ETag}); err == nil {
				t.Error("a former owner may write what it knew before")
			}

			next := silence(t, nil, r)
			next.store, next.ledgers = s.store, s.ledgers
			p = p.reopen()
			next.start(p)
			if isHeard {
				p.talk("oven", 0)
			}
			pass(silent + time.Hour)
			next.end()
			if got := len(r.alerts("oven")) > 0; got != isHeard {
				t.Errorf("%s: alerted %v about the device that was removed", name, got)
			}
			if len(r.alerts("kiln")) != 1 {
				t.Errorf("%s: %d alerts about another device", name, len(r.alerts("kiln")))
			}
		})
	}
}

// Once the end of a silence has gone out because its device was forgotten, no next owner calls the device silent again, who
// knows less of the hub at first. The roster cannot be written for a while.
func TestForgottenAcrossATakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		p.reached = true
		forgets := func(r *rules.Rule) { r.Forget = time.Hour }
		s := silence(t, forgets, r)
		store := s.ledgers
		var isDown atomic.Bool
		s.ledgers = records.Around(store, func(ctx context.Context, op records.Op, name string, do func(context.Context) error) error {
			if isDown.Load() && op == records.OpWrite && name == "roster/0" {
				return errBusy
			}
			return do(ctx)
		})
		core, logs := observer.New(zap.WarnLevel)
		s.config.Log = zap.New(core)
		s.start(p)
		p.talk("oven", 0)
		for range 59 {
			p.talk("kiln", time.Minute)
		}
		isDown.Store(true)
		pass(90 * time.Second)
		if got, want := r.notified("oven"), "alert 1, recovery 1"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if logs.FilterMessageSnippet("cannot write the roster of devices").Len() == 0 {
			t.Errorf("the log has %v", logs.All())
		}

		next := silence(t, forgets, r)
		next.store, next.ledgers = s.store, store
		later := p.reopen()
		later.lastErr = errBusy
		next.start(later)
		pass(2 * time.Minute)
		s.end()
		next.end()
		for _, a := range r.alerts("oven")[2:] {
			if !a.Resolved {
				t.Errorf("silent again: %+v", a)
			}
		}
	})
}

// The alarms of a device that an operator removes end as all do, also for the next owner once the operator was answered.
// While an alert waits he is not: the alarm would be open again after a crash. Asking again is enough then.
func TestForgetEndsAlarms(t *testing.T) {
	const hot = threshold + 5
	for _, tt := range []struct {
		name   string
		for_   time.Duration
		before []float64 // readings before the device is removed, a second apart
		after  []float64 // and then
		down   bool      // the receiver, at first
		crash  bool      // the replica, at once
		want   string
		left   int           // alarms
		pause  time.Duration // before it is removed
	}{
		{"open", 0, []float64{hot}, nil, false, false, "alert 1, recovery 1", 0, 0},
		{"pending", time.Second / 2, []float64{hot}, nil, false, false, "", 0, 0},
		{"pending, and hot again", 1500 * time.Millisecond, []float64{hot}, []float64{hot}, false, false, "", 1, 0},
		{"open, and hot again", 0, []float64{hot}, []float64{hot}, false, false, "alert 1", 1, 0},
		{"while its alert waits", 0, []float64{hot}, nil, true, false, "alert 1, recovery 1", 0, 0},
		{"while its alert waits, and hot again", 0, []float64{hot}, []float64{hot}, true, false, "alert 1", 1, 0},
		{"open, and a crash", 0, []float64{hot}, nil, false, true, "alert 1, recovery 1", 0, 0},
		{"open, a crash, and hot again", 0, []float64{hot}, []float64{hot}, false, true, "alert 1", 1, 0},
		{"open, a crash, and cool then", 0, []float64{hot}, []float64{threshold - 5}, false, true, "alert 1, recovery 1", 0, 0},
		{"open in the ledger, and a crash", 0, []float64{hot}, nil, false, true, "alert 1, recovery 1", 0, 2 * interval},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("0"), &receiver{}
			sustained := func(r *rules.Rule) { r.Levels[0].For = tt.for_ }
			s := with(t, sustained, r)
			if tt.down {
				r.set(func(context.Context, notify.Alert) error { return errBusy })
			}
			forget := func(device string) (bool, error) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				return s.forget(ctx, device)
			}
			s.start(p)
			p.feed("oven", time.Second, tt.before...)
			pass(tt.pause)
			if known, err := forget("oven"); !known || tt.down != (err != nil) {
				t.Errorf("%s: known %v, %v", tt.name, known, err)
			}
			if known, err := forget("stranger"); known || err != nil {
				t.Errorf("%s: a stranger: known %v, %v", tt.name, known, err)
			}
			if known, err := forget("oven"); !tt.down && (known || err != nil) {
				t.Errorf("%s: removed again: known %v, %v", tt.name, known, err)
			}
			if tt.down {
				waits := make(chan string, 1) // somebody who is more patient
				s.work.Go(func() {
					known, err := s.forget(t.Context(), "oven")
					waits <- fmt.Sprint(known, err)
				})
				pass(time.Second)
				if len(waits) > 0 {
					t.Errorf("%s: who waits is answered at once: %s", tt.name, <-waits)
				}
				r.set(nil)
				pass(time.Minute)
				if len(waits) == 0 {
					t.Errorf("%s: who waits is not answered", tt.name)
				} else if got := <-waits; got != "true <nil>" {
					t.Errorf("%s: who waits is answered %s", tt.name, got)
				}
				if known, err := forget("oven"); known && err != nil {
					t.Errorf("%s: asked again: known %v, %v", tt.name, known, err)
				}
			}
			if tt.crash {
				synctest.Wait()
				p.fail(errors.New("the process is gone"))
				s.end()
				p = p.reopen()
				next := with(t, sustained, r)
				next.store, next.ledgers = s.store, s.ledgers
				s = next.start(p)
			}
			p.feed("oven", time.Second, tt.after...)
			pass(2 * window)
			left := len(s.open()) + s.counts()[0].Pending
			if got := r.notified("oven"); got != tt.want || left != tt.left {
				t.Errorf("%s: %s, %d alarms; want %s, %d", tt.name, got, left, tt.want, tt.left)
			}
			for _, a := range r.alerts("oven") {
				if a.Forgotten != a.Resolved && tt.after == nil {
					t.Errorf("%s: forgotten %v in %+v", tt.name, a.Forgotten, a)
				}
			}
			s.end()
		})
	}
}

// The hub was recreated, and nothing has come to the partition yet: who removes a device of the former hub is answered, and its
// alarm ends.
func TestForgetInAnotherHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		p.generation = "old"
		s := with(t, nil, r)
		s.start(p)
		p.feed("oven", 2*window, hot)
		s.end()
		p = newPartition("0")
		p.generation = "new"
		next := with(t, nil, r)
		next.store, next.ledgers = s.store, s.ledgers
		next.start(p)
		pass(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if known, err := next.forget(ctx, "oven"); !known || err != nil {
			t.Errorf("known %v, %v", known, err)
		}
		pass(2 * time.Minute)
		next.end()
		if got := r.notified("oven"); got != "alert 1, recovery 1" {
			t.Errorf("notified of %s", got)
		}
		if c := readLedger(t, next.ledgers); len(c.Alarms) > 0 {
			t.Errorf("the ledger has %+v", c.Alarms)
		}
	})
}

// As long as the ledger cannot be written nobody is told that a device is forgotten; asking again is enough then.
func TestForgetWhileTheLedgerIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartition("0")
		s := silence(t, nil)
		var down atomic.Bool
		type call = func(context.Context) error
		s.ledgers = records.Around(s.ledgers, func(ctx context.Context, op records.Op, name string, do call) error {
			if down.Load() && op == records.OpWrite && name == "0" {
				return errors.New("connection refused")
			}
			return do(ctx)
		})
		s.start(p)
		p.talk("oven", 0)
		pass(time.Minute)
		down.Store(true)
		ask := func() (bool, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second) // not when the ledger is tried again
			defer cancel()
			return s.forget(ctx, "oven")
		}
		if known, err := ask(); !known || err == nil {
			t.Errorf("known %v, %v", known, err)
		}
		down.Store(false)
		if known, err := ask(); !known || err != nil {
			t.Errorf("known %v, %v", known, err)
		}
		s.end()
	})
}

// Who forgets a device has an answer before the next checkpoint is due.
func TestForgettingIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		s := with(t, nil, r)
		s.config.CheckpointInterval = time.Hour
		s.start(p)
		p.publish("oven", hot)
		pass(time.Second)
		began := time.Now()
		known, err := s.forget(t.Context(), "oven")
		if !known || err != nil || time.Since(began) > time.Minute {
			t.Errorf("known %v, after %v: %v", known, time.Since(began), err)
		}
		s.end()
	})
}
