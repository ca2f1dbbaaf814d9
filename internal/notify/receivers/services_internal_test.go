package receivers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/webhook"
	"alertworker/internal/notify/wording"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata, and draw the pictures in docs anew")

// A service is what a channel posts to.
type service struct {
	entry   func(url string) string // of a receiver at url
	path    string                  // that it posts to
	header  http.Header             // that it posts besides
	page    string
	answers []answer                        // that the service documents
	fits    func(t *testing.T, body []byte) // fails if a message is more than the service takes; nil: there is one alert in each
}

// An answer and what it means.
type answer struct {
	code       int
	retryAfter string
	body       string

	taken, refused bool          // otherwise the receiver is down or busy
	wait           time.Duration // RetryAfter of the error
}

// untaken reports whether a says for certain that the alert was not taken.
func (a answer) untaken() bool { return a.code >= 300 && a.code < 500 }

// behind returns an entry: a channel, and what stands behind the server's address in its URL.
func behind(channel, path string) func(url string) string {
	return func(url string) string { return channel + "+" + url + path }
}

// services are what channels over HTTP post to, by the channel, and variants of it whose names begin like that.
var services = map[string]service{
	"slack": {
		entry: behind("slack", "/services/T0/B0/K3Y"), path: "/services/T0/B0/K3Y", page: "https://alerts.example.com/?a=1&b=2",
		// https://api.slack.com/changelog/2016-05-17-changes-to-errors-for-incoming-webhooks
		fits: fitsSlack,
		answers: []answer{
			{code: 200, body: "ok", taken: true},
			{code: 200, body: "<!DOCTYPE html><title>Sign in</title>"}, // of a proxy, or a portal
			{code: 200, body: `{"ok":false}`}, {code: 204},
			{code: 400, body: "invalid_payload", refused: true},
			{code: 400, body: "invalid_blocks", refused: true},
			{code: 400, body: "no_text", refused: true},
			{code: 400, body: "user_not_found"},
			{code: 403, body: "action_prohibited"},
			{code: 403, body: "invalid_token"},
			{code: 404, body: "channel_not_found"},
			{code: 404, body: "no_service"},
			{code: 410, body: "channel_is_archived"},
			{code: 429, retryAfter: "30", body: "rate_limited", wait: 30 * time.Second},
			{code: 500, body: "rollup_error"},
		},
	},
	"teams": {
		entry: behind("teams", "/workflows/W/triggers/manual/paths/invoke?sig=K3Y"), path: "/workflows/W/triggers/manual/paths/invoke?sig=K3Y",
		// The trigger of a workflow answers like Logic Apps.
		fits: within(28 << 10),
		answers: []answer{
			{code: 202, taken: true},
			{code: 400, body: `{"error":{"code":"TriggerInputSchemaMismatch","message":"The input body for trigger 'manual' of type 'Request' did not match its schema definition."}}`},
			{code: 400, body: `{"error":{"code":"WorkflowTriggerIsNotEnabled","message":"Could not execute workflow 'w' trigger 'manual' with state 'Deleted': trigger is not enabled."}}`},
			{code: 401, body: `{"error":{"code":"DirectApiInvalidAuthorizationScheme","message":"The provided authorization token is not valid"}}`},
			{code: 403, body: `{"error":{"code":"AuthorizationFailed"}}`},
			{code: 404, body: `{"error":{"code":"WorkflowNotFound","message":"The workflow 'w' could not be found."}}`},
			{code: 413, body: `{"error":{"code":"RequestEntityTooLarge"}}`, refused: true},
			{code: 429, retryAfter: "10", body: `{"error":{"code":"WorkflowRunActionThrottled"}}`, wait: 10 * time.Second},
			{code: 502, body: `{"error":{"code":"NoResponse","message":"The server did not receive a response from an upstream server."}}`},
		},
	},
	"ntfy": {
		entry: func(url string) string {
			return "ntfy+" + strings.Replace(url, "://", "://:tk_K3Y@", 1) + "/base/t0pic"
		},
		path: "/base/", header: http.Header{"Authorization": {"Basic OnRrX0szWQ=="}},
		// As in server/errors.go of ntfy.
		fits: fitsNtfy,
		answers: []answer{
			{code: 200, body: `{"id":"x","event":"message","topic":"t0pic"}`, taken: true},
			{code: 400, body: `{"code":40017,"http":400,"error":"invalid request: request body must be message JSON"}`, refused: true},
			{code: 400, body: `{"code":40009,"http":400,"error":"invalid request: topic invalid"}`},
			{code: 400, body: `{"code":40010,"http":400,"error":"invalid request: topic name is disallowed"}`},
			{code: 401, body: `{"code":40101,"http":401,"error":"unauthorized"}`},
			{code: 403, body: `{"code":40301,"http":403,"error":"forbidden"}`},
			{code: 413, body: `{"code":41303,"http":413,"error":"JSON body too large"}`, refused: true},
			{code: 429, body: `{"code":42908,"http":429,"error":"limit reached: too many messages"}`},
			{code: 500, body: `{"code":50001,"http":500,"error":"internal server error"}`},
		},
	},
	"ntfy whose topic is in the answer": { // that it is left out of errors does not change what the answer means
		entry: behind("ntfy", "/topic/"), path: "/",
		answers: []answer{{code: 400, body: `{"code":40009,"http":400,"error":"invalid request: topic invalid"}`}},
	},
	"pagerduty": {
		entry: func(string) string { return "pagerduty://" + routingKey }, path: "/v2/enqueue",
		// https://developer.pagerduty.com/docs/events-api-v2/overview/#response-codes--retry-logic
		answers: []answer{
			{code: 202, body: `{"status":"success","message":"Event processed","dedup_key":"x"}`, taken: true},
			{code: 400, body: `{"status":"invalid event","message":"Event object is invalid","errors":["Length of 'summary' is incorrect (should be between 1 and 1024)"]}`, refused: true},
			{code: 400, body: `{"status":"invalid event","message":"Event object is invalid","errors":["Length of 'routing_key' is incorrect (should be 32 characters)"]}`},
			{code: 400, body: `{"status":"invalid event","message":"Event object is invalid","errors":["Invalid routing key"]}`},
			{code: 413, refused: true},
			{code: 429},
			{code: 429, retryAfter: "60", wait: time.Minute},
			{code: 500},
		},
	},
	"alertmanager": { // whose payloads depend on the time: see its package
		entry: behind("alertmanager", "/base/"), path: "/base/api/v2/alerts",
		// The answers of api/v2/openapi.yaml, and of a proxy in front.
		fits: unlimited,
		answers: []answer{
			{code: 200, taken: true},
			{code: 400, body: `"start time must be before end time"`, refused: true},
			{code: 401}, {code: 404},
			{code: 429, retryAfter: "5", wait: 5 * time.Second},
			{code: 500, body: `"internal error"`},
			{code: 503},
		},
	},
	"alertmanager at the root": {entry: behind("alertmanager", ""), path: "/api/v2/alerts"},
	"eventgrid": {
		entry: func(url string) string { return "eventgrid+" + strings.Replace(url, "://", "://:a%2Fkey%3D%3D@", 1) },
		path:  "/api/events?api-version=2018-01-01", header: http.Header{"Aeg-Sas-Key": {"a/key=="}, "Authorization": nil},
		// https://learn.microsoft.com/azure/event-grid/post-to-custom-topic#response
		fits: within(1 << 20),
		answers: []answer{
			{code: 200, taken: true},
			{code: 400, body: `{"error":{"code":"BadRequest","message":"This resource is configured to receive event in 'CloudEventV10' schema."}}`, refused: true},
			{code: 400, body: `{"error":{"code":"BadRequest","message":"This resource is configured to receive event in 'EventGridEvent' schema. The JSON received does not conform to the expected schema."}}`},
			{code: 400, body: `{"error":{"code":"BadRequest","message":"This resource is configured for 'EventGridEvent' schema. Received unexpected property 'source' in JSON which does not conform to the expected schema."}}`},
			{code: 400, body: `{"error":{"code":"BadRequest","message":"This resource is configured for 'CustomEventSchema' schema."}}`},
			{code: 401, body: `{"error":{"code":"Unauthorized","message":"Request must contain one of the following authorization signature: aeg-sas-token, aeg-sas-key."}}`},
			{code: 403}, {code: 404},
			{code: 413, refused: true},
			{code: 429, retryAfter: "5", wait: 5 * time.Second},
			{code: 503},
		},
	},
	"eventgrid with an identity": {
		entry: behind("eventgrid", "/topics/t/api/events?api-version=2023-11-01"), path: "/topics/t/api/events?api-version=2023-11-01",
		header: http.Header{"Authorization": {"Bearer " + aToken}, "Aeg-Sas-Key": nil},
	},
}

