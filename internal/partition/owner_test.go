package partition

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// After an answer that is none, the ledger is not asked again for a while. Once it answers, what waits for it is woken.
func TestLedgerThatAnswersWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work sync.WaitGroup
		asked, woken, err := 0, 0, errors.New("503")
		o := ownership{work: &work, check: func() error { asked++; return err }, lost: func() {}, answers: func() { woken++ }}
		if o.pause() != 0 || o.owns(t.Context()) == nil || o.pause() != askAgain || asked != 1 {
			t.Errorf("asked %d times, pausing for %v", asked, o.pause())
		}
		time.Sleep(askAgain - time.Millisecond)
		if o.pause() != minBackoff || asked != 1 {
			t.Errorf("asked %d times, pausing for %v", asked, o.pause())
		}
		err = nil
		time.Sleep(time.Millisecond)
		if o.pause() != minBackoff || woken != 0 {
			t.Errorf("pausing for %v, woken %d times", o.pause(), woken)
		}
		work.Wait()
		if asked != 2 || o.pause() != 0 || woken != 1 {
			t.Errorf("asked %d times, pausing for %v, woken %d times", asked, o.pause(), woken)
		}
		if o.owns(t.Context()) != nil || woken != 1 {
			t.Errorf("woken %d times, although it had answered before", woken)
		}
	})
}

// A ledger that was slow to answer has more time for its next answer, and not for ever.
func TestSlowLedgerHasMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work sync.WaitGroup
		var takes time.Duration
		o := ownership{work: &work, check: func() error { time.Sleep(takes); return nil }, lost: func() {}, answers: func() {}}
		for _, tt := range []struct{ before, want time.Duration }{{0, ownerTimeout}, {time.Second, ownerTimeout}, {3 * time.Second, 6 * time.Second}, {5 * time.Second, slowTimeout}} {
			takes = tt.before
			o.ask()
			work.Wait()
			if _, limit := o.ask(); limit != tt.want {
				t.Errorf("after an answer in %v it has %v, want %v", tt.before, limit, tt.want)
			}
			work.Wait()
		}
	})
}
