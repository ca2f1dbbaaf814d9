package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/notify"
	"alertworker/internal/ops/metrics"
	"alertworker/internal/ops/metrics/metricstest"
)

func TestNotifyResults(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadlineCause(t.Context(), time.Unix(0, 0), errors.New("the receiver did not answer"))
	defer cancel()
	cut := &notify.Error{Err: errors.New("cut short")}

	for _, c := range []struct {
		ctx            context.Context
		answer         error
		result, reason string
	}{
		{t.Context(), nil, "delivered", "none"},
		{ended, nil, "delivered", "none"},
		{t.Context(), &notify.Error{Refused: true, Untaken: true, Err: metricstest.ErrBroken}, "refused", "none"},
		{t.Context(), &notify.Error{Untaken: true, Err: metricstest.ErrBroken}, "not_taken", "other"},
		{t.Context(), &notify.Error{Untaken: true, RetryAfter: time.Second, Err: metricstest.ErrBroken}, "not_taken", "other"},
		{t.Context(), &notify.Error{RetryAfter: time.Second, Err: metricstest.ErrBroken}, "unknown", "other"},
		{t.Context(), metricstest.ErrBroken, "unknown", "other"},
		{t.Context(), fmt.Errorf("wrapped: %w", &notify.Error{Untaken: true, Err: metricstest.ErrBroken}), "not_taken", "other"},
		{t.Context(), &notify.Error{Err: context.DeadlineExceeded}, "unknown", "timeout"},
		{late, cut, "unknown", "timeout"},
		{ended, cut, "unknown", "canceled"},
		{ended, &notify.Error{Untaken: true, Err: metricstest.ErrBroken}, "not_taken", "canceled"},
		{t.Context(), answered(401, 0), "not_taken", "unauthorized"},
		{t.Context(), answered(403, time.Second), "not_taken", "unauthorized"},
		{t.Context(), answered(404, 0), "not_taken", "not_found"},
		{t.Context(), answered(429, 0), "not_taken", "throttled"},
		{t.Context(), answered(429, time.Second), "not_taken", "throttled"},
		{t.Context(), answered(500, 0), "not_taken", "server_error"},
		{t.Context(), answered(503, time.Second), "not_taken", "server_error"},
		{t.Context(), answered(302, 0), "not_taken", "other"},
		{ended, answered(500, 0), "not_taken", "server_error"},
		{t.Context(), &notify.Error{Untaken: true, Err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}}, "not_taken", "other"},
		{t.Context(), &notify.Error{Untaken: true, Err: &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}}, "not_taken", "other"},
		{t.Context(), &notify.Error{Untaken: true, Err: &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}}, "not_taken", "timeout"},
		{t.Context(), &notify.Error{Err: &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}}, "unknown", "other"},
		{t.Context(), &notify.Error{Err: fmt.Errorf("post: %w", io.EOF)}, "unknown", "other"},
	} {
		m := metrics.New("")
		n := notify.Observe(&metricstest.Stub{Err: c.answer}, m.Receiver("hook"))
		if err := n.Notify(c.ctx, notify.Alert{}); err != c.answer {
			t.Errorf("got %v, want %v as it is", err, c.answer)
		}
		all := 0.0
		for _, s := range metricstest.Samples(t, m) {
			if s.Metric["__name__"] == "alertworker_notify_attempts_total" {
				all += float64(s.Value)
			}
		}
		if all != 1 {
			t.Errorf("%v: %v attempts were counted, want 1", c.answer, all)
		}
		expect(t, m, map[string]float64{
			fmt.Sprintf(`notify_attempts_total{reason=%q, receiver="hook", result=%q}`, c.reason, c.result): 1,
			fmt.Sprintf(`notify_duration_seconds_count{receiver="hook", result=%q}`, c.result):              1,
		})
	}
}

func answered(status int, retryAfter time.Duration) error {
	return &notify.Error{Untaken: true, Status: status, RetryAfter: retryAfter, Err: metricstest.ErrBroken}
}

// Attempts are timed alone; the delay counts from the hub, once, at success.
func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New("")
		r := &metricstest.Stub{Delay: 2 * time.Second, Err: metricstest.ErrBroken}
		n := notify.Observe(r, m.Receiver("hook"))
		a := notify.Alert{Enqueued: time.Now().Round(0)}
		_ = n.Notify(t.Context(), a)
		expect(t, m, map[string]float64{`delivery_delay_seconds_count{receiver="hook"}`: 0})
		r.Err = nil
		time.Sleep(40 * time.Second)
		_ = n.Notify(t.Context(), a)
		expect(t, m, map[string]float64{
			`notify_duration_seconds_sum{receiver="hook", result="unknown"}`:   2,
			`notify_duration_seconds_sum{receiver="hook", result="delivered"}`: 2,
			`delivery_delay_seconds_sum{receiver="hook"}`:                      44,
			`delivery_delay_seconds_count{receiver="hook"}`:                    1,
		})

		// A hub whose clock is ahead does not make it negative.
		_ = n.Notify(t.Context(), notify.Alert{Enqueued: time.Now().Add(time.Hour)})
		expect(t, m, map[string]float64{`delivery_delay_seconds_sum{receiver="hook"}`: 44})

		// What waited for the end of a window, as it should, is not late.
		_ = n.Notify(t.Context(), notify.Alert{Resolved: true, Enqueued: time.Now().Add(-time.Hour)})
		expect(t, m, map[string]float64{`delivery_delay_seconds_sum{receiver="hook"}`: 44, `delivery_delay_seconds_count{receiver="hook"}`: 2})
	})
}