// open opens the channel of s for a server.
func (s service) open(t *testing.T, url string) notify.Notifier {
	t.Helper()
	opts := Options{Style: wording.Style{Page: s.page}, EventGridToken: func(context.Context) (string, error) { return aToken, nil }}
	if s.page == "" {
		opts.Style.Page = "https://alerts.example.com/"
	}
	if strings.HasPrefix(s.entry(url), "pagerduty:") {
		opts.Transport = insteadOf(t, url)
	}
	return start(t, s.entry(url), opts)
}

// posted returns what send posts to a server that takes it.
func (s service) posted(t *testing.T, send func(notify.Notifier) error) (body []byte) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer io.WriteString(w, "ok")
		body, _ = io.ReadAll(r.Body)
		if r.URL.RequestURI() != s.path {
			t.Errorf("posted to %s, want %s", r.URL.RequestURI(), s.path)
		}
		if kind := r.Header.Get("Content-Type"); kind != "application/json" && kind != webhook.ContentType {
			t.Errorf("posted as %s", kind)
		}
		for name, values := range s.header {
			if got := r.Header.Get(name); got != strings.Join(values, "") {
				t.Errorf("%s is %q, want %q", name, got, values)
			}
		}
	}))
	defer srv.Close()
	if err := send(s.open(t, srv.URL)); err != nil {
		t.Fatal(err)
	}
	return body
}

