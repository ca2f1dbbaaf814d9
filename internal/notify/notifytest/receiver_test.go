package notifytest_test

import (
	"net/url"
	"testing"

	"go.uber.org/goleak"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func client(t *testing.T, to *notifytest.Receiver) notify.Notifier {
	u, err := url.Parse(to.URL)
	if err != nil {
		t.Fatal(err)
	}
	w, err := webhook.New(u, wording.Style{}, nil, httppost.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// An answer that got lost is not a second alert.
func TestReceiverDropsWhatItTook(t *testing.T) {
	r := notifytest.NewReceiver(t, webhook.Secret{})
	n := client(t, r)
	r.Behave(notifytest.TakeThen(notifytest.Reset))
	a := notifytest.Alert(1)
	if err := n.Notify(t.Context(), a); err == nil {
		t.Error("Notify returned nil although the answer was lost")
	}
	if err := n.Notify(t.Context(), a); err != nil {
		t.Errorf("second attempt: %v", err)
	}
	if taken := r.Taken(); len(taken) != 1 || taken[0] != a {
		t.Errorf("taken: %+v", taken)
	}
	if d := r.Deliveries(); len(d) != 2 || d[0].Dropped || !d[1].Dropped {
		t.Errorf("deliveries: %+v", d)
	}
}

func TestReceiverFollowsTheScript(t *testing.T) {
	r := notifytest.NewReceiver(t, webhook.Secret{})
	n := client(t, r)
	r.Behave(notifytest.Status(503), notifytest.Delay(1, notifytest.Take), notifytest.Close)
	for i, wantErr := range []bool{true, false, true, false} {
		if err := n.Notify(t.Context(), notifytest.Alert(i)); (err != nil) != wantErr {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if got := len(r.Taken()); got != 2 {
		t.Errorf("took %d, want 2", got)
	}
}
