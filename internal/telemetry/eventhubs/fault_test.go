package eventhubs_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"alertworker/internal/records"
	"alertworker/internal/telemetry"
)

// A source says why the hub does not answer, since when, and what to do, until it answers again.
func TestFault(t *testing.T) {
	t.Parallel()
	h := newHub(t, 2)
	config := h.config()
	config.Records = &records.Memory{}
	s := h.source(t, config)
	if f := s.Stats().Hub; f != (telemetry.Fault{}) {
		t.Fatalf("%+v before anything was asked", f)
	}
	h.RefuseClaims(1<<30, 401)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx, func(ctx context.Context, p telemetry.Partition) error { _, err := p.Receive(ctx); return err })
	}()
	defer func() {
		stop()
		<-done
	}()
	until := func(what string, is func(telemetry.SourceStats) bool) telemetry.SourceStats {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			stats := s.Stats()
			if is(stats) {
				return stats
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, stats)
			}
		}
	}
	first := until("refused", func(stats telemetry.SourceStats) bool { return stats.Hub.Err != nil }).Hub
	if !first.Refused || !strings.Contains(first.Err.Error(), "check the key's name and the key") {
		t.Errorf("%+v", first)
	}
	later := until("refused again", func(stats telemetry.SourceStats) bool { return stats.Hub.Err != nil && stats.Hub.Err != first.Err }).Hub
	if !later.Since.Equal(first.Since) {
		t.Errorf("since %v, then since %v", first.Since, later.Since)
	}
	h.RefuseClaims(0, 0)
	until("read", func(stats telemetry.SourceStats) bool { return stats.Reading == 2 && stats.Hub.Err == nil })
}
