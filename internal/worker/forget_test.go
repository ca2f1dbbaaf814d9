package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/records"
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
			known, err := s.worker.Forget(t.Context(), "oven")
			if !known || err != nil {
				t.Errorf("known %v, %v", known, err)
			}
			if known, err := s.worker.Forget(t.Context(), "stranger"); known || err != nil {
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
			return s.worker.Forget(ctx, "oven")
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
