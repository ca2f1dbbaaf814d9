package partition_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/records"
	"alertworker/internal/rules"
)

// A device that an operator removed stays so, whatever becomes of the replica once it has answered, and whatever a
// former owner of the partition writes late, until it is heard again.
func TestForgottenForGood(t *testing.T) {
	for _, tt := range []struct {
		name   string
		reread bool // the late roster is from before its last event, which the next owner reads again
		heard  bool // the device sends once more to the next owner
	}{
		{"not heard", false, false},
		{"not heard, but read again", true, false},
		{"heard", false, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("0"), &receiver{}
			p.reached = true
			s := silence(t, nil, r)
			s.start(p)
			p.talk("oven", 0)
			p.talk("kiln", 0)
			pass(2 * time.Minute) // the roster has both
			late, err := s.ledgers.Read(t.Context(), "roster/0", 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if tt.reread {
				p.talk("oven", 0)
				pass(2 * time.Minute)
			}
			known, err := s.forget(t.Context(), "oven")
			if !known || err != nil {
				t.Errorf("known %v, %v", known, err)
			}
			if known, err := s.forget(t.Context(), "stranger"); known || err != nil {
				t.Errorf("a stranger: known %v, %v", known, err)
			}
			p.fail(errors.New("the process is gone"))
			s.end()
			now, err := s.ledgers.Stat(t.Context(), "roster/0")
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.ledgers.Write(t.Context(), records.Record{Name: "roster/0", Content: late.Content, ETag: now.ETag})
			if err != nil {
				t.Fatal(err)
			}

			next := silence(t, nil, r)
			next.store, next.ledgers = s.store, s.ledgers
			p = p.reopen()
			next.start(p)
			if tt.heard {
				p.talk("oven", 0)
			}
			pass(silent + time.Hour)
			next.end()
			if got := len(r.alerts("oven")) > 0; got != tt.heard {
				t.Errorf("%s: alerted %v about the device that was removed", tt.name, got)
			}
			if len(r.alerts("kiln")) != 1 {
				t.Errorf("%s: %d alerts about another device", tt.name, len(r.alerts("kiln")))
			}
		})
	}
}

// The alarms of a device that an operator removes end as all do, also if its alert was not sent yet and the next owner
// reads its readings again: whoever was alerted hears that nothing more is expected.
func TestForgetEndsAlarms(t *testing.T) {
	const hot = threshold + 5
	for _, tt := range []struct {
		name   string
		for_   time.Duration
		before []float64 // readings before the device is removed, a second apart
		after  []float64 // and then
		down   bool      // the receiver, so that the next owner reads all of it again
		want   string
		left   int // alarms
	}{
		{"open", 0, []float64{hot}, nil, false, "alert 1, recovery 1", 0},
		{"pending", time.Second / 2, []float64{hot}, nil, false, "", 0},
		{"pending, and hot again", 1500 * time.Millisecond, []float64{hot}, []float64{hot}, false, "", 1},
		{"open, and hot again", 0, []float64{hot}, []float64{hot}, false, "alert 1", 1},
		{"read again", 0, []float64{hot}, nil, true, "alert 1, recovery 1", 0},
		{"read again, and hot again", 0, []float64{hot}, []float64{hot}, true, "alert 1", 1},
		{"read again, and cool then", 0, []float64{hot}, []float64{threshold - 5}, true, "alert 1, recovery 1", 0},
		{"read again from where it was pending", 8 * time.Second, slices.Repeat([]float64{hot}, 10), nil, true,
			"alert 9, recovery 10", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, r := newPartition("0"), &receiver{}
			sustained := func(r *rules.Rule) { r.Levels[0].For = tt.for_ }
			s := with(t, sustained, r)
			if tt.down {
				r.set(func(context.Context, notify.Alert) error { return errBusy })
			}
			s.start(p)
			p.feed("oven", time.Second, tt.before...)
			if known, err := s.forget(t.Context(), "oven"); !known || err != nil {
				t.Errorf("%s: known %v, %v", tt.name, known, err)
			}
			if known, err := s.forget(t.Context(), "stranger"); known || err != nil {
				t.Errorf("%s: a stranger: known %v, %v", tt.name, known, err)
			}
			p.feed("oven", time.Second, tt.after...)
			if tt.down {
				s.end()
				r.set(nil)
				p = p.reopen()
				next := with(t, sustained, r)
				next.store, next.ledgers = s.store, s.ledgers
				s = next.start(p)
			}
			pass(2 * window)
			left := len(s.open()) + s.counts()[0].Pending
			if got := r.notified("oven"); got != tt.want || left != tt.left {
				t.Errorf("%s: %s, %d alarms; want %s, %d", tt.name, got, left, tt.want, tt.left)
			}
			for _, a := range r.alerts("oven") {
				if a.Forgotten != a.Resolved {
					t.Errorf("%s: forgotten %v in %+v", tt.name, a.Forgotten, a)
				}
			}
			s.end()
		})
	}
}

// A silence that ended behind the watermark, so that the ledger still has it, does not come back for a device that an
// operator has removed then.
func TestForgetAfterASilenceHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newPartition("0"), &receiver{}
		r.set(func(context.Context, notify.Alert) error { return errBusy })
		start := func() *setup {
			s := silence(t, nil, r)
			s.config.Rules.Rules = append(s.config.Rules.Rules, rules.Threshold("temperature", threshold, window).Rules...)
			return s
		}
		s := start()
		s.start(p)
		p.publish("kiln", threshold+5) // holds the watermark
		p.talk("oven", 0)
		pass(silent + time.Minute)
		p.talk("oven", 0)
		pass(time.Minute)
		if known, err := s.forget(t.Context(), "oven"); !known || err != nil {
			t.Errorf("known %v, %v", known, err)
		}
		p.fail(errors.New("the process is gone"))
		s.end()
		r.set(nil)
		next := start()
		next.store, next.ledgers = s.store, s.ledgers
		next.start(p.reopen())
		pass(silent)
		next.end()
		if got := r.notified("oven"); got != "" {
			t.Errorf("notified of %s of a device that was removed", got)
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
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
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
