package eventgrid

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/httppost"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
)

func open(t testing.TB, raw string, token notify.TokenSource) *EventGrid {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(u, token, httppost.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

func withKey(raw string) string { return strings.Replace(raw, "://", "://:a%2Fkey%3D%3D@", 1) }

// An event is the one that a webhook gets.
func TestRequest(t *testing.T) {
	a := notifytest.Odd()
	want, err := webhook.Encode(a)
	if err != nil {
		t.Fatal(err)
	}
	check := func(r notifytest.Request, path, header, value string) {
		t.Helper()
		if r.Path != path || r.Header.Get("Content-Type") != "application/cloudevents+json" || string(r.Body) != string(want) {
			t.Errorf("posted to %s as %s: %s", r.Path, r.Header.Get("Content-Type"), r.Body)
		}
		for _, name := range []string{"aeg-sas-key", "Authorization"} {
			if got := r.Header.Get(name); strings.EqualFold(name, header) && got != value || !strings.EqualFold(name, header) && got != "" {
				t.Errorf("%s is %q", name, got)
			}
		}
	}
	check(notifytest.Posted(t, 200, func(url string) error { return open(t, withKey(url), nil).Notify(t.Context(), a) }),
		"/api/events?api-version=2018-01-01", "Aeg-Sas-Key", "a/key==")
	token := func(context.Context) (string, error) { return "t0ken", nil }
	check(notifytest.Posted(t, 200, func(url string) error {
		return open(t, url+"/topics/t/api/events?api-version=2023-11-01", token).Notify(t.Context(), a)
	}), "/topics/t/api/events?api-version=2023-11-01", "Authorization", "Bearer t0ken")
}

// Without a token nothing is sent, and the alert is not refused.
func TestNoToken(t *testing.T) {
	why := errors.New("no token for Event Grid")
	err := open(t, "https://topic.example.com", func(context.Context) (string, error) { return "", why }).Notify(t.Context(), notifytest.Alert(1))
	if e := notify.AsError(err); !errors.Is(err, why) || !e.Untaken || e.Refused {
		t.Errorf("got %+v", e)
	}
}

// https://learn.microsoft.com/azure/event-grid/post-to-custom-topic#response
func TestAnswers(t *testing.T) {
	notifytest.RunAnswers(t, []notifytest.Answer{
		{Code: 200, Taken: true},
		{Code: 400, Body: `{"error":{"code":"BadRequest","message":"This resource is configured to receive event in 'CloudEventV10' schema."}}`, Refused: true},
		{Code: 400, Body: `{"error":{"code":"BadRequest","message":"This resource is configured to receive event in 'EventGridEvent' schema. The JSON received does not conform to the expected schema."}}`},
		{Code: 401, Body: `{"error":{"code":"Unauthorized","message":"Request must contain one of the following authorization signature: aeg-sas-token, aeg-sas-key."}}`},
		{Code: 403}, {Code: 404},
		{Code: 413, Refused: true},
		{Code: 429, RetryAfter: "5", Wait: 5 * time.Second},
		{Code: 503},
	}, func(t *testing.T, url string) notify.Notifier { return open(t, withKey(url), nil) })
}