// No channel over HTTP is without a service, nor testdata with the payloads of anything else.
func TestEveryChannelHasAService(t *testing.T) {
	elsewhere := []string{"http", "smtp", "log"} // have tests of their own in their packages
	for _, c := range channels {
		name := strings.TrimSuffix(c.schemes[0], "+http")
		s, ok := services[name]
		switch {
		case slices.Contains(elsewhere, name):
		case !ok || len(s.answers) == 0:
			t.Errorf("services lacks %s, with the answers that it documents", name)
		case !c.single && s.fits == nil:
			t.Errorf("nothing says how much a message of %s holds", name)
		}
	}
	folders, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if _, ok := services[filepath.Base(folder)]; !ok {
			t.Errorf("%s is of no service", folder)
		}
	}
}

// People find every channel where they look for one.
func TestChannelsAreDocumented(t *testing.T) {
	for _, page := range []string{"README.md", "docs/receivers.md"} {
		text, err := os.ReadFile("../../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range channels {
			if scheme, _, _ := strings.Cut(c.example, ":"); !strings.Contains(string(text), "`"+scheme+":") {
				t.Errorf("%s does not have `%s:…`", page, scheme)
			}
		}
	}
}

// What channels post is what testdata has, and is posted where it should be. An Event Grid gets what webhooks do.
func TestPayloads(t *testing.T) {
	for name, s := range services {
		t.Run(name, func(t *testing.T) {
			golden := func(file string, body []byte) {
				notifytest.Golden(t, *update, filepath.Join(name, file), body)
			}
			for file, a := range notifytest.Alerts() {
				body := s.posted(t, func(n notify.Notifier) error { return n.Notify(t.Context(), a) })
				switch channel, _, _ := strings.Cut(name, " "); {
				case channel == "alertmanager": // depends on the time: see its package
				case channel == "eventgrid":
					if want, err := webhook.Encode(a, wording.Style{}); err != nil || string(body) != string(want) {
						t.Errorf("%s, want %s, %v", body, want, err)
					}
				case channel == name: // the others are variants of it
					golden(file, body)
				}
			}
			if name == "slack" {
				golden("storm", s.posted(t, func(n notify.Notifier) error { return n.Notify(t.Context(), storm()...) }))
			}
		})
	}
}

// What a service documents of its answers is understood.
func TestAnswers(t *testing.T) {
	for name, s := range services {
		t.Run(name, func(t *testing.T) {
			var a answer
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if a.retryAfter != "" {
					w.Header().Set("Retry-After", a.retryAfter)
				}
				w.WriteHeader(a.code)
				_, _ = io.WriteString(w, a.body)
			}))
			defer srv.Close()
			n := s.open(t, srv.URL)
			for _, a = range s.answers {
				err := n.Notify(t.Context(), notifytest.Alert(1))
				if (err == nil) != a.taken {
					t.Errorf("%d %s: got %v, want taken: %v", a.code, a.body, err, a.taken)
				}
				if err == nil {
					continue
				}
				if e := asError(t, err); e.Refused != a.refused || e.RetryAfter != a.wait || e.Untaken != a.untaken() {
					t.Errorf("%d %s: got Refused %v, RetryAfter %v, Untaken %v; want %v, %v, %v: %v",
						a.code, a.body, e.Refused, e.RetryAfter, e.Untaken, a.refused, a.wait, a.untaken(), err)
				}
			}
		})
	}
}

// Without a token nothing is sent, and the alert is not refused.
func TestNoToken(t *testing.T) {
	why := errors.New("no token for Event Grid")
	n := start(t, "eventgrid+https://topic.example.com", Options{EventGridToken: func(context.Context) (string, error) { return "", why }})
	if e := notify.AsError(n.Notify(t.Context(), notifytest.Alert(1))); !errors.Is(e, why) || !e.Untaken || e.Refused {
		t.Errorf("got %+v", e)
	}
}

// storm is what the docs show: many ovens that get too hot at once, and two that are normal again.
func storm() []notify.Alert {
	var alerts []notify.Alert
	for i := range 26 {
		a := notifytest.Sustained()
		a.Device, a.ID = fmt.Sprintf("oven-%d", i+1), fmt.Sprint(a.ID, "/", i)
		a.Title, a.Unit, a.Temperature = "Oven too hot", "°C", 80+float64(i*37%90)/10
		if i >= 24 {
			a = notifytest.Resolved(a)
		}
		a.Shown = notify.Shown("").With("site", []string{"berlin", "hamburg"}[i%2])
		alerts = append(alerts, a)
	}
	return alerts
}
