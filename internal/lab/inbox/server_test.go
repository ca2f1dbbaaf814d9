package inbox_test

import (
	"net/url"
	"testing"

	"alertworker/internal/lab/inbox"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
)

// A server takes what its secret signed, and is gone after Close.
func TestListen(t *testing.T) {
	var got []inbox.Delivery
	s, err := inbox.Listen(func(d inbox.Delivery) { got = append(got, d) })
	if err != nil {
		t.Fatal(err)
	}
	secret, err := webhook.ParseSecret(s.Secret)
	if err != nil {
		t.Fatal(err)
	}
	send := func(secret webhook.Secret) error {
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		to, err := webhook.New(u, wording.Style{}, []webhook.Secret{secret}, httppost.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		return to.Notify(t.Context(), notifytest.Alert(1))
	}
	if err := send(secret); err != nil {
		t.Error(err)
	}
	if err := send(webhook.Secret{}); err == nil {
		t.Error("it took an alert without a signature")
	}
	s.Close()
	if err := send(secret); err == nil {
		t.Error("it took an alert after Close")
	}
	if len(got) != 1 || got[0].Alert != notifytest.Alert(1) {
		t.Errorf("got %+v", got)
	}
}
