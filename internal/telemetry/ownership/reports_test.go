package ownership_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/records"
	"alertworker/internal/telemetry/ownership"

	"go.uber.org/zap"
)

// Replicas see what the others report, as long as they live.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store records.Memory
		var b, verdict atomic.Value
		b.Store("I am b")
		verdict.Store("fine")
		sees := func(want string) {
			t.Helper()
			all, err := ownership.Reports(t.Context(), &store, scope, "a", expiry)
			if got := fmt.Sprintf("%s", all); got != want || err != nil {
				t.Errorf("a sees %s, %v, want %s", got, err, want)
			}
		}
		sees("[]")

		ctx, stop := context.WithCancel(t.Context())
		var members sync.WaitGroup
		for name, says := range map[string]func() []byte{
			"a": func() []byte { return []byte("I am a") },
			"b": func() []byte { return []byte(b.Load().(string)) },
		} {
			m := ownership.New(ownership.Config{Store: &store, Scope: scope, Owner: name, Interval: interval, Expiry: expiry, Logger: zap.NewNop(), Report: says, Verdict: func() string { return verdict.Load().(string) }})
			members.Go(func() { m.Run(ctx) })
		}
		time.Sleep(interval / 2)
		sees("[I am b]")
		b.Store("I am still b")
		time.Sleep(interval)
		sees("[I am b]")
		time.Sleep(4 * interval)
		sees("[I am b]") // nothing that others act on
		verdict.Store("impaired")
		time.Sleep(2 * interval)
		sees("[I am still b]")
		b.Store("I am b again")
		time.Sleep(time.Minute + interval*6/5)
		sees("[I am b again]")
		stop()
		members.Wait()
		sees("[]")
		if err := ownership.Beat(t.Context(), &store, scope, "d", false, []byte("I was d")); err != nil {
			t.Fatal(err)
		}
		sees("[I was d]")
		time.Sleep(2 * expiry)
		sees("[]")
	})
}
