package receivers_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"

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
	got, _ := ids(t, "log:", " https://Hooks.example.com/T0KEN?key=v ", "http://hooks.example.com:8080/", "http://[::1]:8080/", long)
	// They are keys of throttle records: these values must never change.
	want := []string{
		"log",
		"hooks.example.com-59693e3d",
		"hooks.example.com-091a2268",
		"--1-80228364",
		strings.Repeat("a", 63) + "-0e28c835",
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
		{"slack+https://hooks.slack.com/services/T0KEN/B/D", "hooks.slack.com-2"},
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

func TestSameReceiverHasOneID(t *testing.T) {
	for _, same := range [][]string{
		{"log:", "LOG:", " log:"},
		{"https://h.example.com/x", "https://h.example.com:443/x", "HTTPS://H.example.com/x", "https://me:password@h.example.com/x", "https://me:other@h.example.com/x"},
		{"http://h.example.com", "http://h.example.com/", "http://h.example.com:80/"},
	} {
		for _, u := range same[1:] {
			a, _ := ids(t, same[0])
			if b, _ := ids(t, u); a[0] != b[0] {
				t.Errorf("%s is %s, but %s is %s", same[0], a[0], u, b[0])
			}
		}
	}
	different, _ := ids(t, "https://h/x", "http://h/x", "https://h:8443/x", "https://h/y", "https://h/x?y", "https://h/x/", "https://h/X", "https://h/a%2Fb", "https://h/a/b")
	seen := make(map[string]bool)
	for _, n := range different {
		if seen[n] {
			t.Errorf("%s is two receivers", n)
		}
		seen[n] = true
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
		"entry 3 must be log: with nothing after",
		`entry 4 has the unknown scheme "ftp": must be https://…, teams+https://…, `,
		"entry 5 is not a URL",
		"entry 6 cannot be used: there is an @ after the host",
		"entry 7 has no scheme: must be https://…, teams+https://…, ",
		"entry 8 has an unknown scheme",
		"entry 9 is not a URL",
		"entry 11 is the same receiver as entry 10",
		"entry 12 is the same receiver as entry 1",
		"entry 13 cannot be used: a fragment",
		`entry 14 has the unknown scheme "opsgenie"`,
		"entry 15 has an unknown scheme",
		"entry 16 must be pagerduty:// and the routing key",
		"entry 17 has something other than name=… and level=…",
		"entry 18 has an invalid name: must be up to 63 letters",
		"entry 19 has more than one level=…",
		"entry 21 has the name of entry 20",
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
	rs, err := receivers.Open([]string{to.URL, "log:"}, receivers.Options{Log: zap.NewNop(), WebhookSecret: secret, Concurrency: 2})
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
	idForm   = regexp.MustCompile(`^[a-z0-9.-]{1,72}$`)
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
