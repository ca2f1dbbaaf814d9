package webhook_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
)

var _ notify.Reporter = (*webhook.Webhook)(nil)

func summary() notify.Summary {
	two, none := 2, 0
	return notify.Summary{
		ID:     "contoso.servicebus.windows.net/telemetry/$default/summary/2026-03-01T08:00:00Z",
		Source: "/contoso/telemetry",
		Scope:  "contoso.servicebus.windows.net/telemetry/$default",
		Due:    time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC),
		Made:   time.Date(2026, 3, 1, 8, 0, 1, 250_000_000, time.UTC),
		Days: [2]notify.Day{
			{
				Date: time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC), Alerts: 14, Suppressed: 410, Devices: 2, DeadLetters: &two,
				MostAlerts:     []notify.DeviceCount{{Device: "device-7", Alerts: 12, Suppressed: 100}, {Device: "device-3", Alerts: 2, Suppressed: 310}},
				MostSuppressed: []notify.DeviceCount{{Device: "device-3", Alerts: 2, Suppressed: 310}, {Device: "device-7", Alerts: 12, Suppressed: 100}},
			},
			{
				Date: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Alerts: 1, Devices: 1, DeadLetters: &none,
				MostAlerts: []notify.DeviceCount{{Device: "device-7", Alerts: 1}},
			},
		},
	}
}

func TestEncodeSummaryGolden(t *testing.T) {
	odd := summary()
	odd.More = true
	odd.Due, odd.Made = odd.Due.In(time.FixedZone("", 2*60*60)), odd.Made.In(time.FixedZone("", 2*60*60))
	odd.Days[0].DeadLetters, odd.Days[1] = nil, notify.Day{Date: odd.Days[1].Date.In(time.FixedZone("", -2*60*60))}
	odd.Days[0].MostAlerts[0].Device = `Käl<te>&"1'` + "\n\xff"
	for name, s := range map[string]notify.Summary{"summary": summary(), "odd": odd} {
		t.Run(name, func(t *testing.T) {
			body, err := webhook.EncodeSummary(s)
			if err != nil {
				t.Fatal(err)
			}
			notifytest.Golden(t, *update, "summary/"+name, body) // not a seed of FuzzDecode
		})
	}
}

// What the documentation shows is what is sent.
func TestDocsShowTheSummary(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/summary.md")
	if err != nil {
		t.Fatal(err)
	}
	payload, err := os.ReadFile("testdata/summary/summary.json")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(docs), strings.TrimSpace(string(payload))) {
		t.Error("docs/summary.md does not show testdata/summary/summary.json")
	}
}

// A summary is no alert to those who look at the end of its type.
func TestASummaryIsNoAlert(t *testing.T) {
	body, err := webhook.EncodeSummary(summary())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := webhook.Decode(body); err == nil || !strings.Contains(err.Error(), "type is") {
		t.Errorf("decoded as an alert: %v", err)
	}
}

func TestReport(t *testing.T) {
	var got *http.Request
	var body []byte
	status := http.StatusNoContent
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(status)
	}))
	defer srv.Close()
	s := secret(t, testSecret)
	w := open(t, strings.Replace(srv.URL, "://", "://me:p%40ss@", 1)+"/hook?key=T0KEN", s)
	if err := w.Report(t.Context(), summary()); err != nil {
		t.Fatal(err)
	}
	want, err := webhook.EncodeSummary(summary())
	if err != nil {
		t.Fatal(err)
	}
	if got.Method != "POST" || got.RequestURI != "/hook?key=T0KEN" || !bytes.Equal(body, want) || got.Header.Get("Content-Type") != webhook.ContentType {
		t.Errorf("got %s %s %s", got.Method, got.RequestURI, body)
	}
	if id := got.Header.Get("webhook-id"); id != summary().ID {
		t.Errorf("webhook-id is %q", id)
	}
	if err := s.Verify(got.Header, body); err != nil {
		t.Error(err)
	}
	if user, password, _ := got.BasicAuth(); user != "me" || password != "p@ss" {
		t.Errorf("basic authentication is %q, %q", user, password)
	}

	for code, want := range map[int]notify.Error{400: {Refused: true, Untaken: true}, 404: {Untaken: true}, 503: {}} {
		status = code
		err := w.Report(t.Context(), summary())
		var e *notify.Error
		if !errors.As(err, &e) || e.Refused != want.Refused || e.Untaken != want.Untaken || !strings.HasPrefix(err.Error(), "post summary to http://") || strings.Contains(err.Error(), "T0KEN") {
			t.Errorf("%d: %+v", code, err)
		}
	}
	got = nil
	bad := summary()
	bad.ID = "a\nb"
	if e := notify.AsError(w.Report(t.Context(), bad)); !e.Refused || !e.Untaken || got != nil {
		t.Errorf("an id that cannot be sent: %+v", e)
	}
	if err := w.Notify(t.Context(), notifytest.Alert(1)); err == nil || !strings.HasPrefix(err.Error(), "post alert to") {
		t.Error(err)
	}
}
