package webhook_test

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"alertworker/internal/lab/inbox"
	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
)

func open(t testing.TB, rawURL string, secrets ...webhook.Secret) *webhook.Webhook {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	w, err := webhook.New(u, wording.Style{}, secrets, httppost.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func TestRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	}))
	defer srv.Close()
	hook := strings.Replace(srv.URL, "://", "://me:p%40ss@", 1) + "/a%2Fb?k=v%20w"
	a := notifytest.Alert(1)
	want, err := webhook.Encode(a, wording.Style{})
	if err != nil {
		t.Fatal(err)
	}

	if err := open(t, hook).Notify(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if got.Method != "POST" || got.RequestURI != "/a%2Fb?k=v%20w" || string(body) != string(want) {
		t.Errorf("got %s %s %s", got.Method, got.RequestURI, body)
	}
	if ct := got.Header.Get("Content-Type"); ct != "application/cloudevents+json" {
		t.Errorf("Content-Type is %q", ct)
	}
	if user, password, _ := got.BasicAuth(); user != "me" || password != "p@ss" {
		t.Errorf("basic authentication is %q, %q", user, password)
	}
	for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature", "Idempotency-Key"} {
		if v := got.Header.Values(name); len(v) > 0 {
			t.Errorf("unsigned request has %s: %q", name, v)
		}
	}

	s := secret(t, testSecret)
	if err := open(t, srv.URL, s).Notify(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if id := got.Header.Get("webhook-id"); id != a.ID {
		t.Errorf("webhook-id is %q, want the alert's id %q", id, a.ID)
	}
	if err := inbox.Verify(s, got.Header, body); err != nil {
		t.Error(err)
	}
	if _, _, ok := got.BasicAuth(); ok {
		t.Error("basic authentication without a user")
	}
}

func TestWhatCannotBeEncodedIsRefused(t *testing.T) {
	r := notifytest.NewReceiver(t, webhook.Secret{})
	a := notifytest.Alert(1)
	a.Temperature = math.NaN()
	err := open(t, r.URL).Notify(t.Context(), a)
	var e *notify.Error
	if !errors.As(err, &e) || !e.Refused || !e.Untaken {
		t.Errorf("got %+v, want Refused and Untaken", err)
	}
}

func BenchmarkNotify(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer srv.Close()
	w := open(b, srv.URL, secret(b, testSecret))
	a := notifytest.Alert(1)
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Notify(b.Context(), a); err != nil {
			b.Fatal(err)
		}
	}
}

// A receiver checks when a message was signed by its own clock, which this machine's may be far from. It refuses for good
// what seems too old to it.
func TestClocks(t *testing.T) {
	secret, err := webhook.ParseSecret("whsec_" + strings.Repeat("A", 32))
	if err != nil {
		t.Fatal(err)
	}
	for _, ahead := range []time.Duration{8 * time.Minute, -time.Hour, 0} {
		for _, storeKnows := range []bool{false, true} {
			clock := func() time.Time { return time.Now().Add(ahead) }
			posts := 0
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				posts++
				w.Header().Set("Date", clock().UTC().Format(http.TimeFormat))
				seconds, err := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
				if off := clock().Sub(time.Unix(seconds, 0)); err != nil || off.Abs() > 5*time.Minute {
					http.Error(w, "webhook-timestamp out of tolerance", http.StatusBadRequest)
				}
			}))
			hook := open(t, srv.URL, secret)
			for i := range 2 {
				a := notifytest.Alert(1)
				if storeKnows {
					a.Sent = clock()
				}
				posts = 0
				err := hook.Notify(t.Context(), a)
				if want := 1 + (map[bool]int{true: 1}[i == 0 && ahead != 0 && !storeKnows]); err != nil || posts != want {
					t.Errorf("%v ahead, store asked %t: message %d: %v after %d posts, want %d", ahead, storeKnows, i, err, posts, want)
				}
			}
			srv.Close()
		}
	}
}

// What is refused for another reason is posted once.
func TestRefusedOnce(t *testing.T) {
	secret, _ := webhook.ParseSecret("whsec_" + strings.Repeat("A", 32))
	posts := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		posts++
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer srv.Close()
	if err := open(t, srv.URL, secret).Notify(t.Context(), notifytest.Alert(1)); !notify.AsError(err).Refused || posts != 1 {
		t.Errorf("%v after %d posts", err, posts)
	}
}
