package partition

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// After an answer that is none, the ledger is not asked again for a while.
func TestLedgerThatAnswersWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work sync.WaitGroup
		asked, err := 0, errors.New("503")
		o := ownership{work: &work, check: func() error { asked++; return err }, lost: func() {}, answers: func() {}}
		if o.pause() != 0 || o.owns(t.Context()) == nil || o.pause() != askAgain || asked != 1 {
			t.Errorf("asked %d times, pausing for %v", asked, o.pause())
		}
		time.Sleep(askAgain - time.Millisecond)
		if o.pause() != minBackoff || asked != 1 {
			t.Errorf("asked %d times, pausing for %v", asked, o.pause())
		}
		err = nil
		time.Sleep(time.Millisecond)
		if o.pause() != minBackoff {
			t.Errorf("pausing for %v", o.pause())
		}
		work.Wait()
		if asked != 2 || o.pause() != 0 {
			t.Errorf("asked %d times, pausing for %v", asked, o.pause())
		}
	})
}
