package deadletters_test

import (
	"strings"
	"testing"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/notify/deadletter"
	"alertworker/internal/notify/notifytest"
	"alertworker/internal/ops/deadletters"
)

// A list says of each alert which rule and level it is about, and whether it is resolved.
func TestRules(t *testing.T) {
	var all []deadletter.Letter
	for _, a := range []notify.Alert{notifytest.Alert(1), notifytest.Sustained(), notifytest.Resolved(notifytest.Sustained()), notifytest.Below()} {
		all = append(all, deadletter.Letter{ID: "id", Kind: deadletter.Undelivered, Receiver: "r", Reason: "refused", Alert: a})
	}
	var out strings.Builder
	if err := deadletters.WriteTable(&out, all, nil, true); err != nil {
		t.Fatal(err)
	}
	const want = `ID                                     STATE        TIME                  DEVICE               VALUE  RULE              RECEIVER                  REASON
id                                     undelivered  2026-03-01 12:00:00Z  device-1              91.5  temperature       r                         refused
id                                     undelivered  2026-03-01 12:00:00Z  device-7              91.5  hot/critical      r                         refused
id                                     undelivered  2026-03-01 12:10:00Z  device-7              64.5  hot/critical, recovery  r                         refused
id                                     undelivered  2026-03-01 12:00:00Z  cold-store-3           1.4  cold-chain        r                         refused
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// What is shown of an event is one line, also if it has no body or one that is not text.
func TestBodies(t *testing.T) {
	for _, test := range []struct {
		size int
		body string
		want string
	}{
		{0, "", "0 bytes: empty"},
		{3, "", "3 bytes: not text"},
		{7, "one\ntwo", "7 bytes: one two"},
		{900, strings.Repeat("x", 900), "900 bytes: " + strings.Repeat("x", 79) + "…"},
	} {
		var out strings.Builder
		l := deadletter.Letter{ID: "id", Kind: deadletter.Undecodable, Reason: "malformed", Event: &deadletter.Event{
			Device: "oven", Partition: "0", Enqueued: time.Unix(0, 0), Size: test.size, Body: test.body,
		}}
		if err := deadletters.WriteTable(&out, []deadletter.Letter{l}, nil, false); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); !strings.HasSuffix(got, test.want+"\n") {
			t.Errorf("%d bytes, %q: %q", test.size, test.body, got)
		}
	}
}
