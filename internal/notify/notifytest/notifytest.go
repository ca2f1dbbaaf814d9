// Package notifytest is the contract of [notify.Notifier] as a test suite, alerts of every kind, and
// servers that can misbehave. What channels over HTTP share is held in the tests of package receivers.
package notifytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"alertworker/internal/notify"
)

// Alert returns an ordinary alert, of which n makes id, device, sequence and
// token.
func Alert(n int) notify.Alert {
	at := time.Date(2026, 3, 1, 12, 0, 0, 250_000_000, time.UTC)
	return notify.Alert{
		ID:          fmt.Sprintf("ns/hub/0/%d/1772366400250", n),
		Source:      "/ns/hub",
		Device:      fmt.Sprintf("device-%d", n),
		Rule:        "temperature",
		Temperature: 91.5,
		Threshold:   80,
		Enqueued:    at,
		Partition:   "0",
		Sequence:    int64(n),
		Window:      time.Minute,
		Remember:    time.Minute,
		Token:       at.UnixMilli() + int64(n),
		Expires:     at.Add(20 * time.Second),
		Suppressed:  3,
		Replica:     "replica-a",
	}
}

// Run holds a notifier whose receiver is well to the contract. open returns a
// new one, and a function that says how many alerts its receiver has taken.
func Run(t *testing.T, open func(t *testing.T) (n notify.Notifier, taken func() int)) {
	t.Run("NilMeansTaken", func(t *testing.T) {
		n, taken := open(t)
		if err := n.Notify(t.Context(), Alert(1)); err != nil {
			t.Fatalf("Notify: %v", err)
		}

		if got := taken(); got != 1 {
			t.Fatalf("the receiver took %d alerts, want 1", got)
		}
	})

	t.Run("EveryKind", func(t *testing.T) {
		n, taken := open(t)
		all := Alerts()
		for name, a := range all {
			if err := n.Notify(t.Context(), a); err != nil {
				t.Errorf("%s: Notify: %v", name, err)
			}
		}

		if got := taken(); got != len(all) {
			t.Errorf("the receiver took %d alerts, want %d", got, len(all))
		}
	})

	t.Run("ContextOver", func(t *testing.T) {
		n, taken := open(t)
		why := errors.New("the reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		err := n.Notify(ctx, Alert(1))
		if err == nil {
			t.Fatal("Notify returned nil although its context was over")
		}

		if !errors.Is(err, why) {
			t.Errorf("error %q does not say why the context ended", err)
		}

		if !notify.AsError(err).Untaken {
			t.Errorf("Untaken is false although nothing can have been sent: %v", err)
		}

		if got := taken(); got != 0 {
			t.Errorf("the receiver took %d alerts, want 0", got)
		}
	})

	t.Run("Concurrent", func(t *testing.T) {
		const n = 32
		notifier, taken := open(t)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := notifier.Notify(t.Context(), Alert(i)); err != nil {
					t.Errorf("Notify: %v", err)
				}
			})
		}

		wg.Wait()
		if got := taken(); got != n {
			t.Errorf("the receiver took %d alerts, want %d", got, n)
		}
	})
}

// HoldsNoSecret checks what people print of an error and of its notifier.
func HoldsNoSecret(t *testing.T, secrets []string, n notify.Notifier, err error) {
	t.Helper()
	var printed bytes.Buffer
	for _, v := range []any{err, n} {
		fmt.Fprintf(&printed, "%v\n%+v\n%#v\n%s\n%q\n", v, v, v, v, v)
	}

	printChain(&printed, err)
	log := zap.New(
		zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&printed), zap.DebugLevel),
	)
	log.Error("notify", zap.Error(err), zap.Any("notifier", n), zap.Reflect("error", err))

	for _, s := range secrets {
		if strings.Contains(printed.String(), s) {
			t.Errorf("the secret %q is in\n%s", s, printed.String())
		}
	}
}

// printChain prints err and all that it wraps.
func printChain(w io.Writer, err error) {
	if err == nil {
		return
	}

	fmt.Fprintln(w, err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		printChain(w, e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			printChain(w, err)
		}
	}
}
