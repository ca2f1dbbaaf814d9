package smtp

import (
	"fmt"
	"net/mail"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
)

func newRecipients() *recipients {
	return &recipients{taken: map[string]*taking{}, failing: map[string]time.Time{}}
}

// A recipient is waited for as long as servers that greylist want, and once that was in vain only after he has taken a mail.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecipients()
		for i, want := range []bool{true, true, false, false} {
			first, waits := r.waits("busy@example.com")
			if waits != want || first != (i == 0) {
				t.Errorf("%d: waits %t, first %t", i, waits, first)
			}
			time.Sleep(patience / 2)
		}
		r.took(nil, []*mail.Address{{Address: "busy@example.com"}})
		if first, waits := r.waits("busy@example.com"); !waits || !first {
			t.Error("he has taken a mail, and is not waited for")
		}
	})
}

// What is remembered is bounded: what was not tried for the longest time is forgotten first.
func TestRemembersBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecipients()
		ops := &mail.Address{Address: "ops@example.com"}
		alert := func(n int) []notify.Alert { return []notify.Alert{{ID: fmt.Sprint(n)}} }
		for n := range maxAlerts + 10 {
			r.took(alert(n), []*mail.Address{ops})
			time.Sleep(time.Millisecond)
		}
		if len(r.taken) != maxAlerts || len(r.parts([]*mail.Address{ops}, alert(9))) != 1 || len(r.parts([]*mail.Address{ops}, alert(10))) != 0 {
			t.Errorf("%d are remembered", len(r.taken))
		}
	})
}
