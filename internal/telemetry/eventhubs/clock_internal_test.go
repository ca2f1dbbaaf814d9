package eventhubs

import (
	"context"
	"strings"
	"testing"
	"time"
)

// A hub that refuses a key says what time it is, in its text.
func TestRefusalNamesTheClock(t *testing.T) {
	told := func(ahead time.Duration) string {
		return "InvalidSignature. TrackingId:a65_G11, SystemTracker:gateway7, Timestamp:" + time.Now().Add(ahead).UTC().Format("2006-01-02T15:04:05")
	}
	for name, test := range map[string]struct {
		text, want, no string
	}{
		"behind":       {told(20*time.Minute + time.Second), "; this machine's clock is 20 min behind", ""},
		"ahead":        {told(-20 * time.Minute), "; this machine's clock is 20 min ahead", ""},
		"right":        {told(0), "check the key's name", "clock is"},
		"says nothing": {"InvalidSignature", "check the key's name", "clock is"},
	} {
		got := new(Source).explain(context.Background(), endpoint{"ns", "hub"}, &statusError{401, test.text}).Error()
		if !strings.Contains(got, test.want) || test.no != "" && strings.Contains(got, test.no) {
			t.Errorf("%s: %q, want %q and not %q", name, got, test.want, test.no)
		}
	}
}
