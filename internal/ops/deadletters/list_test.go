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
	if err := deadletters.WriteTable(&out, all, nil, time.UTC, true); err != nil {
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
	out.Reset()
	if err := deadletters.WriteTable(&out, all[:1], nil, time.FixedZone("CET", 3600), false); err != nil || !strings.Contains(out.String(), "  2026-03-01 13:00:00+01:00  ") {
		t.Errorf("in another zone it is %s", out.String())
	}
}
