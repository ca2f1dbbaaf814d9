package config_test

import (
	"strings"
	"testing"
	"time"

	"alertworker/internal/config"
)

func TestParseSchedule(t *testing.T) {
	from := time.Date(2026, 2, 27, 9, 30, 0, 0, time.UTC)
	tests := []struct {
		expression string
		want       time.Time
	}{
		{"CRON_TZ=UTC 0 8 * * *", time.Date(2026, 2, 28, 8, 0, 0, 0, time.UTC)},
		{"CRON_TZ=Europe/Berlin 0 8 * * 1-5", time.Date(2026, 3, 2, 7, 0, 0, 0, time.UTC)},
		{"@every 90m", time.Date(2026, 2, 27, 11, 0, 0, 0, time.UTC)},
		{"CRON_TZ=UTC 0 0 30 2 *", time.Time{}}, // never
	}
	for _, test := range tests {
		s, err := config.ParseSchedule(test.expression)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := s.Next(from); !got.Equal(test.want) {
			t.Errorf("%q after %v: %v, want %v", test.expression, from, got, test.want)
		}
	}
	for _, bad := range []string{"", "daily", "0 8 * *", "61 8 * * *", "0 0 8 * * *", "CRON_TZ=Nowhere/Land 0 8 * * *", "CRON_TZ=UTC", "TZ="} {
		if _, err := config.ParseSchedule(bad); err == nil || !strings.Contains(err.Error(), "0 8 * * *") {
			t.Errorf("%q: %v, want an error with an example", bad, err)
		}
	}
}

// Whatever somebody sets, reading it ends well, and a schedule goes forward.
func FuzzParseSchedule(f *testing.F) {
	f.Add("CRON_TZ=UTC 0 8 * * 1-5")
	f.Add("@every 1h30m")
	f.Add("*/5 1,2 ? JAN-MAR SUN")
	f.Fuzz(func(t *testing.T, expression string) {
		s, err := config.ParseSchedule(expression)
		if err != nil {
			return
		}
		from := time.Date(2026, 2, 27, 9, 30, 0, 0, time.UTC)
		if next := s.Next(from); !next.IsZero() && !next.After(from) {
			t.Errorf("%q after %v: %v", expression, from, next)
		}
	})
}
