package eventhubs

import (
	"context"
	"strings"
	"testing"
	"time"
)

// A hub that refuses a key says what time it is, in its text. If it does not, the stores may have shown it.
func TestRefusalNamesTheClock(t *testing.T) {
	told := func(ahead time.Duration) string {
		return "InvalidSignature. TrackingId:a65_G11, SystemTracker:gateway7, Timestamp:" + time.Now().Add(ahead).UTC().Format("2006-01-02T15:04:05")
	}
	for name, test := range map[string]struct {
		text     string
		stores   time.Duration // their clock is ahead by so much; 0: nobody knows
		want, no string
	}{
		"behind":            {told(20*time.Minute + time.Second), 0, "; this machine's clock is 20 min behind", ""},
		"ahead":             {told(-20 * time.Minute), 0, "; this machine's clock is 20 min ahead", ""},
		"right":             {told(0), 20 * time.Minute, "check the key's name", "clock is"},
		"says nothing":      {"InvalidSignature", 0, "check the key's name", "clock is"},
		"the stores say it": {"InvalidSignature", 20 * time.Minute, "this machine's clock is 20 min behind, by the stores' clock", ""},
	} {
		s := &Source{config: Config{Clock: func() (time.Duration, bool) { return test.stores, test.stores != 0 }}}
		got := s.explain(context.Background(), endpoint{"ns", "hub"}, &statusError{401, test.text}).Error()
		if !strings.Contains(got, test.want) || test.no != "" && strings.Contains(got, test.no) {
			t.Errorf("%s: %q, want %q and not %q", name, got, test.want, test.no)
		}
	}
}
