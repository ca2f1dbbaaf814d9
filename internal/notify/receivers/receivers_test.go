package receivers_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"alertworker/internal/notify"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/notify/receivers"
	"alertworker/internal/notify/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ids(t *testing.T, urls ...string) (ids, names []string) {
	t.Helper()
	rs, err := receivers.Open(urls, receivers.Options{Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		ids, names = append(ids, r.ID), append(names, r.Name)
	}
	return ids, names
}

func TestIDs(t *testing.T) {
	long := "https://" + strings.Repeat("a", 200) + ".example.com/"
	got, _ := ids(t, "log:", " https://Hooks.example.com/T0KEN?key=v ", "http://hooks.example.com:8080/", "http://[::1]:8080/", long, "name=Ops https://a/", "name=other id=ops_2 https://a/")
	// They are keys of throttle records: these values must never change.
	want := []string{
		"log",
		"hooks.example.com-bc05b97b",
		"hooks.example.com-ca17e3a0",
		"--1-f6a77a68",
		strings.Repeat("a", 63) + "-7a0356c6",
		"Ops",
		"ops_2",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A name leads people to the setting.
func TestNames(t *testing.T) {
	long := "https://" + strings.Repeat("a", 200) + ".example.com:65535/"
	var urls, want []string
	for _, tt := range []struct{ url, name string }{
		{"log:", "log"},
		{"https://me:T0KEN@Hooks.example.com/T0KEN?key=T0KEN", "hooks.example.com"},
		{"https://hooks.example.com/other", "hooks.example.com-2"},
		{"https://hooks.example.com:443/third", "hooks.example.com:443"},
		{"http://hooks.example.com/", "hooks.example.com-3"},
		{"http://hooks.example.com-2/", "hooks.example.com-2-2"},
		{"http://[::1]:8080/", "[::1]:8080"},
		{"http://under_score.example/", "under-score.example"},
		{"slack+https://hooks.slack.com/services/T0KEN/B/C", "hooks.slack.com"},
		{"slack+https://hooks.slack.com/services/T0KEN/D/C", "hooks.slack.com-2"},
		{"pagerduty://0123456789abcdef0123456789abcdef", "pagerduty"},
		{"pagerduty://fedcba9876543210fedcba9876543210@events.eu.pagerduty.com", "pagerduty-2"},
		{"alertmanager+http://am:9093", "am:9093"},
		{"smtp://me:T0KEN@mail.example.com/?from=a@example.com&to=b@example.com", "mail.example.com"},
		{"smtps://mail.example.com:465/?from=a@example.com&to=c@example.com", "mail.example.com:465"},
		{"name=ops level=critical pagerduty://0123456789abcdef", "ops"},
		{" level=critical  name=Log-2\thttp://am:9093", "Log-2"},
		{long, strings.Repeat("a", 63) + ":65535"},
		{long + "x", strings.Repeat("a", 63) + ":65535-2"},
	} {
		urls, want = append(urls, tt.url), append(want, tt.name)
	}
	if _, got := ids(t, urls...); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// What is rotated, or added, makes no other receiver; and what differs otherwise does.
func TestIdentity(t *testing.T) {
	for _, same := range [][]string{
		{"log:", "LOG:", " log:"},
		{
			"https://h.example.com/x", "https://h.example.com:443/x", "HTTPS://H.example.com/x", "https://me:password@h.example.com/x",
			"https://me:other@h.example.com/x", "https://h.example.com/x?key=1", "webhook+https://h.example.com/x", "level=a secret=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw https://h.example.com/x",
		},
		{"http://h.example.com", "http://h.example.com/", "http://h.example.com:80/"},
		{"teams+https://p.westeurope.logic.azure.com/workflows/0/invoke?sig=a", "teams+https://p.westeurope.logic.azure.com/workflows/0/invoke?api-version=2&sig=b"},
		{"slack+https://hooks.slack.com/services/T/B/old", "slack+https://hooks.slack.com/services/T/B/new"},
		{"pagerduty://0123", "pagerduty://4567", "pagerduty://4567@events.pagerduty.com"},
		{"eventgrid+https://:a@t.westeurope-1.eventgrid.azure.net", "eventgrid+https://:b@t.westeurope-1.eventgrid.azure.net/", "eventgrid+https://t.westeurope-1.eventgrid.azure.net"},
		{"ntfy+https://:tk_a@ntfy.sh/ovens", "ntfy+https://:tk_b@ntfy.sh/ovens"},
		{"smtp://a:b@m.example.com/?from=x@y.de&to=a@y.de", "smtp://c:d@m.example.com:587/?to=a@y.de&to=b@y.de&from=x@y.de"},
		{"name=ops https://a/", "name=ops https://b/", "id=ops name=else https://b/"},
	} {
		for _, u := range same[1:] {
			a, _ := ids(t, same[0])
			if b, _ := ids(t, u); a[0] != b[0] {
				t.Errorf("%s is %s, but %s is %s", same[0], a[0], u, b[0])
			}
		}
	}
	different, _ := ids(t, "https://h/x", "http://h/x", "https://h:8443/x", "https://h/y", "https://h/x/", "https://h/X", "https://h/a%2Fb", "https://h/a/b",
		"teams+https://h/x", "slack+https://h/x/y", "ntfy+https://h/x", "alertmanager+https://h/x", "eventgrid+https://:k@h/x",
		"slack+https://hooks.slack.com/services/T/A/1", "slack+https://hooks.slack.com/services/T/B/1",
		"pagerduty://0123", "pagerduty://0123@events.eu.pagerduty.com", "smtp://h/?from=a@b.c&to=d@e.f", "smtps://h/?from=a@b.c&to=d@e.f", "smtp://h/?from=x@b.c&to=d@e.f")
	seen := make(map[string]bool)
	for _, n := range different {
		if seen[n] {
			t.Errorf("%s is two receivers", n)
		}
		seen[n] = true
	}
}

// Entries with one URL and different filters are one receiver, which gets what any of them wants.
func TestFilters(t *testing.T) {
	rs, err := receivers.Open([]string{
		"level=critical https://a/", "rule=cold|hot https://a/", "where=site:New%20York|berlin level=warning https://a/", "name=all https://a/",
	}, receivers.Options{Log: zap.NewNop()})
	if err != nil || len(rs) != 2 || len(rs[0].Filters) != 3 || len(rs[1].Filters) != 0 {
		t.Fatalf("%+v, %v", rs, err)
	}
	for _, test := range []struct {
		rule, level, site string
		want              bool
	}{
		{"door", "critical", "", true}, {"door", "warning", "", false}, {"door", "warning", "berlin", true}, {"door", "warning", "New York", true}, {"door", "info", "berlin", false},
		{"hot", "info", "", true}, {"cold", "", "", true}, {"door", "", "", true},
	} {
		property := func(name string) string { return map[string]string{"site": test.site}[name] }
		if got := rs[0].Filters.Want(test.rule, test.level, property); got != test.want {
			t.Errorf("%+v: got %v", test, got)
		}
		if !rs[1].Filters.Want(test.rule, test.level, property) {
			t.Errorf("%+v: without filters not", test)
		}
	}
	for _, bad := range []struct{ one, other, want string }{
		{"https://a/", "level=a https://a/", "entry 2 is the same receiver as entry 1"},
		{"level=a https://a/", "https://a/", "entry 2 is the same receiver as entry 1"},
		{"level=a https://a/", "level=a https://a/", "entry 2 is the same receiver as entry 1"},
		{"level=a https://a/", "level=b batch=2 https://a/", "entry 2 is the same receiver as entry 1"},
		{"level=a https://a/?key=1", "level=b https://a/?key=2", "entry 2 is the same receiver as entry 1"},
		{"name=x https://a/", "name=x https://b/", "entry 2 is the same receiver as entry 1"},
		{"id=x name=a https://a/", "id=x name=b https://b/", "entry 2 is the same receiver as entry 1"},
		{"id=x name=a https://a/", "id=y name=a https://b/", "entry 2 is the same receiver as entry 1"},
		{"id=x https://a/", "id=X https://b/", "entry 2 is the same receiver as entry 1"},
	} {
		if _, err := receivers.Open([]string{bad.one, bad.other}, receivers.Options{Log: zap.NewNop()}); err == nil || !strings.HasPrefix(err.Error(), bad.want) {
			t.Errorf("%s and %s: %v", bad.one, bad.other, err)
		}
	}
}

// What a service would accept and show nobody, or everybody could read, is refused.
func TestWrongChannel(t *testing.T) {
	for entry, want := range map[string]string{
		"https://hooks.slack.com/services/S3CRET":                          "did you mean slack+https://…?",
		"https://prod-01.westeurope.logic.azure.com:443/workflows/S3CRET":  "did you mean teams+https://…?; for a logic app that takes CloudEvents: webhook+https://…",
		"https://default0.0.environment.api.powerplatform.com/S3CRET":      "did you mean teams+https://…?",
		"https://prod-12.usgovtexas.logic.azure.us/workflows/S3CRET":       "did you mean teams+https://…?",
		"https://prod-12.chinaeast2.logic.azure.cn/workflows/S3CRET":       "did you mean teams+https://…?",
		"https://d.environment.api.gov.powerplatform.microsoft.us/S3CRET":  "did you mean teams+https://…?",
		"https://d.environment.api.high.powerplatform.microsoft.us/S3CRET": "did you mean teams+https://…?",
		"https://d.environment.api.appsplatform.us/S3CRET":                 "did you mean teams+https://…?",
		"https://d.api.powerplatform.partner.microsoftonline.cn/S3CRET":    "did you mean teams+https://…?",
		"slack+https://prod-1.westeurope.logic.azure.com/workflows/S3CRET": "would get messages that nobody sees: did you mean teams+https://…?",
		"teams+https://hooks.slack.com/services/S3CRET":                    "would get messages that nobody sees: did you mean slack+https://…?",
		"https://t.usgovvirginia-1.eventgrid.azure.us/api/events":          "did you mean eventgrid+https://…?",
		"https://t.chinaeast2-1.eventgrid.azure.cn/api/events":             "did you mean eventgrid+https://…?",
		"slack+https://hooks.slack.com/triggers/S3CRET":                    "is the trigger of a Slack workflow",
		"https://hooks.slack.com/workflows/S3CRET":                         "is the trigger of a Slack workflow",
		"slack+http://127.0.0.1/triggers/S3CRET":                           "is the trigger of a Slack workflow",
		"https://ntfy.sh/S3CRET":                                           "did you mean ntfy+https://…?",
		"http://ntfy.sh/S3CRET":                                            "did you mean ntfy+https://…?",
		"https://events.pagerduty.com/v2/enqueue":                          "did you mean pagerduty://ROUTING_KEY?",
		"https://t.westeurope-1.eventgrid.azure.net/api/events":            "did you mean eventgrid+https://…?",
		"slack+http://hooks.slack.com/services/S3CRET":                     "would be sent in clear text: did you mean slack+https://…?",
		"eventgrid+http://example.com":                                     "would send the identity's token in clear text",
		"secret=whsec_S3CRET https://a/":                                   "has an invalid secret: must be whsec_",
		"secret=| https://a/":                                              "has an invalid secret: must be one secret, or two separated by |",
		"secret=/no/such/S3CRET https://a/":                                "has an invalid secret: must be the secret itself, no longer the path of its file: put the entries into a file, which NOTIFY_URLS_FILE names",
		"secret=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw log:":               "only webhooks are signed",
		"header=X-Key:S3CRET pagerduty://S3CRET":                           "has header=…, but is not sent to a web address of yours",
		"header=Authorization:S3CRET https://me:S3CRET@a/":                 "has the header Authorization and a user in its URL",
		"header=Host:S3CRET https://a/":                                    "has an invalid header: must be other headers: Host is set by the worker",
		"header=X-Key:S3CRET%0Ax https://a/":                               "has an invalid header: must be 1 to 8 HTTP headers",
		"header=X-Key:a|x-key:S3CRET https://a/":                           "has an invalid header: must be headers of different names",
		"header=S3CRET https://a/":                                         "has an invalid header: must be 1 to 8 HTTP headers",
		"batch=2 pagerduty://S3CRET":                                       "gets one alert in a message",
		"batch=0 https://a/":                                               "has an invalid batch: must be 1 to 100",
		"pagerduty+https://S3CRET":                                         "begins with no known scheme: must be ",
		"slack://hooks.slack.com/S3CRET":                                   "slack+https://…",
		"rate=1/s https://a/":                                              "has something other than id=",
		"where=site https://a/":                                            "has an invalid where: must be an application property and",
		"smtp://me:S3CRET@m.example.com/?from=a@b.c&to=d@e.f&auth=oauth2":  "must have the mailbox as a user, without a password",
	} {
		_, err := receivers.Open([]string{entry}, receivers.Options{Log: zap.NewNop()})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "S3CRET") {
			t.Errorf("%s: got %v, want %s", entry, err, want)
		}
	}
	for _, entry := range []string{
		"webhook+https://prod-01.westeurope.logic.azure.com/workflows/1", "teams+https://prod-12.usgovtexas.logic.azure.us/workflows/1",
		"webhook+https://hooks.slack.com/triggers/1", "slack+http://127.0.0.1/x", "eventgrid+http://localhost:1", "ntfy+https://ntfy.sh/x",
		"smtp://me%40b.c@m.example.com/?from=a@b.c&to=d@e.f&auth=oauth2",
	} {
		if _, err := receivers.Open([]string{entry}, receivers.Options{Log: zap.NewNop()}); err != nil {
			t.Errorf("%s: %v", entry, err)
		}
	}
}

// A service's documented rate holds; and only what people read, and what takes an
// array anyway, gets many alerts in one message without being asked.
func TestLimits(t *testing.T) {
	for entry, want := range map[string]notify.Limits{
		"https://a/":                                     {},
		"batch=20 https://a/":                            {Batch: 20},
		"slack+https://a/x/y":                            {People: true, Batch: 100, Rate: notify.Rate{Every: time.Second}},
		"batch=1 slack+https://a/x/y":                    {People: true, Batch: 1, Rate: notify.Rate{Every: time.Second}},
		"ntfy+https://ntfy.sh/x":                         {People: true, Batch: 100, Rate: notify.Rate{Burst: 60, Every: 5 * time.Second}},
		"ntfy+https://ntfy.example.com/x":                {People: true, Batch: 100},
		"alertmanager+http://a:9093":                     {Batch: 100, Forgets: true},
		"pagerduty://0123":                               {Rate: notify.Rate{Burst: 20, Every: 600 * time.Millisecond}},
		"smtp://smtp.office365.com/?from=a@b.c&to=d@e.f": {People: true, Batch: 100, Places: 3, Rate: notify.Rate{Burst: 5, Every: 2400 * time.Millisecond}},
		"smtp://m.example.com/?from=a@b.c&to=d@e.f":      {People: true, Batch: 100, Places: 3},
	} {
		rs, err := receivers.Open([]string{entry}, receivers.Options{Log: zap.NewNop()})
		if err != nil || rs[0].Limits != want {
			t.Errorf("%s: got %+v, %v; want %+v", entry, rs, err, want)
		}
	}
}

func TestAllErrorsAtOnceAndNoSecrets(t *testing.T) {
	_, err := receivers.Open([]string{
		"log:",
		"",
		"log:file",
		"ftp://me:S3CRET@files.example.com/S3CRET?S3CRET",
		"https://me:S3CRET/x@hooks.example.com/",
		"https://me:12/S3CRET@hooks.example.com/",
		"hooks.example.com/S3CRET",
		"S3CRET:S3CRET@hooks.example.com/",
		"https://hooks.example.com/%zzS3CRET",
		"https://me:S3CRET@hooks.example.com/S3CRET",
		"https://you:S3CRET@hooks.example.com/S3CRET",
		"log:",
		"https://hooks.example.com/#S3CRET",
		"opsgenie://S3CRET",
		"a-key-or-a-token-S3CRET://hooks.example.com/",
		"pagerduty://S3CRET/S3CRET",
		"token=S3CRET https://hooks.example.com/1",
		"name=S3CRET@ https://hooks.example.com/2",
		"level=a level=S3CRET log:",
		"name=ops https://hooks.example.com/3",
		"name=ops https://hooks.example.com/4",
		"teams+https://hooks.example.com/#S3CRET",
		"ntfy+https://hooks.example.com/?S3CRET",
		"eventgrid+https://S3CRET@hooks.example.com",
	}, receivers.Options{Log: zap.NewNop()})
	if err == nil {
		t.Fatal("Open returned nil")
	}
	text := err.Error()
	for _, want := range []string{
		"entry 2 is empty",
		"entry 3 cannot be used: must be log: with nothing after",
		"entry 4 begins with no known scheme: must be https://…, teams+https://…, ",
		"entry 5 is not a URL",
		"entry 6 cannot be used: there is an @ after the host",
		"entry 7 begins with no known scheme: must be https://…, teams+https://…, ",
		"entry 8 begins with no known scheme",
		"entry 9 is not a URL",
		"entry 11 is the same receiver as entry 10",
		"entry 12 is the same receiver as entry 1",
		"entry 13 cannot be used: a fragment",
		"entry 14 begins with no known scheme",
		"entry 15 begins with no known scheme",
		"entry 16 cannot be used: must be pagerduty:// and the routing key",
		"entry 17 has something other than id=, name=, level=, rule=, where=, batch=, secret= and header= in front",
		"entry 18 has an invalid name: must be up to 63 letters",
		"entry 19 has more than one level=…",
		"entry 21 is the same receiver as entry 20, by its URL, name or id",
		"entry 22 cannot be used: a fragment",
		"entry 23 cannot be used: must end in the name of a topic",
		"entry 24 cannot be used: must have the access key as a password",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(strings.ToUpper(text), "S3CRET") || strings.Contains(text, "me:12") || strings.Contains(text, "example.com") {
		t.Error("a secret is there")
	}
	if strings.Contains(text, "\n") || strings.Count(text, "; entry ") != 20 {
		t.Error("it is not one line with 21 problems")
	}
	if t.Failed() {
		t.Log(text)
	}
	if _, err := receivers.Open(nil, receivers.Options{}); err == nil || !strings.Contains(err.Error(), "no receiver") {
		t.Errorf("no URLs: got %v", err)
	}
	if _, err := receivers.Open(make([]string, 33), receivers.Options{}); err == nil || !strings.Contains(err.Error(), "at most 32") {
		t.Errorf("33 URLs: got %v", err)
	}
}

// What Open returns delivers, signed.
func TestDelivers(t *testing.T) {
	const text = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secret, err := webhook.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	to := notifytest.NewReceiver(t, secret)
	rs, err := receivers.Open([]string{to.URL, "log:"}, receivers.Options{Log: zap.NewNop(), WebhookSecrets: []webhook.Secret{secret}, Concurrency: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		t.Cleanup(r.Close)
		if err := r.Notifier.Notify(t.Context(), notifytest.Alert(1)); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
	if got := to.Taken(); len(got) != 1 || got[0] != notifytest.Alert(1) {
		t.Errorf("taken: %+v", got)
	}
}

var (
	idForm   = regexp.MustCompile(`^[A-Za-z0-9._-]{1,72}$`)
	nameForm = regexp.MustCompile(`^[A-Za-z0-9._:\[\]-]{1,76}$`)
)

func FuzzOpen(f *testing.F) {
	for _, s := range []string{"log:", "https://me:password@host.example.com:8443/p/T0KEN?k=v", "http://[::1%25eth0]:80/", "http://host:99999", "//host/path", "a b", "http://%41/", "https://user:1/2@host"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		rs, err := receivers.Open([]string{raw}, receivers.Options{Log: zap.NewNop()})
		if err != nil {
			return
		}
		if r := rs[0]; !idForm.MatchString(r.ID) || !nameForm.MatchString(r.Name) {
			t.Errorf("%q has the id %q and the name %q", raw, r.ID, r.Name)
		}
		if _, err := receivers.Open([]string{raw, raw}, receivers.Options{Log: zap.NewNop()}); err == nil {
			t.Errorf("%q twice is no error", raw)
		}
	})
}

// A receiver gets the headers of its entry, and repeats none of them in an error.
func TestHeaders(t *testing.T) {
	var got http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		http.Error(w, "who is "+r.Header.Get("Authorization")+"?", http.StatusUnauthorized)
	}))
	defer s.Close()
	rs, err := receivers.Open([]string{"header=authorization:Bearer%20t0k3n|X-Scope-OrgID:prod " + s.URL + "/x"}, receivers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rs[0].Close)
	err = rs[0].Notifier.Notify(t.Context(), notifytest.Alert(1))
	if got.Get("Authorization") != "Bearer t0k3n" || got.Get("X-Scope-OrgID") != "prod" || got.Get("Content-Type") == "" {
		t.Errorf("it got %v", got)
	}
	if err == nil || strings.Contains(err.Error(), "t0k3n") {
		t.Errorf("the error is %v", err)
	}
}

// A semicolon does not separate entries: the second one would be lost in the first one's address.
func TestSemicolon(t *testing.T) {
	for entry, refused := range map[string]bool{
		"https://a.example;https://b.example": true, "https://a.example/hook; slack+https://hooks.slack.com/services/T/B/X": true,
		"pagerduty://0123456789abcdef0123456789abcdef;log:": true, "log:;name=ops https://a.example/": true,
		"https://a.example/hook?x=1;y=2": false, "https://a.example/x;version=2/a:b": false,
	} {
		_, err := receivers.Parse(entry)
		if isRefused := err != nil && strings.Contains(err.Error(), "separate entries by commas or line breaks"); isRefused != refused {
			t.Errorf("%s: %v", entry, err)
		}
	}
}

// The dead letters of a receiver that is gone go to one that is given its id, whatever that was made of.
func TestAnyIDCanBeGiven(t *testing.T) {
	for _, entry := range []string{
		"log:", "pagerduty://0123456789abcdef0123456789abcdef", "https://[2001:db8::1]:8443/hook", "name=ops https://a/",
		"teams+https://default0123456789abcdef0123456789abcd.ef.environment.api.powerplatform.com/workflows/1",
	} {
		rs, err := receivers.Open([]string{entry}, receivers.Options{Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		again, err := receivers.Open([]string{"id=" + rs[0].ID + " https://b/"}, receivers.Options{Log: zap.NewNop()})
		if err != nil || again[0].ID != rs[0].ID {
			t.Errorf("%s: %+v, %v; want the id %s", entry, again, err, rs[0].ID)
		}
	}
}
